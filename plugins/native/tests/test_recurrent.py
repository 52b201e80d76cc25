"""Recurrent layers in C: what their references mean, by any number of threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from nnl_core.graph.ir import ABSENT, Graph, Instruction
from nnl_core.graph.operator import Array, lookup
from nnl_core.graph.spec import Spec
from nnl_native import program as programs

GATES = {"rnn": 1, "lstm": 4, "gru": 3}
each_kind = pytest.mark.parametrize("kind", GATES)
each_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Array]]:
    """Run one operator as a program in which nothing is left to NumPy."""

    def run_one(name: str, inputs: Sequence[Array | None], threads: int = 1) -> list[Array]:
        monkeypatch.setattr(programs, "threads_in_use", lambda: threads)
        operator, graph = lookup(name), Graph()
        attributes = operator.bind_attributes({})
        given = [None if one is None else Spec.of(one) for one in inputs]
        leaves = tuple(ABSENT if one is None else graph.add_leaf(one) for one in given)
        specs = operator.infer_specs(given, attributes)
        values = tuple(graph.new_value(spec) for spec in specs)
        graph.instructions = [Instruction(operator, leaves, values, attributes)]
        graph.outputs = list(values)
        program = programs.NativeProgram(graph)
        assert program.is_native
        results = [np.full(spec.shape, np.nan, spec.dtype) for spec in specs]
        program.run([one for one in inputs if one is not None], results)
        return results

    return run_one


def forward_inputs(
    kind: str, steps: int, batch: int, hidden: int, dtype: type = np.float64
) -> list[Array]:
    """Products, first states, the state's weight and, for a gated unit, its bias."""
    rng = np.random.default_rng([steps, batch, hidden])
    rows = GATES[kind] * hidden
    states = [(batch, hidden)] * (2 if kind == "lstm" else 1)
    shapes = [(steps, batch, rows), *states, (rows, hidden)]
    if kind == "gru":
        shapes.append((hidden,))
    return [(rng.normal(size=shape) / np.sqrt(shape[-1])).astype(dtype) for shape in shapes]


def backward_inputs(
    kind: str, steps: int, batch: int, hidden: int, dtype: type = np.float64
) -> list[Array | None]:
    """What the layer's gradient takes: results of the layer, and random gradients of them."""
    given = forward_inputs(kind, steps, batch, hidden)
    results = lookup(f"nnl::{kind}_layer").evaluate(given, _attributes(kind))
    rng = np.random.default_rng(1)
    gradients = [rng.normal(size=result.shape) for result in results]
    if kind == "rnn":
        found = [results[0], given[2], *gradients]
    elif kind == "lstm":
        found = [results[2], results[1], given[2], given[3], *gradients]
    else:
        found = [results[1], results[0], given[1], given[2], *gradients]
    return [one.astype(dtype) for one in found]


def _attributes(kind: str) -> dict[str, bool]:
    return {"relu": False} if kind == "rnn" else {}


def assert_means_the_same(name: str, inputs: Sequence[Array | None], found: list[Array]) -> None:
    operator = lookup(name)
    wanted = operator.evaluate(inputs, operator.bind_attributes({}))
    single = found[0].dtype == np.float32
    for result, value in zip(found, wanted, strict=True):
        np.testing.assert_allclose(
            result, value, rtol=1e-4 if single else 1e-11, atol=1e-5 if single else 1e-12
        )


# A tile is at most 12 sequences and a panel 16 or 32 elements: on both sides of them.
@each_kind
@each_dtype
@pytest.mark.parametrize(("batch", "hidden"), [(1, 1), (5, 17), (13, 16), (25, 33)])
def test_a_layer_of_any_size_is_what_its_reference_computes(kind, dtype, batch, hidden, run):
    inputs = forward_inputs(kind, 3, batch, hidden, dtype)
    name = f"nnl::{kind}_layer"
    assert_means_the_same(name, inputs, run(name, inputs))


@each_kind
@each_dtype
@pytest.mark.parametrize(("batch", "hidden"), [(1, 1), (5, 17), (13, 16), (25, 33)])
def test_a_gradient_of_any_size_is_what_its_reference_computes(kind, dtype, batch, hidden, run):
    inputs = backward_inputs(kind, 3, batch, hidden, dtype)
    name = f"nnl::{kind}_layer_gradient"
    assert_means_the_same(name, inputs, run(name, inputs))


@pytest.mark.parametrize(
    ("kind", "absent"), [("lstm", [4, 6]), ("lstm", [5, 6]), ("lstm", [4, 5]), ("gru", [4])]
)
def test_outputs_without_a_gradient_add_nothing(kind, absent, run):
    inputs = backward_inputs(kind, 2, 3, 4)
    zeros = list(inputs)
    for position in absent:
        inputs[position] = None
        zeros[position] = np.zeros_like(zeros[position])
    name = f"nnl::{kind}_layer_gradient"
    for without, with_zeros in zip(run(name, inputs), run(name, zeros), strict=True):
        np.testing.assert_array_equal(without, with_zeros)


@each_kind
@pytest.mark.parametrize("gradient", [False, True])
def test_the_number_of_threads_changes_no_bit(kind, gradient, run):
    make = backward_inputs if gradient else forward_inputs
    inputs = make(kind, 5, 27, 40, np.float32)
    name = f"nnl::{kind}_layer_gradient" if gradient else f"nnl::{kind}_layer"
    alone = run(name, inputs)
    for threads in (2, 3):
        for one, other in zip(alone, run(name, inputs, threads), strict=True):
            np.testing.assert_array_equal(one, other)


@each_kind
def test_an_empty_batch_gives_empty_results(kind, run):
    results = run(f"nnl::{kind}_layer", forward_inputs(kind, 2, 0, 3))
    assert [result.size for result in results] == [0] * len(results)


def test_gates_saturate_at_products_of_any_size(run):
    # Gates i, f, g, o: open, shut, 1, open. The memory holds 1, and tanh(1) comes out.
    products = np.array([[[1e4, -1e4, 1e4, 1e4]]], np.float32)
    one = np.ones((1, 1), np.float32)
    states, memory, gates = run("nnl::lstm_layer", [products, one, one, np.zeros((4, 1), "f")])
    assert gates.ravel().tolist() == [1, 0, 1, 1]
    assert memory.item() == 1
    assert states.item() == pytest.approx(np.tanh(1), rel=1e-6)


@each_kind
def test_a_nan_stays_in_its_own_sequence(kind, run):
    inputs = forward_inputs(kind, 3, 4, 5)
    inputs[0][0, 2, 0] = np.nan
    states = run(f"nnl::{kind}_layer", inputs)[0]
    assert np.isnan(states[1:, 2]).all()
    assert np.isfinite(states[:, [0, 1, 3]]).all()


def test_the_tangent_is_exact_to_three_units_in_the_last_place_and_bounded(run):
    x = np.concatenate([np.linspace(-12, 12, 24001), np.logspace(-30, 30, 61), [np.inf, -np.inf]])
    x = x.astype(np.float32)
    nothing = np.zeros((len(x), 1), np.float32)
    (y,) = run("nnl::rnn_layer", [x.reshape(1, -1, 1), nothing, np.zeros((1, 1), np.float32)])
    np.testing.assert_allclose(y.ravel(), np.tanh(x.astype(np.float64)), rtol=3 * 2.0**-23, atol=0)
    assert y.max() == 1
    assert y.min() == -1
