"""What is compiled once for all graphs that need it."""

from __future__ import annotations

import numpy as np
import pytest

from nnl_core import F, Variable
from nnl_native import compiler


def leaf(*shape):
    return Variable.from_numpy_array(np.ones(shape, np.float32))


def chain(x, y):
    return F.tanh(x * y + 0.125) * F.sigmoid(x)


def summed(x, y):
    return F.sum(F.exp(x) * y, axis=1)


@pytest.mark.parametrize("function", [chain, summed])
def test_equal_loops_at_other_places_of_a_graph_are_one_function(function):
    function(leaf(6, 5), leaf(6, 5)).forward()
    other = F.concatenate(F.softmax(leaf(3, 5)), leaf(3, 5), axis=0)
    other.forward()
    known = len(compiler._functions)
    function(other, leaf(6, 5)).forward()
    assert len(compiler._functions) == known


@pytest.mark.parametrize("function", [chain, summed])
def test_other_lengths_of_the_axes_need_no_compiler(function):
    function(leaf(6, 5), leaf(6, 5)).forward()
    before = len(compiler._functions)
    function(leaf(17, 8), leaf(17, 8)).forward()
    assert len(compiler._functions) == before
