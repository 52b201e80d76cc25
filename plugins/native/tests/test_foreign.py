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


# Rules, and work that threads share ---------------------------------------------------------------


def test_a_rule_makes_the_text_for_one_kind_of_call():
    asked = []

    @defop("kernels::scaled")
    def scaled(x, *, factor: float):
        return x * np.float32(factor)

    scaled.infer(lambda x, factor: x)

    def rule(inputs, outputs, attributes):
        asked.append((inputs, outputs, attributes))
        if attributes["factor"] == 0:
            return None
        loop = f"for (int64_t k = 0; k < {inputs[0].size}; k++)"
        text = f"{loop} y[k] = {attributes['factor']}f * x[k]; return 0;"
        declared = "const float *x = a->data; float *y = b->data;"
        return KernelSource(
            f"int f(const struct nnl_array *a, struct nnl_array *b) {{ {declared} {text} }}", "f"
        )

    scaled.kernel("c", rule)
    assert is_native(scaled, (2, 3), factor=2.5)
    spec = Spec((2, 3), np.dtype(np.float32))
    ((inputs, outputs, attributes),) = asked
    assert (tuple(inputs), tuple(outputs), dict(attributes)) == ((spec,), (spec,), {"factor": 2.5})
    x = Variable.from_numpy_array(ONES)
    y = scaled(x, factor=2.5)
    y.forward()
    np.testing.assert_array_equal(y.d, np.full((2, 3), 2.5))


def test_a_rule_that_answers_nothing_leaves_the_call_to_numpy():
    operator = made("kernels::none", "", reference=lambda x: x + 1)
    operator.kernels["c"] = lambda inputs, outputs, attributes: None
    np.testing.assert_array_equal(run(operator, ONES), ONES + 1)
    assert not is_native(operator, (2, 3))


def test_a_rule_that_answers_something_else_is_an_error():
    operator = made("kernels::odd", "")
    operator.kernels["c"] = lambda inputs, outputs, attributes: "text"
    with pytest.raises(OperatorError, match="its 'c' kernel is 'text'; give a KernelSource"):
        run(operator, ONES)


# Each row's sum, then the sum of all rows: stages, of as many units as there are rows, and one.
STAGES = """
int f(const struct nnl_array *inputs, struct nnl_array *outputs, int64_t begin, int64_t end) {
    const int64_t rows = inputs->shape[0], n = inputs->shape[1];
    float *sums = outputs[1].data;
    for (int64_t row = begin; row < end; row++) {
        if (row == rows) {
            float *y = outputs[0].data;
            *y = 0;
            for (int64_t k = 0; k < rows; k++) *y += sums[k];
        } else {
            const float *x = (const float *)inputs->data + row * n;
            sums[row] = 0;
            for (int64_t k = 0; k < n; k++) sums[row] += x[k];
        }
    }
    return outputs[1].size != 4 * rows;
}
"""


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_stages_of_a_kernel_are_shared_among_threads_and_follow_one_another(threads, monkeypatch):
    monkeypatch.setenv("NNL_NUM_THREADS", str(threads))

    @defop(f"kernels::staged_{threads}")
    def staged(x):
        return np.asarray(x.sum(), x.dtype)

    def rule(inputs, outputs, attributes):
        rows = inputs[0].shape[0]
        return KernelSource(STAGES, "f", {"units": (rows, 1), "scratch": 4 * rows})

    staged.infer(lambda x: Spec((), x.dtype))
    staged.kernel("c", rule)
    x = np.random.default_rng(0).integers(-8, 8, (700, 100)).astype(np.float32)
    assert is_native(staged, x.shape)
    assert run(staged, x) == x.sum()


def test_work_without_units_is_done_in_one_thread():
    # It is called once, with two arguments, however much there is to do.
    text = """
    int f(const struct nnl_array *a, struct nnl_array *b) {
        for (int64_t k = 0; k < a->size; k++) ((float *)b->data)[k] = 1;
        return 0;
    }
    """
    operator = made("kernels::alone", text, reference=lambda x: np.ones_like(x))
    big = np.zeros((1000, 1000), np.float32)
    np.testing.assert_array_equal(run(operator, big), np.ones_like(big))


@pytest.mark.parametrize("option", [{"units": "many"}, {"units": (2, -1)}, {"scratch": -4}])
def test_units_and_scratch_are_numbers(option):
    ((name, _),) = option.items()
    text = "int f(const struct nnl_array *a, struct nnl_array *b) { return 0; }"
    operator = made(f"kernels::bad_{len(str(option))}", text, options=option)
    with pytest.raises(OperatorError, match=f"option '{name}' of its C kernel"):
        run(operator, ONES)
