"""Comparisons, logic, choices between values, and what is not a finite number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from nnl_core import functions as F
from nnl_core.graph.operator import Array, Operator, Sample, defop
from nnl_core.graph.spec import Spec, elementwise_spec, promote, promote_scalar
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import is_number, same_dtype, unbroadcast

__all__ = [
    "equal",
    "equal_scalar",
    "greater",
    "greater_equal",
    "greater_equal_scalar",
    "greater_scalar",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "less_equal_scalar",
    "less_scalar",
    "logical_and",
    "logical_and_scalar",
    "logical_not",
    "logical_or",
    "logical_or_scalar",
    "logical_xor",
    "logical_xor_scalar",
    "maximum2",
    "maximum_scalar",
    "minimum2",
    "minimum_scalar",
    "not_equal",
    "not_equal_scalar",
    "reset_inf",
    "reset_nan",
    "where",
]

Binary: TypeAlias = Callable[[Operand, Operand], Variable]

_TRUTH = (
    "The result is ``bool``: in arithmetic it counts as 0 and 1 and takes the other operand's "
    "dtype. No gradient flows through it."
)


# Comparisons and logic ---------------------------------------------------------------------------


def _pairs(rng: np.random.Generator) -> Iterator[Sample]:
    """Equal values among others, broadcasting both ways, 0-d, empty, integers, booleans."""
    yield Sample(np.array([[-1.0, 0.0, 2.0], [0.5, 0.0, 3.0]]), np.array([[0.0, 0.0, 2.0]] * 2))
    yield Sample(rng.normal(size=(4, 1, 3)), rng.normal(size=(2, 1)))
    yield Sample(rng.normal(size=()), rng.normal(size=(0, 7)))
    yield Sample(rng.integers(0, 3, size=(3, 3)), rng.integers(0, 3, size=(3,)))
    yield Sample(rng.integers(0, 2, size=5).astype(bool), rng.integers(0, 2, size=5).astype(bool))


def _numbers(rng: np.random.Generator) -> Iterator[Sample]:
    """Values equal to the number among others, 0-d, empty, integers."""
    yield Sample(np.array([[-1.5, 0.0, 2.0], [0.5, 1.5, -3.0]]), val=1.5)
    yield Sample(rng.normal(size=()), val=0)
    yield Sample(rng.normal(size=(0, 2)), val=-2.0)
    yield Sample(np.array([-2, 0, 1, 3]), val=1)


def _define_truth(
    name: str, text: str, ufunc: np.ufunc, expression: str, samples: Callable[..., Any] = _pairs
) -> Operator:
    """Define an operator with a ``bool`` result, of two arrays or of one and a number ``val``."""

    def pair(x0: Array, x1: Array) -> Any:
        return ufunc(x0, x1)

    def single(x0: Array, *, val: float = 1) -> Any:
        return ufunc(x0, val)

    reference: Callable[..., Any] = pair if samples is _pairs else single
    reference.__module__ = __name__
    reference.__doc__ = text
    operator = defop(f"nnl::{name}")(reference)
    operator.elementwise(expression)
    operator.infer(lambda *inputs, **attributes: elementwise_spec(*inputs, dtype=np.bool_))
    operator.vjp(lambda g, y, *inputs, **attributes: tuple(None for _ in inputs))
    operator.samples(samples)
    return operator


def _comparison(
    name: str, mirrored: str, symbol: str, ufunc: np.ufunc
) -> tuple[Binary, Callable[..., Variable]]:
    """Define a comparison and its form with a number; return what users call for both."""
    text = f"``x0 {symbol} x1``"
    operator = _define_truth(name, f"{text}, broadcasting.", ufunc, f"x0 {symbol} x1")
    scalar = _define_truth(
        f"{name}_scalar", f"``x0 {symbol} val``.", ufunc, f"x0 {symbol} val", _numbers
    )

    def compare(x0: Operand, x1: Operand) -> Variable:
        if is_number(x1):
            return scalar(x0, val=plain(x1))
        if is_number(x0):
            return getattr(F, f"{mirrored}_scalar")(x1, x0)
        return operator(*same_dtype(x0, x1))

    def compare_scalar(x0: Operand, val: float = 1) -> Variable:
        return scalar(x0, val=plain(val))

    compare.__name__ = compare.__qualname__ = name
    compare.__doc__ = f"{text}, broadcasting; either may be a number. {_TRUTH}"
    compare_scalar.__name__ = compare_scalar.__qualname__ = f"{name}_scalar"
    compare_scalar.__doc__ = f"``x0 {symbol} val`` for a number ``val``. {_TRUTH}"
    return compare, compare_scalar


def plain(value: Any) -> float:
    """Return a NumPy scalar as a Python number, which takes the dtype of what it meets."""
    return value.item() if isinstance(value, np.generic) else value


equal, equal_scalar = _comparison("equal", "equal", "==", np.equal)
not_equal, not_equal_scalar = _comparison("not_equal", "not_equal", "!=", np.not_equal)
greater, greater_scalar = _comparison("greater", "less", ">", np.greater)
greater_equal, greater_equal_scalar = _comparison(
    "greater_equal", "less_equal", ">=", np.greater_equal
)
less, less_scalar = _comparison("less", "greater", "<", np.less)
less_equal, less_equal_scalar = _comparison("less_equal", "greater_equal", "<=", np.less_equal)


def _logic(
    name: str, word: str, ufunc: np.ufunc, expression: str
) -> tuple[Binary, Callable[..., Variable]]:
    """Define a logical operation and its form with a number; return what users call for both."""
    text = f"``x0 {word} x1``, where all but 0 is true"
    operator = _define_truth(name, f"{text}, broadcasting.", ufunc, expression)
    scalar = _define_truth(
        f"{name}_scalar",
        f"``x0 {word} val``, where all but 0 is true.",
        ufunc,
        expression.replace("x1", "val"),
        _numbers,
    )

    def combine(x0: Operand, x1: Operand) -> Variable:
        return operator(*same_dtype(x0, x1))

    def combine_scalar(x0: Operand, val: float) -> Variable:
        return scalar(x0, val=plain(val))

    combine.__name__ = combine.__qualname__ = name
    combine.__doc__ = f"{text}, broadcasting. {_TRUTH}"
    combine_scalar.__name__ = combine_scalar.__qualname__ = f"{name}_scalar"
    combine_scalar.__doc__ = f"``x0 {word} val`` for a number ``val``. {_TRUTH}"
    return combine, combine_scalar


logical_and, logical_and_scalar = _logic("logical_and", "and", np.logical_and, "x0 != 0 && x1 != 0")
logical_or, logical_or_scalar = _logic("logical_or", "or", np.logical_or, "x0 != 0 || x1 != 0")
logical_xor, logical_xor_scalar = _logic(
    "logical_xor", "xor", np.logical_xor, "(x0 != 0) != (x1 != 0)"
)


def _define_test(name: str, text: str, ufunc: np.ufunc, expression: str) -> Operator:
    """Define a truth about each element of one array."""

    def reference(x0: Array) -> Any:
        return ufunc(x0)

    def samples(rng: np.random.Generator) -> Iterator[Sample]:
        yield Sample(np.array([[-1.0, 0.0, np.nan], [np.inf, -np.inf, 2.0]]))
        yield Sample(np.array(0.0))
        yield Sample(np.zeros((0, 2)))
        yield Sample(np.array([0, 3, -1]))

    reference.__module__ = __name__
    reference.__doc__ = text
    operator = defop(f"nnl::{name}")(reference)
    operator.elementwise(expression)
    operator.infer(lambda x0: x0.with_dtype(np.bool_))
    operator.vjp(lambda g, y, x0: (None,))
    operator.samples(samples)
    return operator


logical_not_operator = _define_test("logical_not", "``not x0``.", np.logical_not, "x0 == 0")
isnan_operator = _define_test("isnan", "Whether an element is NaN.", np.isnan, "isnan(x0)")
isinf_operator = _define_test("isinf", "Whether an element is infinite.", np.isinf, "isinf(x0)")


def logical_not(x0: Operand) -> Variable:
    """``not x0``: true where ``x0`` is 0. The result is ``bool``; no gradient flows through it."""
    return logical_not_operator(x0)


def isnan(x0: Operand) -> Variable:
    """Whether each element is NaN. The result is ``bool``; no gradient flows through it."""
    return isnan_operator(x0)


def isinf(x0: Operand) -> Variable:
    """Whether each element is infinite. The result is ``bool``; no gradient flows through it."""
    return isinf_operator(x0)


# Choices -----------------------------------------------------------------------------------------


@defop("nnl::where", save=("condition",))
def where_operator(condition: Array, x_true: Array, x_false: Array) -> Array:
    """``x_true`` where ``condition`` is not 0, else ``x_false``, broadcasting."""
    return np.where(condition != 0, x_true, x_false)


where_operator.elementwise("condition != 0 ? x_true : x_false")


@where_operator.infer
def where_infer(condition: Spec, x_true: Spec, x_false: Spec) -> Spec:
    """Broadcast shape, the values' dtype."""
    dtype = promote(x_true.dtype, x_false.dtype)
    return elementwise_spec(condition, x_true, x_false, dtype=dtype)


@where_operator.vjp
def where_vjp(g: Any, y: Any, condition: Any, x_true: Any, x_false: Any) -> tuple[Any, ...]:
    """The gradient goes where the value came from; the other branch gets 0, whatever it holds."""
    return (
        None,
        unbroadcast(where(condition, g, 0.0), x_true),
        unbroadcast(where(condition, 0.0, g), x_false),
    )


@where_operator.samples
def where_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Conditions of every dtype, broadcasting each input, 0-d, empty, infinite branches."""
    mask = np.array([[True, False, True], [False, False, True]])
    yield Sample(mask, rng.normal(size=(2, 3)), rng.normal(size=(2, 3)))
    yield Sample(mask.astype(np.float64), rng.normal(size=(3,)), rng.normal(size=(2, 1)))
    yield Sample(mask.astype(np.int64), rng.normal(size=()), rng.normal(size=(4, 2, 3)))
    yield Sample(np.array(True), rng.normal(size=(0, 2)), rng.normal(size=(2,)))
    yield Sample(mask[0], rng.integers(0, 9, size=3), rng.integers(0, 9, size=3))


def where(condition: Operand, x_true: Operand, x_false: Operand) -> Variable:
    """``x_true`` where ``condition`` is not 0, else ``x_false``.

    Where the shape of ``condition`` is that of the leading axes of the values, it selects whole
    sub-arrays; otherwise all three broadcast. Either value may be a number, which takes the other's
    dtype. The branch that is not selected gets gradient 0.
    """
    chosen = condition if isinstance(condition, Variable) else Variable.constant(condition)
    if is_number(x_true) and not is_number(x_false):
        other = x_false if isinstance(x_false, Variable) else Variable.constant(x_false)
        x_true, x_false = _number_like(x_true, other), other
    elif is_number(x_false) and not is_number(x_true):
        other = x_true if isinstance(x_true, Variable) else Variable.constant(x_true)
        x_true, x_false = other, _number_like(x_false, other)
    elif is_number(x_true):
        x_true, x_false = _number_like(x_true, None), _number_like(x_false, None)
    left, right = same_dtype(x_true, x_false)
    shape = left.shape if left.ndim >= right.ndim else right.shape
    if 0 < chosen.ndim < len(shape) and chosen.shape == shape[: chosen.ndim]:
        chosen = F.reshape(chosen, (*chosen.shape, *(1,) * (len(shape) - chosen.ndim)))
    return where_operator(chosen, left, right)


def _number_like(value: float, other: Variable | None) -> Variable:
    dtype = np.dtype(np.float32) if other is None else other.dtype
    return Variable.constant(np.asarray(value, promote_scalar(dtype, plain(value))))


def _define_choice(name: str, ufunc: np.ufunc, symbol: str) -> tuple[Operator, Operator]:
    """Define the greater or smaller of two arrays, and of an array and a number ``val``."""

    def pair(x0: Array, x1: Array) -> Any:
        return ufunc(x0, x1)

    def single(x: Array, *, val: float = 1.0) -> Any:
        dtype = promote_scalar(x.dtype, val)
        return ufunc(x.astype(dtype, copy=False), dtype.type(val))

    def pair_gradient(g: Any, y: Any, x0: Any, x1: Any) -> tuple[Any, ...]:
        first = greater(x0, x1) if symbol == ">" else less(x0, x1)
        return unbroadcast(where(first, g, 0.0), x0), unbroadcast(where(first, 0.0, g), x1)

    def single_gradient(g: Any, y: Any, x: Any, *, val: float) -> tuple[Any, ...]:
        first = greater_scalar(x, val) if symbol == ">" else less_scalar(x, val)
        return (where(first, g, 0.0),)

    def pairs(rng: np.random.Generator) -> Iterator[Sample]:
        for left, right in (((3, 5), (3, 5)), ((4, 1, 3), (2, 1)), ((), (7,)), ((0, 3), (3,))):
            yield Sample(rng.normal(size=left), rng.normal(size=right))
        yield Sample(np.array([np.nan, 1.0, np.nan, np.inf]), np.array([1.0, np.nan, np.nan, 0.0]))
        yield Sample(rng.integers(0, 9, size=4), rng.integers(0, 9, size=4))

    def singles(rng: np.random.Generator) -> Iterator[Sample]:
        for shape in ((), (0, 2), (3, 5)):
            yield Sample(rng.normal(size=shape), val=0.25)
        yield Sample(np.array([np.nan, 1.0, -np.inf]), val=0.5)
        yield Sample(np.array([-2, 1, 4]), val=2)

    pair.__module__ = single.__module__ = __name__
    pair.__doc__ = f"The {name} of two arrays, broadcasting; NaN where either is."
    single.__doc__ = f"The {name} of an array and a number; NaN stays NaN."
    two = defop(f"nnl::{name}2", save=("x0", "x1"))(pair)
    two.elementwise(f"(x0 {symbol} x1 || isnan(x0)) ? x0 : x1")
    two.vjp(pair_gradient)
    two.samples(pairs)
    scalar = defop(f"nnl::{name}_scalar", save=("x",))(single)
    scalar.elementwise(f"(x {symbol} val || isnan(x)) ? x : val")
    scalar.infer(lambda x, *, val: x.with_dtype(promote_scalar(x.dtype, val)))
    scalar.vjp(single_gradient)
    scalar.samples(singles)
    return two, scalar


maximum2_operator, maximum_scalar_operator = _define_choice("maximum", np.maximum, ">")
minimum2_operator, minimum_scalar_operator = _define_choice("minimum", np.minimum, "<")


def maximum2(x0: Operand, x1: Operand) -> Variable:
    """The greater of two elements, broadcasting; NaN where either is; either may be a number.

    Where they are equal the whole gradient goes to ``x1``.
    """
    if is_number(x1):
        return maximum_scalar(x0, x1)
    if is_number(x0):
        return maximum_scalar(x1, x0)
    return maximum2_operator(*same_dtype(x0, x1))


def minimum2(x0: Operand, x1: Operand) -> Variable:
    """The smaller of two elements, broadcasting; NaN where either is; either may be a number.

    Where they are equal the whole gradient goes to ``x1``.
    """
    if is_number(x1):
        return minimum_scalar(x0, x1)
    if is_number(x0):
        return minimum_scalar(x1, x0)
    return minimum2_operator(*same_dtype(x0, x1))


def maximum_scalar(x: Operand, val: float = 1.0) -> Variable:
    """The greater of each element and a number; NaN stays NaN. No gradient where they are equal."""
    return maximum_scalar_operator(x, val=plain(val))


def minimum_scalar(x: Operand, val: float = 1.0) -> Variable:
    """The smaller of each element and a number; NaN stays NaN. No gradient where they are equal."""
    return minimum_scalar_operator(x, val=plain(val))


# What is not a finite number ---------------------------------------------------------------------


def _define_reset(name: str, found: Callable[[Array], Any], test: str) -> Operator:
    """Define the replacement of some elements by a number."""

    def reference(x0: Array, *, val: float = 0) -> Array:
        return np.where(found(x0), x0.dtype.type(val), x0)

    def gradient(g: Any, y: Any, x0: Any, *, val: float) -> tuple[Any, ...]:
        return (where(getattr(F, test)(x0), 0.0, g),)

    def samples(rng: np.random.Generator) -> Iterator[Sample]:
        yield Sample(rng.normal(size=(3, 5)), val=1.5)
        yield Sample(np.array([1.0, np.nan, np.inf, -np.inf, -2.0]), val=-0.5)
        yield Sample(rng.normal(size=()), val=0)
        yield Sample(np.zeros((0, 2)), val=0)

    reference.__module__ = __name__
    reference.__doc__ = f"``val`` where {test}, else the element."
    operator = defop(f"nnl::{name}", save=("x0",))(reference)
    operator.elementwise(f"{test}(x0) ? val : x0")
    operator.infer(lambda x0, *, val: x0)
    operator.vjp(gradient)
    operator.samples(samples)
    return operator


reset_nan_operator = _define_reset("reset_nan", np.isnan, "isnan")
reset_inf_operator = _define_reset("reset_inf", np.isinf, "isinf")


def reset_nan(x0: Operand, val: float = 0) -> Variable:
    """Replace NaN by a number; the gradient is 0 there."""
    return reset_nan_operator(x0, val=plain(val))


def reset_inf(x0: Operand, val: float = 0) -> Variable:
    """Replace infinities by a number; the gradient is 0 there."""
    return reset_inf_operator(x0, val=plain(val))
