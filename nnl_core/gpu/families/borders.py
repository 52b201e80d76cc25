"""Operators that put something around or between elements, and their sums back."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnl_core.gpu.families.movement import copy_all
from nnl_core.gpu.kernel import (
    FLOATING,
    Argument,
    Call,
    Emission,
    Launch,
    c_type,
    computing_type,
    emitter,
    given,
    kernel,
    result,
    scratch,
)
from nnl_core.gpu.strides import (
    bits_of,
    columns_of,
    numbers,
    one_of,
    over_rows,
    room_for,
    strides_of,
)
from nnl_core.graph.spec import Spec
from nnl_core.operators.padding import pairs
from nnl_core.operators.windows import placements, span

FILE = "borders.cu"


def _axes(axes: Sequence[Sequence[int]]) -> tuple[Argument, ...]:
    """Return the number of the last axis, and all that is said of each."""
    return *numbers(len(axes) - 1), *columns_of(axes, room_for(len(axes)))


# Around ------------------------------------------------------------------------------------------


@emitter("nnl::pad")
def pad(call: Call) -> Emission:
    """Put a margin around the array."""
    x, y = call.inputs[0], call.outputs[0]
    assert x is not None
    widths = pairs(call.attributes["pad_width"], x.ndim)
    borders = {"constant": 0, "repeat": 1, "reflect": 2}[call.attributes["mode"]]
    before = [first for first, _ in widths]
    return _bordered(x, y.shape, before, borders, call.attributes["constant_value"])


@emitter("nnl::shift")
def shift(call: Call) -> Emission:
    """Let the array begin elsewhere."""
    x = call.inputs[0]
    assert x is not None
    shifts = call.attributes["shifts"]
    before = [0] * (x.ndim - len(shifts)) + list(shifts)
    borders = {"nearest": 1, "reflect": 3}[call.attributes["border_mode"]]
    return _bordered(x, x.shape, before, borders, 0)


def _bordered(
    x: Spec, shape: Sequence[int], before: Sequence[int], borders: int, fill: float
) -> Emission:
    merged: list[tuple[int, int, int, int]] = []
    for length, first, source, stride in zip(
        shape, before, x.shape, strides_of(x.shape), strict=True
    ):
        if merged and length == source and not first and merged[-1][0] == merged[-1][2]:
            if not merged[-1][1]:
                merged[-1] = (merged[-1][0] * length, 0, merged[-1][2] * source, stride)
                continue
        merged.append((length, first, source, stride))
    merged = merged or [(1, 0, 1, 1)]
    text = kernel(FILE, "bordered", T=bits_of(x.dtype), RANK=room_for(len(merged)), BORDERS=borders)
    columns = merged[-1][0]
    rows = math.prod(axis[0] for axis in merged[:-1])
    where = (
        given(0),
        result(),
        *numbers(len(merged) - 1),
        *columns_of(merged, room_for(len(merged))),
        one_of(x.dtype, fill),
    )
    return Emission((over_rows(text, rows, columns, where),))


@emitter("nnl::pad_adjoint")
def pad_adjoint(call: Call) -> Emission:
    """Sum axis by axis; half precision is rounded once, at the end."""
    y = call.outputs[0]
    lengths = list(y.shape)
    widths = pairs(call.attributes["pad_width"], y.ndim)
    padded = [n + first + last for n, (first, last) in zip(lengths, widths, strict=True)]
    axes = [axis for axis in range(y.ndim) if any(widths[axis])]
    if not axes:
        return Emission((copy_all(y),))
    folded = 1 if call.attributes["mode"] == "repeat" else 2
    steps: list[Launch] = []
    pieces: list[int] = []
    source, source_type = given(0), c_type(y.dtype)
    for axis in axes:
        padded[axis] = lengths[axis]
        if axis == axes[-1]:
            target, target_type = result(), c_type(y.dtype)
        else:
            target, target_type = scratch(len(pieces)), computing_type(y.dtype)
            pieces.append(math.prod(padded) * max(4, y.dtype.itemsize))
        text = kernel(FILE, "border_sums", S=source_type, T=target_type, FOLDED=folded)
        rows, columns = math.prod(padded[: axis + 1]), math.prod(padded[axis + 1 :])
        where = (source, target, *numbers(lengths[axis], *widths[axis]))
        steps.append(over_rows(text, rows, columns, where))
        source, source_type = target, target_type
    return Emission(tuple(steps), tuple(pieces))


# Between -----------------------------------------------------------------------------------------


@emitter("nnl::getitem_adjoint")
def getitem_adjoint(call: Call) -> Emission:
    """Put what a slice takes back between zeros."""
    g, y = call.inputs[0], call.outputs[0]
    assert g is not None
    strides = iter(strides_of(g.shape))
    axes: list[tuple[int, int, int, int, int]] = []
    lengths = iter(y.shape)
    for item in (*call.attributes["key"], *[(None, None, None)] * y.ndim):
        if item is None:
            next(strides)
            continue
        length = next(lengths, None)
        if length is None:
            break
        if isinstance(item, tuple):
            start, stop, step = slice(*item).indices(length)
            axes.append((length, start, step, len(range(start, stop, step)), next(strides)))
        else:
            axes.append((length, item % length, 1, 1, 0))
    merged: list[tuple[int, int, int, int, int]] = []
    for axis in axes:
        whole = axis[1:4] == (0, 1, axis[0])
        # An axis that is taken whole is a part of the one before it, which counts in its lengths.
        if merged and whole and merged[-1][2] == 1 and merged[-1][4] == axis[0] * axis[4]:
            length, start, _, count, _ = merged[-1]
            n = axis[0]
            merged[-1] = (length * n, start * n, 1, count * n, axis[4])
        else:
            merged.append(axis)
    merged = merged or [(1, 0, 1, 1, 0)]
    text = kernel(FILE, "unsliced", T=bits_of(y.dtype), RANK=room_for(len(merged)), SLICED=1)
    rows = math.prod(axis[0] for axis in merged[:-1])
    where = (
        given(0),
        result(),
        *numbers(len(merged) - 1),
        *columns_of(merged, room_for(len(merged))),
        one_of(y.dtype, 0),
    )
    return Emission((over_rows(text, rows, merged[-1][0], where),))


@emitter("nnl::matrix_diag")
def matrix_diag(call: Call) -> Emission:
    """Zeros beside the diagonal."""
    y = call.outputs[0]
    size = y.shape[-1]
    text = kernel(FILE, "diagonal", T=bits_of(y.dtype), DIAGONALS=1)
    where = (given(0), result(), one_of(y.dtype, 0), *numbers(size))
    return Emission((over_rows(text, math.prod(y.shape[:-1]), size, where),))


@emitter("nnl::trilu")
def trilu(call: Call) -> Emission:
    """Zeros on one side of a diagonal."""
    return _triangle(call, 1 if call.attributes["upper"] else -1)


@emitter("nnl::eye_like")
def eye_like(call: Call) -> Emission:
    """Ones on a diagonal."""
    return _triangle(call, 0)


def _triangle(call: Call, keep: int) -> Emission:
    y = call.outputs[0]
    *outer, height, width = y.shape
    text = kernel(FILE, "triangle", T=bits_of(y.dtype), DIAGONALS=1)
    values = (one_of(y.dtype, 0), one_of(y.dtype, 1))
    where = (given(0), result(), *values, *numbers(height, call.attributes["k"], keep))
    return Emission((over_rows(text, math.prod(outer) * height, width, where),))


# Windows -----------------------------------------------------------------------------------------


@emitter("nnl::overlapped")
def overlapped(call: Call) -> Emission | None:
    """Each element looks for the pieces that it is in."""
    x, y = call.inputs[0], call.outputs[0]
    assert x is not None
    if not call.has_only(*FLOATING):
        return None
    count, size = x.shape[-2:]
    text = kernel(FILE, "overlapped", T=c_type(y.dtype), OVERLAPPED=1)
    where = (given(0), result(), *numbers(count, size, call.attributes["stride"]))
    rows = math.prod(y.shape[:-1])
    return Emission((over_rows(text, rows, y.shape[-1], where),))


def _windows(call: Call, size: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return, by axis, what a kernel sees as its ``Windows``."""
    options = call.attributes
    kernel_, stride, dilation = options["kernel"], options["stride"], options["dilation"]
    places = placements(size, span(kernel_, dilation), stride, options["pad"])
    before = tuple(first for first, _ in options["pad"])
    return tuple(zip(size, kernel_, places, stride, before, dilation, strict=True))


@emitter("nnl::unfold")
def unfold(call: Call) -> Emission:
    """Each result looks for its element."""
    x, y = call.inputs[0], call.outputs[0]
    assert x is not None
    windows = _windows(call, x.shape[2:])
    text = kernel(FILE, "unfolded", T=bits_of(y.dtype), WINDOWS=len(windows))
    columns = windows[-1][2]
    where = (given(0), result(), *columns_of(windows, len(windows)), one_of(y.dtype, 0))
    return Emission((over_rows(text, y.size // columns, columns, where),))


@emitter("nnl::fold")
def fold(call: Call) -> Emission:
    """Each element looks for the windows that it is in."""
    y = call.outputs[0]
    windows = _windows(call, call.attributes["size"])
    text = kernel(FILE, "refolded", T=c_type(y.dtype), WINDOWS=len(windows), SUMMED=1)
    columns = y.shape[-1]
    rows = y.size // columns if columns else 0
    where = (given(0), result(), *columns_of(windows, len(windows)))
    return Emission((over_rows(text, rows, columns, where),))
