"""Learning-rate schedules, under nnabla's names: what the rate is at each step."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Literal, Protocol, TypeVar, cast

from nnl_core.errors import SolverError

N = TypeVar("N", int, float)


class Schedule(Protocol):
    """Anything that tells the learning rate of a step, counted from 0."""

    init_lr: float

    def get_learning_rate(self, iter: int) -> float:
        """Return the learning rate of a step."""


class WatchingSchedule(Schedule, Protocol):
    """A schedule that follows how training goes, too.

    ``metric`` names what it is told of, such as ``"validation/loss"``; ``None`` is nothing.
    """

    metric: str | None

    def observe(self, values: Sequence[float]) -> None:
        """Take note of the metric after an epoch: all its values, those of earlier epochs first."""


class PolynomialScheduler:
    """``init_lr * (1 - step / max_iter) ** power``; 0 from ``max_iter`` on."""

    def __init__(self, init_lr: float, max_iter: int, power: float = 1.0) -> None:
        self.init_lr = _number(init_lr, "init_lr")
        self.max_iter = _positive(max_iter, "max_iter")
        self.power = _number(power, "power")

    def get_learning_rate(self, iter: int) -> float:
        """Return the learning rate of a step."""
        left = 1 - min(iter, self.max_iter) / self.max_iter
        return float(self.init_lr * left**self.power)


class CosineScheduler:
    """Half a cosine wave from ``init_lr`` at step 0 to 0 at ``max_iter``, 0 from there on.

    Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts", 2017, equation 5.
    """

    def __init__(self, init_lr: float, max_iter: int) -> None:
        self.init_lr = _number(init_lr, "init_lr")
        self.max_iter = _positive(max_iter, "max_iter")

    def get_learning_rate(self, iter: int) -> float:
        """Return the learning rate of a step."""
        progress = min(iter, self.max_iter) / self.max_iter
        return self.init_lr * (1 + math.cos(math.pi * progress)) / 2


class ExponentialScheduler:
    """``init_lr * gamma ** (step // iter_interval)``."""

    def __init__(self, init_lr: float, gamma: float, iter_interval: int = 1) -> None:
        self.init_lr = _number(init_lr, "init_lr")
        self.gamma = _number(gamma, "gamma")
        self.iter_interval = _positive(iter_interval, "iter_interval")

    def get_learning_rate(self, iter: int) -> float:
        """Return the learning rate of a step."""
        return float(self.init_lr * self.gamma ** (iter // self.iter_interval))


class CosineRestartScheduler:
    """Half a cosine wave from ``init_lr`` to ``min_lr``, again and again.

    The first takes ``T_0`` steps, each other ``T_mult`` times as many as the one before
    (Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts", 2017).
    """

    def __init__(self, init_lr: float, T_0: int, T_mult: int = 1, min_lr: float = 0.0) -> None:
        self.init_lr = _number(init_lr, "init_lr")
        self.T_0 = _positive(T_0, "T_0")
        self.T_mult = _positive(T_mult, "T_mult")
        self.min_lr = _number(min_lr, "min_lr")

    def get_learning_rate(self, iter: int) -> float:
        """Return the learning rate of a step."""
        step, length = iter, self.T_0
        if self.T_mult == 1:
            step %= length
        while step >= length:
            step, length = step - length, length * self.T_mult
        wave = (1 + math.cos(math.pi * step / length)) / 2
        return self.min_lr + (self.init_lr - self.min_lr) * wave


class StepScheduler:
    """``init_lr``, times ``gamma`` at each of ``iter_steps``, or every so many steps."""

    def __init__(self, init_lr: float, gamma: float, iter_steps: int | Sequence[int]) -> None:
        self.init_lr = _number(init_lr, "init_lr")
        self.gamma = _number(gamma, "gamma")
        self.iter_steps = (
            _positive(iter_steps, "iter_steps") if isinstance(iter_steps, int) else (*iter_steps,)
        )

    def get_learning_rate(self, iter: int) -> float:
        """Return the learning rate of a step."""
        steps = self.iter_steps
        passed = iter // steps if isinstance(steps, int) else sum(iter >= step for step in steps)
        return float(self.init_lr * self.gamma**passed)


class OneCycleScheduler:
    """Up from ``init_lr / div_factor`` to ``init_lr``, then down to almost nothing.

    The way up takes the part ``pct_start`` of ``max_iter`` steps; the last of them, and those after
    it, have ``init_lr / (div_factor * final_div_factor)`` (Smith, "A disciplined approach to neural
    network hyper-parameters", 2018, whose two ways are straight lines: ``"linear"``).
    """

    def __init__(
        self,
        init_lr: float,
        max_iter: int,
        pct_start: float = 0.3,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        anneal_strategy: Literal["cos", "linear"] = "cos",
    ) -> None:
        self.init_lr = _number(init_lr, "init_lr")
        self.max_iter = _positive(max_iter, "max_iter")
        if not 0 <= pct_start <= 1:
            raise SolverError(f"pct_start={pct_start!r} is not a part, from 0 to 1")
        if anneal_strategy not in ("cos", "linear"):
            raise SolverError(f"anneal_strategy={anneal_strategy!r} is neither 'cos' nor 'linear'")
        self.pct_start = pct_start
        self.div_factor = _number(div_factor, "div_factor")
        self.final_div_factor = _number(final_div_factor, "final_div_factor")
        self.anneal_strategy = anneal_strategy

    def get_learning_rate(self, iter: int) -> float:
        """Return the learning rate of a step."""
        first = self.init_lr / self.div_factor
        top, end = self.pct_start * self.max_iter - 1, self.max_iter - 1
        if iter >= end:
            return first / self.final_div_factor
        if iter <= top:
            return self._between(first, self.init_lr, iter / top if top else 1.0)
        return self._between(
            self.init_lr, first / self.final_div_factor, (iter - top) / (end - top)
        )

    def _between(self, start: float, stop: float, progress: float) -> float:
        if self.anneal_strategy == "cos":
            progress = (1 - math.cos(math.pi * progress)) / 2
        return start + (stop - start) * progress


class PlateauScheduler:
    """``init_lr``, times ``factor`` whenever a metric of the epochs has stopped getting better.

    That is: when more than ``patience`` epochs in a row are not better than the best before them,
    by the part ``threshold`` of it. After each fall ``cooldown`` epochs are not counted. The rate
    falls to no less than ``min_lr``. ``mode`` says whether less (``"min"``) or more (``"max"``) is
    better.
    """

    def __init__(
        self,
        init_lr: float,
        metric: str = "train/loss",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
        mode: Literal["min", "max"] = "min",
    ) -> None:
        if not 0 < _number(factor, "factor") < 1:
            raise SolverError(f"factor={factor!r} does not make a rate smaller; give one below 1")
        if mode not in ("min", "max"):
            raise SolverError(f"mode={mode!r} is neither 'min' nor 'max'")
        if not isinstance(metric, str):
            raise SolverError(f"metric={metric!r} is not a name, such as 'train/loss'")
        self.init_lr = _number(init_lr, "init_lr")
        self.metric = metric
        self.factor = factor
        self.patience = _number(patience, "patience")
        self.threshold = _number(threshold, "threshold")
        self.cooldown = _number(cooldown, "cooldown")
        self.min_lr = _number(min_lr, "min_lr")
        self.mode = mode
        self._rate = self.init_lr

    def get_learning_rate(self, iter: int) -> float:
        """Return the learning rate of the epoch that has begun, whatever its step."""
        return self._rate

    def observe(self, values: Sequence[float]) -> None:
        """Set the rate for the epoch after those with these values of the metric."""
        rate, best, waited, resting = self.init_lr, math.inf, 0, 0
        for value in values:
            loss = value if self.mode == "min" else -value
            if loss < best - abs(best) * self.threshold if math.isfinite(best) else loss < best:
                best, waited = loss, 0
            else:
                waited += 1
            if resting:
                resting, waited = resting - 1, 0
            if waited > self.patience:
                rate, resting, waited = max(rate * self.factor, self.min_lr), self.cooldown, 0
        self._rate = rate


class LinearWarmupScheduler:
    """From ``init_lr / warmup_iter`` up to ``init_lr`` in equal steps, then another schedule."""

    def __init__(self, scheduler: Schedule, warmup_iter: int) -> None:
        self.scheduler = scheduler
        self.init_lr = scheduler.init_lr
        self.warmup_iter = _positive(warmup_iter, "warmup_iter")

    @property
    def metric(self) -> str | None:
        """What the other schedule watches."""
        return getattr(self.scheduler, "metric", None)

    def observe(self, values: Sequence[float]) -> None:
        """Let the other schedule know."""
        cast(WatchingSchedule, self.scheduler).observe(values)

    def get_learning_rate(self, iter: int) -> float:
        """Return the learning rate of a step."""
        if iter < self.warmup_iter:
            return self.init_lr * (iter + 1) / self.warmup_iter
        return self.scheduler.get_learning_rate(iter - self.warmup_iter)


def _positive(value: int, name: str) -> int:
    if _number(value, name) < 1:
        raise SolverError(f"{name}={value!r} is less than 1")
    return value


def _number(value: N, name: str) -> N:
    """Return a number; raise `SolverError` for anything else, NaN included."""
    if not isinstance(value, numbers.Real) or math.isnan(value):
        raise SolverError(f"{name}={value!r} is not a number")
    return value
