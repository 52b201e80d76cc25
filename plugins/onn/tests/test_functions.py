"""Operational functions: borders, what becomes a convolution, and transposed layers."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.errors import OperatorError, ShapeError, UnknownComponentError
from nnl_onn import functions, operate, transposed_operate
from nnl_onn.operators import operate as plain

MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def variable(*shape, seed=0, scale=1.0):
    values = np.random.default_rng(seed).uniform(-scale, scale, shape)
    return Variable.from_numpy_array(values, need_grad=True)


def values_and_gradients(y, *inputs):
    """Run, and return the value and the gradients of a weighted sum of it."""
    outer = np.random.default_rng(9).normal(size=y.shape)
    found = [y, *nnl.grad([F.sum(y * Variable.from_numpy_array(outer))], list(inputs))]
    nnl.forward_all(found)
    return [np.array(one.d) for one in found]


def operators_of(y):
    names = []
    y.visit(lambda node: names.append(node.operator.name))
    return names


# Borders -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodal", ["mul", "exp", "w * (x + 2)"])
@pytest.mark.parametrize("border", MODES)
def test_a_border_is_part_of_the_input(border, nodal):
    x, w = variable(2, 2, 5, 6), variable(3, 2, 3, 2, seed=1)
    y = operate(x, w, nodal, pad=((2, 1), (0, 3)), border=border, stride=(1, 2))
    padded = np.pad(x.d, ((0, 0), (0, 0), (2, 1), (0, 3)), mode=MODES[border])
    y.forward()
    right = plain.reference(padded, w.d, nodal=nodal, pool="sum", stride=(1, 2), dilation=(1, 1))
    np.testing.assert_allclose(y.d, right, rtol=1e-12)


def test_a_circular_border_may_be_longer_than_the_input():
    x, w = variable(1, 1, 3), variable(1, 1, 1)
    y = operate(x, w, pad=(4,), border="circular")
    y.forward()
    right = np.pad(x.d, ((0, 0), (0, 0), (4, 4)), mode="wrap") * w.d
    np.testing.assert_allclose(y.d, right)


@pytest.mark.parametrize("pool", ["sum", "max"])
@pytest.mark.parametrize(("kernel", "dilation"), [((3, 3), 1), ((4, 2), 1), ((3, 5), (2, 3))])
def test_same_keeps_the_shape(kernel, dilation, pool):
    x, w = variable(1, 2, 9, 13), variable(3, 2, *kernel)
    y = operate(x, w, "sine", pool, pad="same", dilation=dilation)
    assert y.shape == (1, 3, 9, 13)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_one_to_three_axes(axes):
    x, w = variable(2, 1, *(5,) * axes), variable(2, 1, *(3,) * axes)
    assert operate(x, w, "sine", "median", pad=1, stride=2).shape == (2, 2, *(3,) * axes)


# Convolutions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(
    "nodal",
    [
        "mul",
        "cubic",
        "log",
        "quadratic",
        "w * x + w**2 * x**2 - w**3 * exp(x)",
        "w + 3 * x",
        "w * abs(x) - sin(x) * minimum(w, 0.1)",
    ],
)
def test_sums_of_products_are_computed_as_convolutions(nodal, group):
    x, w = variable(2, 4, 5, 6), variable(4, 4 // group, 3, 2, seed=1)
    y = operate(x, w, nodal, pad=(1, 2), stride=(1, 2), dilation=(2, 1), group=group)
    direct = plain(
        F.pad(x, (1, 1, 2, 2)), w, nodal=nodal, pool="sum", stride=(1, 2), dilation=(2, 1),
        groups=group,
    )  # fmt: skip
    assert "nnl::convolution" in operators_of(y) and "onn::operate" not in operators_of(y)
    for left, right in zip(
        values_and_gradients(y, x, w), values_and_gradients(direct, x, w), strict=True
    ):
        np.testing.assert_allclose(left, right, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("nodal", "pool"),
    [("mul", "max"), ("sine", "sum"), ("where(x > 0, x, 0) * w", "sum"), ("exp", "sum")],
)
def test_all_else_is_an_operator_of_its_own(nodal, pool):
    y = operate(variable(1, 1, 4), variable(1, 1, 2), nodal, pool)
    assert operators_of(y) == ["onn::operate"]


def test_integers_and_arrays_are_taken():
    y = operate(np.arange(4).reshape(1, 1, 4), np.ones((1, 1, 2), np.float32))
    y.forward()
    np.testing.assert_array_equal(y.d, [[[1, 3, 5]]])


# Transposed --------------------------------------------------------------------------------------

GEOMETRIES = [
    {"stride": 2},
    {"stride": (2, 3), "pad": (1, 0), "dilation": (1, 2), "output_padding": (1, 1)},
    {"stride": (3, 1), "pad": ((0, 1), (2, 1)), "group": 2},
    {"stride": 1, "pad": (2, 2)},
]


def spread(x, w, stride=1, pad=0, dilation=1, output_padding=0, group=1):
    """What a transposed layer operates on, and with which weight, in NumPy; of two axes."""
    steps, gaps, more, ends = (
        (v, v) if isinstance(v, int) else v for v in (stride, dilation, output_padding, pad)
    )
    lengths = [(n - 1) * s + 1 for n, s in zip(x.shape[2:], steps, strict=True)]
    full = np.zeros((*x.shape[:2], *lengths))
    full[:, :, :: steps[0], :: steps[1]] = x
    reach = [(k - 1) * d for k, d in zip(w.shape[2:], gaps, strict=True)]
    widths = [(r, r + m) for r, m in zip(reach, more, strict=True)]
    full = np.pad(full, [(0, 0), (0, 0), *widths])
    (top, bottom), (left, right) = ((p, p) if isinstance(p, int) else p for p in ends)
    full = full[:, :, top : full.shape[2] - bottom, left : full.shape[3] - right]
    parts = np.split(w[:, :, ::-1, ::-1], group, axis=0)
    return full, np.concatenate([part.swapaxes(0, 1) for part in parts]), gaps


@pytest.mark.parametrize("pool", ["sum", "max", "median"])
@pytest.mark.parametrize("nodal", ["mul", "sine", "cubic", "log"])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_transposed_layer_operates_on_the_input_spread_by_zeros(geometry, nodal, pool):
    x, w = variable(2, 4, 3, 4), variable(4, 2, 3, 2, seed=1)
    y = transposed_operate(x, w, nodal, pool, **geometry)
    y.forward()
    full, turned, gaps = spread(x.d, w.d, **geometry)
    options = {"stride": (1, 1), "dilation": gaps, "groups": geometry.get("group", 1)}
    right = plain.reference(full, turned, nodal=nodal, pool=pool, **options)
    np.testing.assert_allclose(y.d, right, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_products_summed_are_a_deconvolution(monkeypatch, geometry):
    x, w = variable(2, 4, 3, 4), variable(4, 2, 3, 2, seed=1)
    right = values_and_gradients(F.deconvolution(x, w, **geometry), x, w)
    short = transposed_operate(x, w, **geometry)
    assert "onn::operate" not in operators_of(short)
    monkeypatch.setattr(functions, "_terms", lambda nodal, pool: None)
    long = transposed_operate(x, w, **geometry)
    assert "onn::operate" in operators_of(long)
    for y in (short, long):
        for left, one in zip(values_and_gradients(y, x, w), right, strict=True):
            np.testing.assert_allclose(left, one, rtol=1e-12, atol=1e-12)


# What does not fit -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"border": "mirror"}, OperatorError, "border 'mirror' is none of zeros, reflect"),
        ({"pad": "full"}, OperatorError, "pad 'full'"),
        ({"pad": (1, 1)}, ShapeError, "must hold 1 lengths"),
        ({"stride": 0}, ShapeError, "stride"),
        ({"group": 0}, ShapeError, "group"),
        ({"nodal": "sin(y)"}, OperatorError, r"may not hold 'y'"),
        ({"pool": "medium"}, UnknownComponentError, "did you mean 'median'"),
    ],
)
def test_an_argument_that_makes_no_sense_is_named(options, error, text):
    with pytest.raises(error, match=text):
        operate(variable(1, 1, 4), variable(1, 1, 2), **{"nodal": "sine", **options})


def test_an_output_padding_is_less_than_the_stride():
    with pytest.raises(ShapeError, match=r"output_padding \(2,\)"):
        transposed_operate(variable(1, 1, 4), variable(1, 1, 2), "sine", stride=2, output_padding=2)
