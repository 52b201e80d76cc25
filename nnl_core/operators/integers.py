"""Remainders, and shifts of bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.dtypes import is_floating
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec, broadcast_shapes, elementwise_spec, promote_scalar
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import cast, is_number, same_dtype, unbroadcast

__all__ = ["bit_shift", "mod2"]


# Remainders --------------------------------------------------------------------------------------


@defop("nnl::fmod", save=("x", "y", "z"), outputs=("z",))
def fmod_operator(x: Array, y: Array) -> Array:
    """Remainder of ``x / y`` with the sign of ``x``; by 0 it is NaN, and of integers 0."""
    return np.fmod(x, y)


fmod_operator.elementwise("fmodf(x, y)")


@fmod_operator.vjp
def fmod_vjp(g: Any, z: Any, x: Any, y: Any) -> tuple[Any, ...]:
    """``dx = g, dy = -g trunc(x / y)``."""
    return unbroadcast(g, x), unbroadcast(F.chain_rule(g, F.round((z - x) / y)), y)


@fmod_operator.samples
def fmod_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """All signs away from the jumps, broadcasting, 0-d, empty, integers."""
    for left, right in (((3, 5), (3, 5)), ((2, 1, 3), (4, 1)), ((), ()), ((0, 2), (2,))):
        quotient = rng.integers(0, 4, size=left) + rng.uniform(0.2, 0.8, size=left)
        yield Sample(2 * rng.choice([-1, 1], size=left) * quotient, rng.choice([-2.0, 2.0], right))
    yield Sample(rng.integers(-50, 50, size=(3, 4)), rng.choice([-7, 3, 5], size=4))


@defop("nnl::mod", outputs=("z",))
def mod_operator(x: Array, y: Array) -> Array:
    """Remainder of integers with the sign of ``y``; by 0 it is 0."""
    return np.mod(x, y)


@mod_operator.infer
def mod_infer(x: Spec, y: Spec) -> Spec:
    """As arithmetic."""
    return elementwise_spec(x, y)


@mod_operator.samples
def mod_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """All signs, broadcasting, 0-d, empty, unsigned."""
    yield Sample(rng.integers(-50, 50, size=(3, 4)), rng.choice([-7, 3, 5], size=4))
    yield Sample(np.array(-7, np.int8), np.array(3, np.int8))
    yield Sample(np.zeros((0, 2), np.int32), np.array(3, np.int32))
    yield Sample(rng.integers(0, 99, size=5).astype(np.uint8), np.full(5, 7, np.uint8))


def mod2(x0: Operand, x1: Operand, fmod: bool = False) -> Variable:
    """Remainder of ``x0 / x1``, broadcasting; either may be a number.

    Of floating numbers, or with ``fmod``, it has the sign of ``x0``:
    ``x0 - trunc(x0 / x1) * x1``. Of integers it has that of ``x1``:
    ``x0 - floor(x0 / x1) * x1``. By 0 it is NaN, and of integers 0.

    Args:
        x0: the dividend.
        x1: the divisor.
        fmod: whether integers are treated as floating numbers are.

    Returns:
        The shape that both broadcast to; the dtype of arithmetic with both.

    Raises:
        ShapeError: the shapes do not broadcast.

    Gradient:
        1 for ``x0``, ``-trunc(x0 / x1)`` for ``x1``, also at the jumps. None: integers have no
        slope.

    Examples:
        >>> F.mod2(np.array([-7, 7]), np.array([3, -3])).d
        array([ 2, -2])
        >>> F.mod2(np.array([-7, 7]), np.array([3, -3]), fmod=True).d
        array([-1,  1])

    Elsewhere:
        - nnabla: `mod2`, which has no gradient
        - PyTorch: `torch.fmod`, and `torch.remainder` for integers
        - ONNX: `Mod`, which needs fmod=1 for floating numbers
    """
    if is_number(x1):
        x1 = _beside(x0, x1)
    elif is_number(x0):
        x0 = _beside(x1, x0)
    left, right = same_dtype(x0, x1)
    if left.dtype.kind == "b":
        left, right = cast(left, np.int64), cast(right, np.int64)
    operator = fmod_operator if fmod or is_floating(left.dtype) else mod_operator
    result: Variable = operator(left, right)
    return result


def _beside(array: Operand, number: Operand) -> Variable:
    """Return a number as an array that does not widen the other's dtype."""
    dtype = getattr(array, "dtype", np.dtype(np.float32))
    return Variable.constant(np.asarray(number, promote_scalar(dtype, number)))


# Bits --------------------------------------------------------------------------------------------


@defop("nnl::bit_shift")
def bit_shift_operator(x: Array, shift: Array, *, direction: str) -> Array:
    """``x << shift`` or ``x >> shift``; 0 where the shift is negative or moves all bits out."""
    if shift.dtype.kind == "f":
        wrong = np.flatnonzero(np.trunc(shift) != shift)
        if wrong.size:
            raise OperatorError(
                f"bit_shift: shift {shift.flat[wrong[0]]} is not a whole number; give from 0 to "
                f"{x.dtype.itemsize * 8 - 1}"
            )
    inside = (shift >= 0) & (shift < x.dtype.itemsize * 8)
    steps = np.where(inside, shift, 0).astype(x.dtype)
    moved = np.left_shift(x, steps) if direction == "LEFT" else np.right_shift(x, steps)
    return np.where(inside, moved, x.dtype.type(0))


@bit_shift_operator.infer
def bit_shift_infer(x: Spec, shift: Spec, *, direction: str) -> Spec:
    """The dtype of ``x``."""
    if x.dtype.kind != "u":
        raise ShapeError(f"bits of unsigned integers are shifted, not those of {x.dtype}")
    return x.with_shape(broadcast_shapes(x.shape, shift.shape))


@bit_shift_operator.samples
def bit_shift_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Both directions, all widths, shifts out of range, broadcasting, 0-d, empty."""
    for dtype in (np.uint8, np.uint16, np.uint32, np.uint64):
        for direction in ("LEFT", "RIGHT"):
            x = rng.integers(0, np.iinfo(dtype).max, size=(3, 1), dtype=dtype)
            yield Sample(x, np.arange(-1, 9) * x.itemsize, direction=direction)
    yield Sample(np.array(5, np.uint8), np.array(2, np.uint8), direction="LEFT")
    yield Sample(np.zeros((0, 2), np.uint8), np.array([1, 2]), direction="RIGHT")


def bit_shift(x: Operand, shift: Operand, direction: str = "LEFT") -> Variable:
    """Shift the bits of unsigned integers, broadcasting: ``x << shift`` or ``x >> shift``.

    Bits that leave the dtype of ``x`` are lost. A shift that is negative, or as many bits as
    there are or more, gives 0.

    Args:
        x: any shape; ``uint8``, ``uint16``, ``uint32`` or ``uint64``.
        shift: number of bits; any integers, whole floating numbers, or a number.
        direction: ``"LEFT"`` or ``"RIGHT"``.

    Returns:
        The shape that both broadcast to, the dtype of ``x``.

    Raises:
        OperatorError: the direction is another, or a shift is not a whole number.
        ShapeError: ``x`` is not unsigned, or the shapes do not broadcast.

    Gradient:
        None: integers have no slope.

    Examples:
        >>> F.bit_shift(np.array([1, 255], np.uint8), 3).d
        array([  8, 248], dtype=uint8)

    Elsewhere:
        - nnabla: `bit_shift`
        - PyTorch: `torch.bitwise_left_shift`, or `torch.bitwise_right_shift`
        - ONNX: `BitShift`
    """
    if direction not in ("LEFT", "RIGHT"):
        raise OperatorError(f"bit_shift: direction {direction!r} must be 'LEFT' or 'RIGHT'")
    result: Variable = bit_shift_operator(x, shift, direction=direction)
    return result
