"""Boxes pooled to one size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.variable import Variable


def read(x: np.ndarray, row: float, column: float) -> np.ndarray:
    """Value of ``(channels, height, width)`` between pixels."""
    height, width = x.shape[1:]
    if not (-1 <= row <= height and -1 <= column <= width):
        return np.zeros(len(x))
    row, column = min(max(row, 0), height - 1), min(max(column, 0), width - 1)
    i, j = int(row), int(column)
    below, right = min(i + 1, height - 1), min(j + 1, width - 1)
    f, g = row - i, column - j
    top = (1 - g) * x[:, i, j] + g * x[:, i, right]
    bottom = (1 - g) * x[:, below, j] + g * x[:, below, right]
    return np.asarray((1 - f) * top + f * bottom)


def pooled(x: np.ndarray, boxes: np.ndarray, size: Any, scale: Any, ratio: int) -> np.ndarray:
    """The definition, point after point."""
    result = np.zeros((len(boxes), x.shape[1], *size))
    for k, (b, x1, y1, x2, y2) in enumerate(boxes):
        starts = y1 * scale[0], x1 * scale[1]
        bins = (y2 * scale[0] - starts[0]) / size[0], (x2 * scale[1] - starts[1]) / size[1]
        counts = [ratio if ratio > 0 else max(1, math.ceil(bin_)) for bin_ in bins]
        for i, j in np.ndindex(*size):
            points = [
                read(
                    x[int(b)],
                    starts[0] + (i + (m + 0.5) / counts[0]) * bins[0] - 0.5,
                    starts[1] + (j + (n + 0.5) / counts[1]) * bins[1] - 0.5,
                )
                for m, n in np.ndindex(*counts)
            ]
            result[k, :, i, j] = np.mean(points, axis=0)
    return result


@pytest.mark.parametrize("ratio", [-1, 0, 1, 3])
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (7, 4)])
@pytest.mark.parametrize("scale", [(1.0, 1.0), (0.5, 1.75)])
def test_pooling_is_that_of_one_point_after_the_other(ratio: int, size: Any, scale: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 6, 8))
    corners = rng.uniform(-4, 9, size=(12, 2))
    lengths = rng.uniform(0.1, 9, size=(12, 2))
    boxes = np.concatenate([rng.integers(0, 2, size=(12, 1)), corners, corners + lengths], axis=1)
    y = F.roi_align(x, boxes, size, scale, ratio)
    np.testing.assert_allclose(y.d, pooled(x, boxes, size, scale, ratio), atol=1e-12)


def test_the_box_of_each_pixel_holds_the_pixel() -> None:
    x = np.arange(12.0).reshape(1, 1, 3, 4)
    boxes = np.array([[0, c, r, c + 1, r + 1] for r in range(3) for c in range(4)], float)
    np.testing.assert_array_equal(F.roi_align(x, boxes, (1, 1)).d.ravel(), x.ravel())


def test_the_mean_of_a_plane_is_its_value_in_the_middle_of_the_bin() -> None:
    plane = 3.0 * np.arange(9)[:, None] + np.arange(9)
    y = F.roi_align(plane[None, None], np.array([[0.0, 2, 1, 6, 5]]), (2, 2)).d[0, 0]
    middles = 3 * (np.array([2, 4]) - 0.5)[:, None] + np.array([3, 5]) - 0.5
    np.testing.assert_allclose(y, middles)


def test_a_box_without_area_or_upside_down_gives_numbers() -> None:
    x = np.arange(12.0).reshape(1, 1, 3, 4)
    boxes = np.array([[0, 1.5, 1.5, 1.5, 1.5], [0, 4, 3, 0, 0]])
    y = F.roi_align(x, boxes, (1, 1)).d.ravel()
    np.testing.assert_allclose(y, [5, 5.5])


def test_channels_last_are_pooled_as_channels_first() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 6))
    boxes = np.array([[1.0, 0.3, 0.2, 4.1, 3.7]])
    first = F.roi_align(x, boxes, (2, 3)).d
    last = F.roi_align(np.moveaxis(x, 1, -1), boxes, (2, 3), channel_last=True).d
    np.testing.assert_array_equal(last, np.moveaxis(first, 1, -1))


def test_nan_outside_a_box_is_not_seen() -> None:
    x = np.ones((1, 1, 8, 8))
    x[..., 7] = np.nan
    y = F.roi_align(x, np.array([[0.0, 0, 0, 4, 4], [0, 4, 4, 8, 8]]), (1, 1)).d.ravel()
    np.testing.assert_array_equal(y, [1, np.nan])


def test_boxes_that_overlap_add_their_gradients() -> None:
    x = Variable.from_numpy_array(np.zeros((1, 1, 2, 2)), need_grad=True)
    y = F.roi_align(x, np.array([[0.0, 0, 0, 2, 2], [0, 0, 0, 1, 1]]), (1, 1))
    y.forward()
    y.backward(np.array([4.0, 1.0]).reshape(2, 1, 1, 1))
    np.testing.assert_allclose(x.g[0, 0], [[2, 1], [1, 1]])


def test_no_boxes_give_nothing_and_gradient_zero() -> None:
    x = Variable.from_numpy_array(np.ones((1, 2, 3, 3)), need_grad=True)
    y = F.roi_align(x, np.zeros((0, 5)), (2, 2))
    y.forward()
    y.backward()
    assert y.shape == (0, 2, 2, 2)
    assert not x.g.any()


X = np.zeros((2, 1, 3, 3))


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ([2, 0, 0, 1, 1], r"index 2 is out of range \[0, 2\)"),
        ([0.5, 0, 0, 1, 1], "index 0.5 is not a whole number"),
        ([0, 0, np.nan, 1, 1], "box 0 is not finite"),
        ([0, 0, 0, 1e9, 1], "a bin of 1e.09 pixels has 1000000000 points; check the boxes"),
    ],
)
def test_a_box_that_makes_no_sense_is_named(box: list[float], message: str) -> None:
    y = F.roi_align(Variable.from_numpy_array(X), np.array([box]), (1, 1))
    with pytest.raises(OperatorError, match=message):
        y.forward()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X, np.zeros((1, 4)), (1, 1)), r"boxes \(boxes, 5\)"),
        ((X[0], np.zeros((1, 5)), (1, 1)), "must be .batch, channels"),
        ((X, np.zeros((1, 5)), (0, 1)), r"output_size \(0, 1\)"),
        ((X, np.zeros((1, 5)), (1, 1), (1.0,)), r"two factors"),
    ],
)
def test_shapes_that_do_not_fit_are_named(arguments: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        F.roi_align(*arguments)
