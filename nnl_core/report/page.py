"""One page about one run: the sections of the core and of active plugins, in one file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, cast

from nnl_core.errors import NnlError, PluginError
from nnl_core.hooks import ReportSectionSpec
from nnl_core.hooks.loading import describe
from nnl_core.report.parts import Html, ReportSection, as_html, render_page
from nnl_core.report.sections.run import moment

if TYPE_CHECKING:
    from nnl_core.report.run import ReportedRun

Target = Callable[["ReportedRun"], ReportSection | None]


class _Shown(NamedTuple):
    """A section as the page shows it."""

    title: str
    parts: list[Html]
    problem: str = ""


def render_report(run: ReportedRun, complain: Callable[[str], None] = lambda problem: None) -> str:
    """Return a page of HTML about a run, which needs no other file and no network.

    A section that cannot be made says why in its place. Where that is the fault of a plugin, whose
    section raised something else than an `NnlError`, ``complain`` hears of it, too.
    """
    records = run.session.manager.collect(ReportSectionSpec, only_active=True)
    summary = run.summary
    return render_page(
        title=summary.name,
        subtitle=f"{moment(summary.started)} {summary.folder}",
        state=summary.state,
        sections=list(_sections(run, records, complain)),
    )


def _sections(
    run: ReportedRun, records: Iterable[ReportSectionSpec], complain: Callable[[str], None]
) -> Iterable[_Shown]:
    for record in records:
        title = record.name.replace("_", " ").capitalize()
        try:
            target = cast(Target, run.session.manager.resolve(record))
            section = target(run)
            if section is None:
                continue
            title = section.title
            parts = [as_html(part) for part in section.parts]
        except NnlError as error:
            yield _Shown(title, [], f"Not available: {error}")
        except Exception as error:
            owner = run.session.manager.owner(record)
            problem = str(
                PluginError(f"report section {record.name!r} of {owner}: {describe(error)}")
            )
            complain(problem)
            yield _Shown(title, [], f"Not available: {problem}")
        else:
            yield _Shown(title, parts)
