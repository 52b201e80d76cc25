"""What listeners hear of nodes while a graph runs."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import functions as F
from nnl_core.session import current_session


class Listener:
    """Notes the operator of each node, with copies of the arrays."""

    def __init__(self):
        self.heard = []

    def _note(self, what, node, *arrays):
        copies = [[None if a is None else np.array(a).tolist() for a in part] for part in arrays]
        self.heard.append((what, node.operator.__name__, *copies))

    def nnl_on_node_forward_start(self, event):
        self._note("forward", event.node, event.inputs)

    def nnl_on_node_forward_end(self, event):
        self._note("computed", event.node, event.inputs, event.outputs)

    def nnl_on_node_backward_start(self, event):
        self._note("backward", event.node, event.output_gradients)

    def nnl_on_node_backward_end(self, event):
        self._note("passed on", event.node, event.output_gradients, event.input_gradients)


@pytest.fixture
def listener():
    listening = Listener()
    with current_session().listen(listening):
        yield listening


def square_of_sum(x):
    return F.pow_scalar(F.sum(x), 2.0)


@pytest.mark.parametrize("time", ["first", "second"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_listeners_hear_of_each_node_with_its_values(listener, dynamic, time):
    """Also where a program of an equal graph is there already."""
    for _ in range(1 if time == "first" else 2):
        listener.heard.clear()
        x = nnl.Variable.from_numpy_array(np.float32([1, 2]), need_grad=True)
        with nnl.auto_forward(dynamic):
            y = square_of_sum(x)
        if not dynamic:
            y.forward()
        y.backward()
    assert listener.heard == [
        ("forward", "sum", [[1, 2]]),
        ("computed", "sum", [[1, 2]], [3]),
        ("forward", "pow_scalar", [3]),
        ("computed", "pow_scalar", [3], [9]),
        ("backward", "pow_scalar", [1]),
        ("passed on", "pow_scalar", [1], [6]),
        ("backward", "sum", [6]),
        ("passed on", "sum", [6], [[6, 6]]),
    ]


def test_listeners_hear_of_nodes_that_pass_a_gradient_on_as_it_is(listener):
    x = nnl.Variable.from_numpy_array(np.float32(3), need_grad=True)
    (x + 1).backward(5)
    assert listener.heard[-2:] == [
        ("backward", "add_scalar", [5]),
        ("passed on", "add_scalar", [5], [5]),
    ]
    assert x.g == 5


def test_nodes_of_a_compiled_step_are_not_told_of_one_by_one(listener):
    parameter = nnl.Parameter((2,), name="w")
    solver = nnl.S.Sgd(0.5)
    solver.set_parameters({"w": parameter})
    parameter.d = 1
    nnl.compile_step(F.sum(parameter), solver).run()
    assert parameter.d.tolist() == [0.5, 0.5]
    assert listener.heard == []
