"""Pooling and unpooling."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.cpu.kernels import pooling as kernels
from nnl_core.errors import ShapeError
from nnl_core.graph.autodiff import grad
from nnl_core.graph.operator import lookup
from nnl_core.graph.variable import Variable
from nnl_core.operators.pooling import BORDERS, pooled


def value(variable: Variable) -> np.ndarray:
    variable.forward()
    return np.array(variable.d)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).permutation(int(np.prod(shape))).reshape(shape) / 4


def leaf(array: Any) -> Variable:
    return Variable.from_numpy_array(np.asarray(array, np.float64), need_grad=True)


def gradient(y: Variable, x: Variable, weights: np.ndarray | float = 1.0) -> np.ndarray:
    y.forward()
    y.backward(weights)
    return np.array(x.g)


# An independent answer: windows as lists of what they hold ----------------------------------------


def windows(
    x: np.ndarray, kernel: Any, stride: Any, pad: Any, places: Any
) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
    """Return for each window the indices of the data that it holds, in order."""
    result = {}
    for place in itertools.product(*map(range, places)):
        held = []
        for tap in itertools.product(*map(range, kernel)):
            at = tuple(
                p * s + t - before
                for p, s, t, (before, _) in zip(place, stride, tap, pad, strict=True)
            )
            if all(0 <= i < n for i, n in zip(at, x.shape, strict=True)):
                held.append(at)
        result[place] = held
    return result


@st.composite
def geometries(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any]]:
    axes = draw(st.integers(1, 3))
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(axes))
    stride = tuple(draw(st.integers(1, 4)) for _ in range(axes))
    pad = tuple((draw(st.integers(0, k - 1)), draw(st.integers(0, k - 1))) for k in kernel)
    shape = tuple(
        max(1, k - before - after) + draw(st.integers(0, 4))
        for k, (before, after) in zip(kernel, pad, strict=True)
    )
    border = draw(st.sampled_from(BORDERS))
    return shape, {"kernel": kernel, "stride": stride, "pad": pad, "border": border}


@given(geometry=geometries())
@settings(max_examples=60, deadline=None)
def test_windows_hold_what_their_definition_says(geometry: Any) -> None:
    shape, options = geometry
    where = (options["kernel"], options["stride"], options["pad"])
    places = pooled(shape, *where, options["border"])
    x = numbers(*shape)
    held = windows(x, *where, places)
    assert all(held.values()), "a window holds padding alone"

    def expected(function: Callable[[np.ndarray], float]) -> np.ndarray:
        result = np.zeros(places)
        for place, indices in held.items():
            result[place] = function(np.array([x[i] for i in indices]))
        return result

    top = lookup("nnl::max_pooling")(leaf(x), **options)
    np.testing.assert_array_equal(value(top), expected(np.max))
    total = lookup("nnl::sum_pooling")(leaf(x), **options)
    np.testing.assert_allclose(value(total), expected(np.sum), atol=1e-12)
    mean = lookup("nnl::average_pooling")(leaf(x), including_pad=False, **options)
    np.testing.assert_allclose(value(mean), expected(np.mean), atol=1e-12)

    g = np.random.default_rng(0).normal(size=places)
    dx_max, dx_sum, dx_mean = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for place, indices in held.items():
        dx_max[max(indices, key=lambda i: x[i])] += g[place]
        for i in indices:
            dx_sum[i] += g[place]
            dx_mean[i] += g[place] / len(indices)
    for y, dx in ((top, dx_max), (total, dx_sum), (mean, dx_mean)):
        source = y.parent.inputs[0]
        np.testing.assert_allclose(gradient(y, source, g), dx, atol=1e-12)


@given(geometry=geometries(), rows=st.integers(0, 5), block=st.sampled_from([1, 300, 1 << 18]))
@settings(max_examples=40, deadline=None)
def test_numpy_kernels_agree_with_the_references(geometry: Any, rows: int, block: int) -> None:
    shape, options = geometry
    x = np.random.default_rng(1).integers(0, 5, size=(rows, *shape)).astype(np.float64)  # with ties
    y = lookup("nnl::max_pooling").reference(x, **options)
    g, h = (
        np.random.default_rng(2).normal(size=y.shape),
        np.random.default_rng(3).normal(size=x.shape),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "BLOCK_BYTES", block)
        for name, arrays, more in [
            ("max_pooling", (x,), {}),
            ("max_pooling_gradient", (g, x, y), {}),
            ("max_pooling_gather", (h, x, y), {}),
            ("sum_pooling", (h,), {}),
            ("sum_pooling_gradient", (g,), {"size": shape}),
            ("average_pooling", (h,), {"including_pad": True}),
        ]:
            operator = lookup(f"nnl::{name}")
            kernel = operator.kernels["numpy"]
            assert callable(kernel)
            np.testing.assert_allclose(
                kernel(*arrays, out=None, **options, **more),
                operator.reference(*arrays, **options, **more),
                atol=1e-12,
                err_msg=name,
            )


# How many windows ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "kernel", "stride", "pad", "ignore", "ceil", "every"),
    [
        (6, 2, 2, (0, 0), 3, 3, 3),
        (7, 2, 2, (0, 0), 3, 4, 4),
        (7, 3, 2, (0, 0), 3, 3, 4),
        (7, 2, 3, (1, 1), 3, 3, 3),
        (6, 2, 1, (0, 0), 5, 5, 6),
        (3, 2, 2, (1, 1), 2, 2, 2),  # a third would begin in the padding at the end
        (4, 3, 3, (0, 0), 1, 2, 2),
        (4, 3, 2, (1, 0), 2, 2, 3),
    ],
)
def test_borders_differ_in_the_windows_at_the_end(
    n: int, kernel: int, stride: int, pad: tuple[int, int], ignore: int, ceil: int, every: int
) -> None:
    counts = [pooled((n,), (kernel,), (stride,), (pad,), border)[0] for border in BORDERS]
    assert counts == [ignore, ceil, every]


@pytest.mark.parametrize(
    ("including_pad", "expected"), [(True, [0.5, 2.5, 4 / 2]), (False, [1, 2.5, 4])]
)
def test_average_counts_padding_or_not_but_never_what_lies_beyond(
    including_pad: bool, expected: list[float]
) -> None:
    x = np.arange(1.0, 5)[None]
    y = F.average_pooling(x, (2,), (2,), False, (1,), including_pad=including_pad)
    np.testing.assert_allclose(value(y)[0], expected)


def test_average_over_the_end_divides_by_what_the_window_holds() -> None:
    y = F.average_pooling(np.arange(1.0, 4)[None], (2,), ignore_border=False)
    np.testing.assert_allclose(value(y)[0], [1.5, 3])


# Maximum ------------------------------------------------------------------------------------------


def test_of_equal_elements_the_first_gets_the_whole_gradient() -> None:
    x = leaf(np.ones((4, 4)))
    dx = gradient(F.max_pooling(x, (2, 2)), x)
    expected = np.zeros((4, 4))
    expected[::2, ::2] = 1
    np.testing.assert_array_equal(dx, expected)


def test_nan_wins_and_the_first_of_them_gets_the_gradient() -> None:
    x = leaf([[1, np.nan, 3, 4], [np.nan, 9, 6, 5]])
    y = F.max_pooling(x, (2, 2))
    np.testing.assert_array_equal(value(y), [[np.nan, 6]])
    np.testing.assert_array_equal(gradient(y, x), [[0, 1, 0, 0], [0, 0, 1, 0]])


def test_padding_does_not_take_the_gradient_of_an_infinitely_small_maximum() -> None:
    x = leaf([-np.inf, -np.inf])
    y = F.max_pooling(x, (2,), (1,), pad=1)
    np.testing.assert_array_equal(value(y), [-np.inf] * 3)
    np.testing.assert_array_equal(gradient(y, x), [2, 1])


def test_a_gradient_that_is_not_finite_stays_at_the_maximum() -> None:
    x = leaf([1, 2, 3, 0])
    y = F.max_pooling(x, (2,))
    np.testing.assert_array_equal(
        gradient(y, x, np.array([np.inf, np.nan])), [0, np.inf, np.nan, 0]
    )


def test_overlapping_windows_add_their_gradients() -> None:
    x = leaf([1, 5, 2])
    np.testing.assert_array_equal(gradient(F.max_pooling(x, (2,), (1,)), x), [0, 2, 0])


def test_second_derivative_of_a_square_of_maxima_is_two_at_the_maxima() -> None:
    x = leaf([1, 5, 2, 3])
    y = F.max_pooling(x, (2,))
    (first,) = grad(y * y, x)
    (second,) = grad(first, x)
    np.testing.assert_array_equal(value(second), [0, 2, 0, 2])


def test_backward_function_is_the_gradient() -> None:
    x, dy = leaf(numbers(2, 4, 6)), numbers(2, 2, 3)
    expected = gradient(F.max_pooling(x, (2, 2)), x, dy)
    np.testing.assert_array_equal(value(F.max_pooling_backward(dy, x, (2, 2))), expected)


# Sums of a whole, and the other way ---------------------------------------------------------------


def test_global_average_is_the_mean_of_each_channel() -> None:
    x = numbers(2, 3, 4, 5)
    y = F.global_average_pooling(x)
    assert y.shape == (2, 3, 1, 1)
    np.testing.assert_allclose(value(y), x.mean(axis=(2, 3), keepdims=True))


def test_unpooling_repeats_and_its_gradient_sums() -> None:
    x = leaf([[1, 2]])
    y = F.unpooling(x, (2, 3))
    np.testing.assert_array_equal(value(y), [[1, 1, 1, 2, 2, 2]] * 2)
    np.testing.assert_array_equal(gradient(y, x, np.arange(12.0).reshape(2, 6)), [[24, 42]])


@pytest.mark.parametrize(
    "function", [F.max_pooling, F.average_pooling, F.sum_pooling], ids=lambda f: f.__name__
)
def test_channel_last_pools_the_axes_before_the_channels(function: Any) -> None:
    x = numbers(2, 5, 6, 3)
    options = {"stride": (2, 1), "ignore_border": False, "pad": (1, 0)}
    expected = value(function(np.moveaxis(x, -1, 1), (2, 3), **options))
    last = function(x, (2, 3), channel_last=True, **options)
    np.testing.assert_allclose(value(last), np.moveaxis(expected, 1, -1))


def test_unpooling_with_channel_last_leaves_the_channels() -> None:
    assert F.unpooling(np.zeros((1, 2, 3, 5)), (2, 2), channel_last=True).shape == (1, 4, 6, 5)


def test_half_precision_is_summed_in_single() -> None:
    y = F.sum_pooling(np.ones((4096,), np.float16), (4096,))
    assert y.dtype == np.float16
    assert value(y).item() == 4096


@pytest.mark.parametrize(
    "function", [F.max_pooling, F.average_pooling, F.sum_pooling], ids=lambda f: f.__name__
)
def test_empty_batch_gives_an_empty_result_and_gradient(function: Any) -> None:
    x = leaf(np.zeros((0, 2, 4, 4)))
    assert gradient(function(x, (2, 2), (1, 1), pad=1), x).shape == (0, 2, 4, 4)


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "kernel", "options", "sentence"),
    [
        ((2, 3), (4,), {}, "kernel 4 does not fit in an axis of length 3"),
        ((2, 3), (2,), {"pad": 2}, "padding alone"),
        ((2, 3), (2,), {"pad": [(0, 2)]}, "padding alone"),
        ((3,), (2, 2), {}, "2 axes does not fit an input of 1"),
        ((3, 3), (2, 2), {"stride": (1,)}, "stride"),
        ((3, 3), (2, 2), {"pad": (1, 1, 1)}, "pad"),
        ((3, 3), (0, 2), {}, "kernel"),
        ((3, 3), (), {}, "0 axes"),
    ],
)
def test_what_does_not_fit_is_said(
    shape: Any, kernel: Any, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ShapeError, match=sentence):
        F.max_pooling(np.zeros(shape), kernel, **options)


def test_global_average_needs_spatial_axes() -> None:
    with pytest.raises(ShapeError, match="no spatial axes"):
        F.global_average_pooling(np.zeros((2, 3)))


def test_unpooling_needs_as_many_axes_as_its_kernel() -> None:
    with pytest.raises(ShapeError, match="2 axes does not fit an input of 1"):
        F.unpooling(np.zeros(3), (2, 2))


@pytest.mark.parametrize("kernel", [2, None])
@pytest.mark.parametrize("pool", [F.max_pooling, F.average_pooling, F.sum_pooling, F.unpooling])
def test_a_kernel_that_does_not_say_how_many_axes_are_spatial_is_refused(
    pool: Callable[..., Variable], kernel: Any
) -> None:
    with pytest.raises(ShapeError, match=f"kernel {kernel} must hold one length for each"):
        pool(np.zeros((2, 3, 4, 4)), kernel)
