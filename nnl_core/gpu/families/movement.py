"""Operators that put elements elsewhere: axes in another order, parts of arrays, joined arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from nnl_core.gpu.kernel import (
    NULL,
    Address,
    Argument,
    Call,
    Emission,
    Launch,
    c_type,
    emitter,
    given,
    kernel,
    over,
    result,
)
from nnl_core.gpu.strides import (
    CARRIERS,
    Axis,
    carrier,
    columns_of,
    merge,
    numbers,
    over_rows,
    room_for,
    strides_of,
)
from nnl_core.graph.spec import Spec, normalize_axes, normalize_axis
from nnl_core.operators.indexing import as_key

FILE = "movement.cu"
FIRST, RESULT = given(0), result()
SHORT = 8  # axes below this length are swapped through the cache, not through shared memory
MOST_TILES = (1 << 31) - 1
PARTS = (2, 8, 32)  # how many arrays one launch joins


# Strides -----------------------------------------------------------------------------------------


def copy_strided(
    itemsize: int,
    shape: Sequence[int],
    strides: Sequence[int],
    offset: int = 0,
    source: Address = FIRST,
    target: Address = RESULT,
) -> Launch:
    """Copy ``shape`` elements, which lie ``strides`` apart from ``offset`` on, in row-major order.

    Strides and offset are in elements, and may be negative or 0.
    """
    if 0 in shape:
        shape, strides = (0,), (1,)
    places = strides_of(shape)
    axes = merge(map(Axis, shape, strides, places))
    if axes[-1].source != 1:
        swapped = _swap(itemsize, axes, offset, source, target)
        if swapped is not None:
            return swapped
        unit = 1
    else:
        inner = axes[-1].length * itemsize
        others = (n * itemsize for axis in axes[:-1] for n in axis[1:])
        unit = carrier(inner, offset * itemsize, *others) // itemsize
    outer = [Axis(n, s // unit) for n, s, _ in axes[:-1]] or [Axis(1, 0)]
    columns = axes[-1].length // unit
    text = kernel(
        FILE, "strided", T=CARRIERS[unit * itemsize], RANK=room_for(len(outer)), STRIDED=1
    )
    step = axes[-1].source if unit == 1 else 1
    rows = math.prod(axis.length for axis in outer)
    where = (*_axes(outer), *numbers(offset // unit, step))
    return over_rows(text, rows, columns, (source, target, *where))


def _swap(
    itemsize: int, axes: list[Axis], offset: int, source: Address, target: Address
) -> Launch | None:
    """Copy tile by tile, where the source is contiguous along another axis than the result."""
    down = axes[-1]
    found = [axis for axis in axes[:-1] if abs(axis.source) == 1 and axis.length >= SHORT]
    if not found or down.length < SHORT:
        return None
    across = found[0]
    outer = [axis for axis in axes[:-1] if axis is not across] or [Axis(1, 0)]
    tile = 32 if itemsize > 2 else 64
    tiles = -(-down.length // tile), -(-across.length // tile)
    grid = math.prod(tiles) * math.prod(axis.length for axis in outer)
    if grid > MOST_TILES:
        return None
    text = kernel(FILE, "transposed", T=CARRIERS[itemsize], RANK=room_for(len(outer)), TILE=tile)
    where = numbers(offset, down.length, down.source, *across, *tiles)
    return Launch(text, (grid, 1, 1), (32, 8, 1), (source, target, *_axes(outer), *where))


def _axes(axes: Sequence[Axis]) -> tuple[Argument, ...]:
    """Return what a kernel sees as its ``Axes``."""
    return *numbers(len(axes)), *columns_of(axes, room_for(len(axes)))


def copy_all(spec: Spec, source: Address = FIRST, target: Address = RESULT) -> Launch:
    """Copy everything as it is."""
    return copy_strided(spec.dtype.itemsize, (spec.size,), (1,), 0, source, target)


def fill(spec: Spec, value: float, target: Address = RESULT) -> Launch:
    """Set every element to one value."""
    text = kernel(FILE, "filled", T=c_type(spec.dtype), FILLED=1)
    return over(text, spec.size, (target, spec.dtype.type(value)))


@emitter("nnl::reshape", "nnl::expand_dims", "nnl::squeeze")
def same_order(call: Call) -> Emission:
    """Copy: the elements are seen in another shape."""
    return Emission((copy_all(call.outputs[0]),))


@emitter("nnl::unlink")
def unlink(call: Call) -> Emission:
    """Copy the only input."""
    return Emission((copy_all(call.outputs[0]),))


@emitter("nnl::assign", "nnl::pass_gradient")
def second(call: Call) -> Emission:
    """Copy the second input."""
    return Emission((copy_all(call.outputs[0], given(1)),))


def _view(call: Call, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> Emission:
    itemsize = call.outputs[0].dtype.itemsize
    return Emission((copy_strided(itemsize, shape, strides, offset),))


def _given(call: Call) -> Spec:
    x = call.inputs[0]
    assert x is not None
    return x


@emitter("nnl::transpose")
def transpose(call: Call) -> Emission:
    """Take the axes in another order."""
    x = _given(call)
    strides = strides_of(x.shape)
    axes = call.attributes["axes"]
    return _view(call, call.outputs[0].shape, [strides[axis] for axis in axes])


@emitter("nnl::flip")
def flip(call: Call) -> Emission:
    """Go backwards along some axes."""
    x = _given(call)
    strides = list(strides_of(x.shape))
    offset = 0
    for axis in normalize_axes(call.attributes["axes"], x.ndim):
        offset += (x.shape[axis] - 1) * strides[axis]
        strides[axis] *= -1
    return _view(call, x.shape, strides, offset)


@emitter("nnl::tile")
def tile(call: Call) -> Emission:
    """Stand still along the repetitions."""
    x, reps = _given(call), call.attributes["reps"]
    ndim = max(len(reps), x.ndim)
    counts = (1,) * (ndim - len(reps)) + tuple(reps)
    lengths = (1,) * (ndim - x.ndim) + x.shape
    strides = strides_of(lengths)
    shape = [n for pair in zip(counts, lengths, strict=True) for n in pair]
    return _view(call, shape, [s for stride in strides for s in (0, stride)])


@emitter("nnl::getitem")
def getitem(call: Call) -> Emission:
    """See the input through the strides that NumPy gives."""
    x = _given(call)
    # NumPy knows the rules; a view of one byte stands for the array, whatever its size.
    whole = np.lib.stride_tricks.as_strided(
        np.zeros(1, np.int8), x.shape, strides_of(x.shape), writeable=False
    )
    part = whole[as_key(call.attributes["key"])]
    offset = part.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    return _view(call, part.shape, part.strides, offset)


@emitter("nnl::frames")
def frames(call: Call) -> Emission:
    """See overlapping pieces."""
    x, y = _given(call), call.outputs[0]
    strides = strides_of(x.shape)
    return _view(call, y.shape, (*strides[:-1], call.attributes["stride"], 1))


@emitter("nnl::matrix_diag_part")
def matrix_diag_part(call: Call) -> Emission:
    """Go along rows and columns at once."""
    y = call.outputs[0]
    size = y.shape[-1]
    outer = [stride * size for stride in strides_of(y.shape)[:-1]]
    return _view(call, y.shape, (*outer, size + 1))


@emitter("nnl::shape")
def shape(call: Call) -> Emission:
    """Write lengths that are known already."""
    y = call.outputs[0]
    lengths = _given(call).shape[call.attributes["start"] : call.attributes["end"]]
    return Emission(
        tuple(
            fill(Spec((1,), y.dtype), length, result(0, axis * y.dtype.itemsize))
            for axis, length in enumerate(lengths)
        )
    )


@emitter("nnl::sink")
def sink(call: Call) -> Emission:
    """Write the zero that stands for everything that was computed."""
    return Emission((fill(call.outputs[0], 0),))


# Joined arrays -----------------------------------------------------------------------------------


@emitter("nnl::concatenate")
def concatenate(call: Call) -> Emission:
    """Put parts side by side."""
    y = call.outputs[0]
    axis = normalize_axis(call.attributes["axis"], y.ndim)
    parts = [x for x in call.inputs if x is not None]
    return _joined(y, parts, math.prod(y.shape[:axis]), math.prod(y.shape[axis:]))


@emitter("nnl::stack")
def stack(call: Call) -> Emission:
    """Put arrays side by side along an axis that they have not."""
    y = call.outputs[0]
    axis = normalize_axis(call.attributes["axis"], y.ndim)
    parts = [x for x in call.inputs if x is not None]
    return _joined(y, parts, math.prod(y.shape[:axis]), math.prod(y.shape[axis:]))


def _joined(y: Spec, parts: Sequence[Spec], rows: int, length: int) -> Emission:
    if not y.size:
        return Emission(())
    widths = [part.size // rows for part in parts]
    if any(part.dtype != y.dtype for part in parts):
        steps, start = [], 0
        for number, (part, width) in enumerate(zip(parts, widths, strict=True)):
            text = kernel(FILE, "converted", S=c_type(part.dtype), T=c_type(y.dtype))
            where = (given(number), result(), *numbers(length, start))
            steps.append(over_rows(text, rows, width, where))
            start += width
        return Emission(tuple(steps))
    addresses = [given(number) for number in range(len(parts))]
    return Emission(tuple(_beside("joined", y, result(), addresses, widths, rows)))


@emitter("nnl::split")
def split(call: Call) -> Emission:
    """Take slices apart."""
    x = _given(call)
    if not x.size:
        return Emission(())
    axis = normalize_axis(call.attributes["axis"], x.ndim)
    rows = math.prod(x.shape[:axis])
    addresses = [result(number) for number in range(x.shape[axis])]
    widths = [math.prod(x.shape[axis + 1 :])] * x.shape[axis]
    return Emission(tuple(_beside("parted", x, given(0), addresses, widths, rows)))


def _beside(
    entry: str,
    whole: Spec,
    address: Address,
    parts: Sequence[Address],
    widths: Sequence[int],
    rows: int,
) -> Iterator[Launch]:
    """Move the columns of parts to or from a whole, many parts in one launch."""
    itemsize = whole.dtype.itemsize
    unit = carrier(*(width * itemsize for width in widths))
    wide = [width * itemsize // unit for width in widths]
    starts = np.cumsum([0, *wide]).tolist()
    for first in range(0, len(parts), PARTS[-1]):
        some = list(parts[first : first + PARTS[-1]])
        room = next(count for count in PARTS if count >= len(some))
        own = starts[first : first + len(some) + 1]
        own += own[-1:] * (room + 1 - len(own))
        text = kernel(FILE, entry, T=CARRIERS[unit], PARTS=room)
        some += [NULL] * (room - len(some))
        where = (address, *some, *numbers(*own, starts[-1]))
        yield over_rows(text, rows, own[-1] - own[0], where)
