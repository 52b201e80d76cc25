"""A worker's side of the conversation: one layer in one library, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Protocol

import numpy as np

from benchmarks.cpu.serving import forget_peak, memory
from benchmarks.onn.cases import Arrays, Case, arrays, small

WARM_UPS = 3


class Layer(Protocol):
    """A layer with what it is given."""

    def step(self) -> None:
        """Compute the output, and the gradients of input, weight and bias."""

    def results(self) -> Arrays:
        """Return these as ``y``, ``dx``, ``dw`` and ``db``."""


def store(path: str, found: Arrays) -> None:
    """Write arrays to a file."""
    np.savez(path, allow_pickle=False, **found)


Build = Callable[[Case, Arrays, bool], Layer]  # the last says whether with tanh


class Worker:
    """Answers commands, each with what its method returns."""

    def __init__(self, build: Build) -> None:
        self.build = build

    def first(self, fields: list[str | int], gradient: str, results: str) -> dict[str, float]:
        """Do two steps, and write what comes of the output's gradient in one file to another.

        Returns the seconds of the first step, building included, and how many bytes both need at
        their peak, beyond what the inputs take. What the library itself takes of memory when it is
        first used does not count: small layers of the same kind come before. The results are those
        without tanh: where it saturates, its derivative is a small difference of large numbers.
        """
        case = Case(*fields)  # type: ignore[arg-type]  # JSON keeps their kinds
        given = arrays(case)
        for number in range(WARM_UPS):
            self.build(case, small(case, number), True).step()
        start = perf_counter()
        layer = self.layer = self.build(case, given, True)
        building = perf_counter() - start
        forget_peak()
        before = memory("VmRSS")
        start = perf_counter()
        layer.step()
        seconds = building + perf_counter() - start
        layer.step()
        peak = memory("VmHWM") - before
        with np.load(gradient) as stored:
            compared = self.build(case, {**given, "g": stored["g"]}, False)
        compared.step()
        store(results, compared.results())
        return {"seconds": seconds, "memory": peak}

    def seconds(self, steps: int) -> float:
        """Return the seconds of a step: the mean of several, after one that does not count."""
        step = self.layer.step
        if steps > 1:
            step()
        start = perf_counter()
        for _ in range(steps):
            step()
        return (perf_counter() - start) / steps
