"""Pictures read between their pixels."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.autodiff import grad
from nnl_core.graph.variable import Variable

RNG = np.random.default_rng(0)


def leaf(array: Any) -> Variable:
    return Variable.from_numpy_array(np.asarray(array, np.float64), need_grad=True)


def row(*points: float) -> np.ndarray:
    """A grid over a picture of one row."""
    return np.stack([np.array(points), np.zeros(len(points))], axis=-1)[None, None]


# An independent answer: one point after the other -------------------------------------------------


def outside(i: int, length: int, padding: str, cells: bool) -> int | None:
    """Which element stands at ``i``."""
    if 0 <= i < length:
        return i
    if padding == "zero":
        return None
    if padding == "repeat":
        return 0 if i < 0 else length - 1
    if length == 1:
        return 0
    mirrored = list(range(length)) + (
        list(range(length - 1, -1, -1)) if cells else list(range(length - 2, 0, -1))
    )
    return mirrored[i % len(mirrored)]


def bilinear(x: np.ndarray, point: np.ndarray, padding: str, cells: bool) -> np.ndarray:
    """Value of ``(channels, *lengths)`` at one point ``(x, y)`` or ``(x, y, z)`` in pixels."""
    at = point[::-1]
    low = np.floor(at).astype(int)
    total = np.zeros(x.shape[0])
    for corner in itertools.product((0, 1), repeat=len(at)):
        weight = np.prod(np.where(corner, at - low, 1 - (at - low)))
        index = [
            outside(i, n, padding, cells) for i, n in zip(low + corner, x.shape[1:], strict=True)
        ]
        if None not in index:
            total += weight * x[(slice(None), *index)]
    return total


@pytest.mark.parametrize("lengths", [(4, 5), (1, 3), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("padding", ["zero", "repeat", "reflect"])
def test_linear_warping_is_that_of_one_point_after_the_other(
    lengths: tuple[int, ...], align_corners: bool, padding: str
) -> None:
    axes = len(lengths)
    x = RNG.normal(size=(2, 3, *lengths))
    grid = RNG.uniform(-3, 3, size=(2, *(3,) * axes, axes))
    n = np.array(lengths[::-1])
    points = (grid + 1) * (n - 1) / 2 if align_corners else ((grid + 1) * n - 1) / 2
    expected = np.empty((2, 3, *(3,) * axes))
    for b, *place in np.ndindex(2, *(3,) * axes):
        point = points[(b, *place)]
        expected[(b, slice(None), *place)] = bilinear(x[b], point, padding, not align_corners)
    y = F.warp_by_grid(x, grid, "linear", padding, align_corners)
    np.testing.assert_allclose(y.d, expected, atol=1e-12)


# Grids -------------------------------------------------------------------------------------------


@given(
    size=st.one_of(
        st.tuples(*[st.integers(1, 5)] * 2),
        st.tuples(*[st.integers(1, 5)] * 3),
    ),
    align_corners=st.booleans(),
    mode=st.sampled_from(["linear", "nearest"]),
)
@settings(deadline=None, max_examples=50)
def test_the_grid_of_the_identity_leaves_every_picture_as_it_is(
    size: tuple[int, ...], align_corners: bool, mode: str
) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, *size))
    theta = np.tile(np.eye(len(size), len(size) + 1), (2, 1, 1))
    grid = F.affine_grid(theta, size, align_corners)
    y = F.warp_by_grid(x, grid, mode, align_corners=align_corners)
    np.testing.assert_allclose(y.d, x, atol=1e-12)


def test_affine_grid_puts_the_borders_or_the_outermost_centres_at_one() -> None:
    theta = np.eye(2, 3)[None]
    inside = F.affine_grid(theta, (1, 4)).d[0, 0, :, 0]
    np.testing.assert_allclose(inside, [-0.75, -0.25, 0.25, 0.75])
    corners = F.affine_grid(theta, (1, 4), align_corners=True).d[0, 0, :, 0]
    np.testing.assert_allclose(corners, [-1, -1 / 3, 1 / 3, 1])


def test_affine_grid_maps_x_first() -> None:
    theta = np.array([[[2.0, 3.0, 5.0], [7.0, 11.0, 13.0]]])
    x, y = F.affine_grid(theta, (2, 2), align_corners=True).d[0, 1, 0]  # x = -1, y = 1
    assert (x, y) == (-2 + 3 + 5, -7 + 11 + 13)


def test_affine_grid_is_the_centre_along_an_axis_of_length_one() -> None:
    for align_corners in (True, False):
        assert not F.affine_grid(np.eye(2, 3)[None], (1, 1), align_corners).d.any()


def test_a_translation_of_one_pixel_moves_the_picture_by_it() -> None:
    x = RNG.normal(size=(1, 1, 1, 4))
    theta = np.array([[[1.0, 0.0, 2 / 4], [0.0, 1.0, 0.0]]])
    y = F.warp_by_grid(x, F.affine_grid(theta, (1, 4))).d.ravel()
    np.testing.assert_allclose(y, [*x.ravel()[1:], 0], atol=1e-12)


def test_channels_last_are_warped_as_channels_first() -> None:
    x, grid = RNG.normal(size=(2, 3, 4, 5)), RNG.uniform(-1, 1, size=(2, 2, 3, 2))
    first = F.warp_by_grid(x, grid).d
    last = F.warp_by_grid(np.moveaxis(x, 1, -1), grid, channel_last=True).d
    np.testing.assert_array_equal(last, np.moveaxis(first, 1, -1))


def test_nearest_rounds_halves_away_from_zero_and_in_grid_sample_to_even() -> None:
    x = np.arange(8.0).reshape(1, 1, 1, 8)
    halves = row(*(2 * (np.array([0.5, 1.5, 2.5]) / 7) - 1))
    away = F.warp_by_grid(x, halves, "nearest", align_corners=True)
    np.testing.assert_array_equal(away.d.ravel(), [1, 2, 3])
    even = F.grid_sample(x, halves, "nearest", align_corners=True)
    np.testing.assert_array_equal(even.d.ravel(), [0, 2, 2])


def test_grid_sample_has_the_words_of_pytorch() -> None:
    x, grid = RNG.normal(size=(1, 2, 4, 5)), RNG.uniform(-2, 2, size=(1, 3, 3, 2))
    for theirs, ours in (("zeros", "zero"), ("border", "repeat"), ("reflection", "reflect")):
        for align_corners in (True, False):
            np.testing.assert_array_equal(
                F.grid_sample(x, grid, "bilinear", theirs, align_corners).d,
                F.warp_by_grid(x, grid, "linear", ours, align_corners).d,
            )


def test_bicubic_samples_between_four_pixels_along_each_axis() -> None:
    x = np.eye(5).reshape(5, 1, 1, 5)
    grid = np.tile(row(2 * 1.5 / 4 - 1), (5, 1, 1, 1))  # between pixels 1 and 2
    y = F.grid_sample(x, grid, "bicubic", align_corners=True).d.ravel()
    near, far = 0.5 + 0.75 / 8, -0.75 / 8
    np.testing.assert_allclose(y, [far, near, near, far, 0], atol=1e-12)


# Numbers -----------------------------------------------------------------------------------------


def test_a_point_that_is_nan_gives_nan_and_an_infinite_one_what_is_outside() -> None:
    x = np.array([1.0, 2.0, 3.0]).reshape(1, 1, 1, 3)
    grid = row(np.nan, 0, np.inf, -np.inf)
    for mode in ("linear", "nearest"):
        zero = F.warp_by_grid(x, grid, mode).d.ravel()
        np.testing.assert_array_equal(zero, [np.nan, 2, 0, 0])
        repeat = F.warp_by_grid(x, grid, mode, "repeat").d.ravel()
        np.testing.assert_array_equal(repeat, [np.nan, 2, 3, 1])


def test_a_pixel_that_is_nan_is_seen_by_its_readers_alone() -> None:
    x = np.array([1.0, np.nan, 3.0, 4.0]).reshape(1, 1, 1, 4)
    grid = row(*(2 * np.array([0, 0.5, 1, 1.5, 2, 3, 9]) / 3 - 1))
    y = F.warp_by_grid(x, grid, align_corners=True).d.ravel()
    np.testing.assert_array_equal(y, [1, np.nan, np.nan, np.nan, 3, 4, 0])


def test_a_grid_in_half_precision_tells_the_pixels_of_a_large_picture_apart() -> None:
    x = np.arange(3001.0, dtype=np.float32).reshape(1, 1, 1, -1)
    at = np.float16(0.6665)
    y = F.warp_by_grid(x, row(at).astype(np.float16), align_corners=True)
    np.testing.assert_allclose(y.d.ravel(), [(float(at) + 1) * 1500], rtol=1e-6)


def test_an_empty_batch_is_warped_to_one() -> None:
    assert F.warp_by_grid(np.zeros((0, 3, 4, 4)), np.zeros((0, 2, 5, 2))).d.shape == (0, 3, 2, 5)
    assert F.warp_by_flow(np.zeros((0, 3, 4, 4)), np.zeros((0, 2, 4, 4))).d.shape == (0, 3, 4, 4)


# Gradients ---------------------------------------------------------------------------------------


def test_points_that_read_one_pixel_add_their_gradients() -> None:
    x = leaf(np.zeros((1, 1, 1, 3)))
    y = F.warp_by_grid(x, row(0, 0, 1, 2), padding_mode="repeat", align_corners=True)
    y.forward()
    y.backward(np.array([1.0, 2.0, 4.0, 8.0]).reshape(y.shape))
    np.testing.assert_array_equal(x.g.ravel(), [0, 3, 12])


@pytest.mark.parametrize("align_corners", [True, False])
def test_the_gradient_in_the_grid_of_a_plane_is_its_slope(align_corners: bool) -> None:
    plane = 2.0 * np.arange(4)[:, None] + 5.0 * np.arange(6)
    grid = leaf(RNG.uniform(-0.6, 0.6, size=(1, 3, 3, 2)))
    y = F.warp_by_grid(plane[None, None], grid, align_corners=align_corners)
    y.forward()
    y.backward(np.ones(y.shape))
    half_x, half_y = (5 / 2, 3 / 2) if align_corners else (6 / 2, 4 / 2)
    np.testing.assert_allclose(grid.g[..., 0], 5 * half_x)
    np.testing.assert_allclose(grid.g[..., 1], 2 * half_y)


def test_the_mixed_second_derivative_of_bilinear_is_the_twist_of_the_four_pixels() -> None:
    x = np.array([[1.0, 2.0], [4.0, 9.0]])[None, None]
    grid = leaf([[[[0.2, -0.4]]]])
    y = F.warp_by_grid(x, grid, align_corners=True)
    (first,) = grad([y], [grid])
    (second,) = grad([F.getitem(first, (0, 0, 0, 0))], [grid])
    second.forward()
    np.testing.assert_allclose(second.d.ravel(), [0, (9 - 4 - 2 + 1) / 4], atol=1e-12)


def test_nearest_has_no_gradient_in_the_grid() -> None:
    grid = leaf(row(0.1, 0.2))
    y = F.warp_by_grid(leaf(np.ones((1, 1, 1, 3))), grid, "nearest")
    y.forward()
    y.backward()
    assert not grid.g.any()


# Flow --------------------------------------------------------------------------------------------


@given(dx=st.integers(-6, 6), dy=st.integers(-6, 6))
@settings(deadline=None, max_examples=30)
def test_a_flow_of_whole_pixels_shifts_and_repeats_the_border(dx: int, dy: int) -> None:
    x = np.random.default_rng(0).normal(size=(1, 2, 3, 4))
    flow = np.tile(np.array([dx, dy], float).reshape(1, 2, 1, 1), (1, 1, 3, 4))
    rows, columns = (np.arange(3) + dy).clip(0, 2), (np.arange(4) + dx).clip(0, 3)
    y = F.warp_by_flow(x, flow)
    np.testing.assert_allclose(y.d, x[:, :, rows][..., columns])


def test_the_gradient_in_the_flow_is_the_slope_and_nothing_beyond_the_border() -> None:
    x = np.array([1.0, 4.0, 6.0]).reshape(1, 1, 1, 3)
    flow = leaf(np.array([[0.5, 0.5, 0.5], [0, 0, 0]]).reshape(1, 2, 1, 3))
    y = F.warp_by_flow(x, flow)
    y.forward()
    y.backward(np.ones(y.shape))
    np.testing.assert_allclose(flow.g[0, 0, 0], [3, 2, 0])
    np.testing.assert_allclose(flow.g[0, 1, 0], 0)


# Errors ------------------------------------------------------------------------------------------

X, GRID = np.zeros((1, 2, 3, 4)), np.zeros((1, 5, 5, 2))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: F.warp_by_grid(X, GRID, "cubic"), OperatorError, "mode 'cubic' is not one of"),
        (lambda: F.warp_by_grid(X, GRID, "linear", "zeros"), OperatorError, "padding_mode 'zeros'"),
        (lambda: F.grid_sample(X, GRID, "linear"), OperatorError, "mode 'linear' is not one of"),
        (lambda: F.grid_sample(X, GRID, padding_mode="zero"), OperatorError, "padding_mode 'zero'"),
        (lambda: F.warp_by_grid(X, GRID[..., :1]), ShapeError, r"grid of shape \(1, 5, 5, 1\)"),
        (lambda: F.warp_by_grid(X, np.tile(GRID, (2, 1, 1, 1))), ShapeError, "the batch of x"),
        (lambda: F.warp_by_grid(X[0], GRID), ShapeError, r"pictures of shape \(2, 3, 4\)"),
        (lambda: F.warp_by_grid(X[:, :, :0], GRID), ShapeError, "without pixels"),
        (lambda: F.warp_by_flow(X, np.zeros((1, 2, 2, 4))), ShapeError, r"shape \(1, 2, 2, 4\)"),
        (lambda: F.affine_grid(np.zeros((1, 2, 3)), (2, 2, 2)), ShapeError, r"\(2, 2, 2\)"),
        (lambda: F.affine_grid(np.zeros((1, 2, 3)), (0, 2)), ShapeError, "at least 1"),
    ],
)
def test_what_does_not_fit_is_named(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
