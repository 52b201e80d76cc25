"""Plugin ``progress``: how far a run is, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from nnl_core.hooks import (
    EpochEnd,
    EpochStart,
    ExceptionRaised,
    Plugin,
    StepEnd,
    TrainEnd,
    TrainStart,
)

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from nnl_core.training import Trainer

INTERVAL = 0.1  # seconds between two looks at the numbers, which may be on a device


class ProgressPlugin(Plugin):
    """Shows a bar with loss, metrics, samples a second and time left; plain lines elsewhere.

    A bar needs a terminal and rich; without them there is one line for each epoch.
    """

    name = "progress"

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._started = self._shown = self._epoch_started = self._last_step = 0.0
        self._first_sample = self._epoch_sample = 0

    def nnl_on_train_start(self, event: TrainStart) -> None:
        """Open the bar."""
        trainer = event.trainer
        self._started = self._epoch_started = time.perf_counter()
        self._first_sample = trainer.state.samples
        if not sys.stderr.isatty():
            return
        self._bar = _rich_bar()
        if self._bar is None:
            print("progress: plain lines, since rich is not installed", file=sys.stderr)
            return
        self._task = self._bar.add_task(
            "", total=trainer.epochs * trainer.steps_per_epoch, numbers=""
        )
        self._bar.start()

    def nnl_on_epoch_start(self, event: EpochStart) -> None:
        """Note when the epoch began."""
        self._epoch_started = time.perf_counter()
        self._epoch_sample = event.trainer.state.samples

    def nnl_on_step_end(self, event: StepEnd) -> None:
        """Move the bar, now and then."""
        now = self._last_step = time.perf_counter()
        if self._bar is None or self._task is None or now - self._shown < INTERVAL:
            return
        self._shown = now
        trainer = event.trainer
        self._bar.update(
            self._task,
            completed=event.step + 1,
            description=_epoch_of(trainer, trainer.state.epoch),
            numbers=self._numbers(trainer, trainer.running_metrics()),
        )

    def nnl_on_epoch_end(self, event: EpochEnd) -> None:
        """Print the epoch's line."""
        trainer, now = event.trainer, time.perf_counter()
        line = f"{_epoch_of(trainer, event.epoch)}  {self._numbers(trainer, event.metrics)}"
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task,
                completed=trainer.state.step,
                description=_epoch_of(trainer, event.epoch),
                numbers="",  # those of the line
            )
            self._bar.console.print(line, highlight=False, markup=False)
        else:
            left = self._time_left(trainer, now)
            print(f"{line}  {left:.0f} s left", file=sys.stderr, flush=True)

    def nnl_on_train_end(self, event: TrainEnd) -> None:
        """Close the bar."""
        self._close()

    def nnl_on_exception(self, event: ExceptionRaised) -> None:
        """Close the bar, so that the terminal is usable again."""
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._task = None

    def _numbers(self, trainer: Trainer, metrics: Mapping[str, float]) -> str:
        seconds = self._last_step - self._epoch_started  # without the evaluation
        speed = (trainer.state.samples - self._epoch_sample) / seconds if seconds > 0 else 0.0
        shown = [f"{name} {value:.4f}" for name, value in metrics.items()]
        return "  ".join([*shown, f"{speed:,.0f} {_unit(trainer)}/s"])

    def _time_left(self, trainer: Trainer, now: float) -> float:
        done = trainer.state.samples - self._first_sample
        total = trainer.epochs * len(trainer.iterator.source) - self._first_sample
        return (now - self._started) / done * max(total - done, 0) if done else 0.0


def _epoch_of(trainer: Trainer, epoch: int) -> str:
    return f"epoch {epoch + 1}/{trainer.epochs}"


def _unit(trainer: Trainer) -> str:
    """Return "images" where a field has at least the axes of one."""
    fields = trainer.iterator.source.fields.values()
    return "images" if any(spec.ndim >= 2 for spec in fields) else "samples"


def _rich_bar() -> Progress | None:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        return None
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[numbers]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=Console(stderr=True),
        transient=True,  # what it says at the end was said by the epochs' lines
    )
