"""Products of matrices and vectors: matmul, batch_matmul, affine, dot.

Integers and booleans are multiplied and summed in 64 bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import whole
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec, broadcast_shapes, normalize_axis
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import cast, mul, same_dtype, unbroadcast
from nnl_core.operators.dtypes import sum_dtype, wide

__all__ = ["affine", "batch_matmul", "dot", "matmul"]


def _product(a: Array, b: Array) -> Array:
    dtype = sum_dtype(a.dtype)
    a, b = (wide(x.astype(dtype, copy=False)) for x in (a, b))
    return np.asarray(np.matmul(a, b).astype(dtype, copy=False))


# Stacks of matrices ------------------------------------------------------------------------------


@defop("nnl::batch_matmul", save=("a", "b"), precision="half")
def batch_matmul_operator(
    a: Array, b: Array, *, transpose_a: bool = False, transpose_b: bool = False
) -> Array:
    """Product of matrices in the last two axes; the axes before them broadcast."""
    left = np.swapaxes(a, -1, -2) if transpose_a else a
    right = np.swapaxes(b, -1, -2) if transpose_b else b
    return _product(left, right)


@batch_matmul_operator.infer
def batch_matmul_infer(a: Spec, b: Spec, *, transpose_a: bool, transpose_b: bool) -> Spec:
    """Batch axes broadcast, then the rows of the first and the columns of the second."""
    if a.ndim < 2 or b.ndim < 2:
        raise ShapeError(f"matrices need two axes or more, got {a.shape} and {b.shape}")
    rows, left = a.shape[-2:][:: -1 if transpose_a else 1]
    right, columns = b.shape[-2:][:: -1 if transpose_b else 1]
    if left != right:
        raise ShapeError(f"the first has rows of length {left}, the second columns of {right}")
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return Spec((*batch, rows, columns), sum_dtype(a.dtype))


@batch_matmul_operator.vjp
def batch_matmul_vjp(
    g: Any, y: Any, a: Any, b: Any, *, transpose_a: bool, transpose_b: bool
) -> tuple[Any, ...]:
    """``dA = g B^T, dB = A^T g`` for ``y = A B``, each transposed as its input is."""
    call = batch_matmul_operator
    if transpose_a:
        da = call(b, g, transpose_a=transpose_b, transpose_b=True)
    else:
        da = call(g, b, transpose_b=not transpose_b)
    if transpose_b:
        db = call(g, a, transpose_a=True, transpose_b=transpose_a)
    else:
        db = call(a, g, transpose_a=not transpose_a)
    return unbroadcast(da, a), unbroadcast(db, b)


@batch_matmul_operator.multiply_adds
def batch_matmul_multiply_adds(a: Spec, b: Spec, *, transpose_a: bool, transpose_b: bool) -> int:
    """Elements of the product times the length of the rows that are multiplied."""
    shape = batch_matmul_infer(a, b, transpose_a=transpose_a, transpose_b=transpose_b).shape
    return math.prod(shape) * a.shape[-2 if transpose_a else -1]


@batch_matmul_operator.samples
def batch_matmul_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """All transpositions, broadcast batches on either side, empty batches and empty rows."""
    normal = rng.normal
    for transpose_a in (False, True):
        for transpose_b in (False, True):
            a = normal(size=(2, 1, *((4, 3) if transpose_a else (3, 4))))
            b = normal(size=(3, *((5, 4) if transpose_b else (4, 5))))
            yield Sample(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    yield Sample(normal(size=(3, 4)), normal(size=(4, 1)))
    yield Sample(normal(size=(5, 3, 4)), normal(size=(4, 2)))
    yield Sample(normal(size=(0, 3, 4)), normal(size=(1, 4, 2)))
    yield Sample(normal(size=(3, 0)), normal(size=(0, 2)))
    yield Sample(rng.integers(-90, 90, size=(2, 3)).astype(np.int8), np.full((3, 2), 90, np.int8))


def batch_matmul(
    a: Operand, b: Operand, transpose_a: bool = False, transpose_b: bool = False
) -> Variable:
    """Multiply the matrices in the last two axes; the axes before them broadcast.

    Args:
        a: (..., rows, inner), or (..., inner, rows) with ``transpose_a``.
        b: (..., inner, columns), or (..., columns, inner) with ``transpose_b``.
        transpose_a: whether the last two axes of ``a`` are swapped first.
        transpose_b: the same of ``b``.

    Raises:
        ShapeError: inner lengths differ, or the leading axes do not broadcast.

    Gradient:
        ``da = dy b^T``, ``db = a^T dy``, summed back to their shapes.

    Examples:
        >>> F.batch_matmul(np.array([[[1.0, 2.0]]]), np.array([[[3.0, 4.0]]]), transpose_b=True).d
        array([[[11.]]])

    Elsewhere:
        - nnabla: `batch_matmul`
        - PyTorch: `torch.matmul`
        - ONNX: `MatMul`
    """
    result: Variable = batch_matmul_operator(
        *same_dtype(a, b), transpose_a=bool(transpose_a), transpose_b=bool(transpose_b)
    )
    return result


def matmul(x: Operand, y: Operand) -> Variable:
    """Multiply matrices as ``x @ y`` of NumPy: 1-D operands are vectors, leading axes broadcast.

    Args:
        x: (..., rows, inner), or (inner,).
        y: (..., inner, columns), or (inner,).

    Raises:
        ShapeError: an operand is 0-d, or lengths do not match.

    Gradient:
        ``dx = dz y^T``, ``dy = x^T dz``, summed back to their shapes.

    Examples:
        >>> F.matmul(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 1.0])).d
        array([3., 7.])

    Elsewhere:
        - nnabla: none, `x @ y`
        - PyTorch: `torch.matmul`
        - ONNX: `MatMul`
    """
    left, right = same_dtype(x, y)
    if not left.ndim or not right.ndim:
        raise ShapeError(
            f"matmul: operands of shapes {left.shape} and {right.shape} need an axis at least; "
            "multiply a scalar with *"
        )
    if left.ndim > 2 and right.ndim == 2:
        return affine(left, right, base_axis=-1)  # one matrix product in place of a batch of them
    if right.ndim == 1:
        column = matmul(left, F.reshape(right, (right.shape[0], 1)))
        return F.reshape(column, column.shape[:-1])
    if left.ndim == 1:
        row = batch_matmul(F.reshape(left, (1, left.shape[0])), right)
        return F.reshape(row, (*row.shape[:-2], row.shape[-1]))
    return batch_matmul(left, right)


# One matrix for all ------------------------------------------------------------------------------


@defop("nnl::affine", save=("x", "weight"), precision="half")
def affine_operator(
    x: Array, weight: Array, bias: Array | None = None, *, base_axis: int = 1
) -> Array:
    """``y = x W + b`` on the axes of ``x`` from ``base_axis`` on, flattened."""
    batch = x.shape[: base_axis % x.ndim]
    rows = x.reshape(math.prod(batch), weight.shape[0])
    matrix = weight.reshape(weight.shape[0], math.prod(weight.shape[1:]))
    y = _product(rows, matrix).reshape(batch + weight.shape[1:])
    return y if bias is None else (y + bias).astype(y.dtype, copy=False)


@affine_operator.infer
def affine_infer(x: Spec, weight: Spec, bias: Spec | None, *, base_axis: int) -> Spec:
    """The axes of ``x`` before ``base_axis``, then those of ``weight`` after its first."""
    axis = normalize_axis(base_axis, x.ndim)
    if weight.ndim < 2:
        raise ShapeError(f"weight has shape {weight.shape}; it needs (inputs, outputs...)")
    inputs = math.prod(x.shape[axis:])
    if inputs != weight.shape[0]:
        raise ShapeError(
            f"input has {inputs} elements from axis {axis} on, weight expects {weight.shape[0]}"
        )
    outputs = weight.shape[1:]
    if bias is not None and bias.shape != outputs:
        raise ShapeError(f"bias has shape {bias.shape}, weight expects {outputs}")
    return Spec(x.shape[:axis] + outputs, sum_dtype(x.dtype))


@affine_operator.vjp
def affine_vjp(
    g: Any, y: Any, x: Any, weight: Any, bias: Any, *, base_axis: int
) -> tuple[Any, ...]:
    """``dx = g W^T, dW = x^T g, db = sum of g``."""
    inputs, outputs = weight.shape[0], math.prod(weight.shape[1:])
    count = math.prod(x.shape[: base_axis % x.ndim])
    rows = F.reshape(g, (count, outputs))
    dx = batch_matmul_operator(rows, F.reshape(weight, (inputs, outputs)), transpose_b=True)
    dw = batch_matmul_operator(F.reshape(x, (count, inputs)), rows, transpose_a=True)
    db = None if bias is None else unbroadcast(g, bias)
    return F.reshape(dx, x.shape), F.reshape(dw, weight.shape), db


@affine_operator.multiply_adds
def affine_multiply_adds(x: Spec, weight: Spec, bias: Spec | None, *, base_axis: int) -> int:
    """Rows times elements of the weight."""
    return math.prod(x.shape[: base_axis % x.ndim]) * weight.size


@affine_operator.samples
def affine_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """With and without bias, several output axes, each base axis, empty batch, no inputs."""
    normal = rng.normal
    yield Sample(normal(size=(3, 4)), normal(size=(4, 5)), normal(size=(5,)))
    yield Sample(normal(size=(2, 3, 4)), normal(size=(12, 2, 3)), normal(size=(2, 3)))
    yield Sample(normal(size=(2, 3, 4)), normal(size=(4, 5)), None, base_axis=-1)
    yield Sample(normal(size=(2, 3)), normal(size=(6, 1)), normal(size=(1,)), base_axis=0)
    yield Sample(normal(size=(0, 4)), normal(size=(4, 2)), normal(size=(2,)))
    yield Sample(normal(size=(3, 0)), normal(size=(0, 2)), normal(size=(2,)))


def affine(
    x: Operand, weight: Operand, bias: Operand | None = None, base_axis: int = 1
) -> Variable:
    """Apply a fully connected layer: ``y = x W + b``.

    Args:
        x: ``(*batch, *inputs)``; the axes from ``base_axis`` on are flattened.
        weight: ``(inputs, *outputs)``.
        bias: ``(*outputs)``, or ``None``.
        base_axis: first axis that is not a batch axis.

    Raises:
        ShapeError: the shapes do not fit.

    Gradient:
        ``dx = dy W^T``, ``dW = x^T dy``, ``db`` the sum of ``dy`` over the batch.

    Examples:
        >>> weight, bias = np.array([[1.0, 0.0], [0.0, 10.0]]), np.array([0.5, 0.5])
        >>> F.affine(np.array([[1.0, 2.0]]), weight, bias).d
        array([[ 1.5, 20.5]])

    Elsewhere:
        - nnabla: `affine`
        - PyTorch: `torch.nn.functional.linear`, whose weight is transposed
        - ONNX: `Gemm`
    """
    left, right = same_dtype(x, weight)
    if bias is not None:
        left, bias = same_dtype(left, bias)
        right = right if right.dtype == left.dtype else cast(right, left.dtype)
    result: Variable = affine_operator(left, right, bias, base_axis=whole(base_axis, "base_axis"))
    return result


def dot(a: Operand, b: Operand, out: Variable | None = None) -> Variable:
    """Sum products over the last axis of ``a`` and the second-to-last (or only) axis of ``b``.

    A 0-d operand or a number multiplies. As `numpy.dot`.

    Args:
        a: (..., inner).
        b: (..., inner, columns), or (inner,).
        out: a variable that becomes the result and is returned; it needs its shape and dtype.

    Raises:
        ShapeError: the inner lengths differ.

    Gradient:
        As of a matrix product.

    Examples:
        >>> F.dot(np.array([1.0, 2.0]), np.array([3.0, 4.0])).d
        array(11.)

    Elsewhere:
        - nnabla: `dot`
        - PyTorch: `torch.tensordot`, with the axes named
        - ONNX: none, `Einsum`
    """
    left, right = same_dtype(a, b)
    if not left.ndim or not right.ndim:
        result = mul(left, right)
    elif right.ndim <= 2:
        result = matmul(left, right)
    else:
        axes = (right.ndim - 2, *range(right.ndim - 2), right.ndim - 1)
        moved = F.transpose(right, axes)
        if left.ndim == 1:
            row = affine(F.reshape(left, (1, left.shape[0])), moved)
            result = F.reshape(row, row.shape[1:])
        else:
            result = affine(left, moved, base_axis=-1)
    if out is None:
        return result
    if not isinstance(out, Variable):
        raise OperatorError(f"dot: out is a {type(out).__name__}; give a Variable")
    if out.spec != result.spec:
        raise ShapeError(
            f"dot: out is {out.dtype}{out.shape} and the result {result.dtype}{result.shape}; "
            "give a variable of the result's shape and dtype"
        )
    out.rewire_on(result)
    return out
