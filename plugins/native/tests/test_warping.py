"""Pictures resampled, read between pixels, unfolded: closed forms, channels first and last."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable

LAST = pytest.mark.parametrize("last", [False, True])


def pictures(x, last):
    """Return a variable of pictures, whose channels lie last in memory if wanted."""
    if not last:
        return Variable.from_numpy_array(x, need_grad=True)
    memory = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    return F.transpose(
        Variable.from_numpy_array(memory, need_grad=True), (0, x.ndim - 1, *range(1, x.ndim - 1))
    )


def computed(variable):
    variable.forward()
    return variable.d


def gradient(y, x, g):
    (dx,) = nnl.grad([y], [x], grad_outputs=[Variable.from_numpy_array(g)])
    return computed(dx)


@LAST
@pytest.mark.parametrize("size", [(9, 31), (23, 7)])
def test_interpolation_between_corners_is_linear_along_each_axis(last, size):
    x = np.random.default_rng(0).normal(size=(2, 20, 12, 16))
    y = F.interpolate(pictures(x, last), output_size=size, mode="linear", align_corners=True)
    expected = x
    for axis, length in zip((2, 3), size, strict=True):
        old, new = np.arange(x.shape[axis]), np.linspace(0, x.shape[axis] - 1, length)
        expected = np.apply_along_axis(lambda line: np.interp(new, old, line), axis, expected)  # noqa: B023 - used at once
    np.testing.assert_allclose(computed(y), expected, rtol=1e-6, atol=1e-9)


@LAST
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_the_gradient_of_interpolation_is_its_adjoint(last, mode):
    rng = np.random.default_rng(1)
    x, g = rng.normal(size=(2, 20, 12, 16)), rng.normal(size=(2, 20, 23, 9))
    seen = pictures(x, last)
    y = F.interpolate(seen, output_size=(23, 9), mode=mode)
    assert np.vdot(computed(y), g) == pytest.approx(np.vdot(x, gradient(y, seen, g)), rel=1e-9)


def bilinear(picture, column, row):
    """Read a picture of zeros around it at one point, by the definition."""
    result = 0.0
    for i in (np.floor(row), np.floor(row) + 1):
        for j in (np.floor(column), np.floor(column) + 1):
            if 0 <= i < picture.shape[0] and 0 <= j < picture.shape[1]:
                weight = (1 - abs(row - i)) * (1 - abs(column - j))
                result += weight * picture[int(i), int(j)]
    return result


@LAST
def test_points_between_pixels_are_read_linearly_and_pass_their_gradient_back(last):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2, 18, 7, 9))
    points = rng.uniform(-1.3, 1.3, size=(2, 11, 8, 2))
    seen = pictures(x, last)
    y = F.warp_by_grid(seen, points, align_corners=True)
    columns, rows = (points[..., 0] + 1) / 2 * 8, (points[..., 1] + 1) / 2 * 6
    expected = np.empty((2, 18, 11, 8))
    for n, c, i, j in np.ndindex(*expected.shape):
        expected[n, c, i, j] = bilinear(x[n, c], columns[n, i, j], rows[n, i, j])
    np.testing.assert_allclose(computed(y), expected, rtol=1e-9, atol=1e-9)
    g = rng.normal(size=expected.shape)
    assert np.vdot(expected, g) == pytest.approx(np.vdot(x, gradient(y, seen, g)), rel=1e-9)


@pytest.mark.parametrize("padding", ["zero", "repeat", "reflect"])
def test_pixels_of_weight_0_do_not_count(padding):
    x = np.full((1, 3, 12, 12), np.nan)
    x[:, :, ::2, ::2] = 1.0
    places = np.linspace(-1, 1, 12)[::2]
    points = np.stack(np.meshgrid(places, places), axis=-1)[None].repeat(8, axis=2)
    y = F.warp_by_grid(x, points, mode="nearest", padding_mode=padding, align_corners=True)
    np.testing.assert_array_equal(computed(y), np.ones((1, 3, 6, 48)))


@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "dilation"),
    [((3, 3), (1, 1), (1, 1), (1, 1)), ((2, 3), (3, 2), (0, 2), (2, 1)), ((5,), (2,), (4,), (1,))],
)
def test_windows_become_columns_and_are_added_back(kernel, stride, pad, dilation):
    rng = np.random.default_rng(3)
    x = rng.integers(-9, 9, (2, 30, *[13, 17][: len(kernel)])).astype(np.float32)
    seen = Variable.from_numpy_array(x, need_grad=True)
    y = F.unfold(seen, kernel, pad=pad, stride=stride, dilation=dilation)
    padded = np.pad(x, [(0, 0), (0, 0), *((n, n) for n in pad)])
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    axes = tuple(range(2, x.ndim))
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, axes)
    windows = windows[(..., *(slice(None, None, s) for s in stride), *[slice(None)] * len(reach))]
    windows = windows[(..., *(slice(None, None, d) for d in dilation))]
    taps = tuple(range(x.ndim, windows.ndim))
    expected = windows.transpose(0, 1, *taps, *axes).reshape(y.shape)
    np.testing.assert_array_equal(computed(y), expected)
    g = rng.integers(-9, 9, y.shape).astype(np.float32)
    assert np.vdot(expected, g) == np.vdot(x, gradient(y, seen, g))
