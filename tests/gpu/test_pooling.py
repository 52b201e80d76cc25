"""Tests for pooling, its gradients and unpooling on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnl_core.gpu.families import pooling
from nnl_core.graph.dtypes import bfloat16
from nnl_core.graph.operator import Array, lookup

Compute = Callable[..., tuple[Array, ...]]

# shape, kernel, stride, pad, border
CASES: dict[str, tuple[Any, ...]] = {
    "many rows": ((70001, 2), (2,), (2,), ((0, 0),), "ignore"),
    "overlapping windows": ((3, 5, 13, 12), (3, 3), (2, 2), ((1, 1), (1, 1)), "ignore"),
    "gaps": ((2, 4, 11, 13), (2, 1), (3, 4), ((0, 0), (0, 0)), "ignore"),
    "windows over the end": ((2, 3, 10, 11), (3, 4), (2, 3), ((1, 2), (0, 1)), "every"),
    "channels last": ((2, 7, 9, 33), (3, 2, 1), (2, 2, 1), ((1, 0), (0, 0), (0, 0)), "ceil"),
    "large windows": ((3, 20, 19), (17, 17), (1, 2), ((0, 0), (0, 0)), "ignore"),
}


def _options(case: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("kernel", "stride", "pad", "border"), case[1:], strict=True))


def _values(shape: tuple[int, ...], dtype: np.dtype | type) -> Array:
    """Return small whole numbers: many are equal, and their sums are exact."""
    return np.random.default_rng(1).integers(-3, 4, shape).astype(dtype)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("name", ["max_pooling", "sum_pooling"])
def test_windows_are_reduced_as_by_the_reference(
    compute: Compute, name: str, case: tuple[Any, ...]
) -> None:
    x = _values(case[0], np.float32)
    (y,) = compute(f"nnl::{name}", x, **_options(case))
    np.testing.assert_array_equal(y, lookup(f"nnl::{name}").reference(x, **_options(case)))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("including", [False, True])
def test_averages_are_over_what_counts(
    compute: Compute, including: bool, case: tuple[Any, ...]
) -> None:
    x, options = _values(case[0], np.float32), {**_options(case), "including_pad": including}
    (y,) = compute("nnl::average_pooling", x, **options)
    target = lookup("nnl::average_pooling").reference(x, **options)
    np.testing.assert_allclose(y, target, rtol=1e-6)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_gradients_go_to_the_first_of_equal_maxima(compute: Compute, case: tuple[Any, ...]) -> None:
    x, options = _values(case[0], np.float32), _options(case)
    y = lookup("nnl::max_pooling").reference(x, **options)
    dy = _values(y.shape, np.float32)
    (dx,) = compute("nnl::max_pooling_gradient", dy, x, y, **options)
    target = lookup("nnl::max_pooling_gradient").reference(dy, x, y, **options)
    np.testing.assert_array_equal(dx, target)
    (z,) = compute("nnl::max_pooling_gather", x * 2, x, y, **options)
    np.testing.assert_array_equal(z, y * 2)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_gradients_of_sums_reach_every_element_of_their_windows(
    compute: Compute, case: tuple[Any, ...]
) -> None:
    x, options = _values(case[0], np.float32), _options(case)
    dy = _values(lookup("nnl::sum_pooling").reference(x, **options).shape, np.float32)
    options["size"] = case[0][len(case[0]) - len(case[1]) :]
    (dx,) = compute("nnl::sum_pooling_gradient", dy, **options)
    target = lookup("nnl::sum_pooling_gradient").reference(dy, **options)
    np.testing.assert_array_equal(dx, target)


def test_the_first_nan_of_a_window_wins(compute: Compute) -> None:
    nan = np.nan
    x = np.array([[1, nan, nan, 2], [5, 3, -np.inf, -np.inf]], np.float32)
    options = {"kernel": (4,), "stride": (4,), "pad": ((0, 0),)}
    (y,) = compute("nnl::max_pooling", x, **options)
    np.testing.assert_array_equal(y, [[nan], [5]])
    (dx,) = compute("nnl::max_pooling_gradient", np.ones((2, 1), np.float32), x, y, **options)
    np.testing.assert_array_equal(dx, [[0, 1, 0, 0], [1, 0, 0, 0]])


def test_a_window_of_minus_infinities_is_won_by_its_first_element(compute: Compute) -> None:
    x, dy = np.full((1, 3), -np.inf, np.float32), np.ones((1, 1), np.float32)
    options = {"kernel": (4,), "stride": (4,), "pad": ((1, 0),)}
    (dx,) = compute("nnl::max_pooling_gradient", dy, x, x[:, :1], **options)
    np.testing.assert_array_equal(dx, [[1, 0, 0]])


def test_sums_of_half_precision_are_rounded_once(compute: Compute) -> None:
    x = np.full((1, 600), 1, bfloat16())
    (y,) = compute("nnl::sum_pooling", x, kernel=(600,), stride=(600,), pad=((0, 0),))
    assert y == np.asarray(600, bfloat16())


def test_rows_beyond_one_launch_are_pooled_by_another(
    compute: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pooling, "LARGEST", 50)
    x, options = _values((7, 4, 5), np.float32), _options(CASES["overlapping windows"])
    (y,) = compute("nnl::max_pooling", x, **options)
    np.testing.assert_array_equal(y, lookup("nnl::max_pooling").reference(x, **options))


@pytest.mark.parametrize("dtype", [bool, np.int64, np.float16])
def test_unpooling_repeats_elements_of_any_size(compute: Compute, dtype: type) -> None:
    x = _values((3, 5, 7, 2), dtype)
    (y,) = compute("nnl::unpooling", x, kernel=(2, 3, 1))
    np.testing.assert_array_equal(y, x.repeat(2, axis=1).repeat(3, axis=2))
