"""Sums, extremes, moments and scans by native kernels, against NumPy in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.graph.ir import Graph, Instruction
from nnl_core.graph.operator import lookup
from nnl_core.graph.spec import Spec
from nnl_core.testing import check_operator
from nnl_native.kernel import Call, Operand, dense, emitter_of

OPERATORS = [
    "sum", "mean", "prod", "max", "min", "sum_to", "argmax", "argmin", "place_reduced",
    "moments", "var", "std", "norm", "logsumexp",
    "standardize", "standardize_gradient", "running_statistic",
    "cumsum", "cumprod", "logcumsumexp", "running_extreme", "delay", "recurrence",
]  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_keep_their_promises(name):
    check_operator(f"nnl::{name}", "native")


def program_of(native, name, arrays, **attributes):
    """Compile one use of an operator; return a function that runs it."""
    operator, graph = lookup(f"nnl::{name}"), Graph()
    attributes = operator.bind_attributes(attributes)
    leaves = [graph.add_leaf(Spec.of(array)) for array in arrays]
    specs = operator.infer_specs([Spec.of(array) for array in arrays], attributes)
    results = tuple(graph.new_value(spec) for spec in specs)
    graph.instructions.append(Instruction(operator, tuple(leaves), results, attributes))
    graph.outputs = list(results)
    program = native.compile(graph)

    def run():
        outputs = [np.full(spec.shape, 77, spec.dtype) for spec in specs]
        program.run(list(arrays), outputs)
        return outputs

    return run


def steps_of(name, shape, order, dtype=np.float32, **attributes):
    """Return what the emitter makes of an input whose axes lie in an order."""
    operator = lookup(f"nnl::{name}")
    attributes = operator.bind_attributes(attributes)
    spec = Spec(shape, np.dtype(dtype))
    results = operator.infer_specs([spec], attributes)
    outputs = tuple(Operand(one, dense(one.shape, range(len(one.shape)))) for one in results)
    call = Call(operator, attributes, (Operand(spec, dense(shape, order)),), outputs, 2)
    entry = emitter_of(operator.name)
    assert entry is not None
    emission = entry.emit(call)
    assert emission is not None
    return emission.steps


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_any_axes_of_any_shape_are_summed(data):
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 5, 16, 33, 70]), max_size=3)))
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1))) if shape else set()
    keepdims = data.draw(st.booleans())
    x = np.random.default_rng(0).normal(1, 1, size=shape).astype(np.float32)
    y = F.sum(x, axis=tuple(axes), keepdims=keepdims).d
    expected = x.astype(np.float64).sum(axis=tuple(axes), keepdims=keepdims)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((1_000_000,), (0,)), ((100_000, 10), (0,)), ((10, 100_000), (1,)), ((9, 16, 9000), (0, 2))],
)
def test_float32_sums_of_many_elements_are_exact_to_a_millionth(shape, axes):
    x = np.random.default_rng(0).uniform(0, 1, size=shape).astype(np.float32)
    expected = x.astype(np.float64).sum(axis=axes)
    np.testing.assert_allclose(F.sum(x, axis=axes).d, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, bool])
def test_integers_and_truths_are_summed_in_64_bits(dtype):
    x = np.full((300, 7), 100).astype(dtype)
    np.testing.assert_array_equal(F.sum(x, axis=0).d, x.sum(axis=0, dtype=np.int64))


@pytest.mark.parametrize("shape", [(3,), (200,), (40, 3), (3, 40), (300, 300)])
@pytest.mark.parametrize("place", [0, -1])
def test_extremes_are_nan_where_there_is_one(shape, place):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    x.reshape(-1)[place] = np.nan
    for axis in range(len(shape)):
        np.testing.assert_array_equal(F.max(x, axis=axis).d, x.max(axis=axis))
        np.testing.assert_array_equal(F.min(x, axis=axis).d, x.min(axis=axis))


@pytest.mark.parametrize("shape", [(7, 5), (3, 100), (100, 3), (2, 700)])
def test_positions_are_those_of_the_first_nan_then_of_the_first_extreme(shape):
    x = np.random.default_rng(0).integers(0, 3, size=shape).astype(np.float32)
    x[0, 1] = x[0, -1] = np.nan
    x[1, :] = -np.inf
    for axis in (0, 1, None):
        places = F.max(x, axis=axis, only_index=True).d
        np.testing.assert_array_equal(places, x.argmax(axis=axis))
        places = F.min(x, axis=axis, only_index=True).d
        np.testing.assert_array_equal(places, x.argmin(axis=axis))


def test_positions_over_several_axes_count_the_last_one_fastest():
    x = np.random.default_rng(0).normal(size=(4, 3, 5)).astype(np.float32)
    expected = x.transpose(1, 0, 2).reshape(3, 20).argmax(axis=1)
    np.testing.assert_array_equal(F.max(x, axis=(0, 2), only_index=True).d, expected)


@pytest.mark.parametrize("shape", [(64, 16, 32, 32), (64, 64, 8, 8), (100, 3, 7, 7), (70_000, 16)])
@pytest.mark.parametrize("name", ["moments", "var"])
def test_the_spread_about_a_mean_far_from_zero_is_exact(native, shape, name):
    rng = np.random.default_rng(0)
    far = 1000 * np.arange(shape[1]).reshape(-1, *(1,) * (len(shape) - 2))
    x = (rng.normal(size=shape) + far).astype(np.float32)
    axes = tuple(axis for axis in range(len(shape)) if axis != 1)
    kept = {"keepdims": True} if name == "var" else {}
    *_, variance = program_of(native, name, [x], axes=axes, **kept)()
    expected = x.astype(np.float64).var(axis=axes, keepdims=True)
    np.testing.assert_allclose(variance, expected, rtol=2e-6)


def test_an_outlier_at_the_front_does_not_spoil_the_variance(native):
    x = np.random.default_rng(0).normal(100, 1, size=(64, 8, 100)).astype(np.float32)
    x[0, :, 0] = 0
    (_, variance) = program_of(native, "moments", [x], axes=(0, 2))()
    expected = x.astype(np.float64).var(axis=(0, 2), keepdims=True)
    np.testing.assert_allclose(variance, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "shape", "attributes"),
    [
        ("sum", (20_000, 16), {"axes": (0,)}),
        ("mean", (300_000,), {"axes": (0,)}),
        ("max", (3000, 100), {"axes": (0,)}),
        ("moments", (64, 16, 40, 40), {"axes": (0, 2, 3)}),
        ("norm", (500, 500), {"axes": (0, 1)}),
    ],
)
def test_results_are_the_same_bits_for_any_number_of_threads(
    monkeypatch, native, name, shape, attributes
):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    results = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("NNL_NUM_THREADS", threads)
        results.append([one.tobytes() for one in program_of(native, name, [x], **attributes)()])
    assert results[0] == results[1] == results[2]


def test_shapes_that_differ_in_lengths_alone_share_their_code():
    first = steps_of("sum", (1000, 64), (0, 1), axes=(0,))
    second = steps_of("sum", (900, 48), (0, 1), axes=(0,))
    assert [one.body for one in first] == [one.body for one in second]


def test_channels_that_lie_last_are_summed_as_columns():
    last = steps_of("sum", (8, 16, 10, 10), (0, 2, 3, 1), axes=(0, 2, 3))
    columns = steps_of("sum", (800, 16), (0, 1), axes=(0,))
    assert last == columns


def test_a_norm_of_huge_elements_does_not_overflow():
    x = np.full(4, 1e30, np.float32)
    np.testing.assert_allclose(F.norm(x).d, 2e30, rtol=1e-6)
    np.testing.assert_allclose(F.norm(np.full(4, 1e300)).d, 2e300, rtol=1e-12)


def test_a_log_sum_of_exponentials_is_finite_for_large_elements():
    x = np.array([[1000.0, 1000.0], [-1000.0, -1000.0]], np.float32)
    expected = np.array([1000, -1000]) + np.log(2)
    np.testing.assert_allclose(F.logsumexp(x, axis=1).d, expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(1000, 128), (37, 1000), (6, 5), (3, 4, 50)])
def test_layers_are_normalised_as_the_formula_says(shape):
    rng = np.random.default_rng(0)
    x = rng.normal(3, 2, size=shape).astype(np.float32)
    gamma, beta = (rng.normal(size=(1, *shape[1:])).astype(np.float32) for _ in range(2))
    axes = tuple(range(1, len(shape)))
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=axes, keepdims=True)
    expected = centred / np.sqrt(wide.var(axis=axes, keepdims=True) + 1e-5) * gamma + beta
    y = F.layer_normalization(x, beta, gamma).d
    np.testing.assert_allclose(y, expected, rtol=2e-5, atol=2e-5)
