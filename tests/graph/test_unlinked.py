"""Variables that share their elements with an output of a graph, without its history."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.errors import GraphError


def leaf(values):
    return Variable.from_numpy_array(np.array(values, np.float64), need_grad=True)


def held(x):
    """Return ``h * h``, for ``h = 3 x``, with the gradient of one factor alone."""
    hidden = x * 3
    return F.sum(hidden * hidden.get_unlinked_variable(need_grad=False))


def test_an_output_that_was_never_computed_is_not_read_as_zeros():
    hidden = (leaf([2.0]) * 3).apply(name="hidden")
    y = hidden.unlinked + 1
    with pytest.raises(GraphError, match="forward"):
        _ = y.d
    with pytest.raises(GraphError, match="forward"):
        _ = hidden.unlinked.d
    hidden.forward()
    assert y.d == 7


@pytest.mark.parametrize("scope", [nnl.recompute, nnl.auto_forward, lambda: nnl.no_grad(False)])
@pytest.mark.parametrize("clear", [False, True])
def test_a_graph_sees_what_it_computes_itself_and_no_gradient_flows(scope, clear):
    x = leaf([2.0])
    with scope():
        y = held(x)
        for value in (2.0, 5.0):
            if y.data.has_value and scope is nnl.auto_forward:
                y = held(x)
            x.d, x.g = value, 0
            y = held(x) if scope is nnl.auto_forward else y
            y.forward(clear_no_need_grad=clear)
            y.backward(clear_buffer=clear)
            np.testing.assert_array_equal([y.d, x.g[0]], [9 * value**2, 9 * value])


def test_a_compiled_step_sees_what_it_computes_itself():
    w = nnl.Parameter((1,))
    w.d = 2
    solver = nnl.S.Sgd(0.0)
    solver.set_parameters({"w": w})
    loss = held(w)
    step = nnl.compile_step(loss, solver)
    for value in (2.0, 5.0):
        w.d = value
        step.run()
        np.testing.assert_array_equal([loss.d, w.g[0]], [9 * value**2, 9 * value])


def test_what_another_graph_computes_is_as_its_last_run_left_it():
    x = leaf([2.0])
    hidden = x * 3
    y = hidden.unlinked + 1
    hidden.forward()
    y.forward()
    x.d = 5
    y.forward()
    assert y.d == 7
    hidden.forward()
    y.forward()
    assert y.d == 16
