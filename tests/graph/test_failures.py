"""What stays after a run that fails half way."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.errors import OperatorError


def leaf(values, dtype=np.float64):
    array = np.array(values, dtype)
    return Variable.from_numpy_array(array, need_grad=array.dtype.kind == "f")


class Refused(Exception):
    pass


def refuse(node):
    if node.operator.__name__ == "mul":
        raise Refused


def test_no_value_is_half_new_after_a_hook_that_raises():
    x = leaf([1.0])
    hidden = x + 1
    y = hidden * hidden
    y.forward()
    x.d = 5
    with pytest.raises(Refused):
        y.forward(function_pre_hook=refuse)
    np.testing.assert_array_equal([hidden.d, y.d], [[6], [36]])
    y.backward()
    np.testing.assert_array_equal(x.g, [12])


def test_gradients_stay_as_they_were_after_a_hook_that_raises():
    x = leaf([3.0])
    y = x * x + x
    y.forward()
    y.backward()
    with pytest.raises(Refused):
        y.backward(function_pre_hook=refuse)
    np.testing.assert_array_equal(x.g, [7])
    y.backward()
    np.testing.assert_array_equal(x.g, [14])


def failing_from(rows):
    """Return a graph that takes rows of a table, which may be out of its range."""
    return F.sum(F.gather(leaf(np.arange(6.0).reshape(3, 2)) * 2, rows, axis=0) + 1)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_kernel_that_fails_is_named_and_the_graph_runs_on_other_data(dynamic):
    rows = leaf([0, 7], np.int64)
    with nnl.auto_forward(dynamic), pytest.raises(OperatorError, match="gather"):
        failing_from(rows).forward()
    y = failing_from(rows)
    with pytest.raises(OperatorError, match="gather"):
        y.forward()
    with pytest.raises(OperatorError, match="gather"):
        _ = y.d
    rows.d = [0, 2]
    assert y.d == 2 * (0 + 1 + 4 + 5) + 4


def test_a_kernel_that_fails_in_a_fused_group_is_named():
    exponent = leaf([2, -1], np.int64)
    y = leaf([3, 3], np.int64) * 2 + 1
    with pytest.raises(OperatorError, match="pow"):
        (y**exponent).forward()


def test_a_training_step_that_fails_changes_no_parameter():
    weight, rows = nnl.Parameter((3, 2)), leaf([0, 7], np.int64)
    weight.d = np.arange(6).reshape(3, 2)
    loss = F.sum(F.gather(weight * weight, rows, axis=0))
    solver = nnl.S.Momentum(0.5, momentum=0.0)
    solver.set_parameters({"weight": weight})
    step = nnl.compile_step(loss, solver)
    with pytest.raises(OperatorError, match="gather"):
        step.run()
    np.testing.assert_array_equal(weight.d, np.arange(6).reshape(3, 2))
    rows.d = [0, 0]
    step.run()
    np.testing.assert_array_equal(loss.d, 2 * (0 + 1))
    np.testing.assert_array_equal(weight.d, [[0, 1 - 0.5 * 2 * 2], [2, 3], [4, 5]])
