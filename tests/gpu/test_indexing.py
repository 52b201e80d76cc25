"""Tests for operators that take and put elements by position on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnl_core.errors import OperatorError
from nnl_core.graph.operator import Array, lookup

Compute = Callable[..., tuple[Array, ...]]


@pytest.mark.parametrize("features", [1, 3, 64])
def test_rows_of_a_table_are_taken(compute: Compute, features: int) -> None:
    rng = np.random.default_rng(0)
    table, rows = rng.normal(size=(50, features)).astype(np.float32), rng.integers(0, 50, 300)
    (y,) = compute("nnl::gather", table, rows, axis=0, batch_dims=0)
    np.testing.assert_array_equal(y, table[rows])


POSITIONS: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "all different": lambda rng, n: rng.permutation(n),
    "few": lambda rng, n: rng.integers(0, 3, n),
    "one": lambda rng, n: np.full(n, 2),
    "any": lambda rng, n: rng.integers(0, n, n),
    "one of them often": lambda rng, n: np.where(rng.random(n) < 0.5, 7, rng.integers(0, n, n)),
}


@pytest.mark.parametrize("count", [31, 64, 1000, 4500])
@pytest.mark.parametrize("draw", POSITIONS.values(), ids=POSITIONS.keys())
def test_whole_numbers_add_up_where_positions_repeat(
    compute: Compute, draw: Callable[[np.random.Generator, int], Array], count: int
) -> None:
    rng = np.random.default_rng(1)
    rows, size = draw(rng, count), max(count, 300)
    g = rng.integers(-4, 5, (count, 3)).astype(np.float32)
    (y,) = compute("nnl::gather_adjoint", g, rows, size=size, axis=0, batch_dims=0)
    target = np.zeros((size, 3), np.float32)
    np.add.at(target, rows, g)
    np.testing.assert_array_equal(y, target)


def test_sums_have_the_same_bits_each_time(compute: Compute) -> None:
    rng = np.random.default_rng(2)
    rows, g = rng.integers(0, 5, 5000), rng.normal(size=(5000, 2)).astype(np.float32)
    given = {"size": 70000, "axis": 0, "batch_dims": 0}
    first, again = (compute("nnl::gather_adjoint", g, rows, **given)[0] for _ in range(2))
    assert first.tobytes() == again.tobytes()
    np.testing.assert_allclose(first[1], g[rows == 1].sum(0, dtype=np.float64), rtol=1e-4)


def test_half_precision_adds_up_in_single(compute: Compute) -> None:
    (y,) = compute(
        "nnl::gather_adjoint", np.ones((4000, 1), np.float16), np.zeros(4000, np.int64), size=1,
        axis=0, batch_dims=0,
    )  # fmt: skip
    assert y.item() == 4000


@pytest.mark.parametrize("axis", [0, 1])
def test_elements_add_up_and_the_largest_stay(compute: Compute, axis: int) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(0, 9, (40, 70)).astype(np.float32)
    indices = rng.integers(0, x.shape[axis], (35, 60))
    updates = rng.integers(0, 99, (35, 60)).astype(np.float32)
    at = (indices, np.arange(60)[None]) if axis == 0 else (np.arange(35)[:, None], indices)
    for name, ufunc in (("scatter_add", np.add), ("scatter_extreme", np.maximum)):
        (y,) = compute(f"nnl::{name}", x, indices, updates, axis=axis)
        target = x.copy()
        ufunc.at(target, at, updates)
        np.testing.assert_array_equal(y, target)


def test_not_a_number_stays_the_largest(compute: Compute) -> None:
    x, updates = np.zeros(2, np.float32), np.array([1, np.nan, 2, 3], np.float32)
    (y,) = compute("nnl::scatter_extreme", x, np.array([0, 0, 0, 1]), updates, axis=0)
    np.testing.assert_array_equal(y, [np.nan, 3])


def test_the_last_of_equal_positions_is_written(compute: Compute) -> None:
    rng = np.random.default_rng(4)
    at, data = rng.integers(0, 9, (2, 500)), rng.normal(size=(500, 5)).astype(np.float32)
    (y,) = compute("nnl::scatter_nd", data, at, np.ones((9, 9, 5), np.float32), shape=(9, 9, 5),
                   add=False)  # fmt: skip
    target = np.ones((9, 9, 5), np.float32)
    for (row, column), values in zip(at.T, data, strict=True):
        target[row, column] = values
    np.testing.assert_array_equal(y, target)


@pytest.mark.parametrize("count", [1, 2048, 5000])
def test_chosen_elements_keep_their_order(compute: Compute, count: int) -> None:
    rng = np.random.default_rng(5)
    mask, x = rng.random(count) < 0.3, rng.normal(size=(count, 2)).astype(np.float32)
    chosen = int(mask.sum())
    (y,) = compute("nnl::bool_gather", x, mask, count=chosen)
    np.testing.assert_array_equal(y, x[mask])
    (back,) = compute("nnl::bool_scatter", y, mask, np.zeros((count, 2), np.float32))
    np.testing.assert_array_equal(back, np.where(mask[:, None], x, 0))
    (places,) = compute("nnl::nonzero", mask.reshape(1, -1), count=chosen)
    np.testing.assert_array_equal(places, mask.reshape(1, -1).nonzero())


OUTSIDE: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "gather": ((np.ones((3, 4)), np.array([0, 3, -1, 2**40])), {"axis": 0}),
    "gather_elements": ((np.ones((3, 4)), np.array([[0, 7, -1, 9]])), {"axis": 0}),
    "gather_nd": ((np.ones((3, 4)), np.array([[0, 3, -4, 2**40]])), {}),
    "one_hot": ((np.array([[0], [3], [-4]]),), {"shape": (3,)}),
    "gather_adjoint": (
        (np.ones((3, 2)), np.array([0, 5, -1])), {"size": 3, "axis": 0, "batch_dims": 0}
    ),
    "scatter_add": ((np.ones((3, 1)), np.array([[5], [-1]]), np.ones((2, 1))), {"axis": 0}),
}  # fmt: skip


@pytest.mark.parametrize("name", OUTSIDE)
def test_positions_outside_are_an_error_and_touch_no_memory(compute: Compute, name: str) -> None:
    inputs, attributes = OUTSIDE[name]
    with pytest.raises(OperatorError, match=f"{name}: an index is out of range"):
        compute(f"nnl::{name}", *inputs, **attributes)


def test_positions_that_are_no_whole_numbers_are_an_error(compute: Compute) -> None:
    with pytest.raises(OperatorError, match="gather: an index is out of range, or not a whole"):
        compute("nnl::gather", np.ones((3, 2)), np.array([1.0, 0.5]), axis=0)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_mask_with_another_number_of_places_is_an_error(compute: Compute, count: int) -> None:
    mask, x = np.array([True, False, True]), np.ones((3, 2))
    with pytest.raises(OperatorError, match=f"another number of places than the {count}"):
        compute("nnl::bool_gather", x, mask, count=count)
    with pytest.raises(OperatorError, match=f"the array is not 0 at another number .* {count}"):
        compute("nnl::nonzero", mask, count=count)


@pytest.mark.parametrize("kind", ["parts", "mirrored", "repeated"])
def test_parts_of_examples_are_taken_and_put_back(compute: Compute, kind: str) -> None:
    rng = np.random.default_rng(6)
    shape, lengths = (5, 3, 20, 24), (5, 3, 16, 24)
    rows = []
    for n, m in zip(shape[1:], lengths[1:], strict=True):
        starts = rng.integers(0, n - m + 1, (5, 1)) if kind == "parts" else np.full((5, 1), -2)
        at = starts + np.arange(m)
        rows.append(np.abs(at) if kind == "mirrored" else at.clip(0))
    listed = np.concatenate([np.tile(np.arange(5), (5, 1)), *rows], axis=1)
    for name, given, options in (
        ("pick", shape, {"lengths": lengths}),
        ("put", lengths, {"shape": shape}),
    ):
        x = rng.integers(0, 9, given).astype(np.float32)
        (y,) = compute(f"nnl::{name}", x, listed, base=1, **options)
        target = lookup(f"nnl::{name}").reference(x, listed, base=1, **options)
        np.testing.assert_array_equal(y, target)


@pytest.mark.parametrize("ndim", [1, 2])
def test_parts_begin_where_numpy_draws(compute: Compute, ndim: int) -> None:
    key, x = np.array([3, 2**62 + 1], np.uint64), np.zeros((300, 3, 40, 50), np.int8)
    shape = (30, 2**1)[:ndim]
    y, rows = compute("nnl::random_crop", x, key, shape=shape, base_axis=1)
    lengths = y.shape
    room = np.array(x.shape) - lengths
    generator = np.random.Generator(np.random.Philox(key=key))
    starts = generator.integers(0, room + 1, (300, 4))
    firsts = np.cumsum([0, *lengths])[:-1]
    np.testing.assert_array_equal(rows[:, firsts], starts)
