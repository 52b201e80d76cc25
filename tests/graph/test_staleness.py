"""What is written between forward and backward: an error that names it, or the right gradient."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, NdArray, Variable
from nnl_core.errors import ClearedError, StaleValueError


def leaf(values, need_grad=True):
    return Variable.from_numpy_array(np.array(values, np.float64), need_grad=need_grad)


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_an_output_that_its_own_gradient_needs_must_not_be_overwritten(dynamic):
    x = leaf([1.0])
    with nnl.auto_forward(dynamic):
        y = F.exp(x).apply(name="power")
        z = y * 2
        z.forward()
        y.d = 0
        with pytest.raises(StaleValueError, match="power"):
            z.backward()


def test_a_root_whose_own_gradient_needs_it_must_not_be_overwritten():
    y = F.exp(leaf([1.0])).apply(name="power")
    y.forward()
    y.d[0] = 0
    with pytest.raises(StaleValueError, match="power"):
        y.backward()


def test_another_storage_is_another_value_however_often_it_was_written():
    x = leaf([1.0]).apply(name="x")
    y = x * x
    y.forward()
    x.data = NdArray.from_numpy_array(np.array([7.0]))
    with pytest.raises(StaleValueError, match="'x'"):
        y.backward()


def test_an_input_of_what_is_recomputed_must_not_be_overwritten():
    x = leaf([1.0]).apply(name="x")
    with nnl.recompute():
        h = x + 1  # its gradient needs no value, but its value is needed by the next
    y = h * h
    y.forward()
    x.d = 100
    with pytest.raises(StaleValueError, match="'x'"):
        y.backward()


def test_an_input_of_what_was_released_must_not_be_overwritten():
    x = leaf([1.0]).apply(name="x")
    y = (x + 1) ** 2.0
    y.forward(clear_buffer=True)
    x.d = 100
    with pytest.raises(StaleValueError, match="'x'"):
        y.backward()


def test_a_dynamic_gradient_refuses_what_was_overwritten():
    x = leaf([1.0]).apply(name="x")
    with nnl.auto_forward():
        y = x * x
        x.d = 5
        with pytest.raises(StaleValueError, match="'x'"):
            nnl.grad(y, x)


def test_parameters_updated_between_forward_and_backward_are_noticed():
    weight = nnl.Parameter((1,), name="weight")
    weight.d = 2
    first, second = F.sum(weight * weight), F.sum(weight * weight * 2)
    nnl.forward_all([first, second])
    solver = nnl.S.Sgd(0.5)
    solver.set_parameters({"weight": weight})
    first.backward()
    solver.update()
    with pytest.raises(StaleValueError, match="weight"):
        second.backward()


@pytest.mark.parametrize("clear_buffer", [False, True])
def test_a_branch_computed_from_other_values_is_not_the_newer_one_of_another(clear_buffer):
    x = leaf([1.0])
    hidden = F.exp(x).apply(name="hidden")
    first, second = hidden * hidden, hidden * 2
    first.forward(clear_buffer=clear_buffer)
    x.d = 2
    second.forward(clear_buffer=True)
    second.forward()
    with pytest.raises(StaleValueError, match="hidden"):
        first.backward()


def test_a_mask_drawn_again_for_another_output_is_not_the_one_that_was_used():
    x = Variable.from_numpy_array(np.ones(100, np.float32), need_grad=True)
    mask = F.rand(shape=(100,)).apply(name="mask")
    first, second = x * mask, mask * 2
    first.forward()
    second.forward()
    with pytest.raises(StaleValueError, match="mask"):
        first.backward()


# No errors ----------------------------------------------------------------------------------------


def test_outputs_that_share_nodes_may_be_computed_one_after_another():
    x = leaf([[1.0, 2.0, 6.0]])
    y, mean, _ = F.layer_normalization(x, None, None, output_stat=True)
    for output in (y, mean):
        output.forward()
    one_by_one = [read_gradient(x, output) for output in (y, mean)]
    nnl.forward_all([y, mean])
    np.testing.assert_array_equal(one_by_one, [read_gradient(x, output) for output in (y, mean)])


def read_gradient(x, y):
    x.grad.zero()
    y.backward(np.arange(1.0, y.size + 1).reshape(y.shape))
    return x.g.copy()


def test_what_no_gradient_needs_may_be_overwritten():
    x, shift = leaf([3.0]), leaf([1.0], need_grad=False)
    constant_branch = shift * shift
    y = x * x + constant_branch
    y.forward()
    shift.d = 100
    y.backward()
    np.testing.assert_array_equal(x.g, [6])


def test_backward_after_a_compiled_step_computes_what_the_step_did_not_keep():
    weight = nnl.Parameter((2,))
    weight.d = [1, 2]
    hidden = weight * weight
    loss = F.sum(hidden * hidden)
    solver = nnl.S.Sgd(0.0)
    solver.set_parameters({"weight": weight})
    nnl.compile_step(loss, solver).run()
    weight.g = 0
    loss.backward()
    np.testing.assert_array_equal(weight.g, [4, 32])


def test_backward_works_again_and_again_whatever_was_released_before():
    x = leaf([1.0])
    y = (x * 2) ** 2.0
    for clear_forward in (False, True, False):
        for clear_backward in (False, True, True, False):
            y.forward(clear_buffer=clear_forward)
            x.g = 0
            y.backward(clear_buffer=clear_backward)
            y.backward(clear_buffer=clear_backward)
            np.testing.assert_array_equal(x.g, [2 * 8])


def test_persistence_counts_from_the_next_run_on():
    h = leaf([1.0]) * 2
    y = h + 1
    y.forward(clear_buffer=True)
    with pytest.raises(ClearedError):
        _ = h.d
    h.persistent = True
    y.forward(clear_buffer=True)
    np.testing.assert_array_equal(h.d, [2])


def test_variables_computed_together_are_told_apart_by_what_they_are_not_where_they_live():
    x = leaf([1.0])
    a = x * 2
    for factor in range(30):
        b = x * factor
        b.forward()
        x.d = [factor + 1.0]
        nnl.forward_all([a, b])  # a remembers plans, and the next b may live where this one did
        np.testing.assert_array_equal(b.d, [factor * (factor + 1)])
        del b
        gc.collect()


def test_the_gradient_of_a_rewired_variable_is_its_own():
    x, p = leaf([2.0]), leaf([5.0])
    hidden = x * 3
    y = hidden * hidden
    hidden.rewire_on(p * 4)
    gc.collect()
    y.forward()
    y.backward()
    np.testing.assert_array_equal([p.g, hidden.g, y.d], [[160], [40], [400]])
