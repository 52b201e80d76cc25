"""The layers that are compared, and what they are given. Peers read this, too: NumPy alone."""

from __future__ import annotations

import zlib
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]

KERNEL = 3
NODAL = ("mul", "cubic", "sine", "exp", "sinh", "chirp", "harmonic")
POOLS = ("sum", "max", "median")
ORDERS = (3, 5, 7)


class Size(NamedTuple):
    """A layer's shape: batch, input and output maps, and the side of its square images."""

    batch: int
    inner: int
    outer: int
    side: int


SIZES = {
    "i": Size(8, 8, 16, 32),
    "ii": Size(16, 16, 32, 28),
    "iii, first": Size(1, 1, 12, 60),
    "iii, second": Size(1, 12, 32, 60),
}
SELF_SIZES = ("i", "ii", "iii, second")


class Case(NamedTuple):
    """A layer of operational neurons, or, where ``order`` is not 0, of generative ones."""

    size: str
    nodal: str = ""
    pool: str = ""
    order: int = 0

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"Self-ONN, q = {self.order}" if self.order else f"{self.nodal}, {self.pool}"


OPERATIONAL = tuple(Case(*fields) for fields in product(SIZES, NODAL, POOLS))
GENERATIVE = tuple(Case(size, order=order) for size, order in product(SELF_SIZES, ORDERS))
CASES = (*OPERATIONAL, *GENERATIVE)


def arrays(case: Case, size: Size | None = None) -> Arrays:
    """Return input, weight, bias, and the gradient of the output, as single precision.

    The weight is ``(maps, channels, kernel, kernel)``, of generative neurons ``(maps, channels,
    order, kernel, kernel)``; all is spread as FastONN draws it.
    """
    batch, inner, outer, side = size or SIZES[case.size]
    rng = np.random.default_rng(zlib.crc32(repr(case).encode()))
    taps = KERNEL * KERNEL
    powers = (case.order,) if case.order else ()

    def uniform(bound: float, *shape: int) -> npt.NDArray[Any]:
        return rng.uniform(-bound, bound, shape).astype(np.float32)

    return {
        "x": uniform(1, batch, inner, side, side),
        "w": uniform(1 / taps, outer, inner, *powers, KERNEL, KERNEL),
        "b": uniform(1 / taps, outer),
        "g": rng.standard_normal((batch, outer, side, side), dtype=np.float32),
    }


def small(case: Case, number: int) -> Arrays:
    """Return arrays of the same layer on one small image, which takes next to no memory."""
    size = SIZES[case.size]
    return arrays(case, size._replace(batch=1, side=KERNEL + 2 + number))


def tolerance(case: Case) -> tuple[float, float]:
    """Return what outputs and gradients may differ by from double precision, over the largest.

    The argument of chirp's sine runs to thousands, of which single precision keeps four decimals.
    """
    return (2e-4, 2e-4) if case.nodal == "chirp" else (1e-5, 1e-4)


def least_gap(case: Case) -> float:
    """Return how far apart two taps are, over the largest, that are told apart for certain."""
    return 3e-4 if case.nodal == "chirp" else 1e-5
