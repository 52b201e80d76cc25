"""Tests for sorting on a GPU, and for what follows from an order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nnl_core.graph.operator import Array, lookup

Compute = Callable[..., tuple[Array, ...]]

SHAPES = {
    "short rows": ((30, 7), 1),
    "rows of a block": ((3, 700), 1),
    "a long row, in tiles": ((5000,), 0),
    "long columns, in tiles": ((2100, 2), 0),
}
along_any_axis = pytest.mark.parametrize("shape, axis", SHAPES.values(), ids=SHAPES.keys())
both_ways = pytest.mark.parametrize("reverse", [False, True], ids=["ascending", "descending"])


def draw(shape: tuple[int, ...]) -> Array:
    """Return elements of which many are equal, and some no numbers."""
    x = np.random.default_rng(1).normal(size=shape).round(1).astype(np.float32)
    x.flat[[1, 5]] = np.nan
    x.flat[7] = -np.inf
    return x


@both_ways
@along_any_axis
def test_equal_elements_stay_in_their_order(
    compute: Compute, shape: tuple[int, ...], axis: int, reverse: bool
) -> None:
    x = draw(shape)
    results = compute("nnl::sort", x, axis=axis, reverse=reverse)
    targets = lookup("nnl::sort").reference(x, axis=axis, reverse=reverse)
    for one, target in zip(results, targets, strict=True):
        np.testing.assert_array_equal(one, target)


@both_ways
@along_any_axis
def test_the_first_of_all_are_those_of_a_sort(
    compute: Compute, shape: tuple[int, ...], axis: int, reverse: bool
) -> None:
    x = draw(shape)
    for k in (1, 6, shape[axis] - 1):
        results = compute("nnl::topk", x, k=k, axis=axis, largest=reverse)
        targets = lookup("nnl::topk").reference(x, k=k, axis=axis, largest=reverse)
        for one, target in zip(results, targets, strict=True):
            np.testing.assert_array_equal(one, target)


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.9])
def test_pruning_finds_the_threshold_among_many(compute: Compute, rate: float) -> None:
    rng = np.random.default_rng(2)
    x = ((rng.permutation(5000) + 1) * rng.choice([-1, 1], 5000)).astype(np.float32)
    (y,) = compute("nnl::prune", x, rate=rate)
    threshold = np.sort(np.abs(x))[int(4999 * rate)]
    np.testing.assert_array_equal(y, np.where(np.abs(x) < threshold, 0, x))


@pytest.mark.parametrize("key", [None, [5, 9]], ids=["by size", "by chance"])
def test_half_of_many_free_weights_are_fixed(compute: Compute, key: list[int] | None) -> None:
    rng = np.random.default_rng(3)
    marks = rng.integers(0, 2, 3000)
    held = np.where(marks == 1, 0.5, np.nan).astype(np.float32)
    given = (rng.normal(size=3000).astype(np.float32), marks, held, np.array(1))
    keys = None if key is None else np.array(key, np.uint64)
    ways = {"num_bits": 4, "iterations": (1, 2)}
    results = compute("nnl::inq", *given, keys, **ways)
    targets = lookup("nnl::inq").reference(*given, keys, **ways)
    for one, target in zip(results, targets, strict=True):
        np.testing.assert_array_equal(one, target)


def test_nan_is_found_behind_all_numbers(compute: Compute) -> None:
    sequence, values = np.array([1.0, 2.0, np.nan]), np.array([np.nan, 0.0, 2.0, 3.0])
    for right in (False, True):
        (y,) = compute("nnl::searchsorted", sequence, values, right=right)
        np.testing.assert_array_equal(
            y, np.searchsorted(sequence, values, "right" if right else "left")
        )
