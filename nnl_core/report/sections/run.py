"""Sections about the run as a whole: how it went, what it was made with, and where."""

from __future__ import annotations

from nnl_core.report.curves import draw_curves, each_alone, panels_of
from nnl_core.report.parts import ReportSection, folded, side_by_side, table
from nnl_core.report.run import ReportedRun
from nnl_core.training.runs import flatten


def summary(run: ReportedRun) -> ReportSection:
    """Say how the run ended, and what it came to."""
    about = run.summary
    planned = about.planned_epochs
    facts: list[tuple[str, object]] = [
        ("state", about.state),
        ("problem", about.problem),
        ("stopped", about.stopped),
        ("began", moment(about.started)),
        ("took", duration(about.seconds)),
        ("epochs", f"{about.epochs} of {planned}" if planned else about.epochs),
        ("project", about.description.get("project")),
        ("folder", str(about.folder)),
    ]
    rows = []
    for name, value in about.metrics.items():
        best = about.best.get(name)
        rows.append((name, value, *((best.value, best.epoch) if best else (None, None))))
    parts = [table(("run", ""), [fact for fact in facts if fact[1] not in (None, "")])]
    if rows:
        parts.append(table(("metric", "last", "best", "in epoch"), rows))
    return ReportSection("Summary", parts)


def settings(run: ReportedRun) -> ReportSection:
    """Show the project file as it was, with what the command line replaced."""
    rows = [(key, value) for key, value in flatten(run.summary.settings)]
    rows = [(key, v if isinstance(v, int | float | str) else repr(v)) for key, v in rows]
    return ReportSection("Settings", [folded(f"{len(rows)} settings", table(("key", ""), rows))])


def environment(run: ReportedRun) -> ReportSection:
    """Show versions and machine."""
    about = run.summary.description
    rows: list[tuple[str, object]] = []
    for key in ("versions", "environment"):
        found = about.get(key)
        rows += flatten(found) if isinstance(found, dict) else ()
    plugins = about.get("plugins")
    if isinstance(plugins, dict):
        named = (f"{name} {version}".strip() for name, version in plugins.items())
        rows += [("backend", about.get("backend")), ("plugins", ", ".join(named))]
    rows = [(key, str(value)) for key, value in rows if value not in (None, {})]
    return ReportSection("Environment", [folded("versions and machine", table(("", ""), rows))])


def learning_curves(run: ReportedRun) -> ReportSection | None:
    """Draw all metrics over the epochs, and give the numbers."""
    history = run.summary.history
    if not history:
        return None
    names = list(dict.fromkeys(name for metrics in history for name in metrics))
    rows = [
        (epoch, *(metrics.get(name) for name in names)) for epoch, metrics in enumerate(history, 1)
    ]
    groups = each_alone([run.summary])
    figures = [draw_curves(groups, [kind]) for kind in panels_of(groups)]
    numbers = folded("the numbers", table(("epoch", *names), rows))
    return ReportSection("Learning curves", [side_by_side(figures), numbers])


def moment(time: str) -> str:
    """Return a time in UTC as people write it."""
    return time.replace("T", " ").replace("+00:00", " UTC")


def duration(seconds: float | None) -> str:
    """Return a number of seconds as people say it."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
