"""Operators of the namespace ``powers``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import Sample, defop


@defop("powers::power", save=("x",))
def power(x: np.ndarray, *, p: int) -> np.ndarray:
    """Elementwise ``x ** p`` for an integer ``p`` of 0 or more."""
    return x**p


power.elementwise("powf(x, p)")


@power.vjp
def power_vjp(g: Any, y: Any, x: Any, *, p: int) -> tuple[Any]:
    """``p x^(p-1)``, in terms of the operator itself: hence differentiable again."""
    return (g * power(x, p=p - 1) * p if p else None,)


@power.samples
def power_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """0-d, empty, and a matrix with negative numbers."""
    for p in (0, 1, 2, 3):
        for shape in ((), (0,), (2, 3)):
            yield Sample(rng.normal(size=shape), p=p)
