"""Assignments, sinks, and gradients that stop."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.modes import auto_forward
from nnl_core.graph.variable import Variable


def leaf(*values: float) -> Variable:
    return Variable.from_numpy_array(np.array(values, float), need_grad=True)


# Assignment --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_assignment_is_seen_by_nodes_made_later_and_not_by_those_before(dynamic: bool) -> None:
    dst, src = leaf(0, 0), leaf(1, 2)
    with auto_forward(dynamic):
        before = dst * 1
        assigned = F.assign(dst, src * 2)
        after = dst * 1
    if not dynamic:
        F.sink(before, assigned, after).forward()
    assert before.d.tolist() == [0, 0]
    assert assigned.d.tolist() == after.d.tolist() == dst.d.tolist() == [2, 4]


def test_nothing_is_assigned_before_it_runs_and_again_whenever_it_does() -> None:
    dst = leaf(0)
    counted = F.assign(dst, dst + 1)
    assert dst.d.tolist() == [0]
    for _ in range(3):
        counted.forward()
    assert dst.d.tolist() == [3]


def test_gradient_of_an_assignment_goes_to_the_destination() -> None:
    dst, src = leaf(0, 0), leaf(1, 2)
    y = F.assign(dst, src)
    y.forward()
    y.backward(np.array([3.0, 4.0]))
    assert dst.g.tolist() == [3, 4]
    assert src.g.tolist() == [0, 0]


def test_an_assignment_casts_to_the_dtype_of_the_destination() -> None:
    dst = Variable((2,))
    assert F.assign(dst, np.array([1, 2])).dtype == np.float32


def test_only_a_variable_that_nothing_computes_can_be_assigned_to() -> None:
    with pytest.raises(OperatorError, match="not the result of a node or a constant"):
        F.assign(leaf(1) * 2, leaf(1))
    with pytest.raises(OperatorError, match="not a ndarray"):
        F.assign(np.zeros(1), leaf(1))


def test_an_assignment_does_not_broadcast() -> None:
    with pytest.raises(ShapeError, match=r"src of shape \(1,\) does not fit dst of \(2,\)"):
        F.assign(leaf(1, 2), leaf(1))


# Sinks -------------------------------------------------------------------------------------------


def test_a_sink_computes_all_of_its_inputs_and_is_zero() -> None:
    x = leaf(2, 3)
    square, double = x * x, x * 2
    joined = F.sink(square, double)
    joined.forward()
    assert joined.d.shape == ()
    assert joined.d == 0
    assert [square.d.tolist(), double.d.tolist()] == [[4, 9], [4, 6]]


@pytest.mark.parametrize("seed", [1, 5])
@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_begin_with_ones_whatever_that_of_the_sink_is(dynamic: bool, seed: int) -> None:
    x = leaf(2, 3)
    with auto_forward(dynamic):
        joined = F.sink(x * x, x * 7)
    joined.forward()
    joined.backward(seed)
    assert x.g.tolist() == [2 * 2 + 7, 2 * 3 + 7]


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_may_be_given_and_given_anew(dynamic: bool) -> None:
    x = leaf(2, 3)
    with auto_forward(dynamic):
        square, more = x * x, x * 7
        joined = F.sink(square, more, one_input_grad=False)
    joined.forward()
    for first, second in [([1, 0], [0, 1]), ([0, 10], [1, 0])]:
        x.grad.zero()
        square.g, more.g = first, second
        joined.backward()
        np.testing.assert_array_equal(x.g, 2 * x.d * first + 7 * np.array(second))


def test_a_given_gradient_is_added_to_that_of_other_uses() -> None:
    x = leaf(2, 3)
    square = x * x
    triple = square * 3
    joined = F.sink(square, triple, one_input_grad=False)
    joined.forward()
    square.g, triple.g = [1, 1], [10, 0]
    joined.backward()
    assert x.g.tolist() == [2 * 2 * (1 + 30), 2 * 3 * 1]


def test_a_leaf_keeps_the_gradient_that_it_was_given() -> None:
    x = leaf(2, 3)
    square = x * x
    joined = F.sink(x, square, one_input_grad=False)
    joined.forward()
    x.g, square.g = [5, 5], [1, 1]
    joined.backward()
    assert x.g.tolist() == [5 + 4, 5 + 6]


def test_a_sink_of_nothing_runs() -> None:
    assert F.sink().d == 0


# Gradients stopped --------------------------------------------------------------------------------


def test_no_gradient_passes_an_unlinked_use() -> None:
    x = leaf(2, 3)
    y = F.unlink(x)
    y.forward()
    y.backward()
    assert y.d.tolist() == [2, 3]
    assert x.g.tolist() == [0, 0]
    assert nnl.grad(x * F.unlink(x), x)[0].d.tolist() == [2, 3]


def test_bc_add2_broadcasts() -> None:
    x, y = leaf(1, 2), Variable.from_numpy_array(np.ones((3, 1)), need_grad=True)
    total = F.bc_add2(x, y)
    total.forward()
    total.backward()
    assert total.d.tolist() == [[2, 3]] * 3
    assert x.g.tolist() == [3, 3]
    assert y.g.tolist() == [[2]] * 3
