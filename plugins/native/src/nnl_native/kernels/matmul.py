"""Products of matrices: by oneDNN, and small ones or those in double precision in generated C."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from nnl_native import onednn
from nnl_native.kernel import (
    Call,
    Emission,
    Layout,
    LayoutRequest,
    Layouts,
    Operand,
    emitter,
    plain,
)
from nnl_native.kernels.primitives import run
from nnl_native.kernels.tiny_products import Axis, Product, is_tiny, tiny_product
from nnl_native.runtime import threads_in_use

LARGEST_DOUBLE = 1 << 21
"""Multiply-adds above which double precision is left to NumPy's BLAS."""


# Operators ---------------------------------------------------------------------------------------


def _matmul_layouts(request: LayoutRequest) -> Layouts:
    """Take matrices as they are where that is as fast, transposed ones above all."""
    outputs = [Operand(spec, plain(spec.shape)) for spec in request.outputs]
    given = [one for one in request.inputs if one is not None]
    flat = [plain(one.shape) for one in given]
    wanted: list[Layout | None] = [*flat]
    for moved in ((), (0,), (1,)):
        seen = [
            Operand(one.spec, flat[k]) if k in (*moved, 2) else one for k, one in enumerate(given)
        ]
        product = _product(request.operator.name, request.attributes, seen, outputs)
        if product is not None and (seen[0].dtype.name != "float32" or _is_fast(product)):
            wanted = [flat[k] if k in (*moved, 2) else None for k in range(len(given))]
            break
    wanted += [None] * (len(request.inputs) - len(given))
    return Layouts(tuple(wanted), tuple(one.layout for one in outputs))


def _is_fast(product: Product) -> bool:
    if is_tiny(product):
        return True
    primitive = _primitive(product, threads_in_use())
    return primitive is not None and not primitive.implementation.startswith("ref")


@emitter("nnl::affine", "nnl::batch_matmul", layouts=_matmul_layouts)
def matmul(call: Call) -> Emission | None:
    """Multiply; large products in double precision are NumPy's."""
    if not (call.has_only("float32") or call.has_only("float64")):
        return None
    if call.outputs[0].size == 0:
        return Emission(())
    product = _product(call.operator.name, call.attributes, call.inputs, call.outputs)
    if product is None:
        return None
    single = call.has_only("float32")
    if is_tiny(product) if single else product.work <= LARGEST_DOUBLE:
        return Emission((tiny_product(product, call.outputs[0].c_type),))
    primitive = _primitive(product, call.threads) if single else None
    if primitive is None:
        return None
    operands = {onednn.SOURCE: "in0", onednn.WEIGHT: "in1", onednn.DESTINATION: "out0"}
    return run(primitive, operands | ({onednn.BIAS: "in2"} if product.bias else {}))


# From operators to products ----------------------------------------------------------------------


def _product(
    name: str,
    attributes: Any,
    inputs: Sequence[Operand | None],
    outputs: Sequence[Operand],
) -> Product | None:
    """Return the product of matrices that a call is; ``None`` where its layouts are not of any."""
    first, second = inputs[:2]
    assert first is not None and second is not None
    if name == "nnl::affine":
        bias = len(inputs) > 2 and inputs[2] is not None
        return _affine(first, second, outputs[0], bias, attributes["base_axis"])
    return _batch(first, second, outputs[0], attributes)


def _merged(operand: Operand, begin: int, end: int) -> tuple[int, int] | None:
    """Return length and distance of axes seen as one; ``None`` where they cannot be."""
    length, distance = 1, 0
    for n, stride in reversed(list(zip(operand.shape, operand.strides, strict=True))[begin:end]):
        if n == 1:
            continue
        if length == 1:
            length, distance = n, stride
        elif stride == distance * length:
            length *= n
        else:
            return None
    return length, distance


def _affine(x: Operand, weight: Operand, y: Operand, bias: bool, base_axis: int) -> Product | None:
    rank, axis = len(x.shape), base_axis % len(x.shape)
    parts = (
        _merged(x, 0, axis),
        _merged(x, axis, rank),
        _merged(weight, 0, 1),
        _merged(weight, 1, len(weight.shape)),
    )
    if any(part is None for part in parts):
        return None
    (rows, a_row), (inner, a_column), (_, b_row), (columns, b_column) = (
        part for part in parts if part is not None
    )
    return _checked(
        (), (rows, inner, columns), (a_row, a_column), (b_row, b_column), (columns, 1), bias
    )


def _batch(a: Operand, b: Operand, c: Operand, attributes: Any) -> Product | None:
    a_row, a_column = a.strides[-2:][:: -1 if attributes["transpose_a"] else 1]
    b_row, b_column = b.strides[-2:][:: -1 if attributes["transpose_b"] else 1]
    rows, columns = c.shape[-2:]
    inner = a.shape[-2 if attributes["transpose_a"] else -1]
    axes: list[Axis] = []
    c_strides = plain(c.shape).strides
    count = len(c.shape) - 2
    for k in range(count):
        if c.shape[k] == 1:
            continue
        axis = Axis(c.shape[k], _repeated(a, k, count), _repeated(b, k, count), c_strides[k])
        if axes and all(axes[-1][p] == axis[p] * axis.length for p in (1, 2, 3)):
            axis = axis._replace(length=axis.length * axes.pop().length)
        axes.append(axis)
    if len(axes) == 1 and axes[0].b == 0 and (rows == 1 or axes[0].a == a_row * rows):
        # One matrix for the whole batch: one large product in place of many small ones.
        a_row = a_row if rows > 1 else axes[0].a
        rows, axes = rows * axes[0].length, []
    lengths = rows, inner, columns
    return _checked(tuple(axes), lengths, (a_row, a_column), (b_row, b_column), (columns, 1), False)


def _repeated(operand: Operand, axis: int, count: int) -> int:
    """Return the distance along a batch axis of the result, 0 where the operand repeats."""
    own = axis - count + len(operand.shape) - 2
    return 0 if own < 0 or operand.shape[own] == 1 else operand.strides[own]


def _checked(
    batch: tuple[Axis, ...],
    lengths: tuple[int, int, int],
    a: tuple[int, int],
    b: tuple[int, int],
    c: tuple[int, int],
    bias: bool,
) -> Product | None:
    """Return a product whose axes of length 1 have the distances of dense matrices.

    In each matrix of a product that is not tiny one of the axes has its elements side by side.
    """
    rows, inner, columns = lengths
    product = Product(batch, rows, inner, columns, a, b, c, bias)
    if is_tiny(product):
        return product
    left, right = _matrix((rows, inner), a), _matrix((inner, columns), b)
    if left is None or right is None:
        return None
    return product._replace(a=left, b=right)


def _matrix(shape: tuple[int, int], distances: tuple[int, int]) -> tuple[int, int] | None:
    (rows, columns), (row, column) = shape, distances
    if rows <= 1 and columns <= 1:
        return 1, 1
    if columns <= 1:
        return row, 1
    if rows <= 1:
        return (columns, 1) if column == 1 else (1, column)
    return distances if (column == 1 and row >= columns) or (row == 1 and column >= rows) else None


# Primitives --------------------------------------------------------------------------------------


def _primitive(product: Product, threads: int) -> onednn.Primitive | None:
    if onednn.problem() is not None or product.inner == 0:
        return None
    described = []
    matrices = (
        ((product.rows, product.inner), product.a),
        ((product.inner, product.columns), product.b),
        ((product.rows, product.columns), product.c),
    )
    for part, (shape, distances) in enumerate(matrices, 1):
        # A repeated matrix has length 1 there; its distance is that of a dense stack.
        batch = [axis.length if axis[part] else 1 for axis in product.batch]
        strides = [axis[part] or prod(shape) for axis in product.batch]
        described.append(onednn.Descriptor.strided((*batch, *shape), (*strides, *distances)))
    bias = None
    if product.bias:
        bias = onednn.Descriptor.strided((1, product.columns), (product.columns, 1))
    try:
        return onednn.matmul(described[0], described[1], bias, described[2], threads)
    except onednn.PrimitiveError:
        return None
