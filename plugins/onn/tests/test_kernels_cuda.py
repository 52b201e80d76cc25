"""Operational neurons in CUDA, on a GPU, else on the emulated driver."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import numpy as np
import pytest

from nnl_core.graph.ir import ABSENT, Graph, Instruction
from nnl_core.graph.spec import Spec
from nnl_core.session import Session, current_session
from nnl_onn import kernels_cuda
from nnl_onn.nodal import BUILT_IN
from nnl_onn.operators import operate, operate_data, operate_gradients, operate_weight
from nnl_onn.samples import CASES, draw

cuemu = pytest.importorskip("tools.cuemu", reason="the emulated driver is in the repository alone")
pytestmark = pytest.mark.cuda
POOLS = ("sum", "max", "median")
FLAT = {"stride": (1, 1), "dilation": (1, 1)}
# Asked in another process: a driver that is loaded here would stand in the emulator's place.
HAS_DEVICE = """
import ctypes, importlib.util, sys
driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
works = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
sys.exit(not (works and count.value and importlib.util.find_spec("pycuda")))
"""


@cache
def is_emulated():
    probe = [sys.executable, "-c", HAS_DEVICE]
    return subprocess.run(probe, capture_output=True, check=False).returncode != 0


@cache
def session():
    return Session()


@pytest.fixture(autouse=True)
def gpu():
    path = os.environ["PATH"]
    if is_emulated():
        problem = cuemu.problem()
        if problem is not None:
            pytest.skip(f"there is no GPU, and no emulated one: {problem}")
        cuemu.activate()
        cuemu.set(devices=1)
    with session():
        yield
    if is_emulated():
        cuemu.set(devices=0, clear_fault=1)
        os.environ["PATH"] = path


def compute(operator, *arrays, **given):
    """Compute a call by a kernel, and never on the host."""
    backend = current_session().backend("cuda")
    attributes = operator.bind_attributes(given)
    arrays = [*arrays, *[None] * (len(operator.parameters.inputs) - len(arrays))]
    specs = [None if array is None else Spec.of(array) for array in arrays]
    graph = Graph()
    inputs = tuple(ABSENT if spec is None else graph.add_leaf(spec) for spec in specs)
    outputs = operator.infer_specs(specs, attributes)
    results = tuple(graph.new_value(spec) for spec in outputs)
    graph.instructions = [Instruction(operator, inputs, results, attributes)]
    graph.outputs = list(results)
    program = backend.compile(graph)
    assert program.computed_by(graph.instructions[0]) == "cuda"
    leaves = [backend.from_host(array) for array in arrays if array is not None]
    buffers = [backend.from_host(np.full(spec.shape, 7, spec.dtype)) for spec in outputs]
    program.run(leaves, buffers)
    return [np.array(backend.to_host(buffer)) for buffer in buffers]


def reference(operator, *arrays, **given):
    exact = [None if array is None else array.astype(np.float64) for array in arrays]
    exact += [None] * (len(operator.parameters.inputs) - len(arrays))
    with np.errstate(all="ignore"):
        return operator.evaluate(exact, operator.bind_attributes(given))


def agrees(operator, *arrays, tolerance=1e-5, **given):
    results = compute(operator, *arrays, **given)
    for found, wanted in zip(results, reference(operator, *arrays, **given), strict=True):
        scale = np.abs(wanted).max(initial=0)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * scale)


def uniform(rng, shape, scale=1.0):
    return (scale * rng.uniform(-1, 1, shape)).astype(np.float32)


@pytest.mark.parametrize(
    ("nodal", "pool"), [(name, POOLS[k % 3]) for k, name in enumerate(BUILT_IN)]
)
def test_every_nodal_operator_computes_what_the_reference_means(nodal, pool):
    rng = np.random.default_rng(1)
    x, w = uniform(rng, (2, 4, 9, 11)), uniform(rng, (6, 2, 3, 2), 1 / 6)
    options = {"nodal": nodal, "pool": pool, "stride": (2, 1), "dilation": (1, 2), "groups": 2}
    options["tolerance"] = 2e-4 if nodal == "chirp" else 1e-5
    agrees(operate, x, w, **options)
    agrees(operate_gradients, uniform(rng, (2, 6, 4, 9)), x, w, **options)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_one_to_three_axes_strides_dilation_groups_and_empty_batches(number):
    pool = POOLS[number % 3]
    d = draw("sinh", pool, CASES[number], np.random.default_rng(number))
    dtype = (np.float32, np.float64)[number % 2]
    g, x, w = (array.astype(dtype) for array in (d.g, d.x, d.w))
    agrees(operate, x, w, **d.options)
    agrees(operate_gradients, g, x, w, **d.options)


@pytest.mark.parametrize(("derivative", "pool"), [("", "max"), ("x", "median"), ("xw", "sum")])
def test_derivatives_of_any_order_times_factors_of_data_and_weight(derivative, pool):
    d = draw("gaussian", pool, CASES[2], np.random.default_rng(3))
    g, x, w, a, b = (array.astype(np.float32) for array in (d.g, d.x, d.w, d.a, d.b))
    options = {**d.options, "derivative": derivative}
    agrees(operate, x, w, a, b, **options)
    agrees(operate_data, g, x, w, b, **options)
    agrees(operate_weight, g, x, w, a, **options)
    agrees(operate_weight, g, x, w, **options)


@pytest.mark.parametrize("pool", POOLS)
def test_large_kernels_and_many_placements(pool):
    rng = np.random.default_rng(5)
    x, w = uniform(rng, (1, 2, 25, 31)), uniform(rng, (2, 2, 7, 5))
    agrees(operate, x, w, nodal="harmonic", pool=pool, **FLAT)
    g = uniform(rng, (1, 2, 19, 27))
    agrees(operate_gradients, g, x, w, nodal="harmonic", pool=pool, **FLAT)


@pytest.mark.parametrize("pool", ["max", "median"])
def test_what_is_no_number_and_equal_taps_go_where_the_reference_sends_them(pool):
    rng = np.random.default_rng(7)
    x, w = np.ones((2, 2, 6, 7), np.float32), np.full((2, 2, 3, 3), 0.25, np.float32)
    x[0, 0, 2, 6] = np.nan
    g = uniform(rng, (2, 2, 4, 5))
    options = {"nodal": "gaussian", "pool": pool, **FLAT}
    for operator, arrays in ((operate, (x, w)), (operate_gradients, (g, x, w))):
        found = compute(operator, *arrays, **options)
        for one, wanted in zip(found, reference(operator, *arrays, **options), strict=True):
            np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pool", ["sum", "max"])
def test_samples_are_dealt_with_in_parts_where_selected_taps_would_take_much_memory(
    pool, monkeypatch
):
    monkeypatch.setattr(kernels_cuda, "NOTED", 40)
    rng = np.random.default_rng(9)
    x, w = uniform(rng, (5, 2, 4, 4)), uniform(rng, (2, 2, 2, 2))
    agrees(operate_gradients, uniform(rng, (5, 2, 3, 3)), x, w, nodal="sine", pool=pool, **FLAT)
