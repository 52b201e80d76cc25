"""Losses, and errors of classification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.errors import NotDifferentiableError, OperatorError, ShapeError
from nnl_core.graph.autodiff import grad
from nnl_core.graph.modes import auto_forward
from nnl_core.graph.variable import Variable


def leaf(values: Any, dtype: Any = np.float64) -> Variable:
    """Return values of which the gradient is wanted."""
    return Variable.from_numpy_array(np.asarray(values, dtype), need_grad=True)


def scores(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Variable:
    return leaf(np.random.default_rng(seed).normal(size=shape), dtype)


def run(y: Variable, weights: np.ndarray | float = 1.0) -> np.ndarray:
    """Run forward and backward and return the value."""
    y.forward()
    y.backward(weights)
    return np.array(y.d)


def log_probabilities(x: np.ndarray, axis: int = -1) -> np.ndarray:
    return np.asarray(x - np.log(np.exp(x).sum(axis, keepdims=True)))


# Softmax cross entropy ---------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple),
    st.integers(-4, 3),
    st.integers(0, 2**32 - 1),
)
def test_softmax_cross_entropy_is_minus_log_softmax_at_the_label(
    shape: tuple[int, ...], place: int, seed: int
) -> None:
    axis = place % len(shape)
    rng = np.random.default_rng(seed)
    x = scores(*shape, seed=seed)
    one = tuple(1 if n == axis else length for n, length in enumerate(shape))
    labels = rng.integers(-1, shape[axis], size=one)
    g = rng.normal(size=one)
    y = run(F.softmax_cross_entropy(x, Variable.from_numpy_array(labels), axis), g)
    one_hot = labels == np.arange(shape[axis]).reshape(
        [-1 if n == axis else 1 for n in range(len(shape))]
    )
    log_p = log_probabilities(x.d, axis)
    np.testing.assert_allclose(y, -(one_hot * log_p).sum(axis, keepdims=True), atol=1e-12)
    expected = g * (np.exp(log_p) - one_hot) * (labels >= 0)
    np.testing.assert_allclose(x.g, expected, atol=1e-12)


def test_its_second_derivative_is_that_of_the_log_of_a_sum_of_exponentials() -> None:
    x = scores(1, 4)
    (dx,) = grad(F.softmax_cross_entropy(x, np.array([[2]])), x)
    p = np.exp(log_probabilities(x.d))[0]
    hessian = [grad(F.getitem(dx, (0, n)), x)[0].d[0] for n in range(4)]
    np.testing.assert_allclose(hessian, np.diag(p) - np.outer(p, p), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_scores_of_a_thousand_give_finite_losses(dtype: Any) -> None:
    x = leaf([[1000, -1000], [-1000, 1000]], dtype)
    y = run(F.softmax_cross_entropy(x, np.array([[0], [0]])))
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, [[0], [2000]])
    np.testing.assert_array_equal(x.g, [[0, 0], [-1, 1]])


def test_a_class_whose_score_is_minus_infinity_has_no_part() -> None:
    x = leaf([[0, -np.inf, 0]])
    np.testing.assert_allclose(run(F.softmax_cross_entropy(x, np.array([[0]]))), [[np.log(2)]])
    np.testing.assert_allclose(x.g, [[-0.5, 0, 0.5]])


def test_labels_may_be_whole_floats() -> None:
    x = scores(2, 3)
    labels = np.array([[2], [0]])
    np.testing.assert_array_equal(
        F.softmax_cross_entropy(x, labels.astype(np.float32)).d,
        F.softmax_cross_entropy(x, labels).d,
    )


def test_ignored_labels_have_neither_loss_nor_gradient() -> None:
    x = scores(3, 4)
    y = run(F.softmax_cross_entropy(x, np.array([[1], [-1], [9]]), ignore_index=9))
    np.testing.assert_array_equal(y[1:], 0)
    np.testing.assert_array_equal(x.g[1:], 0)
    assert y[0] > 0


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_batch_of_ignored_labels_has_loss_zero(smoothing: float) -> None:
    x = leaf([[np.nan, 1.0], [1000, -1000]])
    labels = np.full((2, 1), -1)
    y = run(F.softmax_cross_entropy(x, labels, label_smoothing=smoothing))
    np.testing.assert_array_equal(y, 0)
    np.testing.assert_array_equal(x.g, 0)


def test_an_empty_batch_has_no_losses() -> None:
    x = scores(0, 3)
    y = F.softmax_cross_entropy(x, np.zeros((0, 1), np.int64))
    assert run(y).shape == (0, 1)


@pytest.mark.parametrize("classes", [3, 70])
@pytest.mark.parametrize("smoothing", [0.0, 0.3, 1.0])
def test_weights_and_smoothing_are_shares_of_every_class(classes: int, smoothing: float) -> None:
    rng = np.random.default_rng(0)
    x = scores(5, classes)
    weight = leaf(rng.uniform(0.5, 2, size=classes))
    labels = rng.integers(0, classes, size=(5, 1))
    labels[3] = -1
    y = F.softmax_cross_entropy(x, labels, weight=weight, label_smoothing=smoothing)
    value = run(y, np.arange(1.0, 6)[:, None])
    shares = (labels == np.arange(classes)) * (1 - smoothing) + smoothing / classes
    shares[3] = 0
    log_p, g = log_probabilities(x.d), np.arange(1.0, 6)[:, None]
    targets = shares * weight.d
    np.testing.assert_allclose(value, -(targets * log_p).sum(1, keepdims=True))
    expected = g * (np.exp(log_p) * targets.sum(1, keepdims=True) - targets)
    np.testing.assert_allclose(x.g, expected, atol=1e-12)
    np.testing.assert_allclose(weight.g, -(g * shares * log_p).sum(0), atol=1e-12)


def test_a_nan_row_that_where_leaves_out_has_gradient_zero() -> None:
    x = leaf([[np.nan, 0.0], [0.0, 0.0]])
    y = F.softmax_cross_entropy(x, np.array([[0], [0]]))
    run(F.where(np.array([[False], [True]]), y, 0.0))
    np.testing.assert_array_equal(x.g, [[0, 0], [-0.5, 0.5]])


def test_nan_scores_give_a_nan_loss() -> None:
    x = leaf([[np.nan, 0.0], [0.0, 0.0]])
    y = F.softmax_cross_entropy(x, np.array([[1], [1]]))
    np.testing.assert_array_equal(np.isnan(y.d), [[True], [False]])


def test_static_and_dynamic_graphs_agree() -> None:
    x, labels = scores(4, 3, dtype=np.float32), np.array([[0], [2], [1], [-1]])
    static = F.softmax_cross_entropy(x, labels)
    static.forward()
    with auto_forward():
        dynamic = F.softmax_cross_entropy(x, labels)
    np.testing.assert_array_equal(static.d, dynamic.d)


Classifier = Callable[[Variable, np.ndarray], Variable]


@pytest.mark.parametrize(
    "function",
    [
        F.softmax_cross_entropy,
        F.categorical_cross_entropy,
        F.top_n_error,
        F.confusion_matrix,
    ],
)
class TestLabels:
    def test_a_label_beyond_the_classes_is_named_with_its_position(
        self, function: Classifier
    ) -> None:
        y = function(scores(2, 3), np.array([[0], [3]]))
        with pytest.raises(OperatorError, match=r"label 3 at position \(1, 0\) .* 3 classes"):
            y.forward()

    @pytest.mark.parametrize("label", [0.5, np.nan, np.inf])
    def test_a_label_that_is_not_whole_is_named(self, function: Classifier, label: float) -> None:
        y = function(scores(2, 3), np.array([[label], [1]]))
        with pytest.raises(OperatorError, match=rf"{label} at position \(0, 0\).*whole numbers"):
            y.forward()

    def test_labels_of_another_shape_are_told_theirs(self, function: Classifier) -> None:
        with pytest.raises(ShapeError, match=r"target has shape \(2,\), expected \(2, 1\)"):
            function(scores(2, 3), np.array([0, 1]))


def test_a_weight_of_another_length_is_told_its_own() -> None:
    with pytest.raises(ShapeError, match=r"weight has shape \(4,\), 3 classes need \(3,\)"):
        F.softmax_cross_entropy(scores(2, 3), np.array([[0], [1]]), weight=np.ones(4))


def test_smoothing_is_a_share() -> None:
    with pytest.raises(OperatorError, match=r"label_smoothing is 1.5"):
        F.softmax_cross_entropy(scores(2, 3), np.array([[0], [1]]), label_smoothing=1.5)


# Other losses ------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_categorical_cross_entropy_is_minus_log_at_the_label(axis: int) -> None:
    rng = np.random.default_rng(0)
    x = leaf(rng.uniform(0.1, 0.9, size=(3, 4, 2)))
    shape = [n if place != axis % 3 else 1 for place, n in enumerate(x.shape)]
    labels = rng.integers(0, x.shape[axis], size=shape)
    y = run(F.categorical_cross_entropy(x, labels, axis))
    picked = np.take_along_axis(x.d, labels, axis)
    np.testing.assert_allclose(y, -np.log(picked))
    np.testing.assert_allclose(np.take_along_axis(x.g, labels, axis), -1 / picked)
    assert (x.g != 0).sum() == labels.size


def test_categorical_cross_entropy_ignores_negative_labels() -> None:
    x = leaf([[0.2, 0.8], [0.5, 0.5]])
    y = run(F.categorical_cross_entropy(x, np.array([[-1], [1]])))
    np.testing.assert_allclose(y, [[0], [np.log(2)]])
    np.testing.assert_allclose(x.g, [[0, 0], [0, -2]])


def test_categorical_cross_entropy_of_an_impossible_label_is_finite() -> None:
    x = leaf([[0.0, 1.0]], np.float32)
    assert np.isfinite(run(F.categorical_cross_entropy(x, np.array([[0]])))).all()
    assert np.isfinite(x.g).all()


def test_sigmoid_cross_entropy_is_finite_for_large_logits() -> None:
    x = leaf([1000, 1000, -1000, -1000], np.float32)
    y = run(F.sigmoid_cross_entropy(x, np.array([1, 0, 1, 0])))
    np.testing.assert_array_equal(y, [0, 1000, 1000, 0])
    np.testing.assert_array_equal(x.g, [0, 1, -1, 0])


def test_sigmoid_cross_entropy_is_binary_cross_entropy_of_the_sigmoid() -> None:
    rng = np.random.default_rng(0)
    x, t = leaf(rng.normal(size=7)), leaf(rng.uniform(size=7))
    y = run(F.sigmoid_cross_entropy(x, t))
    p = 1 / (1 + np.exp(-x.d))
    np.testing.assert_allclose(y, -(t.d * np.log(p) + (1 - t.d) * np.log(1 - p)))
    np.testing.assert_allclose(x.g, p - t.d)
    np.testing.assert_allclose(t.g, -x.d)


def test_binary_cross_entropy_has_gradients_for_both() -> None:
    x, t = leaf([0.2, 0.9]), leaf([1.0, 0.3])
    y = run(F.binary_cross_entropy(x, t))
    np.testing.assert_allclose(y, [-np.log(0.2), -(0.3 * np.log(0.9) + 0.7 * np.log(0.1))])
    np.testing.assert_allclose(x.g, [-1 / 0.2, -0.3 / 0.9 + 0.7 / 0.1])
    np.testing.assert_allclose(t.g, [np.log(0.8) - np.log(0.2), np.log(0.1) - np.log(0.9)])


def test_binary_cross_entropy_is_finite_at_certainty() -> None:
    x = leaf([0.0, 1.0, 0.0, 1.0], np.float32)
    y = run(F.binary_cross_entropy(x, np.array([0, 1, 1, 0])))
    assert np.isfinite(y).all()
    assert np.isfinite(x.g).all()
    np.testing.assert_allclose(y[:2], 0, atol=1e-6)


DIFFERENCES = np.array([-3.0, -0.4, 0.0, 0.4, 3.0])


@pytest.mark.parametrize(
    ("function", "values", "slopes"),
    [
        (F.squared_error, [9, 0.16, 0, 0.16, 9], [-6, -0.8, 0, 0.8, 6]),
        (F.absolute_error, [3, 0.4, 0, 0.4, 3], [-1, -1, 0, 1, 1]),
        (F.huber_loss, [5, 0.16, 0, 0.16, 5], [-2, -0.8, 0, 0.8, 2]),
        (
            lambda a, b: F.huber_loss(a, b, 0.2),
            [1.16, 0.12, 0, 0.12, 1.16],
            [-0.4, -0.4, 0, 0.4, 0.4],
        ),
        (lambda a, b: F.epsilon_insensitive_loss(a, b, 0.5), [2.5, 0, 0, 0, 2.5], [-1, 0, 0, 0, 1]),
    ],
    ids=["squared", "absolute", "huber", "huber with delta", "epsilon insensitive"],
)
def test_losses_of_a_difference(
    function: Callable[..., Variable], values: list[float], slopes: list[float]
) -> None:
    x0, x1 = leaf(DIFFERENCES + 1), leaf(np.ones(5))
    np.testing.assert_allclose(run(function(x0, x1)), values, atol=1e-12)
    np.testing.assert_allclose(x0.g, slopes, atol=1e-12)
    np.testing.assert_allclose(x1.g, np.negative(slopes), atol=1e-12)


@pytest.mark.parametrize(
    "function",
    [
        F.squared_error,
        F.absolute_error,
        F.huber_loss,
        lambda a, b: F.epsilon_insensitive_loss(a, b, 0.5),
        F.sigmoid_cross_entropy,
        F.binary_cross_entropy,
    ],
    ids=["squared", "absolute", "huber", "epsilon", "sigmoid", "binary"],
)
class TestPairs:
    def test_a_missing_target_that_where_leaves_out_has_gradient_zero(
        self, function: Callable[..., Variable]
    ) -> None:
        x, target = leaf([0.3, 0.6]), np.array([np.nan, 1.0])
        run(F.where(np.isfinite(target), function(x, target), 0.0))
        assert x.g[0] == 0

    def test_nan_gives_a_nan_loss(self, function: Callable[..., Variable]) -> None:
        y = function(leaf([np.nan, 0.5]), np.array([1.0, 1.0]))
        np.testing.assert_array_equal(np.isnan(y.d), [True, False])

    def test_what_is_broadcast_sums_its_gradient(self, function: Callable[..., Variable]) -> None:
        x, target = leaf([[0.3], [0.7]]), np.array([[0.0, 1.0, 1.0], [0.0, 0.0, 1.0]])
        apart = leaf(np.repeat(x.d, 3, axis=1))
        run(function(x, target))
        run(function(apart, target))
        np.testing.assert_allclose(x.g, apart.g.sum(1, keepdims=True))


@pytest.mark.parametrize("base_axis", [1, 2, -1])
def test_kl_multinomial_sums_over_the_axes_from_base_axis_on(base_axis: int) -> None:
    rng = np.random.default_rng(0)
    p, q = leaf(rng.uniform(0.1, 1, size=(2, 3, 4))), leaf(rng.uniform(0.1, 1, size=(2, 3, 4)))
    axis = base_axis % 3
    y = run(F.kl_multinomial(p, q, base_axis))
    expected = (p.d * np.log(p.d / q.d)).sum(tuple(range(axis, 3)))
    np.testing.assert_allclose(y, expected[..., None], rtol=1e-6)
    np.testing.assert_allclose(p.g, np.log(p.d / q.d) + 1, rtol=1e-6)
    np.testing.assert_allclose(q.g, -p.d / q.d, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_kl_multinomial_takes_an_event_without_probability(dtype: Any) -> None:
    p, q = leaf([[0.0, 1.0]], dtype), leaf([[0.5, 0.5]], dtype)
    y = F.kl_multinomial(p, q)
    assert y.dtype == dtype
    np.testing.assert_allclose(run(y), [[np.log(2)]], rtol=1e-3)


def test_kl_multinomial_needs_equal_shapes() -> None:
    with pytest.raises(ShapeError, match=r"\(2, 3\) and \(2, 1\) differ"):
        F.kl_multinomial(scores(2, 3), scores(2, 1))


# Errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "expected"), [(1, [1, 0, 1]), (2, [0, 0, 1]), (3, [0, 0, 0])])
def test_top_n_error_tells_whether_the_label_is_below_the_best_n(
    n: int, expected: list[int]
) -> None:
    x = leaf([[1, 3, 2], [5, 4, 3], [2, 1, 3]])
    y = F.top_n_error(x, np.array([[2], [0], [1]]), n=n)
    np.testing.assert_array_equal(y.d[:, 0], expected)
    assert y.dtype == x.dtype


def test_scores_that_tie_with_the_labels_count_against_it() -> None:
    x = leaf([[1, 1, 0]])
    assert F.top_n_error(x, np.array([[0]])).d == 1
    assert F.top_n_error(x, np.array([[0]]), n=2).d == 0


def test_nan_scores_are_errors() -> None:
    x, labels = leaf([[np.nan, 0, 1], [2, np.nan, 1]]), np.array([[0], [0]])
    np.testing.assert_array_equal(F.top_n_error(x, labels).d, [[1], [1]])
    np.testing.assert_array_equal(F.binary_error(leaf([np.nan]), np.zeros(1)).d, [1])


def test_ignored_labels_are_no_errors() -> None:
    assert F.top_n_error(leaf([[1, 2]]), np.array([[-1]])).d == 0


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_confusion_matrix_counts_labels_against_choices(axis: int) -> None:
    rng = np.random.default_rng(0)
    x = leaf(rng.normal(size=(5, 3, 4)))
    shape = [n if place != axis % 3 else 1 for place, n in enumerate(x.shape)]
    labels = rng.integers(-1, x.shape[axis], size=shape)
    counts = F.confusion_matrix(x, labels, axis).d
    expected = np.zeros_like(counts)
    for label, choice in zip(labels.ravel(), x.d.argmax(axis).ravel(), strict=True):
        if label >= 0:
            expected[label, choice] += 1
    np.testing.assert_array_equal(counts, expected)
    assert counts.dtype == np.int64


def test_binary_error_compares_sides_of_one_half() -> None:
    x, t = leaf([0.49, 0.5, 0.9, 0.1]), np.array([1.0, 1.0, 0.0, 0.2])
    np.testing.assert_array_equal(F.binary_error(x, t).d, [1, 0, 1, 0])


def test_errors_have_no_gradient_and_say_so() -> None:
    y = F.top_n_error(scores(2, 3), np.array([[0], [1]]))
    y.forward()
    with pytest.raises(NotDifferentiableError, match="nnl::top_n_error"):
        y.backward()
