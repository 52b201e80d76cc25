"""Arrays as kernels of movement see them: axes with strides, rows of a plane, wide elements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from nnl_core.gpu.kernel import THREADS, Address, Argument, Kernel, Launch, blocks

CARRIERS = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint2", 16: "uint4"}
"""Types that elements are moved in: what bits mean does not matter to who moves them."""

MOST_BLOCKS = 1 << 20
BUSY = 1 << 19  # threads that keep a device busy: with more items than this, each takes several


class Axis(NamedTuple):
    """A length, and how far apart neighbours are in the source and in the target."""

    length: int
    source: int
    target: int = 0


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a C-contiguous array, in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def merge(axes: Iterable[Axis]) -> list[Axis]:
    """Drop axes of length 1, and join neighbours that are one axis in source and target.

    At least one axis remains.
    """
    found: list[Axis] = []
    for axis in axes:
        if axis.length == 1:
            continue
        if found and all(
            outer == inner * axis.length
            for outer, inner in zip(found[-1][1:], axis[1:], strict=True)
        ):
            found[-1] = Axis(found[-1].length * axis.length, *axis[1:])
        else:
            found.append(axis)
    return found or [Axis(1, 1, 1)]


def carrier(*sizes: int) -> int:
    """Return the bytes of the widest element that all these sizes, in bytes, are multiples of."""
    return math.gcd(16, *sizes)


def numbers(*values: int) -> tuple[Argument, ...]:
    """Return whole numbers as arguments: parameters ``int64_t``, or one structure of them."""
    return tuple(np.int64(value) for value in values)


ROOMS = (4, 8, 16, 32)
TYPES = (
    "int64",
    "int32",
    "int16",
    "int8",
    "uint64",
    "uint32",
    "uint16",
    "uint8",
    "bool",
    "float32",
    "float64",
    "float16",
    "bfloat16",
)


def room_for(count: int) -> int:
    """Return how many axes a kernel is compiled for, of which it uses ``count``: few texts do."""
    return next(room for room in ROOMS if room >= count)


def columns_of(axes: Sequence[Sequence[int]], room: int) -> tuple[Argument, ...]:
    """Return one array of ``room`` numbers for each field that all axes have."""
    fields = zip(*axes, strict=True)
    return numbers(*(number for field in fields for number in (*field, *[0] * (room - len(axes)))))


def any_type(address: Address, dtype: np.dtype) -> tuple[Argument, ...]:
    """Return what a kernel sees as ``Numbers``, whose type it is told at run time."""
    return address, np.int64(TYPES.index(dtype.name))


def bits_of(dtype: np.dtype) -> str:
    """Return the type of an element's bits in C, for those that move it or know its bits."""
    return f"uint{8 * dtype.itemsize}_t"


def one_of(dtype: np.dtype, value: float) -> np.generic:
    """Return the bits of a value."""
    bits: np.generic = np.asarray(value).astype(dtype).reshape(1).view(f"u{dtype.itemsize}")[0]
    return bits


def over_rows(function: Kernel, rows: int, columns: int, arguments: Sequence[Argument]) -> Launch:
    """Launch threads over the rows and columns of a plane (``FOR_ROWS``, ``FOR_COLUMNS``).

    The kernel is given both numbers as last arguments. Divisions that a row needs are done once by
    a thread, not for each column.
    """
    across = min(THREADS, 1 << max(0, columns - 1).bit_length())
    down = THREADS // across
    each = 4 if rows * columns > 4 * BUSY else 1
    grid = min(blocks(rows, down), MOST_BLOCKS), min(blocks(columns, across * each), 65535), 1
    return Launch(function, grid, (across, down, 1), (*arguments, *numbers(rows, columns)))
