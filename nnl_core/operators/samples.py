"""Samples that many operators share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nnl_core.graph.operator import Array, Sample


def signed_points(rng: np.random.Generator) -> Iterator[Array]:
    """Arrays on both sides of the kinks and away from them: 0-d, empty, odd sizes, large values."""
    yield np.array(0.7)
    yield np.zeros((0, 3))
    yield rng.choice([-1, 1], size=(3, 5)) * rng.uniform(0.1, 0.9, size=(3, 5))
    yield rng.choice([-1, 1], size=(2, 1, 7)) * rng.uniform(2.6, 5.9, size=(2, 1, 7))
    yield np.array([-1000.0, 1000.0, 30.0, -30.0])


def unary_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """One input: `signed_points`."""
    for x in signed_points(rng):
        yield Sample(x)
