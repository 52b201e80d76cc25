"""Learning-rate schedules, under nnabla's names: what the rate is at each step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from nnl_core.errors import SolverError


class Schedule(Protocol):
    """Anything that tells the learning rate of a step, counted from 0."""

    init_lr: float

    def get_learning_rate(self, iter: int) -> float:
        """Return the learning rate of a step."""


class PolynomialScheduler:
    """``init_lr * (1 - step / max_iter) ** power``; 0 from ``max_iter`` on."""

    def __init__(self, init_lr: float, max_iter: int, power: float = 1.0) -> None:
        self.init_lr = init_lr
        self.max_iter = _positive(max_iter, "max_iter")
        self.power = power

    def get_learning_rate(self, iter: int) -> float:
        """Return the learning rate of a step."""
        left = 1 - min(iter, self.max_iter) / self.max_iter
        return float(self.init_lr * left**self.power)


class CosineScheduler:
    """Half a cosine wave from ``init_lr`` at step 0 to 0 at ``max_iter``, 0 from there on.

    Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts", 2017, equation 5.
    """

    def __init__(self, init_lr: float, max_iter: int) -> None:
        self.init_lr = init_lr
        self.max_iter = _positive(max_iter, "max_iter")

    def get_learning_rate(self, iter: int) -> float:
        """Return the learning rate of a step."""
        progress = min(iter, self.max_iter) / self.max_iter
        return self.init_lr * (1 + math.cos(math.pi * progress)) / 2


class ExponentialScheduler:
    """``init_lr * gamma ** (step // iter_interval)``."""

    def __init__(self, init_lr: float, gamma: float, iter_interval: int = 1) -> None:
        self.init_lr = init_lr
        self.gamma = gamma
        self.iter_interval = _positive(iter_interval, "iter_interval")

    def get_learning_rate(self, iter: int) -> float:
        """Return the learning rate of a step."""
        return float(self.init_lr * self.gamma ** (iter // self.iter_interval))


class StepScheduler:
    """``init_lr``, times ``gamma`` from each of ``iter_steps`` on."""

    def __init__(self, init_lr: float, gamma: float, iter_steps: Sequence[int]) -> None:
        self.init_lr = init_lr
        self.gamma = gamma
        self.iter_steps = tuple(iter_steps)

    def get_learning_rate(self, iter: int) -> float:
        """Return the learning rate of a step."""
        return float(self.init_lr * self.gamma ** sum(iter >= step for step in self.iter_steps))


class LinearWarmupScheduler:
    """From ``init_lr / warmup_iter`` up to ``init_lr`` in equal steps, then another schedule."""

    def __init__(self, scheduler: Schedule, warmup_iter: int) -> None:
        self.scheduler = scheduler
        self.init_lr = scheduler.init_lr
        self.warmup_iter = _positive(warmup_iter, "warmup_iter")

    def get_learning_rate(self, iter: int) -> float:
        """Return the learning rate of a step."""
        if iter < self.warmup_iter:
            return self.init_lr * (iter + 1) / self.warmup_iter
        return self.scheduler.get_learning_rate(iter - self.warmup_iter)


def _positive(value: int, name: str) -> int:
    if value < 1:
        raise SolverError(f"{name}={value!r} is less than 1")
    return value
