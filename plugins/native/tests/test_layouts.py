"""Copies between layouts, products and convolutions of values in any layout."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core.graph.ir import Graph, Instruction
from nnl_core.graph.operator import lookup
from nnl_core.graph.spec import Spec
from nnl_native import onednn
from nnl_native.compiler import kernel_name, load_functions
from nnl_native.kernel import Operand, channels_last, dense, plain
from nnl_native.kernels.convolution import Question, plan
from nnl_native.kernels.reorder import reorder
from nnl_native.program import NativeProgram

needs_onednn = pytest.mark.skipif(onednn.problem() is not None, reason=str(onednn.problem()))


def copied(array, order, wanted):
    """Copy an array whose axes lie in one order into another order, in two shares of the work."""
    memory = np.ascontiguousarray(array.transpose(order))
    result = np.zeros([array.shape[axis] for axis in wanted], array.dtype)
    spec = Spec(array.shape, array.dtype)
    source, target = (Operand(spec, dense(array.shape, one)) for one in (order, wanted))
    for step in reorder(source, target, 1).steps:
        text = (
            f"{step.support}\nvoid NAME(char *const *slots, const int64_t *d, int64_t begin,"
            "int64_t end) {\nconst void *in0 = slots[0]; void *out0 = slots[1];\n"
            f"{step.body}\n}}"
        )
        name = kernel_name(text)
        kernel = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2)(
            load_functions({name: text})[name]
        )
        slots = (ctypes.c_void_p * 2)(memory.ctypes.data, result.ctypes.data)
        lengths = (ctypes.c_int64 * len(step.dims))(*step.dims)
        for begin, end in ((0, step.units // 2), (step.units // 2, step.units)):
            kernel(ctypes.addressof(slots), ctypes.addressof(lengths), begin, end)
    return result.transpose(np.argsort(wanted))


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_copy_into_another_order_of_axes_has_the_same_elements(data):
    lengths = st.sampled_from([0, 1, 2, 3, 5, 16, 17, 33])
    shape = data.draw(st.lists(lengths, max_size=4))
    order, wanted = (data.draw(st.permutations(range(len(shape)))) for _ in range(2))
    dtype = data.draw(st.sampled_from(["float32", "float64", "int16", "bool"]))
    array = (np.arange(np.prod(shape, dtype=int)) % 251).astype(dtype).reshape(shape)
    np.testing.assert_array_equal(copied(array, order, wanted), array)


@pytest.mark.parametrize(
    ("shape", "order", "wanted"),
    [
        ((5000,), (0,), (0,)),
        ((2, 3, 40, 41), (0, 1, 2, 3), (0, 2, 3, 1)),
        ((2, 3, 40, 41), (0, 2, 3, 1), (0, 1, 2, 3)),
        ((70, 130), (0, 1), (1, 0)),
        ((2, 3, 4, 1030), (0, 1, 2, 3), (2, 3, 0, 1)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128", "uint8"])
def test_long_axes_are_copied_to_their_ends(shape, order, wanted, dtype):
    array = (np.arange(np.prod(shape)) % 251).astype(dtype).reshape(shape)
    np.testing.assert_array_equal(copied(array, order, wanted), array)


# Products ----------------------------------------------------------------------------------------


def computed(name, attributes, *arrays):
    """Compute one operator by a program that nothing of it leaves to NumPy."""
    operator, graph = lookup(name), Graph()
    given = tuple(graph.add_leaf(Spec.of(array)) for array in arrays)
    specs = operator.infer_specs([Spec.of(array) for array in arrays], attributes)
    results = tuple(graph.new_value(spec) for spec in specs)
    graph.instructions = [Instruction(operator, given, results, attributes)]
    graph.outputs = list(results)
    program = NativeProgram(graph)
    assert program.is_native
    outputs = tuple(np.full(spec.shape, np.nan, spec.dtype) for spec in specs)
    program.run(arrays, outputs)
    return outputs[0]


@needs_onednn
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("rows", "inner", "columns"),
    [
        (1, 1, 1), (3, 5, 2), (32, 2, 16), (8, 300, 33), (65, 17, 40), (9, 0, 4), (1, 600, 1),
        (70, 90, 80),
    ],
)  # fmt: skip
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_a_product_of_matrices_is_numpys(rows, inner, columns, transposed, dtype):
    rng = np.random.default_rng(0)
    first, second = transposed
    a = rng.normal(size=(inner, rows) if first else (rows, inner)).astype(dtype)
    b = rng.normal(size=(columns, inner) if second else (inner, columns)).astype(dtype)
    attributes = {"transpose_a": first, "transpose_b": second}
    wanted = (a.T if first else a).astype(float) @ (b.T if second else b)
    tolerance = 1e-12 if dtype == "float64" else 1e-4
    result = computed("nnl::batch_matmul", attributes, a, b)
    np.testing.assert_allclose(result, wanted, rtol=tolerance, atol=tolerance)


@needs_onednn
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((6, 4, 5), (5, 3)),
        ((4, 5), (6, 5, 3)),
        ((2, 1, 40, 50), (3, 50, 60)),
        ((2, 3, 1, 5), (5, 1)),
    ],
)
def test_stacks_of_matrices_broadcast(first, second):
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in (first, second))
    result = computed("nnl::batch_matmul", {"transpose_a": False, "transpose_b": False}, a, b)
    np.testing.assert_allclose(result, a @ b, rtol=1e-4, atol=1e-4)


@needs_onednn
@pytest.mark.parametrize("batch", [3, 90])
def test_an_affine_layer_flattens_inputs_and_outputs(batch):
    rng = np.random.default_rng(0)
    x, weight, bias = (
        rng.normal(size=shape).astype(np.float32) for shape in ((batch, 6, 7), (42, 8, 5), (8, 5))
    )
    result = computed("nnl::affine", {"base_axis": 1}, x, weight, bias)
    wanted = (x.reshape(batch, 42) @ weight.reshape(42, 40)).reshape(batch, 8, 5) + bias
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)


# Convolutions ------------------------------------------------------------------------------------


def question(kind="forward", **changes):
    base = Question(
        kind, (2, 16, 9, 9), (32, 16, 3, 3), (2, 32, 9, 9), False, (1, 1), (1, 1), (1, 1), 1
    )
    return base._replace(**changes)


@needs_onednn
@pytest.mark.parametrize("kind", ["forward", "data", "weight"])
def test_activations_of_convolutions_are_channels_last(kind):
    found = plan(question(kind), 1)
    assert found.activations is channels_last
    assert found.weight.opaque is not None


@needs_onednn
@pytest.mark.parametrize(
    "changes",
    [
        {"before": (-1, 1), "y": (2, 32, 7, 9)},  # a crop
        {"x": (0, 16, 9, 9), "y": (0, 32, 9, 9)},
        {"x": (2, 16), "weight": (32, 16), "y": (2, 32), "before": ()},  # no spatial axis
    ],
)
def test_what_onednn_does_not_compute_is_left_to_numpy(changes):
    assert plan(question(**changes), 1) is None


def test_layouts_of_images_name_the_innermost_axis():
    assert channels_last((2, 3, 4, 5)).strides == (60, 1, 15, 3)
    assert plain((2, 3, 4, 5)).strides == (60, 20, 5, 1)
