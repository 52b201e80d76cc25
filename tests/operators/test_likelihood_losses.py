"""Losses that are negative log-likelihoods, against their formulas in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.variable import Variable
from nnl_core.testing.derivatives import central_difference

RNG = np.random.default_rng(3)
LOGITS, SCORES = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))
SHARES = RNG.uniform(0.1, 0.9, size=(3, 4))
COUNTS = np.array([[0.0, 1, 2, 7]] * 3)

LOSSES: dict[str, tuple[Callable[..., Variable], tuple[np.ndarray, ...]]] = {
    "focal": (F.focal_loss, (LOGITS, SHARES)),
    "focal, hard": (lambda x, t: F.focal_loss(x, t, None, 1.5), (LOGITS, SHARES.round())),
    "gaussian": (F.gaussian_nll_loss, (LOGITS, SCORES, SHARES)),
    "kl": (F.kl_divergence, (LOGITS, SHARES)),
    "kl of logarithms": (lambda x, t: F.kl_divergence(x, t, True), (LOGITS, SCORES)),
    "nll": (lambda x: F.nll_loss(x, np.array([[1], [-1], [3]])), (LOGITS,)),
    "poisson": (lambda x, t: F.poisson_nll_loss(x, t, full=True), (LOGITS, SHARES + 2)),
    "poisson of rates": (lambda x, t: F.poisson_nll_loss(x, t, False), (SHARES, SCORES)),
}
each_loss = pytest.mark.parametrize("name", LOSSES)


def given(x: np.ndarray) -> Variable:
    variable = Variable.from_numpy_array(x, need_grad=True)
    variable.grad.zero()
    return variable


@each_loss
def test_gradient_is_the_derivative(name: str) -> None:
    loss, arrays = LOSSES[name]
    for position, array in enumerate(arrays):
        variables = [given(x) for x in arrays]
        y = loss(*variables)
        weight = np.random.default_rng(1).normal(size=y.shape)
        direction = np.random.default_rng(2).normal(size=array.shape)
        y.forward()
        y.backward(weight)

        def along(
            step: float, at: int = position, d: np.ndarray = direction, w: np.ndarray = weight
        ) -> tuple[float, float]:
            moved = [x + step * d if i == at else x for i, x in enumerate(arrays)]
            terms = loss(*moved).d * w
            return float(terms.sum()), float(np.abs(terms).sum())

        numeric, _ = central_difference(along)
        assert np.sum(variables[position].g * direction) == pytest.approx(numeric, rel=1e-6)


@each_loss
def test_gradient_has_a_gradient(name: str) -> None:
    loss, arrays = LOSSES[name]
    variables = [given(x) for x in arrays]
    first = nnl.grad([F.sum(loss(*variables) ** 2)], variables[:1])[0]
    total = F.sum(first * first)
    total.forward()
    total.backward()
    assert all(np.isfinite(variable.g).all() for variable in variables)


@each_loss
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_loss_has_the_dtype_of_the_scores(name: str, dtype: Any) -> None:
    loss, arrays = LOSSES[name]
    y = loss(*(x.astype(dtype) for x in arrays))
    assert y.dtype == dtype
    tolerance = {np.float16: 2e-2, np.float32: 1e-5, np.float64: 0}[dtype]
    np.testing.assert_allclose(y.d, loss(*arrays).d, rtol=tolerance, atol=tolerance)


@each_loss
def test_no_samples_have_no_losses(name: str) -> None:
    loss, arrays = LOSSES[name]
    if name == "nll":
        assert F.nll_loss(np.zeros((0, 4)), np.zeros((0, 1))).d.shape == (0, 1)
    else:
        assert loss(*(x[:0] for x in arrays)).d.shape == (0, 4)


# Focal -------------------------------------------------------------------------------------------


def test_focal_loss_without_focus_is_the_cross_entropy() -> None:
    expected = F.sigmoid_cross_entropy(LOGITS, SHARES).d
    np.testing.assert_allclose(F.focal_loss(LOGITS, SHARES, None, 0).d, expected, rtol=1e-12)


def test_focal_loss_weighs_by_class_and_by_what_is_missing() -> None:
    p = 1 / (1 + math.exp(-1.5))
    y = F.focal_loss(np.array([1.5, 1.5]), np.array([1, 0]), alpha=0.2, gamma=3.0)
    expected = [-0.2 * (1 - p) ** 3 * math.log(p), -0.8 * p**3 * math.log(1 - p)]
    assert y.d == pytest.approx(expected)


def test_focal_loss_is_finite_for_large_logits() -> None:
    x = given(np.array([1000.0, -1000.0, 1000.0]))
    y = F.focal_loss(x, np.array([1.0, 1.0, 0.0]))
    y.forward()
    y.backward(np.ones(3))
    assert y.d == pytest.approx([0, 250, 750])
    assert x.g == pytest.approx([0, -0.25, 0.75])


# Gaussian ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("full", "constant"), [(False, 0.0), (True, 0.5 * math.log(2 * math.pi))])
def test_gaussian_loss(full: bool, constant: float) -> None:
    y = F.gaussian_nll_loss(np.array([1.0]), np.array([4.0]), np.array([2.0]), full)
    assert y.d == pytest.approx([(math.log(2) + 9 / 2) / 2 + constant])


def test_small_variances_count_as_eps() -> None:
    y = F.gaussian_nll_loss(np.array([1.0]), np.array([1.0]), np.array([0.0]), eps=0.5)
    assert y.d == pytest.approx([math.log(0.5) / 2])


# Divergence --------------------------------------------------------------------------------------


def test_divergence_of_a_distribution_from_itself_is_zero() -> None:
    p = np.array([0.25, 0.75, 0.0])
    with np.errstate(divide="ignore"):
        log_p = np.log(p)
    assert F.kl_divergence(log_p, p).d == pytest.approx([0, 0, 0])
    assert F.kl_divergence(log_p, log_p, log_target=True).d == pytest.approx([0, 0, 0])


def test_what_has_no_share_of_the_target_has_no_gradient() -> None:
    x, t = given(np.array([-np.inf, np.log(0.5)])), given(np.array([0.0, 1.0]))
    y = F.kl_divergence(x, t)
    y.forward()
    y.backward(np.ones(2))
    assert y.d == pytest.approx([0, math.log(2)])
    assert x.g == pytest.approx([0, -1])
    assert t.g == pytest.approx([0, 1 + math.log(2)])


def test_nan_is_not_hidden() -> None:
    assert np.isnan(F.kl_divergence(np.array([np.nan, 0.0]), np.array([1.0, np.nan])).d).all()


# Labels ------------------------------------------------------------------------------------------


def test_nll_of_log_softmax_is_softmax_cross_entropy() -> None:
    labels, weight = np.array([[[1, 0, 2]], [[2, -1, 0]]]), np.array([0.5, 1.0, 3.0])
    x = RNG.normal(size=(2, 3, 3))
    ways: dict[str, Any] = {"axis": 1, "ignore_index": 0, "weight": weight}
    y = F.nll_loss(F.log_softmax(x, 1), labels, **ways)
    np.testing.assert_allclose(y.d, F.softmax_cross_entropy(x, labels, **ways).d, atol=1e-12)


def test_impossible_classes_that_are_not_the_label_do_no_harm() -> None:
    x = given(np.array([[-np.inf, -1.0]]))
    y = F.nll_loss(x, np.array([[1]]))
    y.forward()
    y.backward(np.ones((1, 1)))
    assert y.d.tolist() == [[1]]
    assert x.g.tolist() == [[0, -1]]


def test_labels_of_another_shape_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"nll_loss: target has shape \(3,\), expected \(3, 1\)"):
        F.nll_loss(LOGITS, np.zeros(3))


def test_a_label_that_names_no_class_is_refused() -> None:
    with pytest.raises(OperatorError, match="label 4 at position"):
        F.nll_loss(LOGITS, np.array([[0], [4], [1]])).forward()


# Poisson -----------------------------------------------------------------------------------------


def test_poisson_loss_with_all_terms_is_nearly_the_likelihood() -> None:
    rate = 3.5
    y = F.poisson_nll_loss(np.full((3, 4), math.log(rate)), COUNTS, full=True)
    exact = [rate - n * math.log(rate) + math.lgamma(n + 1) for n in COUNTS[0]]
    np.testing.assert_allclose(y.d[0], exact, atol=0.05)  # Stirling's formula is an approximation


def test_poisson_loss_of_rates_is_that_of_their_logarithms() -> None:
    rates = np.exp(LOGITS)
    y = F.poisson_nll_loss(rates, COUNTS, log_input=False, eps=0)
    np.testing.assert_allclose(y.d, F.poisson_nll_loss(LOGITS, COUNTS).d, atol=1e-12)


def test_poisson_loss_of_nothing_expected_is_finite() -> None:
    y = F.poisson_nll_loss(np.zeros(1), np.ones(1), log_input=False)
    assert y.d == pytest.approx([-math.log(1e-8)])


def test_poisson_loss_refuses_a_negative_eps() -> None:
    with pytest.raises(OperatorError, match="eps is -1"):
        F.poisson_nll_loss(LOGITS, COUNTS, eps=-1)
