"""Recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.autodiff import grad
from nnl_core.graph.modes import auto_forward
from nnl_core.graph.variable import Variable

STEPS, BATCH, INPUTS, HIDDEN = 4, 2, 3, 5
GATES = {"rnn": (), "lstm": (4,), "gru": (3,)}
BIASES = {"rnn": (), "lstm": (4,), "gru": (4,)}
KINDS = list(GATES)
each_kind = pytest.mark.parametrize("kind", KINDS)


def given(
    kind: str,
    layers: int = 1,
    directions: int = 1,
    *,
    steps: int = STEPS,
    batch: int = BATCH,
    dtype: Any = np.float64,
) -> dict[str, np.ndarray]:
    """Random inputs of a call, by the names of its arguments."""
    rng = np.random.default_rng([KINDS.index(kind), layers, directions])
    state = (layers, directions, batch, HIDDEN)
    shapes = {"x": (steps, batch, INPUTS), "h": state}
    if kind == "lstm":
        shapes["c"] = state
    shapes["weight_l0"] = (directions, *GATES[kind], HIDDEN, INPUTS + HIDDEN)
    if layers > 1:
        inputs = directions * HIDDEN
        shapes["weight"] = (layers - 1, directions, *GATES[kind], HIDDEN, inputs + HIDDEN)
    shapes["bias"] = (layers, directions, *BIASES[kind], HIDDEN)
    return {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


def call(kind: str, inputs: dict[str, Any], **options: Any) -> tuple[Variable, ...]:
    layers, directions = inputs["h"].shape[:2]
    options = {"num_layers": layers, "bidirectional": directions == 2} | options
    result: tuple[Variable, ...] = getattr(F, kind)(**inputs, **options)
    return result


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def advance(
    kind: str, w: np.ndarray, b: np.ndarray, x: np.ndarray, state: list[np.ndarray]
) -> None:
    """Replace the state of one sequence by the next, gate by gate."""
    h = state[0]
    both = np.concatenate([x, h])
    if kind == "rnn":
        state[0] = np.tanh(w @ both + b)
    elif kind == "lstm":
        i, f, g, o = (w[k] @ both + b[k] for k in range(4))
        state[1] = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
        state[0] = sigmoid(o) * np.tanh(state[1])
    else:
        r, z = (sigmoid(w[k] @ both + b[k]) for k in range(2))
        n = np.tanh(w[2][:, : x.size] @ x + b[2] + r * (w[2][:, x.size :] @ h + b[3]))
        state[0] = (1 - z) * n + z * h


def by_hand(kind: str, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Run sequence by sequence, layer by layer, direction by direction, step by step."""
    names = [name for name in ("h", "c") if name in inputs]
    layers, directions, batch, hidden = inputs["h"].shape
    ends = [np.empty(inputs["h"].shape) for _ in names]
    y = inputs["x"]
    for layer in range(layers):
        result = np.empty((len(y), batch, directions * hidden))
        for d in range(directions):
            w = inputs["weight"][layer - 1, d] if layer else inputs["weight_l0"][d]
            for n in range(batch):
                state = [inputs[name][layer, d, n] for name in names]
                for t in reversed(range(len(y))) if d else range(len(y)):
                    advance(kind, w, inputs["bias"][layer, d], y[t, n], state)
                    result[t, n, d * hidden : (d + 1) * hidden] = state[0]
                for end, value in zip(ends, state, strict=True):
                    end[layer, d, n] = value
        y = result
    return [y, *ends]


# Values ------------------------------------------------------------------------------------------


@each_kind
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("layers", [1, 3])
def test_states_are_those_of_the_formulas(kind: str, layers: int, directions: int) -> None:
    inputs = given(kind, layers, directions)
    for found, expected in zip(call(kind, inputs), by_hand(kind, inputs), strict=True):
        np.testing.assert_allclose(found.d, expected, rtol=1e-12)


@each_kind
def test_without_a_bias_it_is_zero(kind: str) -> None:
    inputs = given(kind)
    zero = by_hand(kind, inputs | {"bias": np.zeros_like(inputs["bias"])})
    del inputs["bias"]
    np.testing.assert_allclose(call(kind, inputs)[0].d, zero[0], rtol=1e-12)


@each_kind
def test_a_single_step_works(kind: str) -> None:
    inputs = given(kind, 2, 2, steps=1)
    for found, expected in zip(call(kind, inputs), by_hand(kind, inputs), strict=True):
        np.testing.assert_allclose(found.d, expected, rtol=1e-12)


@each_kind
def test_an_empty_batch_works_and_gives_gradients_of_zero(kind: str) -> None:
    inputs = given(kind, 2, 2, batch=0)
    weight = Variable.from_numpy_array(inputs["weight_l0"], need_grad=True)
    y = call(kind, inputs | {"weight_l0": weight})[0]
    assert y.shape == (STEPS, 0, 2 * HIDDEN)
    y.forward()
    y.backward()
    np.testing.assert_array_equal(weight.g, 0)


def test_the_rectifier_may_be_the_nonlinearity() -> None:
    x = np.array([1.0, -3.0, 1.0, 1.0]).reshape(4, 1, 1)
    y, end = F.rnn(x, np.zeros((1, 1, 1, 1)), np.ones((1, 1, 2)), nonlinearity="relu")
    np.testing.assert_array_equal(y.d.ravel(), [1, 0, 1, 2])
    assert end.d.item() == 2


@each_kind
def test_what_is_not_a_number_spreads_forwards_only(kind: str) -> None:
    inputs = given(kind)
    inputs["x"][2, 0, 0] = np.nan
    y = call(kind, inputs)[0].d
    assert np.isnan(y[2:, 0]).all()
    assert np.isfinite(y[:2]).all()
    assert np.isfinite(y[:, 1]).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_gates_are_finite_for_inputs_of_any_size(kind: str, dtype: Any) -> None:
    inputs = given(kind, dtype=dtype)
    inputs["x"] = inputs["x"] * dtype(1000)
    x = Variable.from_numpy_array(inputs["x"], need_grad=True)
    y = call(kind, inputs | {"x": x})[0]
    y.forward()
    y.backward()
    assert np.isfinite(y.d).all()
    assert np.isfinite(x.g).all()


# Gradients ---------------------------------------------------------------------------------------


def leaves(inputs: dict[str, np.ndarray]) -> dict[str, Variable]:
    return {name: Variable.from_numpy_array(a, need_grad=True) for name, a in inputs.items()}


def weighed(outputs: Any) -> Any:
    """Sum all outputs, each element with a weight of its own."""
    total: Any = 0.0
    for place, output in enumerate(outputs):
        weights = np.random.default_rng(place).normal(size=output.shape)
        product = output * weights
        total = total + (F.sum(product) if isinstance(product, Variable) else product.sum())
    return total


@each_kind
def test_gradients_agree_with_differences_of_the_formulas(kind: str) -> None:
    inputs = given(kind, 2, 2)
    variables = leaves(inputs)
    total = weighed(call(kind, variables))
    total.forward()
    total.backward()
    for name, array in inputs.items():
        direction = np.random.default_rng(9).normal(size=array.shape)

        def along(size: float, name: str = name, direction: np.ndarray = direction) -> float:
            moved = inputs | {name: inputs[name] + size * direction}
            return float(weighed(by_hand(kind, moved)))

        numeric = (along(1e-5) - along(-1e-5)) / 2e-5
        np.testing.assert_allclose((variables[name].g * direction).sum(), numeric, rtol=1e-7)


@each_kind
def test_gradients_have_gradients(kind: str) -> None:
    inputs = given(kind, 2, 2, steps=3)
    variables = leaves(inputs)
    gradients = grad(weighed(call(kind, variables)), list(variables.values()))
    squares = sum((F.sum(g * g) for g in gradients[1:]), F.sum(gradients[0] * gradients[0]))
    second = dict(zip(variables, grad(squares, list(variables.values())), strict=True))
    for name in ("x", "h", "weight", "bias"):
        direction = np.random.default_rng(9).normal(size=inputs[name].shape)

        def along(size: float, name: str = name, direction: np.ndarray = direction) -> float:
            variables[name].d = inputs[name] + size * direction
            squares.forward()
            variables[name].d = inputs[name]
            return float(squares.d)

        numeric = (along(1e-5) - along(-1e-5)) / 2e-5
        second[name].forward()
        np.testing.assert_allclose((second[name].d * direction).sum(), numeric, rtol=1e-5)


@each_kind
def test_the_gradient_of_the_last_states_alone_is_there(kind: str) -> None:
    inputs = given(kind, 2, 1)
    variables = leaves(inputs)
    ends = call(kind, variables)[1:]
    total = weighed(ends)
    total.forward()
    total.backward()
    direction = np.random.default_rng(9).normal(size=inputs["x"].shape)

    def along(size: float) -> float:
        moved = by_hand(kind, inputs | {"x": inputs["x"] + size * direction})
        return float(weighed(moved[1:]))

    numeric = (along(1e-5) - along(-1e-5)) / 2e-5
    np.testing.assert_allclose((variables["x"].g * direction).sum(), numeric, rtol=1e-7)


@each_kind
def test_gradients_flow_without_training_too(kind: str) -> None:
    variables = leaves(given(kind))
    y = call(kind, variables, training=False)[0]
    y.forward()
    y.backward()
    assert all(v.g.any() for v in variables.values())


# Dropout -----------------------------------------------------------------------------------------


@each_kind
def test_results_are_dropped_between_layers_only(kind: str) -> None:
    one, two = given(kind, 1), given(kind, 2)
    np.testing.assert_array_equal(call(kind, one, dropout=0.5)[0].d, call(kind, one)[0].d)
    dropped, plain = (call(kind, two, dropout=rate) for rate in (0.5, None))
    np.testing.assert_array_equal(dropped[1].d[0], plain[1].d[0])
    assert (dropped[1].d[1] != plain[1].d[1]).all()


@each_kind
def test_results_are_dropped_in_training_only(kind: str) -> None:
    inputs = given(kind, 2)
    resting = call(kind, inputs, dropout=0.5, training=False)
    np.testing.assert_array_equal(resting[0].d, call(kind, inputs)[0].d)


def test_dropped_results_are_zero_and_others_scaled() -> None:
    # The second layer repeats what it is given: its weight is 1 for the input and 0 for the state.
    x = np.ones((50, 20, 1))
    w0, w = np.array([[[1.0, 0.0]]]), np.array([[[[1.0, 0.0]]]])
    y, _ = F.rnn(x, np.zeros((2, 1, 20, 1)), w0, w, None, 2, "relu", dropout=0.75)
    values, counts = np.unique(y.d, return_counts=True)
    np.testing.assert_allclose(values, [0, 4], rtol=1e-6)
    assert 650 < counts[0] < 850


# Graphs and dtypes -------------------------------------------------------------------------------


@each_kind
def test_static_and_dynamic_graphs_agree(kind: str) -> None:
    inputs = given(kind, 2, 2, dtype=np.float32)
    static = call(kind, inputs)
    with auto_forward():
        dynamic = call(kind, inputs)
    for one, other in zip(static, dynamic, strict=True):
        np.testing.assert_array_equal(one.d, other.d)


@each_kind
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_dtype_stays(kind: str, dtype: Any) -> None:
    inputs = given(kind, 2, 2, dtype=dtype)
    wide = by_hand(kind, {name: array.astype(np.float64) for name, array in inputs.items()})
    tolerance = {np.float16: 2e-2, np.float32: 1e-5, np.float64: 1e-12}[dtype]
    for found, expected in zip(call(kind, inputs), wide, strict=True):
        assert found.dtype == dtype
        np.testing.assert_allclose(found.d, expected, rtol=tolerance, atol=tolerance)


@each_kind
def test_the_widest_dtype_wins(kind: str) -> None:
    inputs = given(kind, dtype=np.float32)
    inputs["weight_l0"] = inputs["weight_l0"].astype(np.float64)
    assert call(kind, inputs)[0].dtype == np.float64


# Errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape", "sentence"),
    [
        ("x", (STEPS, INPUTS), r"x has shape \(4, 3\); it needs \(steps, batch, inputs\)"),
        ("x", (0, BATCH, INPUTS), r"x has shape \(0, 2, 3\); it needs .* with a step"),
        ("h", (BATCH, HIDDEN), r"h has shape \(2, 5\); it needs \(layers, directions, batch"),
        ("h", (1, 1, 3, HIDDEN), r"lstm: h has shape \(1, 1, 3, 5\), expected \(1, 1, 2, 5\)"),
        ("c", (1, 1, 2, 6), r"c has shape \(1, 1, 2, 6\), expected \(1, 1, 2, 5\)"),
        ("weight_l0", (1, 4, 5, 7), r"weight_l0 has shape .*, expected \(1, 4, 5, 8\)"),
        ("bias", (1, 1, 3, 5), r"bias has shape .*, expected \(1, 1, 4, 5\)"),
    ],
)
def test_shapes_that_do_not_fit_are_named(name: str, shape: Any, sentence: str) -> None:
    inputs = given("lstm") | {name: np.zeros(shape)}
    with pytest.raises(ShapeError, match=sentence):
        F.lstm(**inputs)


def test_weights_for_other_layers_must_be_there_if_there_are_such() -> None:
    with pytest.raises(OperatorError, match="with num_layers 2 it needs weight"):
        F.gru(**given("gru"), num_layers=2)
    with pytest.raises(OperatorError, match="with num_layers 1 it takes no weight"):
        F.gru(**given("gru"), weight=np.zeros((1, 1, 3, HIDDEN, 2 * HIDDEN)))
    with pytest.raises(OperatorError, match="num_layers 0 must be at least 1"):
        F.gru(**given("gru"), num_layers=0)


def test_other_nonlinearities_are_refused() -> None:
    with pytest.raises(OperatorError, match="'elu' must be 'tanh' or 'relu'"):
        F.rnn(**given("rnn"), nonlinearity="elu")


# Training ----------------------------------------------------------------------------------------


def test_a_compiled_step_learns_what_came_first() -> None:
    rng = np.random.default_rng(0)
    x, target = Variable((6, 16, 1)), Variable((16, 1))
    state = Variable((1, 1, 16, 8))
    weight = nnl.Parameter((1, 4, 8, 9), name="weight")
    weight.d = rng.normal(size=weight.shape) / 3
    out = nnl.Parameter((8, 1), name="out")
    out.d = rng.normal(size=out.shape) / 3
    _, end, _ = F.lstm(x, state, state, weight)
    logits = F.affine(F.reshape(end, (16, 8)), out)
    loss = F.mean(F.sigmoid_cross_entropy(logits, target))
    solver = nnl.S.Adam(0.05)
    solver.set_parameters({"weight": weight, "out": out})
    step = nnl.compile_step(loss, solver)
    losses = []
    for _ in range(60):
        x.d = rng.choice([-1.0, 1.0], size=x.shape)
        target.d = x.d[0] > 0
        step.run()
        losses.append(float(loss.d))
    assert np.mean(losses[-5:]) < 0.3 < np.mean(losses[:5])
