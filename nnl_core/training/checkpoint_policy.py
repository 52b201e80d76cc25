"""When a run makes a checkpoint, and which ones it keeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from nnl_core.errors import FileError, TrainingError
from nnl_core.hooks.loading import did_you_mean
from nnl_core.training.checkpoint_files import FOLDER, Checkpoints

if TYPE_CHECKING:
    from nnl_core.hooks import SafePoint, TrainStart
    from nnl_core.training.trainer import Trainer


@dataclass(frozen=True)
class CheckpointPolicy:
    """When checkpoints are made, and which ones are kept.

    One is made at the end of a run in any case, also where it was asked to stop. The newest one is
    always kept; a run that goes on from an older one deletes those after it. Raises
    TrainingError for numbers that mean nothing.

    Attributes
    ----------
    every_steps, every_epochs, every_minutes
        how often; ``None`` is never
    keep
        how many of the newest are kept, at least 1
    best
        a metric such as ``"validation/accuracy"``: there is a checkpoint of its best value, too
    keep_best
        of how many of its best values
    mode
        whether less (``"min"``) or more (``"max"``) is better; default: the metric's own direction
    """

    every_steps: int | None = None
    every_epochs: int | None = 1
    every_minutes: float | None = None
    keep: int = 1
    best: str | None = None
    keep_best: int = 1
    mode: Literal["min", "max"] | None = None

    def __post_init__(self) -> None:
        for name in ("every_steps", "every_epochs", "every_minutes", "keep", "keep_best"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise TrainingError(f"checkpoints: {name}={value!r} must be more than 0")
        if self.mode not in (None, "min", "max"):
            raise TrainingError(f"checkpoints: mode={self.mode!r} is neither 'min' nor 'max'")

    def best_steps(self, trainer: Trainer) -> list[int]:
        """Return the steps after which the metric was best, the very best first."""
        if self.best is None or self.best not in trainer.tracker.names:
            return []
        rises = None if self.mode is None else self.mode == "max"
        points = trainer.tracker.top(self.best, self.keep_best, rises)
        return [point.step for point in points if point.value == point.value]  # not NaN

    def check(self, trainer: Trainer) -> None:
        """Raise TrainingError where the trainer does not measure what `best` names."""
        if self.best is None:
            return
        parts = ["train", *(evaluator.name for evaluator in trainer.evaluators)]
        known = [f"{part}/{name}" for part in parts for name in trainer.running_metrics()]
        if self.best not in known:
            hint = did_you_mean(self.best, known) or f"; there are {', '.join(known)}"
            raise TrainingError(f"checkpoints: the run does not measure {self.best!r}{hint}")


class CheckpointWriter:
    """Listens to a run and writes the checkpoints that a policy asks for."""

    def __init__(
        self,
        policy: CheckpointPolicy,
        trainer: Trainer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if trainer.folder is None:
            raise TrainingError("checkpoints go into a folder: give the trainer one")
        policy.check(trainer)
        self.policy = policy
        self.files = Checkpoints(trainer.folder / FOLDER)
        self._trainer = trainer
        self._clock = clock
        self._last = clock()

    def nnl_on_train_start(self, event: TrainStart) -> None:
        """Delete what a process left that was killed while it wrote, and what is made again.

        Raises TrainingError where a run that begins would mix its checkpoints with another one's.
        """
        if event.trainer is self._trainer:
            folder = self.files.folder.parent
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                reason = error.strerror or error
                raise FileError(f"{folder}: cannot be made: {reason}") from error
            self.files.sweep()
            step, known = self._trainer.state.step, self.files.steps()
            if known and not step:
                raise TrainingError(
                    f"{self.files.folder} has checkpoints of another run, the newest of step "
                    f"{known[-1]}: restore one of them, or give the trainer another folder"
                )
            if later := [made for made in known if made > step]:
                self.files.remove(later)
            self._last = self._clock()

    def nnl_on_safe_point(self, event: SafePoint) -> None:
        """Write a checkpoint where one is due, and then delete those that are not kept."""
        if event.trainer is self._trainer and self._is_due(event.epoch_ended):
            self.files.save(self._trainer.checkpoint())
            self._last = self._clock()
            self._delete()

    def _is_due(self, epoch_ended: bool) -> bool:
        policy, trainer, state = self.policy, self._trainer, self._trainer.state
        if trainer.stop_reason is not None or (epoch_ended and not trainer.has_steps_left):
            return True
        if policy.every_steps is not None and state.step % policy.every_steps == 0:
            return True
        if epoch_ended and policy.every_epochs and state.epoch % policy.every_epochs == 0:
            return True
        if policy.every_minutes and self._clock() - self._last >= 60 * policy.every_minutes:
            return True
        every = trainer.evaluate_every_steps
        is_measured = epoch_ended or (every is not None and state.step % every == 0)
        return is_measured and state.step in policy.best_steps(trainer)

    def _delete(self) -> None:
        steps = self.files.steps()
        kept = {*steps[-self.policy.keep :], *self.policy.best_steps(self._trainer)}
        self.files.remove(step for step in steps if step not in kept)
