"""Operational neurons in C: the same numbers as the reference, wherever it is called."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core.graph.backend import current_backend
from nnl_core.graph.ir import ABSENT, Graph, Instruction
from nnl_core.graph.spec import Spec
from nnl_onn import nodal as nodal_operators
from nnl_onn.nodal import BUILT_IN, Nodal
from nnl_onn.operators import operate, operate_data, operate_gradients, operate_weight
from nnl_onn.pools import Pool
from nnl_onn.samples import CASES, draw

pytest.importorskip("nnl_native")
POOLS = ("sum", "max", "median")
FLAT = {"stride": (1, 1), "dilation": (1, 1)}


@pytest.fixture(autouse=True)
def native_backend(numpy_backend):
    with nnl.backend_scope("native"):
        yield


def compute(operator, *arrays, is_native=True, **given):
    """Compute a call in a program of its own, and say whether NumPy had to."""
    attributes = operator.bind_attributes(given)
    arrays = [*arrays, *[None] * (len(operator.parameters.inputs) - len(arrays))]
    specs = [None if array is None else Spec.of(array) for array in arrays]
    graph = Graph()
    inputs = tuple(ABSENT if spec is None else graph.add_leaf(spec) for spec in specs)
    outputs = operator.infer_specs(specs, attributes)
    results = tuple(graph.new_value(spec) for spec in outputs)
    graph.instructions = [Instruction(operator, inputs, results, attributes)]
    graph.outputs = list(results)
    program = current_backend().compile(graph)
    assert program.is_native == is_native
    buffers = [np.full(spec.shape, 7, spec.dtype) for spec in outputs]
    program.run([array for array in arrays if array is not None], buffers)
    return buffers


def reference(operator, *arrays, **given):
    exact = [None if array is None else array.astype(np.float64) for array in arrays]
    exact += [None] * (len(operator.parameters.inputs) - len(arrays))
    with np.errstate(all="ignore"):
        return operator.evaluate(exact, operator.bind_attributes(given))


def agrees(operator, *arrays, tolerance, **given):
    results = compute(operator, *arrays, **given)
    for found, wanted in zip(results, reference(operator, *arrays, **given), strict=True):
        scale = np.abs(wanted).max(initial=0)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * scale)


def uniform(rng, shape, scale=1.0):
    return (scale * rng.uniform(-1, 1, shape)).astype(np.float32)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("nodal", BUILT_IN)
def test_every_nodal_operator_and_pool_computes_what_the_reference_means(nodal, pool):
    rng = np.random.default_rng(1)
    x, w = uniform(rng, (2, 4, 9, 11)), uniform(rng, (6, 2, 3, 2), 1 / 6)
    options = {"nodal": nodal, "pool": pool, "stride": (2, 1), "dilation": (1, 2), "groups": 2}
    # The argument of chirp runs to thousands: so much of it is what float32 carries.
    least = 2e-4 if nodal == "chirp" else 0
    agrees(operate, x, w, tolerance=max(1e-5, least), **options)
    g = uniform(rng, (2, 6, 4, 9))
    agrees(operate_gradients, g, x, w, tolerance=max(1e-4, least), **options)


@pytest.mark.parametrize(("dtype", "pool"), [(np.float32, "median"), (np.float64, "sum")])
@pytest.mark.parametrize("number", range(len(CASES)))
def test_one_to_three_axes_strides_dilation_groups_and_empty_batches(number, dtype, pool):
    d = draw("sinh", pool, CASES[number], np.random.default_rng(number))
    g, x, w = (array.astype(dtype) for array in (d.g, d.x, d.w))
    tolerance = 1e-5 if dtype == np.float32 else 1e-13
    agrees(operate, x, w, tolerance=tolerance, **d.options)
    agrees(operate_gradients, g, x, w, tolerance=tolerance, **d.options)


def test_factors_stay_out_of_what_follows_from_the_data_alone():
    d = draw("mul", "sum", CASES[2], np.random.default_rng(3))
    g, x, w, a, b = (array.astype(np.float32) for array in (d.g, d.x, d.w, d.a, d.b))
    options = {**d.options, "derivative": "w", "tolerance": 1e-5}  # which is x
    agrees(operate, x, w, a, b, **options)
    agrees(operate_data, g, x, w, b, **options)
    agrees(operate_weight, g, x, w, a, **options)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("derivative", ["", "x", "xw"])
def test_derivatives_of_any_order_times_factors_of_data_and_weight(derivative, pool):
    d = draw("gaussian", pool, CASES[2], np.random.default_rng(3))
    g, x, w, a, b = (array.astype(np.float32) for array in (d.g, d.x, d.w, d.a, d.b))
    options = {**d.options, "derivative": derivative, "tolerance": 1e-5}
    agrees(operate, x, w, a, b, **options)
    agrees(operate_data, g, x, w, b, **options)
    agrees(operate_weight, g, x, w, a, **options)
    agrees(operate, x, w, a, **options)
    agrees(operate_weight, g, x, w, **options)


@pytest.mark.parametrize("pool", POOLS)
def test_large_kernels_and_many_placements(pool):
    rng = np.random.default_rng(5)
    x, w = uniform(rng, (1, 2, 25, 31)), uniform(rng, (2, 2, 7, 5))
    agrees(operate, x, w, tolerance=1e-5, nodal="harmonic", pool=pool, **FLAT)
    g = uniform(rng, (1, 2, 19, 27))
    agrees(operate_gradients, g, x, w, tolerance=1e-5, nodal="harmonic", pool=pool, **FLAT)


@pytest.mark.parametrize("pool", ["max", "median"])
def test_of_equal_taps_the_first_is_selected(pool):
    x, w = np.ones((1, 1, 5, 6), np.float32), np.full((1, 1, 3, 2), 0.5, np.float32)
    g = np.ones((1, 1, 3, 5), np.float32)
    dx, dw = compute(operate_gradients, g, x, w, nodal="sine", pool=pool, **FLAT)
    chosen = np.zeros((3, 2))
    chosen[0, 0] = dw.sum()
    np.testing.assert_array_equal(dw[0, 0], chosen)
    assert np.count_nonzero(dx) == g.size
    assert np.all(dx[0, 0, :3, :5] != 0)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_stays_where_it_belongs(bad, pool):
    rng = np.random.default_rng(7)
    x, w = uniform(rng, (2, 2, 6, 7)), uniform(rng, (2, 2, 3, 3))
    g = uniform(rng, (2, 2, 4, 5))
    x[0, 0, 2, 6] = bad  # at the end of a row: some taps do not reach it
    options = {"nodal": "gaussian", "pool": pool, **FLAT}
    for operator, arrays in ((operate, (x, w)), (operate_gradients, (g, x, w))):
        found = compute(operator, *arrays, **options)
        for one, wanted in zip(found, reference(operator, *arrays, **options), strict=True):
            np.testing.assert_array_equal(np.isnan(one), np.isnan(wanted))
            np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pool", ["sum", "median"])
def test_results_do_not_depend_on_the_number_of_threads(pool, monkeypatch):
    rng = np.random.default_rng(9)
    x, w = uniform(rng, (5, 3, 40, 41)), uniform(rng, (7, 3, 3, 3))
    g = uniform(rng, (5, 7, 38, 39))
    options = {"nodal": "sine", "pool": pool, **FLAT}
    results = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("NNL_NUM_THREADS", threads)
        results.append(
            [*compute(operate, x, w, **options), *compute(operate_gradients, g, x, w, **options)]
        )
    for one, two, three in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)


# Of one tap that is 1, an operator is its function of x.
@pytest.mark.parametrize(
    ("function", "most", "tolerance"),
    [
        ("sin", 10.0, 1e-6),
        ("cos", 10.0, 1e-6),
        ("exp", 80.0, 1e-6),
        ("sinh", 80.0, 1e-6),
        ("cosh", 80.0, 1e-6),
        ("tanh", 15.0, 1e-6),
    ],
)
def test_functions_that_vectorise_are_right_to_float32(function, most, tolerance):
    x = np.linspace(-most, most, 100_001, dtype=np.float32).reshape(1, 1, -1)
    near = np.linspace(-1e-3, 1e-3, 1001, dtype=np.float32).reshape(1, 1, -1)
    w = np.ones((1, 1, 1), np.float32)
    for values in (x, near):
        options = {"pool": "sum", "stride": (1,), "dilation": (1,)}
        (found,) = compute(operate, values, w, nodal=f"{function}(w * x)", **options)
        wanted = getattr(np, function)(values.astype(np.float64))
        atol = {"sin": 1.5e-7, "cos": 2.5e-7}.get(function, 0)
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=atol)


def test_functions_of_large_and_odd_values_are_those_of_ieee_754():
    x = np.asarray([[[1e4, 1e7, 1e20, np.inf, np.nan, -200.0, 200.0]]], np.float32)
    w = np.ones((1, 1, 1), np.float32)
    options = {"pool": "sum", "stride": (1,), "dilation": (1,)}
    (sines,) = compute(operate, x, w, nodal="sin(w * x)", **options)
    np.testing.assert_allclose(sines[0, 0, 0], np.sin(1e4), atol=2e-6)
    assert np.all(np.abs(sines[0, 0, :3]) <= 1)
    assert np.isnan(sines[0, 0, 3:5]).all()
    (powers,) = compute(operate, x, w, nodal="exp(w * x)", **options)
    np.testing.assert_array_equal(powers[0, 0, 1:5], [np.inf, np.inf, np.inf, np.nan])
    np.testing.assert_allclose(powers[0, 0, 5:], [0, np.inf], atol=1e-37)


def test_nodal_operators_that_are_functions_are_left_to_numpy(monkeypatch):
    function = Nodal(lambda x, w: np.arctan(w * x), "w / (1 + (w * x)**2)", "x / (1 + (w * x)**2)")
    monkeypatch.setitem(nodal_operators.BUILT_IN, "arctan", function)
    rng = np.random.default_rng(11)
    x, w = uniform(rng, (1, 1, 4, 4)), uniform(rng, (1, 1, 2, 2))
    (found,) = compute(operate, x, w, is_native=False, nodal="arctan", pool="sum", **FLAT)
    (wanted,) = reference(operate, x, w, nodal="arctan", pool="sum", **FLAT)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_pools_of_others_are_left_to_numpy(monkeypatch):
    from nnl_onn import pools

    last = Pool(lambda values: np.full(values.shape[:-1], values.shape[-1] - 1))
    monkeypatch.setitem(pools.BUILT_IN, "last", last)
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    w = np.ones((1, 1, 2, 2), np.float32)
    (found,) = compute(operate, x, w, is_native=False, nodal="mul", pool="last", **FLAT)
    np.testing.assert_array_equal(found[0, 0], x[0, 0, 1:, 1:])


def test_shapes_share_a_compiled_function():
    from nnl_native import compiler

    w = np.ones((2, 2, 3, 3), np.float32)
    options = {"nodal": "sine", "pool": "max", **FLAT}
    compute(operate, np.ones((1, 2, 5, 5), np.float32), w, **options)
    before = len(compiler._functions)
    compute(operate, np.ones((3, 2, 8, 9), np.float32), w, **options)
    assert len(compiler._functions) == before
