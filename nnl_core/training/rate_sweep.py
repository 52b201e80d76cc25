"""Looking for a learning rate: steps at rates that rise exponentially (Smith, 2017)."""

from __future__ import annotations

from math import ceil, sqrt
from statistics import mean, variance
from typing import TYPE_CHECKING, NamedTuple

from nnl_core.errors import NotFiniteError
from nnl_core.hooks import StepEnd
from nnl_core.session import Session

if TYPE_CHECKING:
    from nnl_core.training.trainer import Trainer


class RateSweep(NamedTuple):
    """The rates that were tried, the loss at each and its average; ``suggestion`` is one of them.

    It is ``None`` where the loss did not fall.
    """

    rates: list[float]
    losses: list[float]
    smoothed: list[float]
    suggestion: float | None


class _Rising:
    """A schedule from ``init_lr`` to ``end`` by equal factors, counted from ``first``."""

    def __init__(self, init_lr: float, end: float, steps: int, first: int) -> None:
        self.init_lr = init_lr
        self._ratio, self._last, self._first = end / init_lr, steps - 1, first

    def get_learning_rate(self, step: int) -> float:
        return float(self.init_lr * self._ratio ** ((step - self._first) / self._last))


class _Listener:
    """Keeps the losses, and ends the sweep where they have grown out of hand."""

    def __init__(self, smoothing: float, diverged: float) -> None:
        self.losses: list[float] = []
        self.smoothed: list[float] = []
        self._smoothing, self._diverged, self._mean = smoothing, diverged, 0.0

    def nnl_on_step_end(self, event: StepEnd) -> None:
        loss, count = float(event.loss), len(self.losses) + 1
        self.losses.append(loss)
        self._mean = self._smoothing * self._mean + (1 - self._smoothing) * loss
        self.smoothed.append(self._mean / (1 - self._smoothing**count))
        first, best = self.smoothed[0], min(self.smoothed)
        # Measured from a line of its own, so that losses below 0 diverge as well.
        if self.smoothed[-1] - best > (self._diverged - 1) * max(abs(best), abs(first) / 10):
            event.trainer.request_stop("diverged")


def sweep(
    trainer: Trainer,
    *,
    start: float = 1e-6,
    end: float = 10.0,
    steps: int = 100,
    smoothing: float = 0.9,
    diverged: float = 4.0,
) -> RateSweep:
    """Make steps at rates from ``start`` to ``end``, and put the trainer back as it was.

    No plugin hears of these steps. The sweep ends early where the average loss has grown to
    ``diverged`` times its least, or is not finite; NotFiniteError where it is not from the
    beginning. The suggestion is the rate at which the loss
    falls fastest against the rate's logarithm.
    """
    before = trainer.checkpoint()
    kept = (
        trainer.schedule, trainer.epochs, trainer.steps, trainer.evaluators, trainer.session
    )  # fmt: skip
    listener = _Listener(smoothing, diverged)
    quiet = Session(discover=False, environment={})
    first = trainer.state.step
    schedule = _Rising(start, end, steps, first)
    trainer.schedule = schedule
    trainer.epochs = trainer.state.epoch + ceil(steps / trainer.steps_per_epoch) + 1
    trainer.steps, trainer.evaluators, trainer.session = first + steps, [], quiet
    try:
        with quiet.listen(listener):
            trainer.run_loop()
    except NotFiniteError:
        if not listener.losses:  # it is not the rate
            raise
        # The rate is too high: it is the last one to be tried.
    finally:
        (
            trainer.schedule, trainer.epochs, trainer.steps, trainer.evaluators, trainer.session
        ) = kept  # fmt: skip
        trainer.restore(before)
    rates = [schedule.get_learning_rate(first + n) for n in range(len(listener.losses))]
    return RateSweep(
        rates,
        listener.losses,
        listener.smoothed,
        _steepest(rates, listener.losses, listener.smoothed),
    )


def _steepest(rates: list[float], losses: list[float], smoothed: list[float]) -> float | None:
    """Return the rate around which the loss falls most; all rates are equally far apart.

    Means over a tenth of the sweep before and after each rate are compared, up to where the average
    is lowest. A fall counts that is more than twice its standard error, as losses are noisy.
    """
    width = max(len(losses) // 10, 3)
    best, found = 0.0, None
    lowest = min(range(len(smoothed)), key=smoothed.__getitem__, default=0)
    for place in range(width, min(lowest, len(losses) - width) + 1):
        before, after = losses[place - width : place], losses[place : place + width]
        fall = mean(before) - mean(after)
        if fall > best and fall > 2 * sqrt((variance(before) + variance(after)) / width):
            best, found = fall, rates[place]
    return found
