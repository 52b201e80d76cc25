"""Parameters in scopes."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F
from nnl_core.errors import ParameterError
from nnl_core.parameters import (
    Parameter,
    clear_parameters,
    current_scope,
    get_parameter,
    get_parameter_or_create,
    get_parameters,
    parameter_scope,
    pop_parameter,
    set_parameter,
)


@pytest.fixture(autouse=True)
def own_scope():
    with parameter_scope("", {}):
        yield


def test_nested_scopes_and_slashes_name_the_same_parameter():
    with parameter_scope("outer"), parameter_scope("inner"):
        first = get_parameter_or_create("W", (2, 3))
    with parameter_scope("outer/inner"):
        assert get_parameter("W") is first
    assert get_parameter("outer/inner/W") is first
    assert first.name == "outer/inner/W"


def test_parameters_are_listed_in_the_order_they_were_made_with_names_relative_to_the_scope():
    with parameter_scope("net"):
        get_parameter_or_create("z/W", (1,))
        get_parameter_or_create("a", (1,))
        get_parameter_or_create("z/b", (1,))
        assert list(get_parameters()) == ["z/W", "z/b", "a"]
    assert list(get_parameters()) == ["net/z/W", "net/z/b", "net/a"]
    assert list(get_parameters(path="x")) == ["x/net/z/W", "x/net/z/b", "x/net/a"]


def test_grad_only_leaves_out_what_is_not_trained():
    get_parameter_or_create("W", (1,))
    get_parameter_or_create("mean", (1,), need_grad=False)
    assert list(get_parameters()) == ["W"]
    assert list(get_parameters(grad_only=False)) == ["W", "mean"]


def test_another_shape_under_a_taken_name_is_an_error_with_name_and_both_shapes():
    with parameter_scope("conv1"):
        get_parameter_or_create("W", (3, 4))
        with pytest.raises(ParameterError, match=r"'conv1/W'.*\(3, 4\).*\(5, 4\)"):
            get_parameter_or_create("W", (5, 4))


def test_a_parameter_cannot_be_a_scope_nor_a_scope_a_parameter():
    get_parameter_or_create("a", (1,))
    get_parameter_or_create("b/c", (1,))
    with pytest.raises(ParameterError, match="'a' is a parameter"), parameter_scope("a"):
        pass
    with pytest.raises(ParameterError, match="'b' is a scope"):
        get_parameter_or_create("b", (1,))


@pytest.mark.parametrize("name", ["", "a//b", "/"])
def test_an_empty_name_is_an_error(name):
    with pytest.raises(ParameterError, match="empty part"), parameter_scope(name):
        pass


def test_an_initializer_is_called_with_the_shape_once():
    shapes = []

    def ones(shape):
        shapes.append(shape)
        return np.ones(shape)

    made = get_parameter_or_create("W", [2, 2], ones)
    get_parameter_or_create("W", [2, 2], ones)
    assert shapes == [(2, 2)]
    assert np.array_equal(made.d, np.ones((2, 2)))


def test_an_array_is_an_initial_value_and_gives_the_shape():
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = get_parameter_or_create("W", initializer=value)
    assert np.array_equal(made.d, value)
    assert made.shape == (2, 3)


def test_an_initial_value_of_another_shape_is_an_error_and_makes_no_parameter():
    with pytest.raises(ParameterError, match=r"\(2, 2\).*\(3,\)"):
        get_parameter_or_create("W", (2, 2), np.zeros(3))
    assert get_parameter("W") is None


def test_a_new_parameter_without_shape_is_an_error():
    with pytest.raises(ParameterError, match="give its shape"):
        get_parameter_or_create("W")


def test_a_fixed_use_of_a_parameter_shares_its_elements_and_stops_the_gradient():
    fixed = get_parameter_or_create("W", (2,), np.ones(2), as_need_grad=False)
    parameter = get_parameter("W")
    assert parameter is not None
    assert parameter.need_grad
    assert not fixed.need_grad
    parameter.d = 5
    assert np.array_equal(fixed.d, [5, 5])


def test_a_frozen_parameter_stays_frozen_when_its_layer_is_built_again():
    get_parameter_or_create("W", (2,)).need_grad = False
    assert not get_parameter_or_create("W", (2,), need_grad=True).need_grad


def test_looking_for_a_parameter_makes_no_scope():
    assert get_parameter("no/such/W") is None
    assert pop_parameter("no/such/W") is None
    assert not current_scope()


def test_pop_and_clear_forget_parameters():
    made = get_parameter_or_create("a/W", (1,))
    get_parameter_or_create("a/b", (1,))
    assert pop_parameter("a/W") is made
    assert list(get_parameters()) == ["a/b"]
    with parameter_scope("a"):
        clear_parameters()
    assert get_parameters() == {}


def test_set_parameter_replaces_and_names_what_has_no_name():
    get_parameter_or_create("a/W", (1,))
    other = nnl.Variable((4,), need_grad=True)
    set_parameter("a/W", other)
    assert get_parameter("a/W") is other
    assert other.name == "a/W"


def test_a_scope_of_ones_own_keeps_its_parameters_apart():
    mine: dict = {}
    with parameter_scope("layer", mine):
        get_parameter_or_create("W", (1,))
    assert get_parameters() == {}
    assert list(mine["layer"]) == ["W"]


def test_a_scope_ends_when_its_block_raises():
    before = current_scope()
    with pytest.raises(RuntimeError), parameter_scope("a"):
        raise RuntimeError
    assert current_scope() is before


def test_nodes_are_named_after_the_scope():
    with parameter_scope("conv1"):
        y = F.identity(nnl.Variable((1,)))
    assert y.parent is not None
    assert y.parent.name == "conv1/identity"


def test_a_new_thread_starts_at_the_root():
    seen = []
    with parameter_scope("a"):
        thread = threading.Thread(target=lambda: seen.append(current_scope()))
        thread.start()
        thread.join()
        assert seen[0] is not current_scope()


def test_a_parameter_shows_name_shape_and_whether_it_is_fixed():
    assert repr(Parameter((2,), name="a/W")) == "<Parameter 'a/W' (2,) float32>"
    assert repr(Parameter((), False, name="m")) == "<Parameter 'm' () float32 fixed>"
