"""C kernels that operators bring along."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, KernelSource, Sample, Variable, defop
from nnl_core.errors import OperatorError
from nnl_core.graph.backend import current_backend
from nnl_core.graph.ir import Graph, Instruction
from nnl_core.graph.spec import Spec
from nnl_core.hooks import Plugin
from nnl_core.session import Session
from nnl_core.testing import check_operator


@defop("kernels::running_sum")
def running_sum(x, offset=None, *, axis: int, backwards: bool = False):
    """Sums from one end of an axis of a matrix."""
    flipped = np.flip(x, axis) if backwards else x
    sums = np.cumsum(flipped, axis, dtype=x.dtype)
    sums = np.flip(sums, axis) if backwards else sums
    return sums if offset is None else sums + offset


running_sum.infer(lambda x, offset=None, **attributes: x)

RUNNING_SUM = """
#include <stdlib.h>

static int64_t place(int64_t k, int64_t n) { return ATTRIBUTE_backwards ? n - 1 - k : k; }

int running_sum(const struct nnl_array *inputs, struct nnl_array *outputs) {
    const TYPE_x *x = inputs[0].data;
    const TYPE_offset *offset = inputs[1].data;
    TYPE_y *y = outputs[0].data;
    int64_t n = inputs[0].shape[ATTRIBUTE_axis];
    int64_t step = ATTRIBUTE_axis == 1 ? 1 : inputs[0].shape[1];
    int64_t rows = inputs[0].shape[1 - ATTRIBUTE_axis];
    int64_t stride = ATTRIBUTE_axis == 1 ? n : 1;
    for (int64_t row = 0; row < rows; row++) {
        TYPE_y sum = 0;
        for (int64_t k = 0; k < n; k++) {
            int64_t at = row * stride + place(k, n) * step;
            sum += x[at];
            y[at] = sum + (offset ? *offset : 0);
        }
    }
    return 0;
}
"""
# Without an offset there is no TYPE_offset.
RUNNING_SUM = RUNNING_SUM.replace("TYPE_offset", "TYPE_x")
running_sum.kernel(
    "c", KernelSource(RUNNING_SUM, "running_sum", {"dtypes": ("float32", "float64", "int64")})
)


@running_sum.vjp
def running_sum_vjp(g, y, x, offset=None, *, axis, backwards):
    slope = running_sum(g, axis=axis, backwards=not backwards)
    return (slope, None) if offset is None else (slope, F.sum(g))


@running_sum.samples
def running_sum_samples(rng):
    for shape in ((3, 4), (1, 5), (0, 2), (2, 0)):
        yield Sample(rng.normal(size=shape), axis=0)
        yield Sample(rng.normal(size=shape), rng.normal(size=()), axis=1, backwards=True)


def is_native(operator, *shapes, dtype=np.float32, **attributes):
    """Whether a call of an operator is compiled, rather than left to NumPy."""
    graph = Graph()
    specs = [Spec(shape, np.dtype(dtype)) for shape in shapes]
    inputs = tuple(graph.add_leaf(spec) for spec in specs)
    attributes = operator.bind_attributes(attributes)
    outputs = tuple(graph.new_value(spec) for spec in operator.infer_specs(specs, attributes))
    graph.instructions = [Instruction(operator, inputs, outputs, attributes)]
    graph.outputs = list(outputs)
    return current_backend().compile(graph).is_native


def test_a_kernel_in_c_computes_what_the_reference_means():
    check_operator(running_sum, "native")


def test_a_kernel_in_c_is_run_for_the_dtypes_that_it_names():
    assert is_native(running_sum, (3, 4), axis=1)
    assert is_native(running_sum, (3, 4), axis=0, dtype=np.int64)
    assert not is_native(running_sum, (3, 4), axis=1, dtype=np.int32)


def test_shapes_share_a_compiled_function():
    from nnl_native import compiler

    is_native(running_sum, (3, 4), axis=1)
    before = len(compiler._functions)
    is_native(running_sum, (30, 1), axis=1)
    assert len(compiler._functions) == before


def made(name, text, entry="f", options=None, reference=None):
    """A new operator of one input, with a kernel of this text."""
    operator = defop(name)(reference or (lambda x: x + 1))
    operator.infer(lambda x, **attributes: x)
    operator.kernel("c", KernelSource(text, entry, options or {}))
    return operator


def run(operator, *arrays):
    y = operator(*map(Variable.from_numpy_array, arrays))
    y.forward()
    return y.d


ONES = np.ones((2, 3), np.float32)


def test_two_kernels_may_use_the_same_names():
    text = "int f(const struct nnl_array *a, struct nnl_array *b) { %s return 0; }"
    loop = "for (int64_t k = 0; k < a->size; k++) ((float *)b->data)[k] = %s;"
    two = made("kernels::two", text % (loop % "2"), reference=lambda x: np.full_like(x, 2))
    three = made("kernels::three", text % (loop % "3"), reference=lambda x: np.full_like(x, 3))
    x = Variable.from_numpy_array(ONES)
    y = F.concatenate(two(x), three(x), axis=0)
    y.forward()
    np.testing.assert_array_equal(y.d, [[2] * 3] * 2 + [[3] * 3] * 2)
    assert is_native(two, (2, 3)) and is_native(three, (2, 3))


def test_what_does_not_compile_is_left_to_numpy_with_the_compilers_words():
    text = "int f(const struct nnl_array *a, struct nnl_array *b) {\n    return nonsense;\n}"
    operator = made("kernels::broken", text)
    with pytest.warns(RuntimeWarning) as caught:
        np.testing.assert_array_equal(run(operator, ONES), ONES + 1)
    (warning,) = caught
    message = str(warning.message)
    assert message.startswith(f"module {__name__}: the C kernel of operator 'kernels::broken'")
    assert "NumPy computes it instead" in message
    assert re.search(r"C kernel of kernels::broken:2:\d+: error: .*nonsense", message)


def test_what_does_not_compile_is_told_once():
    operator = made("kernels::broken_too", "int f(")
    with pytest.warns(RuntimeWarning):
        run(operator, ONES)
    np.testing.assert_array_equal(run(operator, ONES), ONES + 1)  # warnings are errors


def test_a_function_that_answers_nothing_does_not_compile():
    operator = made("kernels::void", "void f(const struct nnl_array *a, struct nnl_array *b) {}")
    with pytest.warns(RuntimeWarning, match="void"):
        run(operator, ONES)


def test_the_warning_names_plugin_and_line(tmp_path, monkeypatch):
    (tmp_path / "broken_kernels.py").write_text(
        "from nnl_core import KernelSource, defop\n"
        "from nnl_core.hooks import OperatorSet, Plugin\n"
        "class Broken(Plugin):\n"
        "    name = 'broken'\n"
        "    def nnl_operators(self):\n"
        "        return [OperatorSet('brokenset', 'broken_kernels', 'one')]\n"
        "@defop('brokenset::one')\n"
        "def one(x):\n"
        "    return x + 1\n"
        "one.infer(lambda x: x)\n"
        "one.kernel('c', KernelSource('''int f(void) { return 1 + ; }\n''', 'f'))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import broken_kernels

    try:
        with (
            Session([broken_kernels.Broken]),
            nnl.backend_scope("native"),
            pytest.warns(RuntimeWarning) as caught,
        ):
            run(broken_kernels.one, ONES)
    finally:
        sys.modules.pop("broken_kernels")
    message = str(caught[0].message)
    assert message.startswith("plugin 'broken'")
    assert f"its line 1 is line 11 of {tmp_path / 'broken_kernels.py'}" in message


def test_values_that_a_kernel_refuses_are_explained_by_the_reference():
    def reference(x):
        raise OperatorError("these are no probabilities")

    text = "int f(const struct nnl_array *a, struct nnl_array *b) { return 1; }"
    operator = made("kernels::refusing", text, reference=reference)
    with pytest.raises(OperatorError, match="these are no probabilities"):
        run(operator, ONES)


@pytest.mark.parametrize("dtypes", ["float32", ("float16",), 4])
def test_dtypes_of_a_kernel_are_those_that_c_has(dtypes):
    text = "int f(const struct nnl_array *a, struct nnl_array *b) { return 0; }"
    operator = made(f"kernels::d{len(str(dtypes))}", text, options={"dtypes": dtypes})
    with pytest.raises(OperatorError, match="option 'dtypes' of its C kernel"):
        run(operator, ONES)


def test_attributes_are_constants():
    @defop("kernels::constants")
    def constants(
        x,
        *,
        whole: int = -3,
        real: float = 0.5,
        infinite: float = float("-inf"),
        truth: bool = True,
        word: str = "same",
        text: str = 'a"b\\',
        sizes: tuple[int, ...] = (4, 7),
        nothing: int | None = None,
    ):
        return np.asarray([whole, real, infinite, truth, 4, 4, 7, 2, 0], x.dtype)

    constants.infer(lambda x, **attributes: Spec((9,), x.dtype))
    text = """
    int f(const struct nnl_array *inputs, struct nnl_array *outputs) {
        const int64_t sizes[] = ATTRIBUTE_sizes;
        float *y = outputs[0].data;
        y[0] = ATTRIBUTE_whole, y[1] = ATTRIBUTE_real, y[2] = ATTRIBUTE_infinite;
        y[3] = ATTRIBUTE_truth;
        y[4] = strcmp(ATTRIBUTE_word, "same") ? 0 : strlen(ATTRIBUTE_text);
        y[5] = sizes[0], y[6] = sizes[1], y[7] = ATTRIBUTE_sizes_length;
    #ifdef ATTRIBUTE_nothing
        y[8] = 1;
    #else
        y[8] = 0;
    #endif
        return 0;
    }
    """
    constants.kernel("c", KernelSource(text, "f"))
    expected = [-3, 0.5, -np.inf, 1, 4, 4, 7, 2, 0]
    np.testing.assert_array_equal(run(constants, ONES), np.float32(expected))
    assert is_native(constants, (2, 3))


def test_a_plugin_may_select_a_kernel_for_an_operator_of_the_core():
    text = """
    int f(const struct nnl_array *inputs, struct nnl_array *outputs) {
        for (int64_t k = 0; k < outputs->size; k++) ((float *)outputs->data)[k] = 7;
        return 0;
    }
    """

    class Sevens(Plugin):
        name = "sevens"

        def nnl_select_kernel(self, request):
            if request.backend == "c" and request.operator.name == "nnl::softmax":
                return KernelSource(text, "f")
            return None

    with Session([Sevens]), nnl.backend_scope("native"):
        np.testing.assert_array_equal(run(F.softmax, ONES), np.full((2, 3), 7))
