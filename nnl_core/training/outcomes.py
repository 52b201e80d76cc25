"""What steps came to, known as late as a device makes it worthwhile to wait for it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from nnl_core.data import Batch
from nnl_core.errors import NotFiniteError
from nnl_core.graph.backend import current_backend, streams
from nnl_core.graph.dtypes import is_floating

if TYPE_CHECKING:
    from nnl_core.data.source import Array
    from nnl_core.training.metrics import Metric
    from nnl_core.training.model import Network

BEHIND = 2  # runs of which a device need not have told, so that it has work while the host goes on


class Outcome:
    """Loss and measured values of one step; ``float`` of it is the loss, and waits for a device."""

    def __init__(self, step: int, epoch: int, batch: Batch) -> None:
        self.step, self.epoch, self.batch = step, epoch, batch
        self._parts: list[tuple[float | None, int, Callable[[], dict[str, Array]]]] = []
        self._known: list[tuple[float | None, int, Mapping[str, Array]]] = []

    def add(self, network: Network, weight: float | None, count: int) -> None:
        """Begin to read what the network of a part holds; the loss counts by ``weight``."""
        self._parts.append((weight, count, begin_reading(network)))

    def known(self) -> list[tuple[float | None, int, Mapping[str, Array]]]:
        """Return weight, number of samples and values of each part."""
        self._known += [(weight, count, read()) for weight, count, read in self._parts]
        self._parts.clear()
        return self._known

    def __float__(self) -> float:
        loss = 0.0
        for weight, _, values in self.known():
            one = float(values["loss"].item())
            loss += one if weight is None else weight * one
        return loss


class Outcomes:
    """Takes account of steps in metrics, in their order.

    Where nobody has to wait for results, that is at once; on a device it is when the next steps but
    one were enqueued, or when somebody asks.
    """

    def __init__(self) -> None:
        self._waiting: deque[Outcome] = deque()
        self._losses: list[tuple[int, float]] = []

    def append(self, outcome: Outcome) -> None:
        """Wait for one more step."""
        self._waiting.append(outcome)

    def clear(self) -> None:
        """Forget the steps that nobody has asked for."""
        self._waiting.clear()
        self._losses.clear()

    def settle(self, metrics: Mapping[str, Metric], behind: int = 0) -> None:
        """Take account of all steps but the last ones.

        Raises NotFiniteError where a loss is not finite.
        """
        while len(self._waiting) > behind:
            outcome = self._waiting.popleft()
            for _, count, values in outcome.known():
                for name, array in values.items():
                    metrics[name].add(array, count)
            loss = float(outcome)
            if not math.isfinite(loss):
                self.clear()
                raise NotFiniteError(_not_finite(loss, outcome))
            self._losses.append((outcome.step, loss))

    def new_losses(self) -> list[tuple[int, float]]:
        """Return numbers and losses of the steps since this was asked."""
        losses, self._losses = self._losses, []
        return losses


def lateness() -> int:
    """Return how many runs the backend in use may be behind."""
    return BEHIND if streams(current_backend()) else 0


def begin_reading(network: Network) -> Callable[[], dict[str, Array]]:
    """Return what gives the measured values of a network as they are now."""
    backend, measured = current_backend(), network.measured
    if streams(backend):
        fetched = backend.fetch([one.data.buffer(backend) for one in measured.values()])
        return lambda: dict(zip(measured, fetched(), strict=True))
    values = {name: one.data.read().copy() for name, one in measured.items()}
    return lambda: values


def _not_finite(loss: float, outcome: Outcome) -> str:
    place = f"the loss is {loss} at step {outcome.step} (epoch {outcome.epoch + 1})"
    for name, array in outcome.batch.arrays.items():
        if is_floating(array.dtype) and not np.isfinite(array).all():
            return f"{place}: field {name!r} of the batch is not finite; clean the data"
    if outcome.step == 0:
        return f"{place}, before any update; look for a logarithm, a root or a division by zero"
    return f"{place}; try a smaller learning rate, or clip_grad_norm"
