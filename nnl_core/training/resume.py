"""Going on with a run whose process has ended: what must be as it was, and what may differ."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nnl_core import __version__
from nnl_core.errors import FileError, TrainingError
from nnl_core.hooks.selection import Project, read_project
from nnl_core.settings import ProjectSettings, check, override
from nnl_core.training.checkpoint_files import FOLDER, Checkpoints
from nnl_core.training.files import write_json

if TYPE_CHECKING:
    from nnl_core.session import Session
    from nnl_core.training.run_folder import BegunRun
    from nnl_core.training.trainer import Trainer

Report = Callable[[str], None]

# These may differ between a run's settings and those that it goes on with; the first ones may only
# grow.
GROWING = ("train.epochs", "train.steps")
FREE = (*GROWING, "train.folder", "checkpoints")
MISSING = object()


def project_to_go_on_with(run: BegunRun, overrides: Sequence[str], report: Report) -> Project:
    """Return a run's own project: its settings, with what may differ as it is said now.

    Raises TrainingError naming what else differs. ``report`` hears of sources that have changed:
    the run goes on with its own.
    """
    before = check(run.description["settings"], f"{run.folder / 'run.json'}")
    said = [*run.description.get("overrides", ()), *overrides]
    where, table = "run.json", run.description["settings"]
    if run.project_file.is_file():
        project = read_project(run.project_file)
        where, table = project.where, project.table
    now = check(override(table, said), where)
    _compare(before, now, where)
    _report_changed_sources(run, report)
    merged: dict[str, Any] = override(run.description["settings"], ())
    merged["checkpoints"] = now.checkpoints.model_dump(exclude_none=True)
    train: dict[str, Any] = dict(merged.get("train", {}))
    for key in ("epochs", "steps"):
        if key in now.train.model_fields_set and getattr(now.train, key) is not None:
            train[key] = getattr(now.train, key)
    merged["train"] = train
    merged.setdefault("backend", run.description["backend"])
    return run.as_project(merged)


def _compare(before: ProjectSettings, now: ProjectSettings, where: str) -> None:
    old, new = (dict(_flat(settings.model_dump(mode="json"))) for settings in (before, now))
    for key in dict.fromkeys([*old, *new]):
        was, is_now = old.get(key, MISSING), new.get(key, MISSING)
        if was == is_now:
            continue
        if key in GROWING and isinstance(was, int) and isinstance(is_now, int):
            if is_now < was:
                raise TrainingError(
                    f"{where}: {key} is {is_now}, and was {was} when the run began; it may only "
                    "grow"
                )
        elif not any(key == free or key.startswith(f"{free}.") for free in FREE):
            raise TrainingError(
                f"{where}: {key} is {_said(is_now)}, and was {_said(was)} when the run began; put "
                "it back, or begin a new run"
            )


def _said(value: object) -> str:
    return "not there" if value is MISSING else repr(value)


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _report_changed_sources(run: BegunRun, report: Report) -> None:
    source, home = run.folder / "source", run.project_file.parent
    if not run.project_file.is_file():
        return
    for copy in sorted(path for path in source.rglob("*.py") if path.is_file()):
        name = copy.relative_to(source)
        if not (home / name).is_file() or (home / name).read_bytes() != copy.read_bytes():
            report(f"{name} has changed since the run began, which goes on with what it was")


def check_surroundings(run: BegunRun, session: Session, report: Report) -> None:
    """Raise TrainingError where a plugin is missing that was active when the run began.

    ``report`` hears of other versions than those that it began with.
    """
    active = {e.name: e.version for e in session.manager.entries if e.state == "active"}
    for name, version in run.description["plugins"].items():
        if name not in active:
            raise TrainingError(
                f"the run began with plugin {name!r} {version}, which is not active now; name it "
                f"with -p {name}"
            )
    before = {**run.description["versions"], **run.description["plugins"]}
    now = {
        **active,
        "nnl-core": __version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    for name, version in before.items():
        if now.get(name) != version:
            report(
                f"the run began with {name} {version}, and goes on with {now.get(name)}: its "
                "results may differ in their last digits"
            )


def go_on(trainer: Trainer, run: BegunRun, step: int | None, report: Report) -> None:
    """Bring a trainer, and the run's folder, to where a checkpoint was made: the newest, or one.

    What the run did after it is forgotten, as it will be done again. Raises `FileError` where there
    is no such checkpoint or it is damaged, TrainingError where there is nothing left to do.
    """
    files = Checkpoints(run.folder / FOLDER)
    files.sweep()
    if step is None:
        checkpoint = files.newest(report)
    else:
        try:
            checkpoint = files.load(step)
        except FileError as error:
            before = [known for known in files.steps() if known < step]
            if not before or step not in files.steps():
                raise
            raise FileError(
                f"{error}; the one before it can be used: --checkpoint {before[-1]}"
            ) from error
    trainer.restore(checkpoint)
    result = run.folder / "result.json"
    if not trainer.has_steps_left and result.exists():
        raise TrainingError(
            f"{run.folder} has finished, after {trainer.state.epoch} epochs; "
            f"--set train.epochs={2 * trainer.state.epoch} lets it go on"
        )
    for name in ("result.json", "failure.json"):
        (run.folder / name).unlink(missing_ok=True)
    files.remove(known for known in files.steps() if known > checkpoint.state.step)


def note_settings(run: BegunRun, project: Project, overrides: Sequence[str]) -> None:
    """Write the settings that a run goes on with into ``run.json``."""
    settings = dict(run.description["settings"])
    settings |= {key: project.table[key] for key in ("train", "checkpoints")}
    said = [*run.description.get("overrides", ()), *overrides]
    write_json(
        run.folder / "run.json", {**run.description, "settings": settings, "overrides": said}
    )
