"""Softmax and the losses of classification by native kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.errors import OperatorError
from nnl_core.testing import check_operator

OPERATORS = [
    "softmax", "masked_softmax", "softmax_gradient", "log_softmax", "log_softmax_gradient",
    "softmax_cross_entropy", "softmax_cross_entropy_gradient", "categorical_cross_entropy",
    "top_n_error",
]  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_keep_their_promises(name):
    check_operator(f"nnl::{name}", "native")


def softmax(x, axis):
    """Softmax in double precision."""
    e = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_shares_along_any_axis_are_those_of_the_exponentials(data):
    lengths = st.sampled_from([1, 2, 10, 33, 130, 600])
    shape = tuple(data.draw(st.lists(lengths, min_size=1, max_size=3).filter(_is_small)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = np.random.default_rng(0).normal(0, 3, size=shape).astype(np.float32)
    np.testing.assert_allclose(F.softmax(x, axis).d, softmax(x, axis), rtol=1e-5, atol=1e-7)


def _is_small(shape):
    return np.prod(shape) < 100_000


@pytest.mark.parametrize("classes", [3, 40, 700])
def test_log_softmax_is_finite_for_scores_of_a_thousand(classes):
    x = np.full((2, classes), -1000, np.float32)
    x[0, 0] = 1000
    y = F.log_softmax(x).d
    np.testing.assert_allclose(y[0], [0, *[-2000] * (classes - 1)])
    np.testing.assert_allclose(y[1], -np.log(classes), rtol=1e-6)


@pytest.mark.parametrize("classes", [3, 40, 700])
def test_nan_among_the_scores_makes_its_row_nan_and_no_other(classes):
    x = np.zeros((3, classes), np.float32)
    x[1, classes // 2] = np.nan
    y = F.softmax(x).d
    assert np.isnan(y[1]).all()
    np.testing.assert_allclose(y[::2], 1 / classes, rtol=1e-6)


@pytest.mark.parametrize("classes", [4, 64, 600])
def test_rows_that_are_hidden_have_no_shares(classes):
    x = np.full((2, classes), -np.inf, np.float32)
    x[1, 2] = 5
    expected = np.zeros((2, classes))
    expected[1, 2] = 1
    np.testing.assert_array_equal(F.masked_softmax(x).d, expected)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.float32])
def test_cross_entropy_is_less_the_logarithm_of_the_labels_share(axis, dtype):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(9, 12, 7)).astype(np.float32)
    shape = tuple(1 if place == axis else n for place, n in enumerate(x.shape))
    target = rng.integers(0, x.shape[axis], size=shape)
    expected = -np.log(np.take_along_axis(softmax(x, axis), target, axis))
    loss = F.softmax_cross_entropy(x, target.astype(dtype), axis).d
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_ignored_labels_have_neither_loss_nor_gradient_even_where_scores_are_nan():
    x = F.identity(np.array([[np.nan, 1.0, 2.0], [1.0, 2.0, 3.0]], np.float32))
    x.need_grad = True
    loss = F.softmax_cross_entropy(x, np.array([[-1], [7]]), ignore_index=7)
    F.sum(loss).backward()
    np.testing.assert_array_equal(loss.d, 0)
    np.testing.assert_array_equal(x.g, 0)


@pytest.mark.parametrize("label", [3, 1000, 1.5, np.nan, np.inf])
@pytest.mark.parametrize("function", [F.softmax_cross_entropy, F.top_n_error])
def test_a_label_that_names_no_class_is_an_error_that_names_it(function, label):
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(OperatorError, match=r"position \(1, 0\) is not one of the 3 classes"):
        function(x, np.array([[0], [label]])).forward()


def test_weights_and_smoothing_share_out_the_targets():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 6)).astype(np.float32)
    target, weight = rng.integers(0, 6, size=(50, 1)), rng.uniform(1, 2, 6).astype(np.float32)
    shares = weight * (np.eye(6)[target[:, 0]] * 0.9 + 0.1 / 6)
    expected = -(shares * np.log(softmax(x, 1))).sum(axis=1, keepdims=True)
    loss = F.softmax_cross_entropy(x, target, weight=weight, label_smoothing=0.1)
    np.testing.assert_allclose(loss.d, expected, rtol=1e-5)
