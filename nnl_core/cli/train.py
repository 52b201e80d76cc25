"""``nnl train``: train the model of a project file and keep what comes of it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nnl_core.cli.main import report
from nnl_core.cli.output import steady_output
from nnl_core.cli.project import add_project, open_run, open_workbench
from nnl_core.cli.signals import interruptible
from nnl_core.errors import ConfigurationError
from nnl_core.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nnl_core.hooks.selection import Project
    from nnl_core.training import Trainer
    from nnl_core.training.project import Workbench

NEWEST = Path()  # as RUN: no run is called like this


class Trained(NamedTuple):
    """What became of a run: the exit status that it asks for, and its final metrics."""

    status: int
    metrics: dict[str, float]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_project(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="new folder for the results (default: one in the project's runs/, by time and name)",
    )
    parser.add_argument(
        "--name", metavar="NAME", help="what to call the run (default: like the project's folder)"
    )
    parser.add_argument(
        "--runs",
        type=int,
        metavar="COUNT",
        help="train so many times, each with the next seed, and summarise",
    )
    parser.add_argument(
        "--resume",
        type=Path,
        nargs="?",
        const=NEWEST,
        metavar="RUN",
        help="go on with a run that has not finished, or a project's newest (default: PROJECT's)",
    )
    parser.add_argument(
        "--checkpoint",
        type=int,
        metavar="STEP",
        help="with --resume: from which checkpoint (default: the newest)",
    )


def run(arguments: argparse.Namespace, session: Session) -> int:
    """Train, save, and print how good the model is.

    128 and the signal's number, such as 130, where Ctrl-C or another signal ended the training.
    """
    _check(arguments)
    with steady_output():
        if arguments.resume is not None:
            return _go_on(arguments, session)
        from nnl_core.settings import open_project

        project = open_project(arguments.project, arguments.overrides)
        if arguments.runs is not None:
            from nnl_core.cli.repeat import train_many

            return train_many(arguments, project, session)
        with open_workbench(project, session) as workbench:
            trainer = trainer_of(workbench)
            folder = folder_for(arguments, project, workbench.settings.train.folder)
            return train_new(
                folder, trainer, workbench, project, arguments.name, arguments.overrides
            ).status


def _check(arguments: argparse.Namespace) -> None:
    if arguments.resume is None and arguments.checkpoint is not None:
        raise ConfigurationError("--checkpoint goes with --resume")
    for option in ("out", "name", "runs"):
        if arguments.resume is not None and getattr(arguments, option) is not None:
            raise ConfigurationError(f"--resume goes on with a run as it is, without --{option}")
    if arguments.runs is not None and arguments.runs < 1:
        raise ConfigurationError(f"--runs {arguments.runs}: say 1 or more")


def folder_for(arguments: argparse.Namespace, project: Project, runs: str) -> Path:
    """Make the folder that results go to."""
    from nnl_core.training import run_folder

    if arguments.out is not None:
        return run_folder.given_folder(arguments.out)
    name = arguments.name or project.path.resolve().parent.name
    return run_folder.new_folder(project.path.parent / runs, name)


def trainer_of(workbench: Workbench) -> Trainer:
    """Make the trainer; what it is tested on at the end is to be there at the beginning."""
    if "test" in workbench.settings.data:
        workbench.data("test")
    return workbench.trainer()


def train_new(
    folder: Path,
    trainer: Trainer,
    workbench: Workbench,
    project: Project,
    name: str | None,
    overrides: Sequence[str],
) -> Trained:
    """Train in a new folder."""
    from nnl_core.training.run_folder import describe_run
    from nnl_core.training.run_lock import locked

    with locked(folder):
        trainer.folder = folder
        describe_run(folder, project, workbench.session, name, overrides)
        return _train(folder, trainer, workbench)


def _go_on(arguments: argparse.Namespace, session: Session) -> int:
    from nnl_core.cli.repeat import train_rest
    from nnl_core.training.runs import GROUP, newest_run

    folder: Path = arguments.project if arguments.resume == NEWEST else arguments.resume
    if not (folder / GROUP).is_file() and not (folder / "run.json").is_file():
        folder = newest_run(folder)
        if (folder.parent / GROUP).is_file():
            folder = folder.parent
    if (folder / GROUP).is_file() and arguments.checkpoint is None:
        return train_rest(folder, arguments.overrides, session)
    return resume(folder, arguments.overrides, session, arguments.checkpoint).status


def resume(
    folder: Path, overrides: Sequence[str], session: Session, step: int | None = None
) -> Trained:
    """Go on with a run from one of its checkpoints, by default the newest."""
    from nnl_core.training.resume import (
        check_surroundings,
        go_on,
        note_settings,
        project_to_go_on_with,
    )
    from nnl_core.training.run_folder import SavedRun, read_begun_run
    from nnl_core.training.run_lock import locked

    begun = read_begun_run(folder)
    with locked(folder):
        project = project_to_go_on_with(begun, overrides, report)
        saved = SavedRun(folder, project, folder, begun.project_file.parent)
        with open_run(saved, session) as workbench:
            check_surroundings(begun, workbench.session, report)
            trainer = trainer_of(workbench)
            trainer.folder = folder
            go_on(trainer, begun, step, report)
            note_settings(begun, project, overrides)
            state = trainer.state
            print(f"going on with {folder} after {state.step} steps")
            return _train(folder, trainer, workbench)


def _train(folder: Path, trainer: Trainer, workbench: Workbench) -> Trained:
    """Train and write down what came of it."""
    from nnl_core.training import run_folder

    try:
        with interruptible(trainer) as interruption:
            result = trainer.run()
        status = interruption.status if result.stopped is not None else 0
        with trainer.averaged():
            final = {} if status else _tested(trainer, workbench)
            tracker = trainer.tracker
            result = result._replace(best=tracker.summary(), tables=tracker.tables)
            run_folder.save_result(folder, trainer.model, result, final)
    except Exception as error:
        run_folder.note_failure(folder, error)
        raise
    if result.stopped is not None:
        print(f"stopped after {result.steps} steps: {result.stopped}")
    metrics = {**result.metrics, **final}
    for name, value in metrics.items():
        print(f"{name.replace('/', ' ')}: {value:.4f}")
    print(f"saved in {folder}")
    return Trained(status, metrics)


def _tested(trainer: Trainer, workbench: Workbench) -> dict[str, float]:
    """Return the metrics of the data set ``test``, where there is one."""
    from nnl_core.training import Evaluator

    if "test" not in workbench.settings.data:
        return {}
    known = trainer.history[-1] if trainer.history else {}
    metrics = {name: value for name, value in known.items() if name.startswith("test/")}
    if not metrics:
        data = workbench.data("test")
        evaluator = Evaluator(trainer.model, data, name="test", session=workbench.session)
        metrics = {f"test/{name}": value for name, value in evaluator.run().items()}
        tables = {f"test/{name}": table for name, table in evaluator.tables.items()}
        state = trainer.state
        trainer.tracker.record(metrics, tables, epoch=state.epoch, step=state.step)
    return metrics
