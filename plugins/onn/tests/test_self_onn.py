"""Generative neurons: convolutions of powers."""

from __future__ import annotations

import math

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.errors import ShapeError
from nnl_onn.self_onn import (
    self_operate,
    self_operational,
    transposed_self_operate,
    transposed_self_operational,
)


@pytest.fixture(autouse=True)
def own_parameters():
    with nnl.parameter_scope("", {}):
        yield


def drawn(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [Variable.from_numpy_array(rng.uniform(-1, 1, shape)) for shape in shapes]


@pytest.mark.parametrize("spatial", [(9,), (6, 5), (3, 4, 3)])
@pytest.mark.parametrize("order", [1, 3, 4])
def test_the_output_is_the_sum_of_convolutions_of_powers(spatial, order):
    x, w = drawn((2, 4, *spatial), (6, 2, order, *(2,) * len(spatial)))
    options = {"stride": 2, "group": 2}
    y = self_operate(x, w, pad=1, **options)
    expected = sum(
        F.convolution(
            Variable.from_numpy_array(x.d ** (q + 1)),
            w[:, :, q],
            pad=(1,) * len(spatial),
            **options,
        ).d
        for q in range(order)
    )
    np.testing.assert_allclose(y.d, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("spatial", [(5,), (4, 3)])
def test_the_transposed_output_is_the_sum_of_deconvolutions_of_powers(spatial):
    x, w = drawn((2, 4, *spatial), (4, 3, 2, *(3,) * len(spatial)))
    options = {"stride": 2, "group": 2}
    y = transposed_self_operate(x, w, pad=1, output_padding=1, **options)
    expected = sum(
        F.deconvolution(
            Variable.from_numpy_array(x.d ** (q + 1)), w[:, q], pad=(1,) * len(spatial),
            output_padding=(1,) * len(spatial), **options,
        ).d
        for q in range(3)
    )  # fmt: skip
    np.testing.assert_allclose(y.d, expected, rtol=1e-12, atol=1e-12)


def test_a_reflected_border_is_that_of_the_input():
    x, w = drawn((1, 2, 6, 5), (3, 2, 3, 3, 3))
    y = self_operate(x, w, pad="same", border="reflect")
    padded = np.pad(x.d, ((0, 0), (0, 0), (1, 1), (1, 1)), "reflect")
    expected = self_operate(Variable.from_numpy_array(padded), w)
    np.testing.assert_allclose(y.d, expected.d, rtol=1e-12)


@pytest.mark.parametrize("which", [0, 1])
def test_gradients_are_the_slopes(which):
    given = drawn((1, 2, 4, 3), (2, 2, 3, 2, 2))
    factor = np.random.default_rng(1).normal(size=(1, 2, 3, 2))

    def value():
        return float((self_operate(*given).d * factor).sum())

    target = given[which]
    y = F.sum(self_operate(*given) * Variable.from_numpy_array(factor))
    gradient = nnl.grad([y], [target])[0].d.copy()
    slopes = np.empty(target.shape)
    for index in np.ndindex(target.shape):
        ends = []
        for step in (1e-6, -1e-6):
            target.d[index] += step
            ends.append(value())
            target.d[index] -= step
        slopes[index] = (ends[0] - ends[1]) / 2e-6
    np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-8)


def test_the_layer_is_a_polynomial_of_tanh_and_a_bias():
    x = Variable.from_numpy_array(np.full((1, 1, 1, 1), 3.0, np.float32))
    w = np.array([0.5, -2.0, 4.0]).reshape(1, 1, 3, 1, 1)
    y = self_operational(x, 1, (1, 1), order=3, w_init=w, b_init=np.array([0.25]))
    t = math.tanh(3.0)
    assert y.d.item() == pytest.approx(0.5 * t - 2 * t**2 + 4 * t**3 + 0.25, rel=1e-6)


def test_the_weight_of_a_convolution_as_first_power_gives_that_convolution():
    x, kernel = drawn((2, 3, 5, 4), (4, 3, 3, 3))
    w = np.zeros((4, 3, 5, 3, 3))
    w[:, :, 0] = kernel.d
    y = self_operational(x, 4, (3, 3), 5, bounded=False, w_init=w, with_bias=False)
    np.testing.assert_allclose(y.d, F.convolution(x, kernel).d, rtol=1e-5, atol=1e-6)


def test_a_weight_with_the_powers_one_after_another_is_read_by_swapping_axes():
    x, joined = drawn((2, 3, 5, 4), (4, 2 * 3, 3, 3))
    powers = np.concatenate([x.d, x.d**2], axis=1)
    w = Variable.from_numpy_array(joined.d.reshape(4, 2, 3, 3, 3).swapaxes(1, 2).copy())
    expected = F.convolution(Variable.from_numpy_array(powers), joined)
    np.testing.assert_allclose(self_operate(x, w).d, expected.d, rtol=1e-12)


def test_powers_are_made_in_single_precision_where_the_rest_is_half():
    x = Variable.from_numpy_array(np.full((1, 1, 3), 0.1, np.float32))
    w = Variable.from_numpy_array(np.ones((1, 1, 3, 1), np.float32))
    with nnl.mixed_precision("float16"):
        y = self_operate(x, w)
    assert y.d.dtype == np.float16
    np.testing.assert_allclose(y.d, 0.111, rtol=1e-3)


def test_first_weights_are_uniform_with_the_gain_of_tanh():
    self_operational(Variable((1, 8, 9, 9)), 40, (3, 3), order=3)
    w = nnl.get_parameters()["self_operational/W"]
    limit = 5 / 3 * math.sqrt(6 / ((8 * 3 + 40) * 9))
    assert w.shape == (40, 8, 3, 3, 3)
    assert 0.99 * limit < np.abs(w.d).max() <= limit
    assert w.d.std() == pytest.approx(limit / math.sqrt(3), rel=0.02)


def test_the_transposed_layer_enlarges():
    x = Variable((2, 4, 5, 3))
    y = transposed_self_operational(x, 6, (2, 2), order=2, stride=2, group=2)
    assert y.shape == (2, 6, 10, 6)
    assert nnl.get_parameters()["transposed_self_operational/W"].shape == (4, 2, 3, 2, 2)


@pytest.mark.parametrize("layer", [self_operational, transposed_self_operational])
def test_an_input_of_other_axes_than_the_kernel_is_refused(layer):
    with pytest.raises(ShapeError, match=layer.__name__ + ".*kernel of 2 axes"):
        layer(Variable((2, 3, 8)), 4, (3, 3))


def test_backends_agree():
    rng = np.random.default_rng(0)
    x = Variable.from_numpy_array(rng.normal(size=(2, 3, 9, 7)).astype(np.float32), need_grad=True)
    results = []
    for backend in ("numpy", "native"):
        with nnl.backend_scope(backend):
            y = self_operational(x, 4, (3, 3), 5, pad="same", rng=np.random.default_rng(1))
            loss = F.sum(F.sin(y))
            loss.forward()
            loss.backward()
            parameters = nnl.get_parameters().values()
            results.append([y.d.copy(), x.g.copy(), *(one.g.copy() for one in parameters)])
            for one in (x, *parameters):
                one.grad.zero()
    for first, second in zip(*results, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5)
