"""Values brought between bounds or under a norm."""

from __future__ import annotations

import numpy as np
import pytest

from nnl_core import functions as F
from nnl_core.errors import OperatorError
from nnl_core.graph.autodiff import grad
from nnl_core.graph.variable import Variable

NAN = float("nan")


def leaf(values):
    return Variable.from_numpy_array(np.asarray(values, np.float64), need_grad=True)


def slopes(y, *inputs):
    """Gradients of the sum of ``y``."""
    return [one.d.tolist() for one in grad(y, inputs)]


def test_clipping_keeps_values_and_gradients_between_the_bounds():
    x = leaf([-3.0, -1.0, 0.5, 1.0, 4.0, NAN])
    y = F.clip_by_value(x, -1, 1)
    np.testing.assert_array_equal(y.d, [-1.0, -1.0, 0.5, 1.0, 1.0, NAN])
    assert slopes(y, x)[0][:5] == [0.0, 0.0, 1.0, 0.0, 0.0]


def test_bounds_may_be_variables_and_get_the_gradient_where_they_hold():
    x, low, high = leaf([-3.0, 0.5, 4.0]), leaf([-1.0] * 3), leaf(2.0)
    y = F.clip_by_value(x, low, high)
    assert y.d.tolist() == [-1.0, 0.5, 2.0]
    assert slopes(y, x, low, high) == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], 1.0]


def test_clip_takes_either_bound_or_both():
    x = leaf([-3.0, 0.5, 4.0])
    assert F.clip(x, min=0).d.tolist() == [0.0, 0.5, 4.0]
    assert F.clip(x, max=0).d.tolist() == [-3.0, 0.0, 0.0]
    assert F.clip(x, -1, 1).d.tolist() == [-1.0, 0.5, 1.0]
    with pytest.raises(OperatorError, match="min, max"):
        F.clip(x)


def test_what_exceeds_a_norm_is_scaled_down_to_it():
    x = leaf([[3.0, -4.0], [0.3, 0.4]])
    assert F.clip_by_norm(x, 1.0, axis=1).d == pytest.approx(np.array([[0.6, -0.8], [0.3, 0.4]]))
    assert F.norm(F.clip_by_norm(x, 2.0)).d == pytest.approx(2.0)


def test_zeros_under_a_norm_stay_zero_and_pass_the_gradient():
    x = leaf([0.0, 0.0])
    y = F.clip_by_norm(x, 1.0)
    assert y.d.tolist() == [0.0, 0.0]
    assert slopes(y, x) == [[1.0, 1.0]]


def test_the_norm_may_be_a_variable():
    assert F.clip_by_norm(leaf([3.0, 4.0]), leaf(1.0)).d == pytest.approx(np.array([0.6, 0.8]))


def test_a_norm_that_is_not_positive_is_named():
    with pytest.raises(OperatorError, match=r"clip_norm is -1"):
        F.clip_by_norm(leaf([1.0]), -1)
