"""Comparisons, logic, choices between values, and what is not a finite number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

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


class Truths(NamedTuple):
    """A truth about two arrays, and about an array and a number ``val``."""

    of_arrays: Operator
    with_number: Operator


def _comparison(name: str, symbol: str, ufunc: np.ufunc) -> Truths:
    """Define a comparison and its form with a number."""
    return Truths(
        _define_truth(name, f"``x0 {symbol} x1``, broadcasting.", ufunc, f"x0 {symbol} x1"),
        _define_truth(
            f"{name}_scalar", f"``x0 {symbol} val``.", ufunc, f"x0 {symbol} val", _numbers
        ),
    )


def _compare(mirrored: str, operators: Truths, x0: Operand, x1: Operand) -> Variable:
    """Compare; ``mirrored`` names the comparison that holds of ``(x1, x0)`` when this one does."""
    if is_number(x1):
        return operators.with_number(x0, val=plain(x1))
    if is_number(x0):
        return getattr(F, f"{mirrored}_scalar")(x1, x0)
    return operators.of_arrays(*same_dtype(x0, x1))


def plain(value: Any) -> float:
    """Return a NumPy scalar as a Python number, which takes the dtype of what it meets."""
    return value.item() if isinstance(value, np.generic) else value


equal_operators = _comparison("equal", "==", np.equal)
not_equal_operators = _comparison("not_equal", "!=", np.not_equal)
greater_operators = _comparison("greater", ">", np.greater)
greater_equal_operators = _comparison("greater_equal", ">=", np.greater_equal)
less_operators = _comparison("less", "<", np.less)
less_equal_operators = _comparison("less_equal", "<=", np.less_equal)


def equal(x0: Operand, x1: Operand) -> Variable:
    """Tell where ``x0`` is equal to ``x1``: ``x0 == x1``.

    The result is ``bool``, which in arithmetic counts as 0 and 1. NaN compares as false.

    Args:
        x0: any shape and dtype, or a number.
        x1: the same, broadcast with ``x0``.

    Gradient:
        None: truths have no slope.

    Examples:
        >>> F.equal(np.array([1, 2, 3]), np.array([2, 2, 2])).d
        array([False,  True, False])

    Elsewhere:
        - nnabla: `equal`, as numbers
        - PyTorch: `torch.eq`
        - ONNX: `Equal`
    """
    return _compare("equal", equal_operators, x0, x1)


def equal_scalar(x0: Operand, val: float = 1) -> Variable:
    """Tell where ``x0`` is equal to a number: ``x0 == val``.

    The result is ``bool``, which in arithmetic counts as 0 and 1. NaN compares as false.

    Args:
        x0: any shape and dtype.
        val: the number, which does not widen the dtype of ``x0``.

    Gradient:
        None: truths have no slope.

    Examples:
        >>> F.equal_scalar(np.array([1, 2, 3]), 2).d
        array([False,  True, False])

    Elsewhere:
        - nnabla: `equal_scalar`, as numbers
        - PyTorch: `torch.eq`
        - ONNX: `Equal`, the number as a constant
    """
    return equal_operators.with_number(x0, val=plain(val))


def not_equal(x0: Operand, x1: Operand) -> Variable:
    """Tell where ``x0`` is not equal to ``x1``: ``x0 != x1``.

    The result is ``bool``, which in arithmetic counts as 0 and 1. NaN differs from everything.

    Args:
        x0: any shape and dtype, or a number.
        x1: the same, broadcast with ``x0``.

    Gradient:
        None: truths have no slope.

    Examples:
        >>> F.not_equal(np.array([1, 2, 3]), np.array([2, 2, 2])).d
        array([ True, False,  True])

    Elsewhere:
        - nnabla: `not_equal`, as numbers
        - PyTorch: `torch.ne`
        - ONNX: none, `Not` of `Equal`
    """
    return _compare("not_equal", not_equal_operators, x0, x1)


def not_equal_scalar(x0: Operand, val: float = 1) -> Variable:
    """Tell where ``x0`` is not equal to a number: ``x0 != val``.

    The result is ``bool``, which in arithmetic counts as 0 and 1. NaN differs from everything.

    Args:
        x0: any shape and dtype.
        val: the number, which does not widen the dtype of ``x0``.

    Gradient:
        None: truths have no slope.

    Examples:
        >>> F.not_equal_scalar(np.array([1, 2, 3]), 2).d
        array([ True, False,  True])

    Elsewhere:
        - nnabla: `not_equal_scalar`, as numbers
        - PyTorch: `torch.ne`
        - ONNX: none, `Not` of `Equal`, the number as a constant
    """
    return not_equal_operators.with_number(x0, val=plain(val))


def greater(x0: Operand, x1: Operand) -> Variable:
    """Tell where ``x0`` is greater than ``x1``: ``x0 > x1``.

    The result is ``bool``, which in arithmetic counts as 0 and 1. NaN compares as false.

    Args:
        x0: any shape and dtype, or a number.
        x1: the same, broadcast with ``x0``.

    Gradient:
        None: truths have no slope.

    Examples:
        >>> F.greater(np.array([1, 2, 3]), np.array([2, 2, 2])).d
        array([False, False,  True])

    Elsewhere:
        - nnabla: `greater`, as numbers
        - PyTorch: `torch.gt`
        - ONNX: `Greater`
    """
    return _compare("less", greater_operators, x0, x1)


def greater_scalar(x0: Operand, val: float = 1) -> Variable:
    """Tell where ``x0`` is greater than a number: ``x0 > val``.

    The result is ``bool``, which in arithmetic counts as 0 and 1. NaN compares as false.

    Args:
        x0: any shape and dtype.
        val: the number, which does not widen the dtype of ``x0``.

    Gradient:
        None: truths have no slope.

    Examples:
        >>> F.greater_scalar(np.array([1, 2, 3]), 2).d
        array([False, False,  True])

    Elsewhere:
        - nnabla: `greater_scalar`, as numbers
        - PyTorch: `torch.gt`
        - ONNX: `Greater`, the number as a constant
    """
    return greater_operators.with_number(x0, val=plain(val))


def greater_equal(x0: Operand, x1: Operand) -> Variable:
    """Tell where ``x0`` is greater than or equal to ``x1``: ``x0 >= x1``.

    The result is ``bool``, which in arithmetic counts as 0 and 1. NaN compares as false.

    Args:
        x0: any shape and dtype, or a number.
        x1: the same, broadcast with ``x0``.

    Gradient:
        None: truths have no slope.

    Examples:
        >>> F.greater_equal(np.array([1, 2, 3]), np.array([2, 2, 2])).d
        array([False,  True,  True])

    Elsewhere:
        - nnabla: `greater_equal`, as numbers
        - PyTorch: `torch.ge`
        - ONNX: `GreaterOrEqual`
    """
    return _compare("less_equal", greater_equal_operators, x0, x1)


def greater_equal_scalar(x0: Operand, val: float = 1) -> Variable:
    """Tell where ``x0`` is greater than or equal to a number: ``x0 >= val``.

    The result is ``bool``, which in arithmetic counts as 0 and 1. NaN compares as false.

    Args:
        x0: any shape and dtype.
        val: the number, which does not widen the dtype of ``x0``.

    Gradient:
        None: truths have no slope.

    Examples:
        >>> F.greater_equal_scalar(np.array([1, 2, 3]), 2).d
        array([False,  True,  True])

    Elsewhere:
        - nnabla: `greater_equal_scalar`, as numbers
        - PyTorch: `torch.ge`
        - ONNX: `GreaterOrEqual`, the number as a constant
    """
    return greater_equal_operators.with_number(x0, val=plain(val))


def less(x0: Operand, x1: Operand) -> Variable:
    """Tell where ``x0`` is less than ``x1``: ``x0 < x1``.

    The result is ``bool``, which in arithmetic counts as 0 and 1. NaN compares as false.

    Args:
        x0: any shape and dtype, or a number.
        x1: the same, broadcast with ``x0``.

    Gradient:
        None: truths have no slope.

    Examples:
        >>> F.less(np.array([1, 2, 3]), np.array([2, 2, 2])).d
        array([ True, False, False])

    Elsewhere:
        - nnabla: `less`, as numbers
        - PyTorch: `torch.lt`
        - ONNX: `Less`
    """
    return _compare("greater", less_operators, x0, x1)


def less_scalar(x0: Operand, val: float = 1) -> Variable:
    """Tell where ``x0`` is less than a number: ``x0 < val``.

    The result is ``bool``, which in arithmetic counts as 0 and 1. NaN compares as false.

    Args:
        x0: any shape and dtype.
        val: the number, which does not widen the dtype of ``x0``.

    Gradient:
        None: truths have no slope.

    Examples:
        >>> F.less_scalar(np.array([1, 2, 3]), 2).d
        array([ True, False, False])

    Elsewhere:
        - nnabla: `less_scalar`, as numbers
        - PyTorch: `torch.lt`
        - ONNX: `Less`, the number as a constant
    """
    return less_operators.with_number(x0, val=plain(val))


def less_equal(x0: Operand, x1: Operand) -> Variable:
    """Tell where ``x0`` is less than or equal to ``x1``: ``x0 <= x1``.

    The result is ``bool``, which in arithmetic counts as 0 and 1. NaN compares as false.

    Args:
        x0: any shape and dtype, or a number.
        x1: the same, broadcast with ``x0``.

    Gradient:
        None: truths have no slope.

    Examples:
        >>> F.less_equal(np.array([1, 2, 3]), np.array([2, 2, 2])).d
        array([ True,  True, False])

    Elsewhere:
        - nnabla: `less_equal`, as numbers
        - PyTorch: `torch.le`
        - ONNX: `LessOrEqual`
    """
    return _compare("greater_equal", less_equal_operators, x0, x1)


def less_equal_scalar(x0: Operand, val: float = 1) -> Variable:
    """Tell where ``x0`` is less than or equal to a number: ``x0 <= val``.

    The result is ``bool``, which in arithmetic counts as 0 and 1. NaN compares as false.

    Args:
        x0: any shape and dtype.
        val: the number, which does not widen the dtype of ``x0``.

    Gradient:
        None: truths have no slope.

    Examples:
        >>> F.less_equal_scalar(np.array([1, 2, 3]), 2).d
        array([ True,  True, False])

    Elsewhere:
        - nnabla: `less_equal_scalar`, as numbers
        - PyTorch: `torch.le`
        - ONNX: `LessOrEqual`, the number as a constant
    """
    return less_equal_operators.with_number(x0, val=plain(val))


def _logic(name: str, word: str, ufunc: np.ufunc, expression: str) -> Truths:
    """Define a logical operation and its form with a number."""
    text = "where all but 0 is true"
    single = expression.replace("x1", "val")
    return Truths(
        _define_truth(name, f"``x0 {word} x1``, {text}, broadcasting.", ufunc, expression),
        _define_truth(f"{name}_scalar", f"``x0 {word} val``, {text}.", ufunc, single, _numbers),
    )


logical_and_operators = _logic("logical_and", "and", np.logical_and, "x0 != 0 && x1 != 0")
logical_or_operators = _logic("logical_or", "or", np.logical_or, "x0 != 0 || x1 != 0")
logical_xor_operators = _logic("logical_xor", "xor", np.logical_xor, "(x0 != 0) != (x1 != 0)")


def logical_and(x0: Operand, x1: Operand) -> Variable:
    """Tell where ``x0`` and ``x1`` are both true; all but 0 is true.

    The result is ``bool``, which in arithmetic counts as 0 and 1. NaN is true.

    Args:
        x0: any shape and dtype.
        x1: the same, broadcast with ``x0``.

    Gradient:
        None: truths have no slope.

    Examples:
        >>> F.logical_and(np.array([0, 1]), np.array([1, 1])).d
        array([False,  True])

    Elsewhere:
        - nnabla: `logical_and`, as numbers
        - PyTorch: `torch.logical_and`
        - ONNX: `And`, of booleans
    """
    return logical_and_operators.of_arrays(*same_dtype(x0, x1))


def logical_and_scalar(x0: Operand, val: float) -> Variable:
    """Tell where ``x0`` and ``val`` are both true; all but 0 is true.

    The result is ``bool``, which in arithmetic counts as 0 and 1. NaN is true.

    Args:
        x0: any shape and dtype.
        val: the number, which does not widen the dtype of ``x0``.

    Gradient:
        None: truths have no slope.

    Examples:
        >>> F.logical_and_scalar(np.array([0, 1]), 1).d
        array([False,  True])

    Elsewhere:
        - nnabla: `logical_and_scalar`, as numbers
        - PyTorch: `torch.logical_and`
        - ONNX: `And`, of booleans, the number as a constant
    """
    return logical_and_operators.with_number(x0, val=plain(val))


def logical_or(x0: Operand, x1: Operand) -> Variable:
    """Tell where ``x0`` or ``x1`` or both are true; all but 0 is true.

    The result is ``bool``, which in arithmetic counts as 0 and 1. NaN is true.

    Args:
        x0: any shape and dtype.
        x1: the same, broadcast with ``x0``.

    Gradient:
        None: truths have no slope.

    Examples:
        >>> F.logical_or(np.array([0, 1]), np.array([1, 1])).d
        array([ True,  True])

    Elsewhere:
        - nnabla: `logical_or`, as numbers
        - PyTorch: `torch.logical_or`
        - ONNX: `Or`, of booleans
    """
    return logical_or_operators.of_arrays(*same_dtype(x0, x1))


def logical_or_scalar(x0: Operand, val: float) -> Variable:
    """Tell where ``x0`` or ``val`` or both are true; all but 0 is true.

    The result is ``bool``, which in arithmetic counts as 0 and 1. NaN is true.

    Args:
        x0: any shape and dtype.
        val: the number, which does not widen the dtype of ``x0``.

    Gradient:
        None: truths have no slope.

    Examples:
        >>> F.logical_or_scalar(np.array([0, 1]), 1).d
        array([ True,  True])

    Elsewhere:
        - nnabla: `logical_or_scalar`, as numbers
        - PyTorch: `torch.logical_or`
        - ONNX: `Or`, of booleans, the number as a constant
    """
    return logical_or_operators.with_number(x0, val=plain(val))


def logical_xor(x0: Operand, x1: Operand) -> Variable:
    """Tell where one of ``x0`` and ``x1`` is true and the other is not; all but 0 is true.

    The result is ``bool``, which in arithmetic counts as 0 and 1. NaN is true.

    Args:
        x0: any shape and dtype.
        x1: the same, broadcast with ``x0``.

    Gradient:
        None: truths have no slope.

    Examples:
        >>> F.logical_xor(np.array([0, 1]), np.array([1, 1])).d
        array([ True, False])

    Elsewhere:
        - nnabla: `logical_xor`, as numbers
        - PyTorch: `torch.logical_xor`
        - ONNX: `Xor`, of booleans
    """
    return logical_xor_operators.of_arrays(*same_dtype(x0, x1))


def logical_xor_scalar(x0: Operand, val: float) -> Variable:
    """Tell where one of ``x0`` and ``val`` is true and the other is not; all but 0 is true.

    The result is ``bool``, which in arithmetic counts as 0 and 1. NaN is true.

    Args:
        x0: any shape and dtype.
        val: the number, which does not widen the dtype of ``x0``.

    Gradient:
        None: truths have no slope.

    Examples:
        >>> F.logical_xor_scalar(np.array([0, 1]), 1).d
        array([ True, False])

    Elsewhere:
        - nnabla: `logical_xor_scalar`, as numbers
        - PyTorch: `torch.logical_xor`
        - ONNX: `Xor`, of booleans, the number as a constant
    """
    return logical_xor_operators.with_number(x0, val=plain(val))


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
    """Tell where ``x0`` is 0, as ``bool``.

    Args:
        x0: any shape and dtype.

    Gradient:
        None: truths have no slope.

    Examples:
        >>> F.logical_not(np.array([0, 3])).d
        array([ True, False])

    Elsewhere:
        - nnabla: `logical_not`, as numbers
        - PyTorch: `torch.logical_not`
        - ONNX: `Not`, of booleans
    """
    return logical_not_operator(x0)


def isnan(x0: Operand) -> Variable:
    """Tell where an element is NaN, as ``bool``.

    Args:
        x0: any shape and dtype.

    Gradient:
        None: truths have no slope.

    Examples:
        >>> F.isnan(np.array([1.0, np.nan])).d
        array([False,  True])

    Elsewhere:
        - nnabla: `isnan`, as numbers
        - PyTorch: `torch.isnan`
        - ONNX: `IsNaN`
    """
    return isnan_operator(x0)


def isinf(x0: Operand) -> Variable:
    """Tell where an element is infinite, of either sign, as ``bool``.

    Args:
        x0: any shape and dtype.

    Gradient:
        None: truths have no slope.

    Examples:
        >>> F.isinf(np.array([1.0, -np.inf])).d
        array([False,  True])

    Elsewhere:
        - nnabla: `isinf`, as numbers
        - PyTorch: `torch.isinf`
        - ONNX: `IsInf`
    """
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
    """Choose ``x_true`` where ``condition`` is not 0, else ``x_false``.

    Where the shape of ``condition`` is that of the leading axes of the values, it selects whole
    sub-arrays; otherwise all three broadcast. A number takes the dtype of the other value.

    Args:
        condition: any dtype; 0 is false.
        x_true: values for where it is true.
        x_false: values for where it is false.

    Gradient:
        Goes where the value came from. The branch that is not selected gets 0, whatever it holds.

    Examples:
        >>> F.where(np.array([True, False]), np.array([1.0, 2.0]), np.array([-1.0, -2.0])).d
        array([ 1., -2.])

    Elsewhere:
        - nnabla: `where`
        - PyTorch: `torch.where`, broadcasting trailing axes only
        - ONNX: `Where`, broadcasting trailing axes only
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
    """Take the greater of two elements; NaN where either is.

    Args:
        x0: any shape, or a number.
        x1: the same, broadcast with ``x0``.

    Gradient:
        Goes to the operand that was taken, all of it to ``x1`` where they are equal.

    Examples:
        >>> F.maximum2(np.array([3.0, 4.0]), np.array([2.0, 5.0])).d
        array([3., 5.])

    Elsewhere:
        - nnabla: `maximum2`
        - PyTorch: `torch.maximum`, halves the gradient of equal ones
        - ONNX: `Max`
    """
    if is_number(x1):
        return maximum_scalar(x0, x1)
    if is_number(x0):
        return maximum_scalar(x1, x0)
    return maximum2_operator(*same_dtype(x0, x1))


def minimum2(x0: Operand, x1: Operand) -> Variable:
    """Take the smaller of two elements; NaN where either is.

    Args:
        x0: any shape, or a number.
        x1: the same, broadcast with ``x0``.

    Gradient:
        Goes to the operand that was taken, all of it to ``x1`` where they are equal.

    Examples:
        >>> F.minimum2(np.array([3.0, 4.0]), np.array([2.0, 5.0])).d
        array([2., 4.])

    Elsewhere:
        - nnabla: `minimum2`
        - PyTorch: `torch.minimum`, halves the gradient of equal ones
        - ONNX: `Min`
    """
    if is_number(x1):
        return minimum_scalar(x0, x1)
    if is_number(x0):
        return minimum_scalar(x1, x0)
    return minimum2_operator(*same_dtype(x0, x1))


def maximum_scalar(x: Operand, val: float = 1.0) -> Variable:
    """Take the greater of each element and a number; NaN stays NaN.

    Args:
        x: any shape.
        val: the number, which does not widen the dtype of ``x``.

    Gradient:
        1 where the element was taken, 0 elsewhere, and where the two are equal.

    Examples:
        >>> F.maximum_scalar(np.array([1.0, 4.0]), 3.0).d
        array([3., 4.])

    Elsewhere:
        - nnabla: `maximum_scalar`
        - PyTorch: `torch.clamp` with `min`
        - ONNX: `Max`, the number as a constant
    """
    return maximum_scalar_operator(x, val=plain(val))


def minimum_scalar(x: Operand, val: float = 1.0) -> Variable:
    """Take the smaller of each element and a number; NaN stays NaN.

    Args:
        x: any shape.
        val: the number, which does not widen the dtype of ``x``.

    Gradient:
        1 where the element was taken, 0 elsewhere, and where the two are equal.

    Examples:
        >>> F.minimum_scalar(np.array([1.0, 4.0]), 3.0).d
        array([1., 3.])

    Elsewhere:
        - nnabla: `minimum_scalar`
        - PyTorch: `torch.clamp` with `max`
        - ONNX: `Min`, the number as a constant
    """
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
    """Replace NaN by a number.

    Args:
        x0: any shape.
        val: the number.

    Gradient:
        1, but 0 where an element was replaced.

    Examples:
        >>> F.reset_nan(np.array([1.0, np.nan]), 5.0).d
        array([1., 5.])

    Elsewhere:
        - nnabla: `reset_nan`
        - PyTorch: `torch.nan_to_num`, replaces both
        - ONNX: none, `Where` of `IsNaN`
    """
    return reset_nan_operator(x0, val=plain(val))


def reset_inf(x0: Operand, val: float = 0) -> Variable:
    """Replace infinities by a number.

    Args:
        x0: any shape.
        val: the number.

    Gradient:
        1, but 0 where an element was replaced.

    Examples:
        >>> F.reset_inf(np.array([1.0, -np.inf]), 5.0).d
        array([1., 5.])

    Elsewhere:
        - nnabla: `reset_inf`
        - PyTorch: `torch.nan_to_num`, replaces NaN, too
        - ONNX: none, `Where` of `IsInf`
    """
    return reset_inf_operator(x0, val=plain(val))
