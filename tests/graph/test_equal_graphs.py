"""Gradients of a dynamic graph that equals an earlier one are computed after its plan."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.errors import GraphError, StaleValueError
from nnl_core.graph import backward


def leaf(*values, need_grad=True):
    return Variable.from_numpy_array(np.array(values, np.float64), need_grad=need_grad)


@pytest.fixture(autouse=True)
def dynamic():
    """No patterns of other tests, and a dynamic graph."""
    backward._patterns.clear()
    nnl.current_backend()  # attaches kernels, which forgets calls
    with nnl.auto_forward():
        yield


@pytest.fixture
def differentiated(monkeypatch):
    """Count the graphs that are differentiated."""
    found = []
    original = backward.gradient_table

    def counting(*arguments, **keywords):
        found.append(arguments)
        return original(*arguments, **keywords)

    monkeypatch.setattr(backward, "gradient_table", counting)
    return found


def test_equal_graphs_are_differentiated_once_and_have_gradients_of_their_own(differentiated):
    for value in (1.0, 2.0, 3.0):
        x, y = leaf(value), leaf(10.0)
        F.sum(x * x * y).backward()
        assert x.g == 2 * value * 10
        assert y.g == value**2
    assert len(differentiated) == 1


def test_gradients_of_leaves_add_up_over_equal_graphs(differentiated):
    x = leaf(3.0)
    for _ in range(3):
        F.sum(x * x).backward()
    assert x.g == 18
    assert len(differentiated) == 1


@pytest.mark.parametrize("clear", [False, True])
def test_gradients_of_intermediates_are_there_unless_they_are_released(differentiated, clear):
    for value in (2.0, 5.0):
        x = leaf(value)
        h = x * 3.0
        F.sum(h * h).backward(clear_buffer=clear)
        assert h.g == (0 if clear else 6 * value)
    assert len(differentiated) == 1


def test_a_persistent_intermediate_makes_another_graph():
    for persistent in (False, True):
        x = leaf(2.0)
        h = x * 3.0
        h.persistent = persistent
        F.sum(h * h).backward(clear_buffer=True)
        assert h.g == (12 if persistent else 0)


def test_an_intermediate_that_has_a_gradient_already_gets_the_new_one():
    for value in (2.0, 5.0):
        x = leaf(value)
        h = x * 3.0
        h.g = 100
        F.sum(h * h).backward()
        assert h.g == 6 * value


def test_what_needs_a_gradient_makes_another_graph():
    for wanted in ((True, False), (False, True), (True, True)):
        x, y = leaf(2.0, need_grad=wanted[0]), leaf(5.0, need_grad=wanted[1])
        F.sum(x * y).backward()
        assert (x.g.item(), y.g.item()) == (5.0 * wanted[0], 2.0 * wanted[1])


def test_a_stopped_intermediate_makes_another_graph():
    for stopped, expected in ((False, 12.0), (True, 4.0), (False, 12.0)):
        x = leaf(2.0)
        h = x * x
        if stopped:
            h.need_grad = False
        F.sum(h * x).backward()  # x ** 3, or 4 x
        assert x.g == expected


def test_the_same_leaf_twice_is_not_two_leaves():
    x, y = leaf(2.0), leaf(3.0)
    F.sum(x * y).backward()
    z = leaf(2.0)
    F.sum(z * z).backward()
    assert (x.g.item(), y.g.item(), z.g.item()) == (3, 2, 4)


def test_small_constants_are_part_of_what_is_equal():
    for factor in (2.0, 3.0, 2.0):
        x = leaf(1.0)
        F.sum(x * np.array([factor])).backward()
        assert x.g == factor


def test_large_constants_are_read_anew():
    for factor in (2.0, 3.0):
        x = Variable.from_numpy_array(np.ones(1000), need_grad=True)
        F.sum(x * np.full(1000, factor)).backward()
        assert set(x.g) == {factor}


def test_attributes_and_shapes_are_part_of_what_is_equal():
    for factor, length in ((2.0, 3), (3.0, 3), (2.0, 4)):
        x = leaf(*range(length))
        F.sum(x * factor).backward()
        assert x.g.tolist() == [factor] * length


def test_which_output_is_differentiated_is_part_of_what_is_equal():
    for index in (0, 1, 0):
        x = leaf(1.0, 2.0)
        F.split(x, 0)[index].backward()
        assert x.g.tolist() == [float(index == 0), float(index == 1)]


def test_leaves_that_share_storage_are_not_those_of_an_earlier_graph():
    F.sum(leaf(3.0) * leaf(4.0)).backward()
    x = leaf(3.0)
    F.sum(x * x.get_unlinked_variable(need_grad=False)).backward()
    assert x.g == 3


def test_writing_to_what_a_gradient_needs_is_refused_in_an_equal_graph_too():
    for overwrite in (False, True):
        x = leaf(2.0)
        y = F.sum(x * x)
        if overwrite:
            x.d = 5
            with pytest.raises(StaleValueError):
                y.backward()
        else:
            y.backward()


def test_a_graph_without_need_of_gradients_is_refused_each_time():
    for _ in range(2):
        with pytest.raises(GraphError, match="needs a gradient"):
            F.sum(leaf(1.0, need_grad=False) * 2.0).backward()


def test_a_rule_that_looks_at_elements_is_asked_each_time(differentiated):
    name = "equal_graphs_test::capped"

    @nnl.defop(name, save=("x",))
    def capped(x):
        return np.minimum(x, 1)

    capped.infer(lambda x: x)
    capped.vjp(lambda g, y, x: (g * float(x.d.max() < 1),))
    try:
        for value, expected in ((0.5, 1.0), (2.0, 0.0), (0.5, 1.0)):
            x = leaf(value)
            F.sum(capped(x)).backward()
            assert x.g == expected
    finally:
        from nnl_core.graph import operator

        del operator._registry[name]
    assert len(differentiated) == 3


def test_another_gradient_rule_serves_the_next_graph():
    name = "equal_graphs_test::same"

    @nnl.defop(name)
    def same(x):
        return x.copy()

    same.infer(lambda x: x)
    try:
        for factor in (2.0, 3.0):
            same.vjp(lambda g, y, x, factor=factor: (g * factor,))
            x = leaf(1.0)
            F.sum(same(x)).backward()
            assert x.g == factor
    finally:
        from nnl_core.graph import operator

        del operator._registry[name]


def test_whoever_hears_of_new_nodes_hears_of_those_of_every_gradient():
    class Listener:
        def __init__(self):
            self.names = []

        def nnl_on_node_created(self, event):
            self.names.append(event.node.name)

    heard = []
    for _ in range(2):
        y = F.sum(leaf(1.0) * leaf(2.0))
        listener = Listener()
        with nnl.current_session().listen(listener):
            y.backward()
        heard.append(listener.names)
    assert heard[0] and heard[0] == heard[1]


def test_a_pattern_keeps_no_graph_alive():
    x = leaf(1.0)
    y = F.sum(x * x)
    y.backward()
    assert backward._patterns
    reference = weakref.ref(x)
    del x, y
    gc.collect()
    assert reference() is None


def test_patterns_are_bounded_in_number_and_size(monkeypatch):
    monkeypatch.setattr(backward, "KEPT", 3)
    for length in range(1, 7):
        F.sum(leaf(*range(length)) * 2.0).backward()
    assert len(backward._patterns) == 3
    monkeypatch.setattr(backward, "KEPT_NODES", 5)
    F.sum(leaf(*range(9)) * 2.0).backward()
    assert len(backward._patterns) == 2


def test_a_pattern_outlives_its_program_and_makes_another():
    from nnl_core.graph.program import clear_cache

    for value in (1.0, 2.0):
        x = leaf(value)
        F.sum(x * x).backward()
        assert x.g == 2 * value
        clear_cache()
        gc.collect()


def test_networks_of_random_structure_agree_with_static_graphs():
    generator = np.random.default_rng(5)
    unary = (F.tanh, F.sigmoid, lambda v: v * 0.5, lambda v: F.reshape(v, v.shape), F.sin)
    binary = (F.add, F.mul, F.sub)

    def build(seed, xs):
        choices = np.random.default_rng(seed)
        values = list(xs)
        for _ in range(8):
            left, right = (values[i] for i in choices.integers(len(values), size=2))
            if choices.random() < 0.5:
                values.append(unary[choices.integers(len(unary))](left))
            else:
                values.append(binary[choices.integers(len(binary))](left, right))
        return F.sum(F.add_n(*values))

    for seed in (*range(6), *range(6)):
        arrays = generator.normal(size=(3, 4))
        found = []
        for auto in (True, False):
            xs = [leaf(*row) for row in arrays]
            with nnl.auto_forward(auto):
                y = build(seed, xs)
                y.forward()
                y.backward()
            found.append([x.g.copy() for x in xs])
        np.testing.assert_allclose(found[0], found[1], rtol=1e-12)
