"""Recurrent layers that make their parameters, and the cell that keeps its state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from nnl_core import PF, F
from nnl_core.errors import ShapeError
from nnl_core.graph.variable import Variable
from nnl_core.initializers import ConstantInitializer
from nnl_core.parameters import get_parameters, parameter_scope

STEPS, BATCH, INPUTS, HIDDEN = 4, 2, 3, 5


@pytest.fixture(autouse=True)
def own_scope() -> Any:
    with parameter_scope("", {}):
        yield


def variable(*shape: int) -> Variable:
    return Variable.from_numpy_array(np.random.default_rng(len(shape)).normal(size=shape))


def call(kind: str, layers: int = 1, directions: int = 1, **options: Any) -> tuple[Variable, ...]:
    state = (layers, directions, BATCH, HIDDEN)
    states = [variable(*state) for _ in range(2 if kind == "lstm" else 1)]
    x = variable(STEPS, BATCH, INPUTS)
    result: tuple[Variable, ...] = getattr(PF, kind)(
        x, *states, bidirectional=directions == 2, **options
    )
    return result


GATES = [("rnn", (), ()), ("lstm", (4,), (4,)), ("gru", (3,), (4,))]
each_kind = pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])


@pytest.mark.parametrize(("kind", "gates", "biases"), GATES)
def test_parameters_have_nnablas_names_and_shapes(kind: str, gates: Any, biases: Any) -> None:
    call(kind, 3, 2, name="block")
    assert {name: p.shape for name, p in get_parameters().items()} == {
        f"block/{kind}/weight_l0": (2, *gates, HIDDEN, INPUTS + HIDDEN),
        f"block/{kind}/weight": (2, 2, *gates, HIDDEN, 3 * HIDDEN),
        f"block/{kind}/bias": (3, 2, *biases, HIDDEN),
    }


@each_kind
def test_one_layer_without_bias_has_one_parameter(kind: str) -> None:
    call(kind, with_bias=False)
    assert list(get_parameters()) == [f"{kind}/weight_l0"]


@each_kind
def test_it_computes_with_its_parameters(kind: str) -> None:
    result = call(kind, 2, 2)
    own = {name.rpartition("/")[2]: p for name, p in get_parameters().items()}
    state = (2, 2, BATCH, HIDDEN)
    states = [variable(*state) for _ in range(2 if kind == "lstm" else 1)]
    x = variable(STEPS, BATCH, INPUTS)
    expected = getattr(F, kind)(x, *states, num_layers=2, bidirectional=True, **own)
    for one, other in zip(result, expected, strict=True):
        np.testing.assert_array_equal(one.d, other.d)


@each_kind
def test_weights_are_at_first_within_glorots_limits(kind: str) -> None:
    with parameter_scope("", {}) as scope:
        getattr(PF, kind)(
            Variable((1, 1, 90)), *(Variable((2, 1, 1, 40)),) * (2 if kind == "lstm" else 1)
        )
        own = {name.rpartition("/")[2]: p.d for name, p in get_parameters().items()}
    assert scope
    for w, inputs in ((own["weight_l0"], 90), (own["weight"], 40)):
        for part, fan in ((w[..., :inputs], inputs), (w[..., inputs:], 40)):
            limit = math.sqrt(6 / (fan + 40))
            assert 0.95 * limit < np.abs(part).max() <= limit
    assert not own["bias"].any()


@each_kind
def test_initial_values_are_chosen(kind: str) -> None:
    ones = ConstantInitializer(1)
    call(kind, 2, w0_init=ones, w_init=ConstantInitializer(2), b_init=ConstantInitializer(3))
    assert [np.unique(p.d).tolist() for p in get_parameters().values()] == [[1], [2], [3]]


@each_kind
def test_one_generator_fixes_the_weights(kind: str) -> None:
    found = []
    for _ in range(2):
        with parameter_scope("", {}):
            call(kind, 2, rng=np.random.default_rng(3))
            found.append([p.d.copy() for p in get_parameters().values()])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@each_kind
def test_fixed_parameters_get_no_gradient(kind: str) -> None:
    y = call(kind, 2, fix_parameters=True)[0]
    assert not y.need_grad
    assert call(kind, 2)[0].need_grad


@each_kind
def test_layers_may_be_counted_by_the_state_or_given(kind: str) -> None:
    assert call(kind, 2)[1].shape == call(kind, 2, num_layers=2)[1].shape
    with pytest.raises(ShapeError, match=r"h has shape \(2, 1, 2, 5\), expected \(3, 1, 2, 5\)"):
        call(kind, 2, num_layers=3, name="other")


def test_options_reach_the_function() -> None:
    ones = ConstantInitializer(1)
    inputs = (Variable.from_numpy_array(np.ones((2, 1, 1))), Variable((2, 1, 1, 1)))
    options = {"w0_init": ones, "w_init": ones, "nonlinearity": "relu"}
    assert PF.rnn(*inputs, **options)[0].d.ravel().tolist() == [1, 3]
    dropped = PF.rnn(*inputs, **options, dropout=0.9)
    assert dropped[0].d.ravel().tolist() != [1, 3]
    resting = PF.rnn(*inputs, **options, dropout=0.9, training=False)
    assert resting[0].d.ravel().tolist() == [1, 3]


# Step by step ------------------------------------------------------------------------------------


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_a_cell_takes_one_step() -> None:
    x, h, c = variable(BATCH, INPUTS), variable(BATCH, HIDDEN), variable(BATCH, HIDDEN)
    h_next, c_next = PF.lstm_cell(x, h, c, HIDDEN, b_init=np.ones((4, HIDDEN)), name="one")
    parameters = get_parameters()
    assert list(parameters) == ["one/lstm/affine/W", "one/lstm/affine/b"]
    both = np.concatenate([x.d, h.d], axis=1)
    i, o, f, g = (both @ parameters["one/lstm/affine/W"].d[:, k] + 1 for k in range(4))
    expected = sigmoid(f) * c.d + sigmoid(i) * np.tanh(g)
    np.testing.assert_allclose(c_next.d, expected, rtol=1e-6)
    np.testing.assert_allclose(h_next.d, sigmoid(o) * np.tanh(expected), rtol=1e-6)


def test_a_cell_agrees_with_a_layer_of_the_same_weights() -> None:
    x, cell = variable(STEPS, BATCH, INPUTS), PF.LSTMCell(BATCH, HIDDEN)
    states = [cell(x[t]) for t in range(STEPS)]
    w, b = (get_parameters()[f"lstm/affine/{name}"].d for name in "Wb")
    order = [0, 2, 3, 1]  # i, o, f, g there, and i, f, g, o here
    weight = np.moveaxis(w, 0, -1)[order][None]
    zero = np.zeros((1, 1, BATCH, HIDDEN))
    y, _, c_n = F.lstm(x, zero, zero, weight, bias=b[order][None, None])
    np.testing.assert_allclose(np.stack([h.d for h in states]), y.d, rtol=1e-6)
    np.testing.assert_allclose(cell.c.d, c_n.d[0, 0], rtol=1e-6)


def test_a_cell_starts_from_given_states_and_again_from_zero() -> None:
    h, c = variable(BATCH, HIDDEN), variable(BATCH, HIDDEN)
    cell = PF.LSTMCell(BATCH, HIDDEN, h, c, name="cell")
    assert cell.h is h
    assert cell.c is c
    x = variable(BATCH, INPUTS)
    first = cell(x)
    assert cell.h is first
    from_given = first.d.copy()
    cell.reset_state()
    assert not cell.h.d.any()
    assert not cell.c.d.any()
    again = cell(x)
    fresh = PF.LSTMCell(BATCH, HIDDEN, name="cell")(x)
    np.testing.assert_array_equal(again.d, fresh.d)
    np.testing.assert_array_equal(first.d, from_given)


def test_a_fixed_cell_gets_no_gradient() -> None:
    cell = PF.LSTMCell(BATCH, HIDDEN)
    assert not cell(variable(BATCH, INPUTS), fix_parameters=True).need_grad
