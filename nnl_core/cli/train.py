"""``nnl train``: train the model of a project file and keep what comes of it."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from nnl_core.cli.project import add_project, open_workbench
from nnl_core.session import Session

if TYPE_CHECKING:
    from nnl_core.training import Trainer
    from nnl_core.training.project import Workbench

INTERRUPTED = "interrupted"


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


def run(arguments: argparse.Namespace, session: Session) -> int:
    """Train, save, and print how good the model is: 130 where Ctrl-C ended the training."""
    from nnl_core.settings import open_project
    from nnl_core.training import run_folder

    project = open_project(arguments.project, arguments.overrides)
    with open_workbench(project, session) as workbench:
        trainer = workbench.trainer()
        if arguments.out is not None:
            folder = run_folder.given_folder(arguments.out)
        else:
            runs = project.path.parent / workbench.settings.train.folder
            name = arguments.name or project.path.resolve().parent.name
            folder = run_folder.new_folder(runs, name)
        trainer.folder = folder
        run_folder.describe_run(folder, project, workbench.session, arguments.name)
        with _interruptible(trainer):
            result = trainer.run()
        with trainer.averaged():
            final = {} if result.stopped == INTERRUPTED else _tested(trainer, workbench)
            tracker = trainer.tracker
            result = result._replace(best=tracker.summary(), tables=tracker.tables)
            run_folder.save_result(folder, trainer.model, result, final)
        if result.stopped is not None:
            print(f"stopped after {result.steps} steps: {result.stopped}")
        for name, value in final.items():
            print(f"{name.replace('/', ' ')}: {value:.4f}")
        print(f"saved in {folder}")
    return 130 if result.stopped == INTERRUPTED else 0


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


@contextmanager
def _interruptible(trainer: Trainer) -> Iterator[None]:
    """Let Ctrl-C end the training after the step that is being made, and a second one at once."""

    def stop(number: int, frame: FrameType | None) -> None:
        if trainer.stop_reason is not None:
            raise KeyboardInterrupt
        trainer.request_stop(INTERRUPTED)

    if threading.current_thread() is not threading.main_thread():  # which alone gets signals
        yield
        return
    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
