"""Tests for operators that put elements elsewhere on a GPU: transposes, parts, joins, borders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnl_core.graph.dtypes import bfloat16
from nnl_core.graph.operator import Array, lookup

Compute = Callable[..., tuple[Array, ...]]


ORDERS = {
    "a matrix of several tiles": ((70, 45), (1, 0)),
    "a batch of matrices": ((3, 40, 33), (0, 2, 1)),
    "channels to the end": ((2, 3, 9, 11), (0, 2, 3, 1)),
    "many channels to the end": ((2, 40, 5, 9), (0, 2, 3, 1)),
    "channels to the front": ((2, 5, 9, 40), (0, 3, 1, 2)),
    "long runs that stay": ((5, 7, 16), (1, 0, 2)),
    "odd runs that stay": ((5, 7, 3), (1, 0, 2)),
    "backwards": ((4, 3, 10, 9), (3, 2, 1, 0)),
    "many rows": ((70001, 2), (1, 0)),
    "heads": ((2, 9, 4, 8), (0, 2, 1, 3)),
}


def numbers(*shape: int, dtype: Any = np.float32) -> Array:
    """Return numbers that are all different, as far as the dtype has so many."""
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


@pytest.mark.parametrize("shape, axes", ORDERS.values(), ids=ORDERS.keys())
def test_axes_come_in_any_order(
    compute: Compute, shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    x = numbers(*shape)
    (y,) = compute("nnl::transpose", x, axes=axes)
    np.testing.assert_array_equal(y, x.transpose(axes))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.float16, np.int32, np.float64])
def test_elements_of_any_size_are_transposed(compute: Compute, dtype: Any) -> None:
    x = numbers(70, 67, dtype=dtype)
    (y,) = compute("nnl::transpose", x, axes=(1, 0))
    np.testing.assert_array_equal(y, x.T)


@pytest.mark.parametrize("shape", [(5, 64), (64, 5), (3, 6, 35), (9, 2, 2, 2)])
def test_repetitions_follow_each_other(compute: Compute, shape: tuple[int, ...]) -> None:
    x = numbers(*shape)
    reps = (2, *(1 + n % 2 for n in shape))
    (y,) = compute("nnl::tile", x, reps=reps)
    np.testing.assert_array_equal(y, np.tile(x, reps))


KEYS = {
    "rows": (((2, 30, None),), (slice(2, 30),)),
    "every third, backwards": (((None, None, -3), (40, None, -1)), np.s_[::-3, 40::-1]),
    "a column": (((None, None, None), 7), np.s_[:, 7]),
    "aligned columns": (((None, None, None), (4, 36, None)), np.s_[:, 4:36]),
    "odd columns": (((None, None, None), (3, 36, None)), np.s_[:, 3:36]),
    "nothing": (((5, 5, None),), np.s_[5:5]),
}


@pytest.mark.parametrize("key, index", KEYS.values(), ids=KEYS.keys())
def test_a_part_goes_out_and_comes_back_among_zeros(compute: Compute, key: Any, index: Any) -> None:
    x = numbers(37, 44)
    (y,) = compute("nnl::getitem", x, key=key)
    np.testing.assert_array_equal(y, x[index])
    (back,) = compute("nnl::getitem_adjoint", y, key=key, shape=x.shape)
    target = np.zeros_like(x)
    target[index] = x[index]
    np.testing.assert_array_equal(back, target)


@pytest.mark.parametrize("widths", [(4, 8, 16), (1, 0, 2), (3, 5, 7), (2,) * 45])
def test_parts_stand_beside_each_other(compute: Compute, widths: tuple[int, ...]) -> None:
    parts = [numbers(6, n) + 100 * place for place, n in enumerate(widths)]
    (y,) = compute("nnl::concatenate", *parts, axis=1)
    np.testing.assert_array_equal(y, np.concatenate(parts, axis=1))


def test_parts_of_other_dtypes_are_converted(compute: Compute) -> None:
    half, whole = numbers(5, 3, dtype=np.float16), numbers(5, 4, dtype=bfloat16())
    (y,) = compute("nnl::concatenate", half, whole, axis=1)
    np.testing.assert_array_equal(y, np.concatenate([half, whole.astype(np.float32)], axis=1))


def test_slices_are_taken_apart_however_many(compute: Compute) -> None:
    x = numbers(3, 40, 6)
    for part, target in zip(compute("nnl::split", x, axis=1), np.moveaxis(x, 1, 0), strict=True):
        np.testing.assert_array_equal(part, target)


@pytest.mark.parametrize("mode", ["constant", "repeat", "reflect"])
def test_margins_surround_pictures(compute: Compute, mode: str) -> None:
    x = numbers(2, 3, 20, 33)
    (y,) = compute("nnl::pad", x, pad_width=(3, 2, 5, 40), mode=mode, constant_value=-1.0)
    options: dict[str, Any] = {"constant_values": -1} if mode == "constant" else {}
    name: Any = "edge" if mode == "repeat" else mode
    target = np.pad(x, ((0, 0), (0, 0), (3, 2), (5, 40)), name, **options)
    np.testing.assert_array_equal(y, target)


@pytest.mark.parametrize("mode", ["repeat", "reflect"])
def test_sums_of_margins_are_those_of_the_reference(compute: Compute, mode: str) -> None:
    g = numbers(3, 25, 78) % 7
    given = {"pad_width": (3, 2, 5, 40), "mode": mode, "shape": (3, 20, 33)}
    (y,) = compute("nnl::pad_adjoint", g, **given)
    np.testing.assert_array_equal(y, lookup("nnl::pad_adjoint").reference(g, **given))


def test_windows_of_pictures_are_shown_and_added_up(compute: Compute) -> None:
    given = {
        "kernel": (3, 2), "stride": (2, 1), "pad": ((1, 0), (2, 1)), "dilation": (1, 3),
    }  # fmt: skip
    x = numbers(2, 3, 17, 40)
    (y,) = compute("nnl::unfold", x, **given)
    np.testing.assert_array_equal(y, lookup("nnl::unfold").reference(x, **given))
    g = y % 5
    (back,) = compute("nnl::fold", g, size=(17, 40), **given)
    np.testing.assert_array_equal(back, lookup("nnl::fold").reference(g, size=(17, 40), **given))


def test_overlapping_pieces_are_cut_and_added_up(compute: Compute) -> None:
    x = numbers(3, 400) % 11
    (y,) = compute("nnl::frames", x, size=64, stride=16)
    np.testing.assert_array_equal(y[:, 3], x[:, 48:112])
    (back,) = compute("nnl::overlapped", y, stride=16, length=400)
    target = np.zeros_like(x)
    for piece in range(y.shape[1]):
        target[:, 16 * piece : 16 * piece + 64] += y[:, piece]
    np.testing.assert_array_equal(back, target)
