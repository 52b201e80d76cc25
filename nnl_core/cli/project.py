"""What the commands on projects and runs have in common."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nnl_core.cli.main import report
from nnl_core.session import Session

if TYPE_CHECKING:
    from nnl_core.hooks.selection import Project
    from nnl_core.training.project import Workbench
    from nnl_core.training.run_folder import SavedRun


def add_set(parser: argparse.ArgumentParser) -> None:
    """Declare ``--set``, and ``--device``, which sets ``backend``."""
    parser.add_argument(
        "--set",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="replace a setting, such as train.epochs=3; without a value, take it out",
    )
    parser.add_argument(
        "--device",
        dest="overrides",
        metavar="NAME",
        action="append",
        type=lambda name: f'backend="{name}"',
        help="where to compute: numpy, native, cuda, cuda:1 (as --set backend=NAME; see nnl info)",
    )


def add_project(parser: argparse.ArgumentParser) -> None:
    """Declare the project, ``--set`` and ``--device``."""
    parser.add_argument(
        "project",
        nargs="?",
        type=Path,
        default=Path(),
        metavar="PROJECT",
        help="folder with nnl.toml, or a project file (default: this folder)",
    )
    add_set(parser)


def chosen_run(place: Path) -> Path:
    """Return the run that a folder is, or the newest in it, which is then named."""
    from nnl_core.training.runs import newest_run

    run = newest_run(place)
    if run != place:
        print(f"of {run}:", file=sys.stderr)
    return run


@contextmanager
def open_workbench(project: Project, session: Session) -> Iterator[Workbench]:
    """Check a project's settings, warn of those without effect, and enter its session."""
    with _workbench(project, session, project.path.parent, None) as workbench:
        for table in workbench.session.idle_tables():
            report(f"{table} has no effect: the plugin is not active; name it in plugins, or by -p")
        yield workbench


@contextmanager
def open_run(run: SavedRun, session: Session) -> Iterator[Workbench]:
    """Check a saved run's settings and enter its session."""
    with _workbench(run.project, session, run.source, run.data_folder) as workbench:
        yield workbench


@contextmanager
def _workbench(
    project: Project, session: Session, folder: Path, data_folder: Path | None
) -> Iterator[Workbench]:
    from nnl_core.settings import check
    from nnl_core.training.project import Workbench

    settings = check(project.table, project.where)
    with session_of(project, session) as own:
        workbench = Workbench(settings, folder, own, data_folder, project.where)
        with workbench.scope():
            yield workbench


def session_of(project: Project, session: Session) -> Session:
    """Return the session itself where it is the project's, else one with the same choices.

    A run without a plugin that its project names would be another run: one that failed is an error.
    """
    if session.project == project:
        session.check()
        own = session
    else:
        own = session.for_project(project)
    manager = own.manager
    asked = {*manager.selection.named, "nnlfile"}
    asked -= {entry.name for entry in manager.entries if entry.is_loaded}
    for entry in manager.entries:
        if entry.error is not None and entry.name in asked:
            raise entry.error
    return own
