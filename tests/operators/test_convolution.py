"""Convolution, transposed convolution and their gradients."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.cpu.kernels import convolution as kernels
from nnl_core.errors import ShapeError
from nnl_core.graph.autodiff import grad
from nnl_core.graph.operator import lookup
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Variable
from nnl_core.operators.convolution import exact_pad
from nnl_core.operators.windows import placements, span

NAMES = ("convolution", "convolution_data_gradient", "convolution_weight_gradient")
CONVOLUTION, DATA, WEIGHT = (lookup(f"nnl::{name}") for name in NAMES)


def value(variable: Variable) -> np.ndarray:
    variable.forward()
    return np.array(variable.d)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape)


def leaf(array: Any) -> Variable:
    return Variable.from_numpy_array(np.asarray(array, np.float64), need_grad=True)


# An independent answer: every product of the definition, one by one -------------------------------


def terms(
    shape: tuple[int, ...],
    weight: tuple[int, ...],
    stride: Any,
    pad: Any,
    dilation: Any,
    group: int,
) -> tuple[tuple[int, ...], list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]]:
    """Return the output's shape and the (output, input, weight) indices of all products."""
    kernel = weight[2:]
    places = [
        (n + before + after - d * (k - 1) - 1) // s + 1
        for n, k, s, d, (before, after) in zip(
            shape[2:], kernel, stride, dilation, pad, strict=True
        )
    ]
    inside, outside = shape[1] // group, weight[0] // group
    products = []
    for n, o, c in itertools.product(range(shape[0]), range(weight[0]), range(inside)):
        for place in itertools.product(*map(range, places)):
            for tap in itertools.product(*map(range, kernel)):
                at = tuple(
                    p * s + t * d - before
                    for p, s, t, d, (before, _) in zip(
                        place, stride, tap, dilation, pad, strict=True
                    )
                )
                if all(0 <= i < length for i, length in zip(at, shape[2:], strict=True)):
                    channel = o // outside * inside + c
                    products.append(((n, o, *place), (n, channel, *at), (o, c, *tap)))
    return (shape[0], weight[0], *places), products


@pytest.mark.parametrize(
    ("shape", "weight", "stride", "pad", "dilation", "group"),
    [
        ((2, 2, 5), (3, 2, 2), (1,), [(0, 0)], (1,), 1),
        ((1, 4, 4, 5), (4, 2, 3, 2), (2, 1), [(1, 2), (0, 1)], (1, 2), 2),
        ((2, 3, 5, 4), (6, 1, 2, 2), (3, 2), [(1, 0), (1, 1)], (2, 1), 3),
        ((1, 2, 3, 4, 3), (2, 2, 2, 1, 2), (1, 2, 1), [(0, 1), (0, 0), (1, 0)], (1, 1, 2), 1),
    ],
)
def test_convolution_and_its_gradients_are_the_sums_of_their_definition(
    shape: tuple[int, ...],
    weight: tuple[int, ...],
    stride: Any,
    pad: Any,
    dilation: Any,
    group: int,
) -> None:
    x, w = numbers(*shape), numbers(*weight)
    out, products = terms(shape, weight, stride, pad, dilation, group)
    g = numbers(*out)
    y, dx, dw = np.zeros(out), np.zeros(shape), np.zeros(weight)
    for at_y, at_x, at_w in products:
        y[at_y] += x[at_x] * w[at_w]
        dx[at_x] += g[at_y] * w[at_w]
        dw[at_w] += g[at_y] * x[at_x]

    x_variable, w_variable, b = leaf(x), leaf(w), leaf(np.zeros(weight[0]))
    result = F.convolution(
        x_variable, w_variable, b, pad=pad, stride=stride, dilation=dilation, group=group
    )
    np.testing.assert_allclose(value(result), y, atol=1e-12)
    result.backward(g)
    np.testing.assert_allclose(x_variable.g, dx, atol=1e-12)
    np.testing.assert_allclose(w_variable.g, dw, atol=1e-12)
    np.testing.assert_allclose(b.g, g.sum(axis=(0, *range(2, g.ndim))), atol=1e-12)


# Rules that hold for all shapes -------------------------------------------------------------------


@st.composite
def geometries(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Return the shapes of data and weight, and options that let a window fit."""
    axes = draw(st.integers(1, 3))
    group = draw(st.integers(1, 3))

    def several(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(axes))

    kernel, dilation, stride = several(1, 3), several(1, 2), several(1, 3)
    pad = tuple(draw(st.tuples(st.integers(0, 2), st.integers(0, 2))) for _ in range(axes))
    spatial = tuple(
        max(1, covered - sum(both) + more)
        for covered, both, more in zip(span(kernel, dilation), pad, several(0, 4), strict=True)
    )
    inside, outside, batch = (draw(st.integers(1, 3)) for _ in range(3))
    if draw(st.booleans()):
        batch += 6
    options = {"stride": stride, "pad": pad, "dilation": dilation, "group": group}
    return (batch, inside * group, *spatial), (outside * group, inside, *kernel), options


def outer_shape(
    shape: tuple[int, ...], weight: tuple[int, ...], options: dict[str, Any]
) -> tuple[int, ...]:
    covered = span(weight[2:], options["dilation"])
    places = placements(shape[2:], covered, options["stride"], options["pad"])
    return (shape[0], weight[0], *places)


@given(
    geometry=geometries(),
    column_bytes=st.sampled_from([1, 2000, 1 << 20]),
    band_bytes=st.sampled_from([1, 500, 1 << 20]),
)
@settings(max_examples=80, deadline=None)
def test_numpy_kernels_agree_with_the_references(
    geometry: Any, column_bytes: int, band_bytes: int
) -> None:
    shape, weight, options = geometry
    outer = outer_shape(shape, weight, options)
    x, w, dy = numbers(*shape), numbers(*weight), numbers(*outer)
    pad = exact_pad(
        shape[2:], outer[2:], weight[2:], options["stride"], options["pad"], options["dilation"]
    )
    exact = {**options, "pad": pad}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "COLUMN_BYTES", column_bytes)
        patch.setattr(kernels, "BAND_BYTES", band_bytes)
        patch.setattr(kernels, "SHORT_ROW", 3)
        for operator, arrays, attributes in [
            (CONVOLUTION, (x, w, numbers(weight[0])), options),
            (DATA, (dy, w), exact),
            (WEIGHT, (x, dy), {**options, "kernel": weight[2:]}),
        ]:
            kernel = operator.kernels["numpy"]
            assert callable(kernel)
            np.testing.assert_allclose(
                kernel(*arrays, out=None, **attributes),
                operator.reference(*arrays, **attributes),
                atol=1e-11,
            )


@given(geometry=geometries())
@settings(max_examples=30, deadline=None)
def test_gradients_are_adjoints_of_convolution(geometry: Any) -> None:
    shape, weight, options = geometry
    x, w = numbers(*shape), numbers(*weight)
    y = value(CONVOLUTION(leaf(x), leaf(w), **options))
    dy = numbers(*y.shape)
    pad = exact_pad(
        shape[2:], y.shape[2:], weight[2:], options["stride"], options["pad"], options["dilation"]
    )
    dx = value(DATA(leaf(dy), leaf(w), **{**options, "pad": pad}))
    dw = value(WEIGHT(leaf(x), leaf(dy), kernel=weight[2:], **options))
    assert dx.shape == x.shape
    assert np.vdot(y, dy) == pytest.approx(np.vdot(x, dx), abs=1e-9)
    assert np.vdot(y, dy) == pytest.approx(np.vdot(w, dw), abs=1e-9)


# What users call ----------------------------------------------------------------------------------


def test_ones_count_the_places_inside_the_data() -> None:
    y = F.convolution(np.ones((1, 1, 3, 3)), np.ones((1, 1, 3, 3)), pad=1)
    np.testing.assert_array_equal(value(y)[0, 0], [[4, 6, 4], [6, 9, 6], [4, 6, 4]])


def test_padding_can_differ_before_and_after() -> None:
    x = np.arange(1.0, 4)[None, None]
    y = F.convolution(x, np.array([[[10.0, 1]]]), pad=[(1, 0)])
    np.testing.assert_array_equal(value(y)[0, 0], [1, 12, 23])


def test_bias_is_added_per_map() -> None:
    y = F.convolution(np.zeros((2, 1, 3)), np.zeros((2, 1, 1)), np.array([1.0, -2]))
    np.testing.assert_array_equal(value(y), np.broadcast_to([[1.0], [-2]], (2, 2, 3)))


def test_one_by_one_convolution_is_a_product_of_matrices() -> None:
    x, w = numbers(2, 3, 4, 5), numbers(6, 3, 1, 1)
    expected = np.einsum("nchw,oc->nohw", x, w[..., 0, 0])
    np.testing.assert_allclose(value(F.convolution(x, w)), expected, atol=1e-12)


@pytest.mark.parametrize(("base_axis", "batch"), [(0, ()), (1, (2,)), (2, (2, 3)), (-3, (2, 3))])
def test_base_axis_says_where_batch_axes_end(base_axis: int, batch: tuple[int, ...]) -> None:
    x, w = numbers(*batch, 2, 4, 5), numbers(3, 2, 2, 2)
    flat = value(F.convolution(x.reshape(-1, 2, 4, 5), w))
    y = F.convolution(x, w, base_axis=base_axis)
    assert y.shape == (*batch, 3, 3, 4)
    np.testing.assert_allclose(value(y).reshape(flat.shape), flat, atol=1e-12)


@pytest.mark.parametrize("function", [F.convolution, F.deconvolution])
def test_channel_last_moves_the_channels_of_data_and_weight(function: Any) -> None:
    x, w = numbers(2, 4, 5, 6), numbers(4, 2, 2, 3)
    options = {"pad": (1, 0), "stride": (2, 1), "group": 2}
    expected = value(function(x, w, numbers(4), **options))
    last = function(
        np.moveaxis(x, 1, -1), np.moveaxis(w, 1, -1), numbers(4), channel_last=True, **options
    )
    np.testing.assert_allclose(value(last), np.moveaxis(expected, 1, -1), atol=1e-12)


def test_deconvolution_spreads_each_element_over_the_kernel() -> None:
    y = F.deconvolution(np.array([[[1.0, 2]]]), np.array([[[1.0, 10, 100]]]), stride=2)
    np.testing.assert_array_equal(value(y), [[[1, 10, 102, 20, 200]]])


@pytest.mark.parametrize("more", [0, 1])
def test_output_padding_makes_the_end_longer(more: int) -> None:
    y = F.deconvolution(
        np.ones((1, 1, 3)), np.ones((1, 1, 3)), stride=2, pad=1, output_padding=more
    )
    np.testing.assert_array_equal(value(y)[0, 0], [1, 2, 1, 2, 1, 1][: 5 + more])


def test_deconvolution_undoes_the_shape_of_convolution() -> None:
    x, w = numbers(1, 2, 8, 7), numbers(3, 2, 3, 2)
    options = {"stride": (3, 2), "pad": [(1, 0), (0, 1)], "dilation": (2, 1)}
    y = F.convolution(x, w, **options)
    assert F.deconvolution(y, w, output_padding=(1, 0), **options).shape == x.shape


def test_depthwise_convolution_keeps_channels_apart() -> None:
    x, w = numbers(2, 3, 5, 6), numbers(6, 2, 3)
    y = value(F.depthwise_convolution(x, w, numbers(6), pad=1, stride=(1, 2), multiplier=2))
    for channel in range(3):
        maps = slice(2 * channel, 2 * channel + 2)
        one = F.convolution(
            x[:, channel, None], w[maps, None], numbers(6)[maps], pad=1, stride=(1, 2)
        )
        np.testing.assert_allclose(y[:, maps], value(one), atol=1e-12)


def test_depthwise_deconvolution_is_the_adjoint_of_depthwise_convolution() -> None:
    x, w = numbers(2, 3, 5), numbers(6, 2)
    y = value(F.depthwise_convolution(x, w, stride=2, pad=1, multiplier=2))
    g = numbers(*y.shape)
    back = value(F.depthwise_deconvolution(g, w, stride=2, pad=[(1, 0)], divisor=2))
    assert np.vdot(y, g) == pytest.approx(np.vdot(x, back), abs=1e-10)


def test_empty_batch_gives_an_empty_result_and_a_zero_weight_gradient() -> None:
    x, w = leaf(np.zeros((0, 2, 4, 4))), leaf(np.ones((3, 2, 3, 3)))
    y = F.convolution(x, w, np.zeros(3), pad=1)
    y.forward()
    y.backward()
    assert y.shape == (0, 3, 4, 4)
    np.testing.assert_array_equal(w.g, np.zeros((3, 2, 3, 3)))


def test_what_is_not_finite_stays_in_the_windows_that_hold_it() -> None:
    x = np.ones((1, 1, 4, 6))
    x[0, 0, 0, 5] = np.nan
    w = leaf(np.ones((1, 1, 2, 2)))
    y = F.convolution(x, w)
    hit = np.zeros((3, 5), bool)
    hit[0, 4] = True
    np.testing.assert_array_equal(np.isnan(value(y))[0, 0], hit)
    y.backward()
    np.testing.assert_array_equal(np.isnan(w.g)[0, 0], [[0, 1], [0, 0]])


def test_half_precision_is_summed_in_single() -> None:
    x, w = np.full((1, 4096, 1), 1, np.float16), np.full((1, 4096, 1), 1, np.float16)
    y = F.convolution(x, w)
    assert y.dtype == np.float16
    assert value(y).item() == 4096


def test_integers_are_converted_and_widths_are_not_mixed() -> None:
    assert (
        F.convolution(np.ones((1, 1, 3), int), np.ones((1, 1, 2), np.float32)).dtype == np.float32
    )


def test_third_derivative_of_a_cubic_chain() -> None:
    # y = w * (w * (w * x)): the third derivative by w of the sum is 6 sum(x) for one-place kernels.
    x, w = numbers(2, 1, 3), leaf([[[0.5]]])
    y = F.convolution(F.convolution(F.convolution(x, w), w), w)
    for _ in range(3):
        (y,) = grad(y, w)
    assert value(y).item() == pytest.approx(6 * x.sum())


def test_batch_may_change_its_length() -> None:
    x, w = Variable((2, 3, 1, 4)), np.ones((1, 1, 2))
    y = F.convolution(x, w, base_axis=2)
    x.reset_shape((5, 3, 1, 4), force=True)
    y.forward()
    assert y.shape == (5, 3, 1, 3)


def test_cost_is_one_multiply_add_per_weight_and_place() -> None:
    x, w = Spec((2, 4, 8, 8)), Spec((6, 2, 3, 3))
    options = {"stride": (1, 1), "pad": ((1, 1), (1, 1)), "dilation": (1, 1), "group": 2}
    (y,) = CONVOLUTION.infer_specs((x, w, None), options)
    expected = 2 * 64 * 6 * 2 * 9
    assert CONVOLUTION.count_multiply_adds((x, w, None), (y,), options) == expected
    assert DATA.count_multiply_adds((y, w), (x,), options) == expected
    assert WEIGHT.count_multiply_adds((x, y), (w,), {**options, "kernel": (3, 3)}) == expected


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "weight", "options", "sentence"),
    [
        ((8, 3, 9, 9), (16, 4, 3, 3), {}, "input has 3 channels, weight expects 4"),
        ((8, 4, 9), (4, 4, 3), {"group": 2}, "input has 4 channels, weight expects 8 in 2 groups"),
        ((1, 4, 9), (3, 2, 3), {"group": 2}, "3 maps, which 2 groups do not divide"),
        ((1, 1, 9), (1, 1, 3, 3), {}, "1 spatial axes, weight has 2"),
        ((1, 1, 2), (1, 1, 3), {}, "covers 3 does not fit in an axis of length 2"),
        ((1, 1, 4), (1, 1, 3), {"dilation": 2}, "covers 5 does not fit"),
        ((1, 1, 4), (1, 1, 3), {"pad": (1, 1)}, "pad"),
        ((1, 1, 4), (1, 1, 3), {"pad": -1}, "pad"),
        ((1, 1, 4), (1, 1, 3), {"stride": 0}, "stride"),
        ((1, 1, 4), (2, 1, 3), {"bias": np.zeros(3)}, "bias of shape"),
        ((1, 1, 4), (2, 1, 3), {"base_axis": 5}, "axis 5 is out of range"),
    ],
)
def test_what_does_not_fit_is_said(x: Any, weight: Any, options: Any, sentence: str) -> None:
    with pytest.raises(ShapeError, match=sentence):
        F.convolution(np.zeros(x), np.zeros(weight), **options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"output_padding": 1}, "output_padding"),
        ({"output_padding": (0, 0)}, "output_padding"),
        ({"pad": 9}, "too much"),
        ({"bias": np.zeros(3)}, "bias of shape"),
        ({"group": 3}, "groups do not divide"),
    ],
)
def test_what_does_not_fit_a_deconvolution_is_said(options: Any, sentence: str) -> None:
    with pytest.raises(ShapeError, match=sentence):
        F.deconvolution(np.zeros((1, 2, 4)), np.zeros((2, 1, 3)), **options)


def test_depthwise_errors_count_channels() -> None:
    with pytest.raises(ShapeError, match="input has 3 channels, weight expects 2"):
        F.depthwise_convolution(np.zeros((1, 3, 4)), np.zeros((4, 2)), multiplier=2)
    with pytest.raises(ShapeError, match="divisor 2"):
        F.depthwise_deconvolution(np.zeros((1, 3, 4)), np.zeros((3, 2)), divisor=2)
