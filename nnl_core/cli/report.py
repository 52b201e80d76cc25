"""``nnl report``: a page about one run."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from nnl_core.cli.project import add_set, open_run
from nnl_core.errors import DataError, NnlError
from nnl_core.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nnl_core.training.run_folder import SavedRun


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "run", type=Path, metavar="RUN", help="folder of a run, or of a project: its newest run"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="the .html to write (default: report.html in the run's folder)",
    )
    parser.add_argument(
        "--data",
        metavar="NAME",
        help="data set to take samples from (default: test, or else validation, or train)",
    )
    parser.add_argument(
        "--samples",
        type=int,
        default=10_000,
        metavar="N",
        help="look at the first N samples only (default: 10000)",
    )
    add_set(parser)


def run(arguments: argparse.Namespace, session: Session) -> int:
    """Write the page, whole or not at all; a run that has not finished gets a shorter one."""
    from nnl_core.io import replace_file
    from nnl_core.report.page import render_report
    from nnl_core.report.run import Opened, ReportedRun
    from nnl_core.training.runs import newest_run, summary_of

    if arguments.samples < 1:
        raise DataError(f"--samples {arguments.samples}: look at one sample at least")
    summary = summary_of(newest_run(arguments.run))
    if summary.state == "broken":
        raise DataError(f"{summary.folder}: {summary.problem}")
    path: Path = arguments.output or summary.folder / "report.html"
    with ExitStack() as stack:
        opened: Opened | str
        try:
            saved = _saved(summary.folder, arguments.overrides)
            opened = Opened(stack.enter_context(open_run(saved, session)), saved.parameters)
            session = opened.workbench.session
        except NnlError as error:
            opened = str(error)
        reported = ReportedRun(
            summary, session, opened, data_name=arguments.data, limit=arguments.samples
        )
        page = render_report(
            reported, lambda problem: print(f"nnl: warning: {problem}", file=sys.stderr)
        )
    with replace_file(path) as file:
        file.write(page.encode("utf-8"))
    print(f"written to {path}")
    return 0


def _saved(folder: Path, overrides: Sequence[str]) -> SavedRun:
    """Read a run; of one that has not finished, the parameters are those of its last checkpoint."""
    from nnl_core.settings import override
    from nnl_core.training.checkpoint_files import FOLDER, Checkpoints
    from nnl_core.training.run_folder import PARAMETER_FILES, SavedRun, read_begun_run, read_run

    try:
        return read_run(folder, overrides)
    except DataError:
        checkpoints = Checkpoints(folder / FOLDER)
        for step in reversed(checkpoints.steps()):
            for name in PARAMETER_FILES:
                path = checkpoints.place(step) / name
                if path.is_file():
                    begun = read_begun_run(folder)
                    project = begun.as_project(override(begun.description["settings"], overrides))
                    return SavedRun(folder, project, path, begun.project_file.parent)
        raise
