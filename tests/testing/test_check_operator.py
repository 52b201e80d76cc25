"""`check_operator` passes sound operators and names what is wrong with planted ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from nnl_core import functions as F
from nnl_core.cpu.backend import NumpyBackend
from nnl_core.errors import OperatorError
from nnl_core.graph import operator as operator_module
from nnl_core.graph.operator import KernelSource, Operator, Sample, defop
from nnl_core.testing import OperatorCheckError, check_operator, operators
from nnl_core.testing.expressions import c_compiler


@pytest.fixture(autouse=True)
def throw_away_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what a test defines."""
    monkeypatch.setattr(operator_module, "_registry", dict(operator_module._registry))


def define(
    reference: Callable[..., Any] | None = None,
    *,
    vjp: Callable[..., Any] | None = None,
    infer: Callable[..., Any] | None = None,
    samples: Callable[[np.random.Generator], Iterator[Sample]] | None = None,
    expression: str | None = "x * x",
    kernel: Callable[..., Any] | None = None,
    save: tuple[str, ...] = ("x",),
    **options: Any,
) -> Operator:
    """Define ``planted::square``, sound except for what is given."""

    def square(x):
        return x * x

    operator = defop("planted::square", save=save, **options)(reference or square)
    operator.infer(infer or (lambda x: x))
    operator.vjp(vjp or (lambda g, y, x: (g * x * 2.0,)))
    operator.samples(samples or shapes)
    if expression is not None:
        operator.elementwise(expression)
    if kernel is not None:
        operator.kernel("numpy", kernel)
    return operator


def shapes(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in ((), (0, 2), (3, 5)):
        yield Sample(rng.uniform(0.5, 2, size=shape))


def report(operator: Operator, **options: Any) -> str:
    """Return what the checker says against an operator."""
    with pytest.raises(OperatorCheckError) as caught:
        check_operator(operator, **options)
    assert "planted::square" in str(caught.value)
    return str(caught.value)


# What is sound passes ----------------------------------------------------------------------------


def test_a_sound_operator_passes():
    check_operator(define())


def test_a_sound_kernel_passes():
    check_operator(define(kernel=lambda x, out=None: np.multiply(x, x, out=out)))


def test_a_backend_object_serves_as_well_as_its_name():
    check_operator(define(), NumpyBackend())


def test_an_operator_is_found_by_name():
    define()
    check_operator("planted::square", "numpy")


def test_an_operator_without_a_gradient_passes():
    operator = defop("planted::square")(lambda x: x * x)
    operator.infer(lambda x: x)
    operator.samples(shapes)
    check_operator(operator)


def test_integer_inputs_pass_as_they_are():
    def samples(rng):
        yield Sample(rng.integers(-5, 5, size=(3, 4)))
        yield Sample(np.array([True, False]))

    check_operator(define(vjp=lambda g, y, x: (None,), samples=samples, expression=None))


def test_a_surrogate_gradient_need_not_be_the_derivative():
    operator = define()
    operator.vjp(surrogate=True)(lambda g, y, x: (g,))
    check_operator(operator)


def test_a_surrogate_gradient_of_some_calls_is_the_derivative_of_the_others():
    def define_step(rule):
        operator = defop("planted::step", save=("x",))(
            lambda x, *, hard: np.sign(x) if hard else x * x
        )
        operator.infer(lambda x, hard: x)
        operator.vjp(surrogate=lambda hard: hard)(rule)
        return operator

    calls = [Sample(np.array([1.5, -0.5]), hard=hard) for hard in (True, False)]
    right = define_step(lambda g, y, x, hard: (g if hard else g * 2 * x,))
    check_operator(right, samples=calls)
    wrong = define_step(lambda g, y, x, hard: (g,))
    check_operator(wrong, samples=calls[:1])
    with pytest.raises(OperatorCheckError, match="vjp"):
        check_operator(wrong, samples=calls)


def test_a_second_derivative_that_raises_by_name_passes():
    double = defop("planted::double")(lambda x: x * 2)
    double.infer(lambda x: x)
    operator = define(vjp=lambda g, y, x: (double(g) * x,))
    check_operator(operator)


def test_several_outputs_of_which_one_is_an_index_pass():
    operator = defop("planted::square", outputs=("y", "places"))(
        lambda x: (x * 2, np.zeros(x.shape, np.int64))
    )
    operator.infer(lambda x: (x, x.with_dtype(np.int64)))
    operator.vjp(lambda g, y, x: (g[0] * 2.0,))
    operator.samples(shapes)
    check_operator(operator)


def test_an_absent_optional_input_passes():
    def scaled(x, scale=None):
        return x * 2 if scale is None else x * scale

    operator = defop("planted::square", save=("x", "scale"))(scaled)
    operator.infer(lambda x, scale: x)
    operator.vjp(
        lambda g, y, x, scale: (g * 2.0, None) if scale is None else (F.mul(g, scale), F.mul(g, x))
    )

    @operator.samples
    def samples(rng):
        yield Sample(rng.normal(size=(2, 3)), None)
        yield Sample(rng.normal(size=(2, 3)), rng.normal(size=(2, 3)))

    check_operator(operator)


def test_a_view_passes_where_its_kernel_returns_one():
    check_operator(view_operator(lambda x, out=None: fill(x.T, out)))


def view_operator(kernel: Callable[..., Any]) -> Operator:
    operator = defop("planted::square", view=True)(lambda x: x.T.copy())
    operator.infer(lambda x: x.with_shape(x.shape[::-1]))
    operator.samples(shapes)
    operator.kernel("numpy", kernel)
    return operator


def fill(result, out):
    if out is None:
        return result
    out[...] = result
    return out


def test_tolerance_widens_what_is_allowed():
    def rough(x):
        return (x * x * (1 + 1e-11)).astype(x.dtype) if x.dtype == np.float64 else x * x

    operator = define(kernel=lambda x, out=None: fill(rough(x), out))
    check_operator(operator, tolerance=100)
    assert "backend 'numpy'" in report(operator)


# The reference and its rules ---------------------------------------------------------------------


def test_missing_samples_are_reported():
    operator = defop("planted::square")(lambda x: x * x)
    assert "no samples" in report(operator)


def test_an_empty_samples_rule_is_reported():
    assert "yields none" in report(define(samples=lambda rng: iter(())))


def test_a_reference_that_raises_is_reported_with_its_error():
    def fails(x):
        raise RuntimeError("out of ideas")

    assert "RuntimeError: out of ideas" in report(define(fails))


def test_the_report_names_the_sample():
    def fails(x):
        return x * x if x.ndim < 2 else x

    assert "sample 2 Sample(float64[3, 5])" in report(define(fails))


def test_a_wrong_shape_is_reported():
    message = report(define(infer=lambda x: x.with_shape((*x.shape, 1)), expression=None))
    assert "infer: it says float64(1,) for output 'y', which is float64()" in message


def test_a_wrong_dtype_is_reported():
    message = report(define(infer=lambda x: x.with_dtype(np.float32)))
    assert "infer: it says float32() for output 'y', which is float64()" in message


def test_a_dtype_that_is_wrong_for_one_width_only_is_reported():
    def widening(x):
        return x * x if x.dtype != np.float32 else (x * x).astype(np.float64)

    assert "it says float32" in report(define(widening))


def test_a_wrong_number_of_outputs_is_reported():
    assert "outputs: the reference returns 2" in report(define(lambda x: (x * x, x * x)))


def test_unhashable_attributes_are_reported():
    operator = defop("planted::square")(lambda x, *, table=None: x * x)
    operator.infer(lambda x, *, table: x)
    operator.samples(lambda rng: iter([Sample(rng.normal(size=3), table={})]))
    assert "attributes: they must be hashable" in report(operator)


def test_a_reference_that_writes_to_its_input_is_reported():
    def mutating(x):
        x *= 1.5
        return x * x

    assert "inputs: the reference writes to input 'x'" in report(define(mutating))


def test_an_output_that_shares_its_input_is_reported():
    message = report(define(lambda x: x[...], vjp=lambda g, y, x: (g,), expression="x"))
    assert "aliasing: an output of the reference shares input 'x'" in message


def test_a_result_that_changes_from_call_to_call_is_reported():
    count = itertools.count()
    message = report(define(lambda x: x * x + next(count) * 1e-14, expression=None))
    assert "determinism: the reference gives" in message


def test_a_narrow_dtype_that_loses_digits_is_reported():
    def coarse(x):
        return x * x if x.dtype == np.float64 else np.round(x * x, 2)

    assert "precision in float32(" in report(define(coarse))


@pytest.mark.parametrize(
    ("layout", "reference"),
    [
        ("transposed", lambda x: (x * x).ravel(order="K").reshape(x.shape)),
        ("reversed", lambda x: np.abs(x if not x.strides or x.strides[0] > 0 else -x * 2) * x),
        ("sliced", lambda x: np.lib.stride_tricks.as_strided(x, x.shape, dense(x)) * 1),
        ("broadcast", lambda x: x * x if 0 not in x.strides else x),
    ],
)
def test_dependence_on_memory_layout_is_reported(layout, reference):
    assert f"{layout} inputs" in report(
        define(
            lambda x: np.array(reference(x)),
            vjp=lambda g, y, x: (None,),
            expression=None,
        )
    )


def dense(x: np.ndarray) -> tuple[int, ...]:
    """Strides of ``x`` as if it had no gaps, where it is laid out forwards."""
    backwards = any(stride < 0 for stride in x.strides)
    if backwards or (not x.flags.c_contiguous and x.flags.f_contiguous):
        return x.strides
    return np.empty(x.shape, x.dtype).strides


# Gradients ---------------------------------------------------------------------------------------


def test_a_wrong_gradient_is_reported_with_both_numbers():
    message = report(define(vjp=lambda g, y, x: (g * x * 3.0,)))
    assert "vjp: for 'x' along a random direction" in message
    assert "by the rule" in message and "by central differences" in message


def test_a_wrong_sign_in_one_of_two_gradients_is_reported_by_input():
    operator = defop("planted::square", outputs=("z",))(lambda x, y: x - y)
    operator.elementwise("x - y")
    operator.vjp(lambda g, z, x, y: (g, g))
    operator.samples(lambda rng: iter([Sample(rng.normal(size=3), rng.normal(size=3))]))
    assert "vjp: for 'y'" in report(operator)


def test_a_gradient_of_the_wrong_shape_is_reported():
    operator = defop("planted::square", outputs=("z",))(lambda x, y: x + y)
    operator.elementwise("x + y")
    operator.vjp(lambda g, z, x, y: (g, g))
    operator.samples(lambda rng: iter([Sample(rng.normal(size=(2, 3)), rng.normal(size=(3,)))]))
    assert "vjp" in report(operator)


def test_a_gradient_of_the_wrong_dtype_is_reported():
    message = report(define(vjp=lambda g, y, x: (F.cast(g * x * 2.0, "float64"),)))
    assert "vjp: the gradient of input 'x' is float64" in message


def test_a_value_that_save_does_not_name_is_reported():
    assert "vjp: the rule raises" in report(define(save=()))


def test_a_rule_that_ignores_unused_outputs_is_reported():
    operator = defop("planted::square", outputs=("y", "z"))(lambda x: (x * 2, x * 3))
    operator.infer(lambda x: (x, x))
    operator.vjp(lambda g, y, x: (g[0] * 2.0 + g[1] * 3.0,))
    operator.samples(shapes)
    assert "vjp: the rule raises" in report(operator)


def test_a_wrong_second_derivative_is_reported():
    twice = defop("planted::twice")(lambda x: x * 2)
    twice.infer(lambda x: x)
    twice.vjp(lambda g, y, x: (g * 5.0,))
    assert "second vjp: for 'x'" in report(define(vjp=lambda g, y, x: (g * twice(x),)))


def test_a_second_derivative_of_silent_zeros_is_reported():
    cut = defop("planted::cut")(lambda x: x * 2)
    cut.infer(lambda x: x)
    cut.vjp(lambda g, y, x: (None,))
    assert "second vjp: for 'x'" in report(define(vjp=lambda g, y, x: (g * cut(x),)))


# Kernels -----------------------------------------------------------------------------------------


def test_a_wrong_kernel_is_reported():
    message = report(define(kernel=lambda x, out=None: np.multiply(x, 2, out=out)))
    assert "backend 'numpy'" in message


def test_a_kernel_that_forgets_out_is_reported():
    message = report(define(kernel=lambda x, out=None: x * x))
    assert "backend 'numpy', compiled" in message


def test_a_kernel_that_cannot_run_in_place_is_reported():
    def in_two_steps(x, out=None):
        out = np.empty_like(x) if out is None else out
        np.multiply(x, 0.5, out=out)
        return np.multiply(out, x * 2, out=out)

    message = report(define(kernel=in_two_steps))
    assert "copy of 'x'" in message


def test_a_kernel_that_writes_to_its_input_is_reported():
    def mutating(x, out=None):
        result = fill(x * x, out)
        x[...] = 0
        return result

    assert "writes to input 'x'" in report(define(kernel=mutating))


def test_a_kernel_that_is_wrong_in_a_fused_group_only_is_reported():
    class Careless(NumpyBackend):
        def compile(self, graph):
            program = super().compile(graph)
            if any(instruction.members for instruction in graph.instructions):
                program.run = lambda leaves, outputs, observer=None: outputs[0].fill(7)
            return program

    assert "fused with a copy of 'x'" in report(define(), backend=Careless())


def test_a_kernel_that_changes_from_run_to_run_is_reported():
    count = itertools.count()
    kernel = lambda x, out=None: fill(x * x + next(count) * 1e-15, out)  # noqa: E731  # one line
    assert "determinism" in report(define(kernel=kernel))


def test_a_view_whose_kernel_copies_is_reported():
    assert "view: " in report(view_operator(lambda x, out=None: fill(x.T.copy(), out)))


@pytest.mark.skipif(c_compiler() is None, reason="no C compiler")
class TestExpressions:
    def test_a_wrong_expression_is_reported(self):
        assert "expression 'x + x': it gives" in report(define(expression="x + x"))

    def test_an_expression_that_does_not_compile_is_reported_in_the_compilers_words(self):
        message = report(define(expression="x * undefined_name"))
        assert "undefined_name" in message

    def test_attributes_of_every_kind_reach_the_expression(self):
        def reference(x, *, real=1.5, whole=3, flag=True, top=float("inf")):
            result = np.minimum(x * real + whole, top) if flag else x
            return result.astype(x.dtype)

        operator = defop("planted::square")(reference)
        operator.elementwise("flag ? fminf(x * real + whole, top) : x")
        operator.infer(lambda x, **attributes: x)

        @operator.samples
        def samples(rng):
            yield Sample(rng.normal(size=(4,)))
            yield Sample(rng.normal(size=(4,)), real=-1e-3, whole=-2, top=0.25)
            yield Sample(rng.normal(size=(4,)), flag=False)

        check_operator(operator)

    def test_a_truth_value_is_compared_as_one(self):
        operator = defop("planted::square")(lambda x: x > 1)
        operator.infer(lambda x: x.with_dtype(bool))
        operator.samples(shapes)
        operator.elementwise("x > 1")
        check_operator(operator)


def test_kernel_source_is_data_and_not_run():
    operator = define()
    operator.kernel("cuda", KernelSource("not even CUDA", "entry"))
    check_operator(operator)


# The list ----------------------------------------------------------------------------------------


def test_operators_lists_a_namespace_by_name():
    last, first = (defop(f"listed::{name}")(lambda x: x) for name in ("zebra", "ape"))
    assert operators("listed") == [first, last]


def test_operators_of_the_core_are_imported_when_asked_for():
    assert "nnl::add" in [operator.name for operator in operators("nnl")]


def test_an_unknown_namespace_is_an_error():
    with pytest.raises(OperatorError, match="nowhere"):
        operators("nowhere")
