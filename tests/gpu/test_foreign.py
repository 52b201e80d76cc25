"""Kernels in CUDA and expressions that operators bring along."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, KernelSource, Sample, Spec, Variable, defop
from nnl_core.errors import OperatorError
from nnl_core.graph.execute import ForwardPlan
from nnl_core.hooks import Plugin
from nnl_core.session import Session
from nnl_core.testing import check_operator


@pytest.fixture(autouse=True)
def on_a_gpu(gpu):
    with nnl.backend_scope("cuda"):
        yield


ONES = np.ones((2, 3), np.float32)
ADD = """
__device__ void f(nnl_array<float> y, nnl_array<const float> x) {
    FOR_EACH(k, y.size) y.data[k] = x.data[k] + %s;
}
"""


def made(name, text, reference=lambda x: x + 1, options=None):
    """An operator on one array that has a CUDA kernel."""
    operator = defop(name)(reference)
    operator.infer(lambda x: x)
    operator.kernel("cuda", KernelSource(text, "f", options or {}))
    return operator


def run(operator, *arrays, **attributes):
    y = operator(*map(Variable.from_numpy_array, arrays), **attributes)
    y.forward()
    return y.d


def computed_by(*outputs):
    """Who computes each instruction of the program of some variables."""
    plan = ForwardPlan(list(outputs), nnl.current_backend(), "asked", optimize=True)
    program = plan.program
    return [(i.label, program.computed_by(i)) for i in program.graph.instructions]


# -------------------------------------------------------------------- expressions


def test_an_expression_joins_the_group_of_its_neighbours():
    @defop("cuda_kernels::softsign", save=("x",))
    def softsign(x):
        return x / (1 + np.abs(x))

    softsign.elementwise("x / (1.0f + fabsf(x))")
    softsign.vjp(lambda g, y, x: (g / F.pow_scalar(1 + F.abs(x), 2),))
    softsign.samples(lambda rng: iter([Sample(rng.normal(size=(3, 5)))]))
    check_operator(softsign, "cuda")
    x = np.linspace(-2, 2, 7, dtype=np.float32)
    y = F.exp(softsign(Variable.from_numpy_array(x) * 2.0))
    y.forward()
    np.testing.assert_allclose(y.d, np.exp(2 * x / (1 + np.abs(2 * x))), rtol=1e-6)
    ((_, who),) = computed_by(y)
    assert who == "cuda"


def test_an_expression_that_does_not_compile_is_told_and_left_to_numpy():
    @defop("cuda_kernels::misspelt")
    def misspelt(x):
        return x + 1

    misspelt.elementwise("x + one")
    with pytest.warns(RuntimeWarning) as caught:
        np.testing.assert_array_equal(run(misspelt, ONES), ONES + 1)
    (warning,) = caught
    assert "operator 'cuda_kernels::misspelt'" in str(warning.message)
    assert "one" in str(warning.message)


# -------------------------------------------------------------------- kernels


def test_a_kernel_computes_what_its_operator_means():
    @defop("cuda_kernels::running_sum")
    def running_sum(x, *, backwards: bool = False):
        return np.flip(np.cumsum(np.flip(x, -1), -1), -1) if backwards else np.cumsum(x, -1)

    running_sum.infer(lambda x, backwards: x)
    running_sum.vjp(lambda g, y, x, backwards: (running_sum(g, backwards=not backwards),))
    running_sum.samples(
        lambda rng: iter(
            [
                Sample(rng.normal(size=(3, 5)), backwards=True),
                Sample(rng.normal(size=(300, 4))),
                Sample(rng.normal(size=(0, 2))),
            ]
        )
    )
    text = """
    __device__ void running_sum(nnl_array<TYPE_y> y, nnl_array<const TYPE_x> x) {
        int64_t n = x.shape[x.rank - 1];
        if (n == 0) return;
        FOR_EACH(row, x.size / n) {
            TYPE_y sum = 0;
            for (int64_t k = 0; k < n; k++) {
                int64_t at = row * n + (ATTRIBUTE_backwards ? n - 1 - k : k);
                y.data[at] = sum += x.data[at];
            }
        }
    }
    """

    def kernel(inputs, outputs, attributes):
        """A thread for each row."""
        grid = -(-max(outputs[0].shape[0], 1) // 64)
        options = {"dtypes": ("float32", "float64"), "block": 64, "grid": grid}
        return KernelSource(text, "running_sum", options)

    running_sum.kernel("cuda", kernel)
    check_operator(running_sum, "cuda")
    y = running_sum(Variable.from_numpy_array(ONES))
    assert [who for _, who in computed_by(y)] == ["cuda"]


def test_two_kernels_may_use_the_same_names():
    two = made("cuda_kernels::two", ADD % "2", lambda x: x + 2)
    three = made("cuda_kernels::three", ADD % "3", lambda x: x + 3)
    x = Variable.from_numpy_array(ONES)
    y = two(x) + three(x)
    y.forward()
    np.testing.assert_array_equal(y.d, np.full((2, 3), 7))


def test_dynamic_shared_memory_is_as_large_as_asked_for():
    text = """
    __device__ void f(nnl_array<float> y, nnl_array<const float> x) {
        extern __shared__ float turned[];
        turned[threadIdx.x] = x.data[threadIdx.x];
        __syncthreads();
        y.data[threadIdx.x] = turned[blockDim.x - 1 - threadIdx.x];
    }
    """
    options = {"grid": 1, "block": 64, "shared": 64 * 4}
    operator = made("cuda_kernels::turned", text, lambda x: x[::-1].copy(), options)
    x = np.arange(64, dtype=np.float32)
    np.testing.assert_array_equal(run(operator, x), x[::-1])
    assert [who for _, who in computed_by(operator(Variable.from_numpy_array(x)))] == ["cuda"]


def test_calls_of_other_dtypes_are_left_to_numpy():
    operator = made("cuda_kernels::plain", ADD % "1")
    y = operator(Variable.from_numpy_array(ONES.astype(np.float64)))
    assert [who for _, who in computed_by(y)] == ["numpy"]
    y.forward()
    np.testing.assert_array_equal(y.d, ONES + 1)


def test_what_does_not_compile_is_left_to_numpy_with_the_compilers_words():
    text = "__device__ void f(nnl_array<float> y, nnl_array<const float> x) {\n  y = nonsense;\n}"
    operator = made("cuda_kernels::broken", text)
    with pytest.warns(RuntimeWarning) as caught:
        np.testing.assert_array_equal(run(operator, ONES), ONES + 1)
    (warning,) = caught
    message = str(warning.message)
    assert message.startswith(f"module {__name__}: the CUDA kernel of operator")
    assert "'cuda_kernels::broken'" in message
    assert "NumPy computes it instead" in message
    assert re.search(r"CUDA kernel of cuda_kernels::broken\W+2\b.*error.*nonsense", message)


def test_what_does_not_compile_is_told_once():
    operator = made("cuda_kernels::broken_too", "__device__ void f(")
    with pytest.warns(RuntimeWarning):
        run(operator, ONES)
    np.testing.assert_array_equal(run(operator, ONES), ONES + 1)  # warnings are errors


def test_the_warning_names_plugin_and_line(tmp_path, monkeypatch):
    (tmp_path / "broken_cuda.py").write_text(
        "from nnl_core import KernelSource, defop\n"
        "from nnl_core.hooks import OperatorSet, Plugin\n"
        "class Broken(Plugin):\n"
        "    name = 'broken_cuda'\n"
        "    def nnl_operators(self):\n"
        "        return [OperatorSet('brokencuda', 'broken_cuda', 'one')]\n"
        "@defop('brokencuda::one')\n"
        "def one(x):\n"
        "    return x + 1\n"
        "one.infer(lambda x: x)\n"
        "one.kernel('cuda', KernelSource('''__device__ void f() { return 1 + ; }\n''', 'f'))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import broken_cuda

    try:
        with (
            Session([broken_cuda.Broken]),
            nnl.backend_scope("cuda"),
            pytest.warns(RuntimeWarning) as caught,
        ):
            run(broken_cuda.one, ONES)
    finally:
        sys.modules.pop("broken_cuda")
    message = str(caught[0].message)
    assert message.startswith("plugin 'broken_cuda'")
    assert f"its line 1 is line 11 of {tmp_path / 'broken_cuda.py'}" in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtypes": "float32"}, "option 'dtypes' of its CUDA kernel"),
        ({"dtypes": ("float",)}, "option 'dtypes' of its CUDA kernel"),
        ({"block": (1, 2, 3, 4)}, "option 'block' of its CUDA kernel"),
        ({"grid": "all"}, "option 'grid' of its CUDA kernel"),
        ({"shared": -1}, "option 'shared' of its CUDA kernel"),
        ({"scratch": -1}, "option 'scratch' of its CUDA kernel"),
        ({"stages": 4}, "option 'stages' of its CUDA kernel"),
        ({"stages": ((1, 1, 1, 1),)}, "option 'stages' of its CUDA kernel"),
    ],
)
def test_options_that_make_no_sense_are_errors_that_name_them(options, message):
    name = f"cuda_kernels::o{abs(hash(repr(options)))}"
    operator = made(name, ADD % "1", options=options)
    with pytest.raises(OperatorError, match=message):
        run(operator, ONES)


def test_stages_are_launched_in_turn_and_share_memory():
    # Each block sums its part in the first stage; in the second, one thread adds the sums.
    text = """
    __device__ void f(nnl_array<float> y, nnl_array<uint8_t> memory, nnl_array<const float> x,
                      int32_t stage) {
        float *sums = (float *)memory.data;
        if (threadIdx.x) return;
        if (stage == 0) {
            sums[blockIdx.x] = 0;
            for (int64_t k = blockIdx.x; k < x.size; k += gridDim.x) sums[blockIdx.x] += x.data[k];
        } else {
            *y.data = 0;
            for (int64_t k = 0; k < memory.size / 4; k++) *y.data += sums[k];
        }
    }
    """
    options = {"stages": (7, (1, 1)), "scratch": 28}
    operator = made("cuda_kernels::total", text, lambda x: x.sum(keepdims=True), options)
    operator.infer(lambda x: Spec((1,), x.dtype))
    x = np.arange(100, dtype=np.float32)
    np.testing.assert_array_equal(run(operator, x), [x.sum()])
    assert [who for _, who in computed_by(operator(Variable.from_numpy_array(x)))] == ["cuda"]


def test_calls_that_a_rule_has_no_text_for_are_left_to_numpy():
    operator = made("cuda_kernels::unruled", "")
    operator.kernels["cuda"] = lambda inputs, outputs, attributes: None
    np.testing.assert_array_equal(run(operator, ONES), ONES + 1)


def test_attributes_and_absent_inputs_are_known_to_a_kernel():
    @defop("cuda_kernels::scaled")
    def scaled(x, w=None, *, factors: tuple[float, ...] = (0.5, 4.0), power: int = 2):
        return (x * (1 if w is None else w) * factors[1] ** power).astype(x.dtype)

    scaled.infer(lambda x, w, factors, power: Spec(x.shape, x.dtype))
    text = """
    __device__ void f(nnl_array<float> y, nnl_array<const float> x, nnl_array<const float> w) {
        const double factors[] = ATTRIBUTE_factors;
        FOR_EACH(k, y.size) {
            float scale = w.data == nullptr ? 1 : w.data[k];
            for (int p = 0; p < ATTRIBUTE_power; p++)
                scale *= factors[ATTRIBUTE_factors_length - 1];
            y.data[k] = x.data[k] * scale;
        }
    }
    """
    scaled.kernel("cuda", KernelSource(text, "f"))
    np.testing.assert_array_equal(run(scaled, ONES), 16 * ONES)
    np.testing.assert_array_equal(run(scaled, ONES, 3 * ONES, power=1), 12 * ONES)
    assert [who for _, who in computed_by(scaled(Variable.from_numpy_array(ONES)))] == ["cuda"]


def test_a_plugin_may_select_a_kernel_for_an_operator_of_the_core():
    text = """
    __device__ void f(nnl_array<float> y, nnl_array<const float> x) {
        FOR_EACH(k, y.size) y.data[k] = 7;
    }
    """

    class Sevens(Plugin):
        name = "sevens"

        def nnl_select_kernel(self, request):
            if request.backend == "cuda" and request.operator.name == "nnl::softmax":
                return KernelSource(text, "f")
            return None

    with Session([Sevens]), nnl.backend_scope("cuda"):
        y = F.softmax(Variable.from_numpy_array(ONES))
        y.forward()
        np.testing.assert_array_equal(y.d, np.full((2, 3), 7))
