"""Interpolation: axes of other lengths, one after the other, by tables of taps."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from nnl_core.operators.resampling import Resized, Table, adjoint_table, table
from nnl_native.kernel import (
    Call,
    CStep,
    Emission,
    LayoutRequest,
    Layouts,
    Reference,
    dense,
    emitter,
)

TYPES = {"float32": "float", "float64": "double"}
UNIT = 4096  # elements that one unit of work writes, at least


class Value(NamedTuple):
    """A dense value on the way: where it is, its lengths, its axes from the outermost on."""

    name: Reference
    shape: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance between neighbours along each axis."""
        return dense(self.shape, self.order).strides


def _orders(rank: int) -> tuple[tuple[int, ...], ...]:
    """Return the orders of axes that values come in: axis 1 in its place, or innermost."""
    first = tuple(range(rank))
    return (first, (0, *first[2:], 1)) if rank > 2 else (first,)


def _has_order(shape: Sequence[int], strides: Sequence[int], order: Sequence[int]) -> bool:
    wanted = dense(shape, order).strides
    return all(n == 1 or a == b for n, a, b in zip(shape, strides, wanted, strict=True))


def _layouts(request: LayoutRequest) -> Layouts:
    """Bring the input into one of these orders, and give the result in the same."""
    x = request.inputs[0]
    assert x is not None
    orders = _orders(len(x.shape))
    order = next((one for one in orders if _has_order(x.shape, x.strides, one)), orders[0])
    return Layouts((dense(x.shape, order),), (dense(request.outputs[0].shape, order),))


def _unpacked(taps: Table, kind: str, place: int) -> CStep:
    """Return the step that writes a table to scratch memory: positions, and weights if any.

    A result without taps has position -1. Weights come as the bits of doubles.
    """
    at = taps.at.copy()
    at[0, taps.empty] = -1
    numbers = [int(one) for one in at.reshape(-1)]
    body = [
        "const int64_t count = d[0];",
        f"for (int64_t i = 0; i < count; i++) tmp{place}[i] = (int32_t)d[1 + i];",
    ]
    operands: tuple[Reference, ...] = (f"tmp{place}:int32_t",)
    bits: list[int] = []
    if taps.weights is not None:
        body += [
            "for (int64_t i = 0; i < count; i++) {",
            f"double w; memcpy(&w, d + 1 + count + i, 8); tmp{place + 1}[i] = ({kind})w;",
            "}",
        ]
        operands += (f"tmp{place + 1}:{kind}",)
        doubles = np.ascontiguousarray(taps.weights, np.float64).tobytes()
        bits = list(struct.unpack(f"={taps.weights.size}q", doubles))
    return CStep("\n".join(body), operands, (len(numbers), *numbers, *bits), 1, len(numbers))


def _resampled(x: Value, y: Value, axis: int, taps: Table, kind: str, place: int) -> CStep:
    """Return the step that makes ``y`` of ``x``, whose lengths differ along one axis."""
    inner = y.strides[axis]
    outer = prod(y.shape) // (y.shape[axis] * inner)
    weighted = taps.weights is not None
    count = len(taps.at)
    term = "weight[{t} * size + i] * " if weighted else ""
    operands = (
        f"{x.name}:{kind}" if x.name.startswith("tmp") else x.name,
        f"{y.name}:{kind}" if y.name.startswith("tmp") else y.name,
        f"tmp{place}:int32_t",
        *((f"tmp{place + 1}:{kind}",) if weighted else ()),
    )
    lines = [
        "const int64_t length = d[0], size = d[1], inner = d[2], rows = d[3], block = d[4];",
        f"const int32_t *at = tmp{place};",
        *([f"const {kind} *weight = tmp{place + 1};"] if weighted else []),
    ]
    if inner == 1:
        terms = [f"{term.format(t=t)}p[MAX(0, at[{t} * size + i])]" for t in range(count)]
        lines += [
            "for (int64_t row = begin * block; row < MIN(rows, end * block); row++) {",
            f"const {kind} *p = {x.name} + row * length;",
            f"{kind} *restrict q = {y.name} + row * size;",
            "#pragma omp simd",
            f"for (int64_t i = 0; i < size; i++) q[i] = at[i] < 0 ? 0 : {' + '.join(terms)};",
            "}",
        ]
        rows = outer
    else:
        terms = [f"{term.format(t=t)}p{t}[j]" for t in range(count)]
        lines += [
            "for (int64_t row = begin * block; row < MIN(rows, end * block); row++) {",
            "const int64_t part = row / size, i = row % size;",
            f"const {kind} *p = {x.name} + part * length * inner;",
            f"{kind} *restrict q = {y.name} + row * inner;",
            "if (at[i] < 0) { memset(q, 0, inner * sizeof *q); continue; }",
            *(f"const {kind} *p{t} = p + at[{t} * size + i] * inner;" for t in range(count)),
            "#pragma omp simd",
            f"for (int64_t j = 0; j < inner; j++) q[j] = {' + '.join(terms)};",
            "}",
        ]
        rows = outer * y.shape[axis]
    block = max(1, UNIT * rows // prod(y.shape))
    dims = (x.shape[axis], y.shape[axis], inner, rows, block)
    return CStep("\n".join(lines), operands, dims, -(-rows // block), count * prod(y.shape))


def _emit(call: Call, axes: tuple[Resized, ...], tables: Callable[..., Table]) -> Emission | None:
    x, y = call.inputs[0], call.outputs[0]
    dtype = y.dtype.name
    if x is None or dtype not in TYPES or not call.has_only(dtype):
        return None
    if not y.size or not x.size:
        return None if y.size else Emission(())
    order = next(
        one
        for one in _orders(len(x.shape))
        if _has_order(x.shape, x.strides, one) and _has_order(y.shape, y.strides, one)
    )
    kind, rule = TYPES[dtype], call.attributes["rule"]
    steps: list[CStep] = []
    scratch: list[int] = []
    value = Value("in0", x.shape, order)
    for number, resized in enumerate(axes):
        taps = tables(resized, rule)
        axis = resized.axis
        shape = (*value.shape[:axis], y.shape[axis], *value.shape[axis + 1 :])
        place = len(scratch)
        scratch += [4 * taps.at.size, y.dtype.itemsize * taps.at.size]
        if number == len(axes) - 1:
            name = "out0"
        else:
            name = f"tmp{len(scratch)}"
            scratch.append(prod(shape) * y.dtype.itemsize)
        made = Value(name, shape, order)
        steps.append(_unpacked(taps, kind, place))
        steps.append(_resampled(value, made, axis, taps, kind, place))
        value = made
    return Emission(tuple(steps), tuple(scratch))


@emitter("nnl::resize", layouts=_layouts)
def emit_resize(call: Call) -> Emission | None:
    """Resample the axes in order."""
    return _emit(call, call.attributes["axes"], table)


@emitter("nnl::resize_adjoint", layouts=_layouts)
def emit_resize_adjoint(call: Call) -> Emission | None:
    """Add what was made of each element, by the transposed tables."""
    return _emit(call, tuple(reversed(call.attributes["axes"])), adjoint_table)
