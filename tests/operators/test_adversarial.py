"""The noise of virtual adversarial training: its length, and the gradient that it keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.modes import auto_forward
from nnl_core.graph.variable import Variable


def leaf(array: Any) -> Variable:
    return Variable.from_numpy_array(np.asarray(array, np.float64), need_grad=True)


NOISE = np.random.default_rng(0).normal(size=(3, 2, 4))


@pytest.mark.parametrize("base_axis", [1, 2, -1])
def test_noise_of_each_example_has_the_length_asked(base_axis: int) -> None:
    y = F.vat_noise(NOISE, leaf(np.zeros(NOISE.shape)), base_axis, 2.5)
    y.forward()
    axes = tuple(range(base_axis % 3, 3))
    np.testing.assert_allclose(np.sqrt((y.d**2).sum(axis=axes)), 2.5, rtol=1e-6)
    directions = NOISE / np.sqrt((NOISE**2).sum(axis=axes, keepdims=True))
    np.testing.assert_allclose(y.d, 2.5 * directions, rtol=1e-6)


def test_no_noise_stays_no_noise() -> None:
    y = F.vat_noise(np.zeros((2, 3)), leaf(np.zeros((2, 3))))
    y.forward()
    np.testing.assert_array_equal(y.d, np.zeros((2, 3)))


def test_small_numbers_of_half_precision_do_not_vanish() -> None:
    x = np.full((1, 4), 1e-4, np.float16)
    y = F.vat_noise(x, Variable((1, 4), need_grad=True))
    y.forward()
    assert y.dtype == np.float16
    np.testing.assert_allclose(y.d, np.full((1, 4), 0.5 / np.sqrt(1.25)), rtol=2e-3)


def test_backward_keeps_the_scaled_gradient_and_passes_none_on() -> None:
    x, w = leaf(NOISE), leaf(np.ones(NOISE.shape))
    y = F.vat_noise(x, w, eps=3)
    weights = np.arange(24.0).reshape(NOISE.shape)
    y.forward()
    np.testing.assert_array_equal(w.d, np.ones(NOISE.shape))
    y.backward(weights)
    np.testing.assert_array_equal(w.d, 3 * weights)
    np.testing.assert_array_equal(x.g, np.zeros(NOISE.shape))
    np.testing.assert_array_equal(w.g, np.zeros(NOISE.shape))


def test_backward_may_come_again_and_after_a_write_to_what_it_sets() -> None:
    w = leaf(np.ones(NOISE.shape))
    y = F.vat_noise(leaf(NOISE), w)
    y.forward()
    for factor in (1.0, 2.0):
        y.backward(factor)
        np.testing.assert_array_equal(w.d, np.full(NOISE.shape, factor))
        w.d = 5


def test_dynamic_graph_keeps_the_gradient_too() -> None:
    w = leaf(np.ones((1, 2)))
    with auto_forward():
        y = F.vat_noise(np.ones((1, 2)), w, eps=4)
        y.backward()
    np.testing.assert_array_equal(w.d, np.full((1, 2), 4.0))


def test_hooks_of_backward_do_not_lose_it() -> None:
    w = leaf(np.ones((1, 2)))
    y = F.vat_noise(np.ones((1, 2)), w, eps=4)
    y.forward()
    seen = []
    y.backward(function_post_hook=seen.append)
    assert seen
    np.testing.assert_array_equal(w.d, np.full((1, 2), 4.0))


def test_fed_back_it_finds_the_most_sensitive_direction() -> None:
    matrix = np.random.default_rng(1).normal(size=(5, 5))
    curvature = matrix @ matrix.T
    w = leaf(np.random.default_rng(2).normal(size=(1, 5)))
    y = F.vat_noise(w, w)
    loss = F.sum(F.matmul(y, curvature) * y)
    for _ in range(200):
        loss.forward()
        loss.backward()
    y.forward()
    values, vectors = np.linalg.eigh(curvature)
    assert abs(y.d[0] @ vectors[:, -1]) == pytest.approx(1, abs=1e-6)
    assert np.linalg.norm(w.d) == pytest.approx(2 * values[-1], rel=1e-6)


def test_what_cannot_be_set_is_refused() -> None:
    with pytest.raises(OperatorError, match="w is computed"):
        F.vat_noise(np.ones((1, 2)), leaf(np.ones((1, 2))) * 2.0)
    with pytest.raises(OperatorError, match="w is a ndarray"):
        F.vat_noise(np.ones((1, 2)), np.ones((1, 2)))  # type: ignore[arg-type]


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match="same shape"):
        F.vat_noise(np.ones((1, 2)), Variable((2, 1)))
    with pytest.raises(ShapeError, match="counts examples"):
        F.vat_noise(np.ones((1, 2)), Variable((1, 2)), base_axis=0)
