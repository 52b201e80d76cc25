"""Kernels that work block by block, on arrays of many blocks: answers from elsewhere than NNL."""

from __future__ import annotations

import math

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.cpu.kernels.rows import sums
from nnl_core.graph.operator import lookup


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def value(variable: Variable) -> np.ndarray:
    variable.forward()
    return np.array(variable.d)


def gradient(y: Variable, x: Variable, g: np.ndarray) -> np.ndarray:
    return value(nnl.grad(y, x, Variable.from_numpy_array(g))[0])


def leaf(array: np.ndarray) -> Variable:
    return Variable.from_numpy_array(array, need_grad=True)


# Sums --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((9, 1000), (1,)),
        ((3, 6272), (1,)),
        ((2, 4099), (1,)),
        ((70000,), (0,)),
        ((8, 6, 40, 30), (0, 2, 3)),
        ((8, 6, 40, 30), (1, 3)),
        ((8, 6, 40, 30), (0, 1)),
        ((8, 6, 40, 30), (0, 1, 2, 3)),
        ((5000, 1), (1,)),
    ],
)
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
def test_sums_are_those_of_double_precision(shape, axes, layout):
    x = numbers(*shape) if layout == "contiguous" else numbers(*shape[::-1]).T
    exact, size = x.astype(np.float64), np.abs(x).astype(np.float64).sum(axes)
    np.testing.assert_array_less(np.abs(sums(x, axes) - exact.sum(axes)), 1e-6 * size + 1e-9)
    squares = (exact**2).sum(axes)
    np.testing.assert_allclose(sums(x, axes, times=x), squares, rtol=2e-6)


def test_a_sum_goes_where_it_is_wanted_whatever_axes_that_has():
    x = numbers(6, 5, 1000)
    out = np.empty((6, 1, 1), np.float32)
    assert sums(x, (1, 2), out) is out
    np.testing.assert_allclose(out[:, 0, 0], x.sum((1, 2)), rtol=1e-3)


def test_a_sum_that_holds_nan_or_infinity_is_that_alone():
    x = np.ones((4, 2000), np.float32)
    x[1, 7], x[2, 1500] = np.nan, np.inf
    np.testing.assert_array_equal(sums(x, (1,)), [2000, np.nan, np.inf, 2000])


# Elementwise -------------------------------------------------------------------------------------


def test_the_error_function_is_right_to_four_units_in_the_last_place():
    x = np.linspace(-6, 6, 100_001, dtype=np.float32)
    exact = np.array([math.erf(one) for one in x.tolist()])
    y = value(F.erf(x))
    assert np.max(np.abs(y - exact) / np.spacing(np.abs(exact).astype(np.float32))) <= 4


def test_the_error_function_of_what_is_not_finite():
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
    np.testing.assert_array_equal(value(F.erf(x)), [np.nan, 1, -1, 0, 0])
    assert np.signbit(value(F.erf(x))[4])


def test_huber_losses_of_many_blocks_follow_their_formula():
    x, t = 3 * numbers(50_001), numbers(50_001, seed=1)
    d = np.abs(x.astype(np.float64) - t)
    expected = np.where(d < 0.7, d * d, 0.7 * (2 * d - 0.7))
    np.testing.assert_allclose(value(F.huber_loss(x, t, 0.7)), expected, rtol=2e-5, atol=1e-6)


# Examples normalised by themselves ---------------------------------------------------------------


@pytest.mark.parametrize("gain", [(1, 5000), (), (60, 1)])
def test_examples_of_many_blocks_are_normalised_and_so_is_their_gradient(gain):
    x, g = 2 * numbers(60, 5000) + 3, numbers(60, 5000, seed=1)
    gamma, beta = numbers(*gain, seed=2), numbers(*gain, seed=3)
    variable = leaf(x)
    y = F.layer_normalization(variable, Variable.from_numpy_array(beta), gamma)
    real = x.astype(np.float64)
    d = np.sqrt(real.var(1, keepdims=True) + 1e-5)
    s, h = (real - real.mean(1, keepdims=True)) / d, g.astype(np.float64) * gamma
    np.testing.assert_allclose(value(y), s * gamma + beta, atol=3e-5)
    dx = (h - h.mean(1, keepdims=True) - s * (h * s).mean(1, keepdims=True)) / d
    np.testing.assert_allclose(gradient(y, variable, g), dx, atol=3e-5)


# Single elements, scans, extremes ----------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_single_elements_are_taken_and_added_along_any_axis(axis):
    rng = np.random.default_rng(0)
    x, g = numbers(7, 30, 50), numbers(7, 30, 50, seed=1)
    indices = rng.integers(0, x.shape[axis], x.shape)
    variable = leaf(x)
    y = F.gather_elements(variable, indices, axis)
    np.testing.assert_array_equal(value(y), np.take_along_axis(x, indices, axis))
    expected = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        target = list(place)
        target[axis] = indices[place]
        expected[tuple(target)] += g[place]
    np.testing.assert_allclose(gradient(y, variable, g), expected, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_extremes_say_where_they_were_first_met(axis, reverse):
    x = np.random.default_rng(0).integers(0, 50, (40, 60)).astype(np.float32)
    x[:, 30], x[20] = np.nan, np.nan
    y, index = lookup("nnl::running_extreme")(x, axis=axis, reverse=reverse)
    nnl.forward_all([y, index])
    lines = np.moveaxis(x, axis, 1)
    for line, found, where in zip(
        lines, np.moveaxis(y.d, axis, 1), np.moveaxis(index.d, axis, 1), strict=True
    ):
        order = range(len(line))[:: -1 if reverse else 1]
        best = order[0]
        for place in order:
            if line[place] > line[best] or (np.isnan(line[place]) and not np.isnan(line[best])):
                best = place
            np.testing.assert_array_equal(found[place], line[best])
            assert where[place] == best


# Borders, matrices, spectra ----------------------------------------------------------------------


@pytest.mark.parametrize("width", [3, 100])
@pytest.mark.parametrize(("mode", "numpy_mode"), [("reflect", "reflect"), ("repeat", "edge")])
def test_borders_are_copies_and_their_gradient_goes_back(mode, numpy_mode, width):
    x = numbers(2, 20, 30)
    widths = (width, 1, 2, width)
    variable = leaf(x)
    y = F.pad(variable, widths, mode)
    pairs = [(0, 0), (width, 1), (2, width)]
    np.testing.assert_array_equal(value(y), np.pad(x, pairs, numpy_mode))
    g = numbers(*y.shape, seed=1)
    places = np.pad(np.arange(x.size).reshape(x.shape), pairs, numpy_mode)
    expected = np.bincount(places.ravel(), g.ravel(), x.size).reshape(x.shape)
    np.testing.assert_allclose(gradient(y, variable, g), expected, rtol=1e-4, atol=1e-3)


def test_the_gradient_of_a_determinant_is_right_beside_a_singular_matrix():
    rng = np.random.default_rng(0)
    regular = np.eye(4) + 0.2 * rng.normal(size=(3, 4, 4))
    singular = np.outer(rng.normal(size=2), rng.normal(size=2))[None]
    for x in (regular, singular, np.zeros((1, 1, 1))):
        variable = leaf(x)
        found = gradient(F.batch_det(variable), variable, np.ones(len(x)))
        for matrix, cofactors in zip(x, found, strict=True):
            for i, j in np.ndindex(matrix.shape):
                minor = np.delete(np.delete(matrix, i, 0), j, 1)
                expected = (-1) ** (i + j) * np.linalg.det(minor)
                np.testing.assert_allclose(cofactors[i, j], expected, atol=1e-12)


@pytest.mark.parametrize("length", [512, 513])
def test_many_real_signals_are_transformed_and_back(length):
    x = numbers(3, 300, length)
    spectrum = F.rfft(x, 1)
    exact = np.fft.rfft(x.astype(np.float64))
    np.testing.assert_allclose(value(spectrum), np.stack([exact.real, exact.imag], -1), atol=1e-3)
    np.testing.assert_allclose(value(F.irfft(spectrum, 1, length=length)), x, atol=1e-5)
