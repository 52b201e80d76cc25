"""Arithmetic of two arrays, or of an array and a number; what broadcasting needs; casts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import wholes
from nnl_core.graph.dtypes import as_dtype, is_floating
from nnl_core.graph.operator import Array, Operator, Precision, Sample, defop
from nnl_core.graph.spec import Spec, broadcast_shapes, promote, promote_scalar
from nnl_core.graph.variable import Operand, Variable

__all__ = [
    "add",
    "add2",
    "add_scalar",
    "broadcast_to",
    "cast",
    "div",
    "div2",
    "identity",
    "mul",
    "mul2",
    "mul_scalar",
    "neg",
    "pow",
    "pow2",
    "pow_scalar",
    "r_div_scalar",
    "r_pow_scalar",
    "r_sub_scalar",
    "sub",
    "sub2",
    "sum_to",
    "unbroadcast",
]


# Shapes and dtypes -------------------------------------------------------------------------------


@defop("nnl::broadcast_to", view=True)
def broadcast_to_operator(x: Array, *, shape: tuple[int, ...]) -> Array:
    """Repeat ``x`` along axes of length 1, and new leading axes, to reach ``shape``."""
    return np.broadcast_to(x, shape).copy()


@broadcast_to_operator.infer
def broadcast_to_infer(x: Spec, *, shape: tuple[int, ...]) -> Spec:
    """The given shape, where ``x`` broadcasts to it."""
    if broadcast_shapes(x.shape, shape) != shape:
        raise ShapeError(f"an array of shape {x.shape} does not broadcast to {shape}")
    return x.with_shape(shape)


@broadcast_to_operator.vjp
def broadcast_to_vjp(g: Any, y: Any, x: Any, *, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Sum what was repeated."""
    return (unbroadcast(g, x),)


@broadcast_to_operator.samples
def broadcast_to_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """New axes, axes of length 1, 0-d, empty."""
    yield Sample(rng.normal(size=(3, 1, 2)), shape=(4, 3, 5, 2))
    yield Sample(rng.normal(size=()), shape=(2, 3))
    yield Sample(rng.normal(size=(1, 3)), shape=(0, 3))


def broadcast_to(x: Operand, y: Sequence[int] | Variable, axis: int | None = None) -> Variable:
    """Broadcast to a shape.

    Args:
        x: any shape that fits.
        y: the shape to reach; or a variable, which then is what is broadcast, to the shape of
            ``x``.
        axis: where the axes of the smaller begin among those of the larger; ``None`` for last.

    Raises:
        ShapeError: it cannot be reached.

    Gradient:
        The sum over what was repeated.

    Examples:
        >>> F.broadcast_to(np.array([1.0, 2.0]), (2, 2)).d
        array([[1., 2.],
               [1., 2.]])

    Elsewhere:
        - nnabla: `broadcast_to`, of two variables
        - PyTorch: `torch.broadcast_to`
        - ONNX: `Expand`
    """
    if not isinstance(x, Variable) and not is_number(x):
        x = Variable.constant(x)
    x, shape = (y, x.shape) if isinstance(y, Variable) else (x, wholes(y, "y"))
    if axis is not None and axis >= 0:
        trailing = len(shape) - axis - len(x.shape)
        x = F.reshape(x, (*x.shape, *(1,) * trailing))
    result: Variable = broadcast_to_operator(x, shape=shape)
    return result


@defop("nnl::sum_to")
def sum_to(x: Array, *, shape: tuple[int, ...]) -> Array:
    """Sum over what broadcasting ``shape`` to ``x.shape`` repeats: the adjoint of broadcasting.

    Args:
        x: any shape that ``shape`` broadcasts to.
        shape: the shape of the result.

    Gradient:
        ``dy``, broadcast to the shape of ``x``.

    Examples:
        >>> F.sum_to(np.ones((2, 3)), shape=(1, 3)).d
        array([[2., 2., 2.]])

    Elsewhere:
        - nnabla: none, internal to its gradients
        - PyTorch: none, `x.sum_to_size(shape)`
        - ONNX: none, `ReduceSum`
    """
    # float16 is accumulated in float32: a sum of 4096 ones would stop at 2048.
    dtype = np.dtype(np.float32) if x.dtype == np.float16 else x.dtype
    total = x.sum(axis=repeated_axes(x.shape, shape), dtype=dtype)
    return np.array(total, x.dtype).reshape(shape)


def repeated_axes(long: tuple[int, ...], short: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes of ``long`` along which broadcasting repeats an array of shape ``short``."""
    extra = len(long) - len(short)
    return (
        *range(extra),
        *(extra + axis for axis, n in enumerate(short) if n == 1 and long[extra + axis] != 1),
    )


@sum_to.infer
def sum_to_infer(x: Spec, *, shape: tuple[int, ...]) -> Spec:
    """The given shape, where it broadcasts to that of ``x``."""
    if broadcast_shapes(x.shape, shape) != x.shape:
        raise ShapeError(f"shape {shape} does not broadcast to {x.shape}")
    return x.with_shape(shape)


@sum_to.vjp
def sum_to_vjp(g: Any, y: Any, x: Any, *, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Repeat the gradient."""
    return (broadcast_to(g, x.shape),)


@sum_to.samples
def sum_to_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Leading axes, axes of length 1, to 0-d, from empty."""
    yield Sample(rng.normal(size=(4, 3, 5, 2)), shape=(3, 1, 2))
    yield Sample(rng.normal(size=(2, 3)), shape=())
    yield Sample(rng.normal(size=(0, 3)), shape=(1, 3))


def unbroadcast(g: Variable, like: Variable | Spec) -> Variable:
    """Bring a gradient back to the shape and dtype of the input that was broadcast. For gradient
    rules.

    Args:
        g: the gradient.
        like: the input, or its spec.

    Gradient:
        ``dy``, broadcast to the shape of ``g``.

    Examples:
        >>> g, x = Variable.from_numpy_array(np.ones((2, 3))), Variable((3,))
        >>> F.unbroadcast(g, x).d
        array([2., 2., 2.], dtype=float32)

    Elsewhere:
        - nnabla: none, internal to its gradients
        - PyTorch: none, `g.sum_to_size(x.shape)`
        - ONNX: none, `ReduceSum`
    """
    if g.shape != like.shape:
        g = sum_to(g, shape=like.shape)
    return cast(g, like.dtype) if g.dtype != like.dtype else g


@defop("nnl::cast")
def cast_operator(x: Array, *, dtype: str) -> Array:
    """Convert to another dtype; floating to integer truncates towards zero."""
    return x.astype(dtype)


@cast_operator.infer
def cast_infer(x: Spec, *, dtype: str) -> Spec:
    """The given dtype."""
    return x.with_dtype(dtype)


@cast_operator.vjp
def cast_vjp(g: Any, y: Any, x: Any, *, dtype: str) -> tuple[Any, ...]:
    """Convert the gradient back; nothing flows through integers."""
    return (cast(g, x.dtype) if is_floating(x.dtype) else None,)


@cast_operator.samples
def cast_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Between widths, and from integers and booleans."""
    yield Sample(rng.normal(size=(3, 4)), dtype="float64")
    yield Sample(rng.integers(-9, 9, size=(5,)), dtype="float32")
    yield Sample(rng.integers(0, 2, size=(2, 2)).astype(bool), dtype="int64")


def cast(x: Operand, dtype: Any) -> Variable:
    """Convert to another dtype; floating numbers to integers towards zero.

    What an integer dtype has no number for, as NaN, infinity and what is beyond its range, becomes
    what the processor makes of it, as in NumPy and ONNX: `clip` first. Integers wrap round.

    Args:
        x: any shape and dtype.
        dtype: a NumPy dtype or its name.

    Gradient:
        ``dy``, converted back, where both dtypes are floating; else none.

    Examples:
        >>> F.cast(np.array([1.7, -1.7]), "int32").d
        array([ 1, -1], dtype=int32)

    Elsewhere:
        - nnabla: none, `x.data.cast`
        - PyTorch: none, `x.to(dtype)`
        - ONNX: `Cast`
    """
    result: Variable = cast_operator(x, dtype=as_dtype(dtype).name)
    return result


@defop("nnl::identity")
def identity(x: Array) -> Array:
    """Return the input: ``y = x``.

    Args:
        x: any shape and dtype.

    Gradient:
        ``dx = dy``.

    Examples:
        >>> F.identity(np.array([1.0, 2.0])).d
        array([1., 2.])

    Elsewhere:
        - nnabla: `identity`
        - PyTorch: `torch.nn.Identity`
        - ONNX: `Identity`
    """
    return x.copy()


identity.elementwise("x")


@identity.vjp
def identity_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """``dx = g``."""
    return (g,)


@identity.samples
def identity_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """0-d, empty, odd sizes, every kind."""
    yield Sample(rng.normal(size=()))
    yield Sample(rng.normal(size=(3, 5)))
    yield Sample(np.zeros((0, 2)))
    yield Sample(rng.integers(-9, 9, size=4))
    yield Sample(np.array([True, False]))


# Two arrays --------------------------------------------------------------------------------------


def _binary_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Equal shapes, broadcasting both ways, 0-d, empty; the second input far from zero."""
    for left, right in [
        ((3, 5), (3, 5)),
        ((4, 1, 3), (2, 1)),
        ((), (7,)),
        ((), ()),
        ((0, 3), (3,)),
    ]:
        yield Sample(rng.uniform(0.5, 2, size=left), rng.uniform(0.5, 2, size=right))


@defop("nnl::add", outputs=("z",))
def add_operator(x: Array, y: Array) -> Array:
    """``x + y``, broadcasting."""
    return np.add(x, y)


add_operator.elementwise("x + y")


@add_operator.vjp
def add_vjp(g: Any, z: Any, x: Any, y: Any) -> tuple[Any, ...]:
    """``dx = g, dy = g``."""
    return unbroadcast(g, x), unbroadcast(g, y)


@defop("nnl::sub", outputs=("z",))
def sub_operator(x: Array, y: Array) -> Array:
    """``x - y``, broadcasting."""
    return np.subtract(x, y)


sub_operator.elementwise("x - y")


@sub_operator.vjp
def sub_vjp(g: Any, z: Any, x: Any, y: Any) -> tuple[Any, ...]:
    """``dx = g, dy = -g``."""
    return unbroadcast(g, x), unbroadcast(neg(g), y)


@defop("nnl::mul", save=("x", "y"), outputs=("z",))
def mul_operator(x: Array, y: Array) -> Array:
    """``x * y``, broadcasting."""
    return np.multiply(x, y)


mul_operator.elementwise("x * y")


@mul_operator.vjp
def mul_vjp(g: Any, z: Any, x: Any, y: Any) -> tuple[Any, ...]:
    """``dx = g y, dy = g x``."""
    return unbroadcast(F.chain_rule(g, y), x), unbroadcast(F.chain_rule(g, x), y)


@defop("nnl::div", save=("y", "z"), outputs=("z",))
def div_operator(x: Array, y: Array) -> Array:
    """``x / y``, broadcasting; integers divide to floating."""
    return np.true_divide(x, y, dtype=None if x.dtype.kind == "f" else np.float32)


div_operator.elementwise("x / y")


@div_operator.vjp
def div_vjp(g: Any, z: Any, x: Any, y: Any) -> tuple[Any, ...]:
    """``dx = g / y, dy = -g z / y``."""
    return unbroadcast(F.chain_rule(g, 1 / y), x), unbroadcast(F.chain_rule(g, -z / y), y)


def power(x: Array, y: Array, out: Array | None = None) -> Array:
    """Return ``x ** y``; raise `OperatorError` for integers to a negative power."""
    if np.result_type(x).kind in "iu" and np.less(y, 0).any():
        raise OperatorError(
            "an integer to a negative power is a fraction: cast the base to a floating dtype first"
        )
    result: Array = np.power(x, y, out=out)
    return result


@defop("nnl::pow", save=("x", "y", "z"), outputs=("z",), precision="full")
def pow_operator(x: Array, y: Array) -> Array:
    """``x ** y``, broadcasting."""
    return power(x, y)


pow_operator.elementwise("powf(x, y)")


@pow_operator.vjp
def pow_vjp(g: Any, z: Any, x: Any, y: Any) -> tuple[Any, ...]:
    """``dx = g y x^(y-1), dy = g z log x``, the latter 0 where ``x`` is 0 (the limit for y > 0)."""
    dx = F.chain_rule(g, y * pow(x, y - 1))
    log_x = F.log(F.where(x == 0, 1.0, x))
    return unbroadcast(dx, x), unbroadcast(F.chain_rule(g, z * log_x), y)


for _operator in (add_operator, sub_operator, mul_operator, div_operator, pow_operator):
    _operator.samples(_binary_samples)


# An array and a number ---------------------------------------------------------------------------


def _scalar_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in ((), (0, 2), (3, 5)):
        yield Sample(rng.uniform(0.5, 2, size=shape), val=1.5)
    yield Sample(rng.uniform(0.5, 2, size=(4,)), val=-2.0)


def _define_scalar(
    name: str,
    function: Callable[[Array, Any], Array],
    expression: str,
    text: str,
    gradient: Callable[[Any, Any, Any, float], Any],
    save: tuple[str, ...] = (),
) -> Operator:
    """Define ``y = function(x, val)`` for a number ``val``, which never widens the dtype."""

    def reference(x: Array, *, val: float = 1.0) -> Array:
        dtype = promote_scalar(x.dtype, val)
        return function(x.astype(dtype, copy=False), dtype.type(val))

    reference.__module__ = __name__
    reference.__doc__ = (
        f"``{text}`` for a number ``val``; an integer ``x`` with a float is float32."
    )
    precision: Precision = "full" if "pow" in name else "operands"
    operator = defop(f"nnl::{name}", save=save, precision=precision)(reference)
    operator.elementwise(expression)
    operator.infer(lambda x, *, val: x.with_dtype(promote_scalar(x.dtype, val)))
    operator.vjp(lambda g, y, x, *, val: (gradient(g, y, x, val),))
    operator.samples(_scalar_samples)
    return operator


def _pow_scalar_gradient(g: Any, y: Any, x: Any, val: float) -> Any:
    # val = 0 first: 0 * inf would be NaN at x = 0.
    return g * 0.0 if val == 0 else F.chain_rule(g, pow_scalar(x, val - 1) * val)


def _r_div_scalar_gradient(g: Any, y: Any, x: Any, val: float) -> Any:
    return F.chain_rule(g, -y / x)


def _r_pow_scalar_gradient(g: Any, y: Any, x: Any, val: float) -> Any:
    return F.chain_rule(g, y * _log(val))


def _log(value: float) -> float:
    """Return the logarithm, 0 at 0 (the limit of ``val ** x log val``) and NaN below."""
    return math.log(value) if value > 0 else (math.nan if value else 0.0)


add_scalar_operator = _define_scalar(
    "add_scalar", np.add, "x + val", "x + val", lambda g, y, x, val: g
)
mul_scalar_operator = _define_scalar(
    "mul_scalar", np.multiply, "x * val", "x * val", lambda g, y, x, val: g * val
)
pow_scalar_operator = _define_scalar(
    "pow_scalar",
    power,
    "powf(x, val)",
    "x ** val",
    _pow_scalar_gradient,
    save=("x",),
)
r_sub_scalar_operator = _define_scalar(
    "r_sub_scalar", lambda x, val: val - x, "val - x", "val - x", lambda g, y, x, val: neg(g)
)
r_div_scalar_operator = _define_scalar(
    "r_div_scalar",
    lambda x, val: val / x,
    "val / x",
    "val / x",
    _r_div_scalar_gradient,
    save=("x", "y"),
)
r_pow_scalar_operator = _define_scalar(
    "r_pow_scalar",
    lambda x, val: power(val, x),
    "powf(val, x)",
    "val ** x",
    _r_pow_scalar_gradient,
    save=("y",),
)


def add_scalar(x: Operand, val: float = 1, inplace: bool = False) -> Variable:
    """Compute with a number: ``y = x + val``.

    The number does not widen the dtype of ``x``.

    Args:
        x: any shape and dtype.
        val: the number.
        inplace: a hint that changes nothing.

    Gradient:
        ``dx = dy``.

    Examples:
        >>> F.add_scalar(np.array([1.0, 2.0]), 10).d
        array([11., 12.])

    Elsewhere:
        - nnabla: `add_scalar`
        - PyTorch: `torch.add`, of an array and a number
        - ONNX: `Add`, the number as a constant
    """
    return add_scalar_operator(x, val=val)


def mul_scalar(x: Operand, val: float = 1, inplace: bool = False) -> Variable:
    """Compute with a number: ``y = x * val``.

    The number does not widen the dtype of ``x``.

    Args:
        x: any shape and dtype.
        val: the number.
        inplace: a hint that changes nothing.

    Gradient:
        ``dx = val dy``.

    Examples:
        >>> F.mul_scalar(np.array([1.0, 2.0]), 10).d
        array([10., 20.])

    Elsewhere:
        - nnabla: `mul_scalar`
        - PyTorch: `torch.mul`, of an array and a number
        - ONNX: `Mul`, the number as a constant
    """
    return mul_scalar_operator(x, val=val)


def pow_scalar(x: Operand, val: float = 1, inplace: bool = False) -> Variable:
    """Compute with a number: ``y = x ** val``.

    The number does not widen the dtype of ``x``. Integers to a negative power become ``float32``.

    Args:
        x: any shape and dtype.
        val: the number.
        inplace: a hint that changes nothing.

    Gradient:
        ``dx = val x ** (val - 1) dy``.

    Examples:
        >>> F.pow_scalar(np.array([1.0, 2.0]), 10).d
        array([1.000e+00, 1.024e+03])

    Elsewhere:
        - nnabla: `pow_scalar`
        - PyTorch: `torch.pow`, of an array and a number
        - ONNX: `Pow`, the number as a constant
    """
    return pow_scalar_operator(x, val=float(val) if val < 0 else val)


def r_sub_scalar(x: Operand, val: float = 1) -> Variable:
    """Compute with a number: ``y = val - x``.

    The number does not widen the dtype of ``x``.

    Args:
        x: any shape and dtype.
        val: the number.

    Gradient:
        ``dx = -dy``.

    Examples:
        >>> F.r_sub_scalar(np.array([1.0, 2.0]), 10).d
        array([9., 8.])

    Elsewhere:
        - nnabla: `r_sub_scalar`
        - PyTorch: `torch.rsub`, of an array and a number
        - ONNX: `Sub`, the number as a constant
    """
    return r_sub_scalar_operator(x, val=val)


def r_div_scalar(x: Operand, val: float = 1) -> Variable:
    """Compute with a number: ``y = val / x``.

    The number does not widen the dtype of ``x``. Integers divide to floating.

    Args:
        x: any shape and dtype.
        val: the number.

    Gradient:
        ``dx = -val / x ** 2 dy``.

    Examples:
        >>> F.r_div_scalar(np.array([1.0, 2.0]), 10).d
        array([10.,  5.])

    Elsewhere:
        - nnabla: `r_div_scalar`
        - PyTorch: `torch.div`, of an array and a number
        - ONNX: `Div`, the number as a constant
    """
    return r_div_scalar_operator(_floating(x), val=val)


def r_pow_scalar(x: Operand, val: float = 1) -> Variable:
    """Compute with a number: ``y = val ** x``.

    The number does not widen the dtype of ``x``.

    Args:
        x: any shape and dtype.
        val: the number.

    Gradient:
        ``dx = log(val) y dy``.

    Examples:
        >>> F.r_pow_scalar(np.array([1.0, 2.0]), 10).d
        array([ 10., 100.])

    Elsewhere:
        - nnabla: `r_pow_scalar`
        - PyTorch: `torch.pow`, of an array and a number
        - ONNX: `Pow`, the number as a constant
    """
    return r_pow_scalar_operator(x, val=val)


# What users call ---------------------------------------------------------------------------------


def is_number(value: object) -> bool:
    """Whether a value is a Python (or NumPy) scalar, which takes the other operand's dtype."""
    if isinstance(value, (Variable, np.ndarray)):
        return False
    return isinstance(value, (bool, int, float, np.number, np.bool_))


def same_dtype(x: Operand, y: Operand) -> tuple[Variable, Variable]:
    """Return two variables cast to the dtype that an operation on both computes in."""
    left = x if isinstance(x, Variable) else Variable.constant(x)
    right = y if isinstance(y, Variable) else Variable.constant(y)
    if left.dtype != right.dtype:
        dtype = promote(left.dtype, right.dtype)
        left = left if left.dtype == dtype else cast(left, dtype)
        right = right if right.dtype == dtype else cast(right, dtype)
    return left, right


def _counted(x: Variable, y: Variable) -> tuple[Variable, Variable]:
    """Make integers of booleans: sums of truths count them, and their differences are negative."""
    return (x, y) if x.dtype.kind != "b" else (cast(x, np.int64), cast(y, np.int64))


def _scalar_like(value: float, dtype: np.dtype) -> Variable:
    return Variable.constant(np.asarray(value, promote_scalar(dtype, value)))


def _integer(x: Operand) -> Operand:
    """Make a number of a truth, where there is no operation on truths."""
    return int(x) if isinstance(x, (bool, np.bool_)) else x


def add(x: Operand, y: Operand) -> Variable:
    """Add, broadcasting: ``z = x + y``.

    Either may be a number, which does not widen a dtype.

    Args:
        x: any shape and dtype, or a number.
        y: the same.

    Raises:
        ShapeError: the shapes do not broadcast.

    Gradient:
        ``dx = dz``, ``dy = dz``, summed back to their shapes.

    Examples:
        >>> F.add(np.array([1.0, 2.0]), np.array([3.0, 4.0])).d
        array([4., 6.])

    Elsewhere:
        - nnabla: none, `x + y`
        - PyTorch: `torch.add`
        - ONNX: `Add`
    """
    if is_number(y):
        return add_scalar(x, y)
    if is_number(x):
        return add_scalar(y, x)
    return add_operator(*_counted(*same_dtype(x, y)))


def sub(x: Operand, y: Operand) -> Variable:
    """Subtract, broadcasting: ``z = x - y``.

    Either may be a number, which does not widen a dtype.

    Args:
        x: any shape and dtype, or a number.
        y: the same.

    Raises:
        ShapeError: the shapes do not broadcast.

    Gradient:
        ``dx = dz``, ``dy = -dz``, summed back to their shapes.

    Examples:
        >>> F.sub(np.array([1.0, 2.0]), np.array([3.0, 4.0])).d
        array([-2., -2.])

    Elsewhere:
        - nnabla: none, `x - y`
        - PyTorch: `torch.sub`
        - ONNX: `Sub`
    """
    x, y = _integer(x), _integer(y)
    if is_number(y):
        if _is_unsigned(x) and not isinstance(y, (float, np.floating)):
            return sub_operator(x, _scalar_like(y, x.dtype))  # it has no place for -y
        return add_scalar(x, -y)
    if is_number(x):
        return r_sub_scalar(y, x)
    return sub_operator(*_counted(*same_dtype(x, y)))


def mul(x: Operand, y: Operand) -> Variable:
    """Multiply, broadcasting: ``z = x * y``.

    Either may be a number, which does not widen a dtype.

    Args:
        x: any shape and dtype, or a number.
        y: the same.

    Raises:
        ShapeError: the shapes do not broadcast.

    Gradient:
        ``dx = y dz``, ``dy = x dz``, summed back to their shapes.

    Examples:
        >>> F.mul(np.array([1.0, 2.0]), np.array([3.0, 4.0])).d
        array([3., 8.])

    Elsewhere:
        - nnabla: none, `x * y`
        - PyTorch: `torch.mul`
        - ONNX: `Mul`
    """
    if is_number(y):
        return mul_scalar(x, y)
    if is_number(x):
        return mul_scalar(y, x)
    return mul_operator(*same_dtype(x, y))


def div(x: Operand, y: Operand) -> Variable:
    """Divide, broadcasting: ``z = x / y``.

    Either may be a number, which does not widen a dtype.

    Integers divide to floating.

    Args:
        x: any shape and dtype, or a number.
        y: the same.

    Raises:
        ShapeError: the shapes do not broadcast.

    Gradient:
        ``dx = dz / y``, ``dy = -x dz / y ** 2``, summed back to their shapes.

    Examples:
        >>> F.div(np.array([1.0, 2.0]), np.array([3.0, 4.0])).d
        array([0.33333333, 0.5       ])

    Elsewhere:
        - nnabla: none, `x / y`
        - PyTorch: `torch.div`
        - ONNX: `Div`
    """
    if is_number(x):
        return r_div_scalar(y, x)
    if is_number(y):
        # Not x * (1 / y): the reciprocal rounds, and may overflow where the quotient does not.
        left = _floating(x)
        return div_operator(left, Variable.constant(np.asarray(y, left.dtype)))
    left, right = same_dtype(x, y)
    return div_operator(_floating(left), _floating(right))


def pow(x: Operand, y: Operand) -> Variable:
    """Raise to a power, broadcasting: ``z = x ** y``.

    Either may be a number, which does not widen a dtype.

    Args:
        x: any shape and dtype, or a number.
        y: the same.

    Raises:
        ShapeError: the shapes do not broadcast.

    Gradient:
        ``dx = y x ** (y - 1) dz``, ``dy = log(x) z dz``, 0 where ``x`` is 0, summed back to their
        shapes.

    Examples:
        >>> F.pow(np.array([1.0, 2.0]), np.array([3.0, 4.0])).d
        array([ 1., 16.])

    Elsewhere:
        - nnabla: none, `x ** y`
        - PyTorch: `torch.pow`
        - ONNX: `Pow`
    """
    x, y = _integer(x), _integer(y)
    if is_number(y):
        return pow_scalar(x, y)
    if is_number(x):
        return r_pow_scalar(y, x)
    return pow_operator(*_counted(*same_dtype(x, y)))


def neg(x: Operand) -> Variable:
    """Change the sign: ``y = -x``.

    Args:
        x: any shape and dtype; unsigned integers wrap round, as in NumPy.

    Gradient:
        ``dx = -dy``.

    Examples:
        >>> F.neg(np.array([1.0, -2.0])).d
        array([-1.,  2.])

    Elsewhere:
        - nnabla: none, `-x`
        - PyTorch: `torch.neg`
        - ONNX: `Neg`
    """
    return r_sub_scalar(x, 0) if _is_unsigned(x) else mul_scalar(x, -1)


def _is_unsigned(x: Operand) -> bool:
    return isinstance(x, (Variable, np.ndarray)) and x.dtype.kind == "u"


def _floating(x: Operand) -> Variable:
    variable = x if isinstance(x, Variable) else Variable.constant(x)
    return variable if is_floating(variable.dtype) else cast(variable, np.float32)


def add2(x0: Operand, x1: Operand, inplace: bool = False) -> Variable:
    """Add, broadcasting: ``y = x0 + x1``.

    Args:
        x0: any shape and dtype, or a number.
        x1: the same.
        inplace: a hint that changes nothing.

    Raises:
        ShapeError: the shapes do not broadcast.

    Gradient:
        ``dx0 = dy``, ``dx1 = dy``, summed back to their shapes.

    Examples:
        >>> F.add2(np.array([1.0, 2.0]), np.array([3.0, 4.0])).d
        array([4., 6.])

    Elsewhere:
        - nnabla: `add2`
        - PyTorch: `torch.add`
        - ONNX: `Add`
    """
    return add(x0, x1)


def sub2(x0: Operand, x1: Operand, inplace: bool = False) -> Variable:
    """Subtract, broadcasting: ``y = x0 - x1``.

    Args:
        x0: any shape and dtype, or a number.
        x1: the same.
        inplace: a hint that changes nothing.

    Raises:
        ShapeError: the shapes do not broadcast.

    Gradient:
        ``dx0 = dy``, ``dx1 = -dy``, summed back to their shapes.

    Examples:
        >>> F.sub2(np.array([1.0, 2.0]), np.array([3.0, 4.0])).d
        array([-2., -2.])

    Elsewhere:
        - nnabla: `sub2`
        - PyTorch: `torch.sub`
        - ONNX: `Sub`
    """
    return sub(x0, x1)


def mul2(x0: Operand, x1: Operand, inplace: bool = False) -> Variable:
    """Multiply, broadcasting: ``y = x0 * x1``.

    Args:
        x0: any shape and dtype, or a number.
        x1: the same.
        inplace: a hint that changes nothing.

    Raises:
        ShapeError: the shapes do not broadcast.

    Gradient:
        ``dx0 = x1 dy``, ``dx1 = x0 dy``, summed back to their shapes.

    Examples:
        >>> F.mul2(np.array([1.0, 2.0]), np.array([3.0, 4.0])).d
        array([3., 8.])

    Elsewhere:
        - nnabla: `mul2`
        - PyTorch: `torch.mul`
        - ONNX: `Mul`
    """
    return mul(x0, x1)


def div2(x0: Operand, x1: Operand, inplace: bool = False) -> Variable:
    """Divide, broadcasting: ``y = x0 / x1``.

    Args:
        x0: any shape and dtype, or a number.
        x1: the same.
        inplace: a hint that changes nothing.

    Raises:
        ShapeError: the shapes do not broadcast.

    Gradient:
        ``dx0 = dy / x1``, ``dx1 = -x0 dy / x1 ** 2``, summed back to their shapes.

    Examples:
        >>> F.div2(np.array([1.0, 2.0]), np.array([3.0, 4.0])).d
        array([0.33333333, 0.5       ])

    Elsewhere:
        - nnabla: `div2`
        - PyTorch: `torch.div`
        - ONNX: `Div`
    """
    return div(x0, x1)


def pow2(x0: Operand, x1: Operand, inplace: bool = False) -> Variable:
    """Raise to a power, broadcasting: ``y = x0 ** x1``.

    Args:
        x0: any shape and dtype, or a number.
        x1: the same.
        inplace: a hint that changes nothing.

    Raises:
        ShapeError: the shapes do not broadcast.

    Gradient:
        ``dx0 = x1 x0 ** (x1 - 1) dy``, ``dx1 = log(x0) y dy``, 0 where ``x0`` is 0, summed back to
        their shapes.

    Examples:
        >>> F.pow2(np.array([1.0, 2.0]), np.array([3.0, 4.0])).d
        array([ 1., 16.])

    Elsewhere:
        - nnabla: `pow2`
        - PyTorch: `torch.pow`
        - ONNX: `Pow`
    """
    return pow(x0, x1)
