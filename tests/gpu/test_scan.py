"""Tests for scans along an axis on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nnl_core.graph.operator import Array, lookup

Compute = Callable[..., tuple[Array, ...]]

SHAPES = {
    "short rows": ((70, 9), 1),
    "rows of a warp": ((3, 90), 1),
    "rows of a block": ((3, 1500), 1),
    "one long row, in chunks": ((20000,), 0),
    "columns": ((20, 70), 0),
    "columns of examples": ((2, 20, 35), 1),
    "few long columns, in chunks": ((500, 3), 0),
}
along_any_axis = pytest.mark.parametrize("shape, axis", SHAPES.values(), ids=SHAPES.keys())
both_ways = pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])


@both_ways
@along_any_axis
def test_running_sums_along_any_axis_agree_with_the_reference(
    compute: Compute, shape: tuple[int, ...], axis: int, reverse: bool
) -> None:
    x = np.random.default_rng(1).uniform(0, 1, shape)
    for exclusive in (False, True):
        ways = {"axis": axis, "reverse": reverse, "exclusive": exclusive}
        (y,) = compute("nnl::cumsum", x.astype(np.float32), **ways)
        target = lookup("nnl::cumsum").reference(x, **ways)
        np.testing.assert_allclose(y, target, rtol=1e-5, atol=1e-5)


@both_ways
@along_any_axis
def test_running_extremes_are_met_first_where_the_reference_says(
    compute: Compute, shape: tuple[int, ...], axis: int, reverse: bool
) -> None:
    x = np.random.default_rng(2).normal(size=shape).round(1).astype(np.float32)
    x.flat[x.size // 2] = np.nan
    ways = {"axis": axis, "reverse": reverse, "smallest": reverse}
    results = compute("nnl::running_extreme", x, **ways)
    targets = lookup("nnl::running_extreme").reference(x, **ways)
    for one, target in zip(results, targets, strict=True):
        np.testing.assert_array_equal(one, target)


@both_ways
@along_any_axis
def test_recurrences_along_any_axis_agree_with_the_reference(
    compute: Compute, shape: tuple[int, ...], axis: int, reverse: bool
) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.uniform(-1, 1, shape), rng.normal(size=shape)
    given = [one.astype(np.float32) for one in (a, b)]
    (s,) = compute("nnl::recurrence", *given, axis=axis, reverse=reverse)
    target = lookup("nnl::recurrence").reference(a, b, axis=axis, reverse=reverse)
    np.testing.assert_allclose(s, target, rtol=1e-4, atol=1e-4)


def test_running_log_sums_know_infinities(compute: Compute) -> None:
    infinite = np.inf
    x = np.array([-infinite, -infinite, 1, 1000, infinite, 2, infinite, -infinite], np.float32)
    (y,) = compute("nnl::logcumsumexp", x, axis=0)
    np.testing.assert_allclose(y, [-infinite, -infinite, 1, 1000, *[infinite] * 4])
