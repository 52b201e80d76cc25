"""Assignments that a run brings about: who sees them, and what a gradient makes of them."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.errors import StaleValueError
from nnl_core.graph import add_effects


def leaf(values, need_grad=False):
    return Variable.from_numpy_array(np.array(values, np.float64), need_grad=need_grad)


def counted(x, count):
    """Return ``x * count``, and count."""
    y = x * count
    add_effects(y, [(count, count + 1)])
    return y


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_node_sees_what_nodes_before_it_have_assigned(dynamic):
    x, count = leaf([1.0]), leaf(10.0)
    with nnl.auto_forward(dynamic):
        y = F.concatenate(counted(x, count), counted(x, count), x * count, axis=0)
        np.testing.assert_array_equal(y.d, [10, 11, 12])
    assert count.d == 12


def test_a_node_made_before_an_assignment_does_not_see_it_whatever_the_order_of_outputs():
    x, count = leaf([1.0]), leaf(10.0)
    before = x + count
    y = counted(x, count)
    nnl.forward_all([y, before])
    assert (before.d.item(), y.d.item(), count.d.item()) == (11, 10, 11)


def test_an_assignment_of_a_graph_that_does_not_run_is_not_seen():
    x, count = leaf([1.0]), leaf(10.0)
    other = counted(x, count)
    np.testing.assert_array_equal((x * count).d, [10])
    del other


def test_assignments_made_together_may_exchange_two_values():
    a, b, x = leaf(1.0), leaf(2.0), leaf([0.0])
    y = x + 0.5
    add_effects(y, [(a, b), (b, a)])
    z = y + a * 10 + b
    z.forward()
    assert (a.d.item(), b.d.item()) == (2, 1)
    np.testing.assert_array_equal(z.d, [0.5 + 20 + 1])


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_layers_that_share_running_statistics_update_them_in_turn(dynamic):
    mean, variance = leaf([[0.0]]), leaf([[1.0]])
    with nnl.auto_forward(dynamic):
        outputs = [
            F.batch_normalization(leaf(x), None, None, mean, variance, decay_rate=0.5)
            for x in ([[1.0], [3.0]], [[10.0], [30.0]])
        ]
        if not dynamic:
            nnl.forward_all(outputs)
    assert mean.d.item() == 0.5 * (0.5 * 2) + 0.5 * 20
    assert variance.d.item() == 0.5 * (0.5 * 1 + 0.5 * 2) + 0.5 * 200  # unbiased: 2 and 200


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_gradient_that_needs_what_was_assigned_over_is_an_error(dynamic):
    x, count = leaf([3.0], need_grad=True), leaf(10.0).apply(name="count")
    with nnl.auto_forward(dynamic):
        y = counted(x, count)
        y.forward() if not dynamic else None
        with pytest.raises(StaleValueError, match="count"):
            y.backward()


def test_a_gradient_that_needs_what_was_assigned_last_uses_it():
    x, count = leaf([3.0], need_grad=True), leaf(10.0)
    counted(x, count)
    first = counted(leaf([0.0]), count)
    y = first + x * count
    y.forward()
    y.backward()
    np.testing.assert_array_equal(x.g, [11])


def test_gradients_of_a_compiled_step_use_what_each_node_saw():
    weight, count = nnl.Parameter((1,)), leaf(10.0)
    weight.d, count = 1, Variable((), dtype="float32")
    count.d = 10
    loss = F.sum(counted(weight, count) + 100 * counted(weight, count))
    solver = nnl.S.Sgd(0.0)
    solver.set_parameters({"w": weight})
    step = nnl.compile_step(loss, solver)
    for first in (10, 12):
        step.run()
        assert weight.g.item() == first + 100 * (first + 1)
    assert count.d == 14


def test_a_gradient_that_is_part_of_the_graph_uses_what_each_node_saw():
    x, count = leaf([3.0], need_grad=True), leaf(10.0)
    y = F.sum(counted(x, count) + counted(x, count))
    (gradient,) = nnl.grad(y, x)
    nnl.forward_all([y, gradient])
    np.testing.assert_array_equal(gradient.d, [21])


def test_a_dynamic_gradient_repeats_no_assignment():
    x, mean, variance = leaf([[1.0], [3.0]], need_grad=True), leaf([[0.0]]), leaf([[1.0]])
    with nnl.auto_forward():
        y = F.batch_normalization(x, None, None, mean, variance, decay_rate=0.5)
        nnl.grad(F.sum(y * y), x)
    assert mean.d.item() == 1.0


def test_an_assignment_added_to_a_node_that_has_run_takes_place_in_the_next_run():
    x, count = leaf([1.0]), leaf(1.0)
    y = x * 2
    y.forward()
    add_effects(y, [(count, count + 1)])
    gc.collect()
    y.forward()
    assert count.d == 2


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_assignments_of_one_call_may_exchange_values(dynamic):
    a, b = leaf([1.0]), leaf([2.0])
    with nnl.auto_forward(dynamic):
        y = leaf([5.0]) * 2
        add_effects(y, [(a, b), (b, a)])
        if not dynamic:
            y.forward()
    np.testing.assert_array_equal([a.d[0], b.d[0]], [2, 1])


@nnl.defop("tests_effects::passed")
def passed(x, seen):
    """Return ``x``; its gradient is added to ``seen``."""
    return x.copy()


@passed.infer
def passed_infer(x, seen):
    return x


@passed.vjp
def passed_vjp(g, y, x, seen):
    kept = g * 1.0
    add_effects(kept, [(TOTAL, TOTAL + kept)])
    return kept, None


TOTAL = leaf([0.0, 0.0])


def test_an_assignment_of_a_gradient_takes_place_in_each_backward_pass_and_no_forward_pass():
    x = leaf([1.0, 2.0], need_grad=True)
    TOTAL.d = 0
    y = F.sum(passed(x, leaf([0.0, 0.0])) * np.array([3.0, 5.0]))
    y.forward()
    np.testing.assert_array_equal(TOTAL.d, [0, 0])
    for times in (1, 2):
        y.backward()
        np.testing.assert_array_equal(TOTAL.d, times * np.array([3, 5]))
