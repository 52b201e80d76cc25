"""Windows that slide over the last axes of an array: arguments, lengths, and views of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from nnl_core.errors import ShapeError
from nnl_core.graph.checks import whole, wholes
from nnl_core.graph.operator import Array

Lengths = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


def lengths(name: str, value: int | Sequence[int] | None, count: int, default: int) -> Lengths:
    """Return one positive length per axis from ``None``, one number or a sequence."""
    if value is None:
        return (default,) * count
    listed = (value,) * count if isinstance(value, (int, np.integer)) else wholes(value, name)
    if len(listed) != count or any(n < 1 for n in listed):
        raise ShapeError(f"{name} {listed} must hold {count} lengths of at least 1")
    return tuple(int(n) for n in listed)


def groups(group: int) -> int:
    """Return a number of groups; raise `ShapeError` below 1."""
    if whole(group, "group") < 1:
        raise ShapeError(f"group {group} must be at least 1")
    return int(group)


def window_shape(kernel: Sequence[int]) -> Lengths:
    """Return a window's shape; its length says how many axes are spatial."""
    if not isinstance(kernel, (Sequence, np.ndarray)):
        raise ShapeError(
            f"kernel {kernel!r} must hold one length for each spatial axis, such as (2, 2)"
        )
    return lengths("kernel", kernel, len(kernel), 1)


def pairs(value: int | Sequence[int | Sequence[int]] | None, count: int) -> Pairs:
    """Return padding (before, after) each axis from ``None``, one number, numbers or pairs."""
    if value is None:
        return ((0, 0),) * count
    listed = (value,) * count if isinstance(value, (int, np.integer)) else tuple(value)
    both = [
        wholes(p, "pad") if isinstance(p, (tuple, list, np.ndarray)) else (whole(p, "pad"),) * 2
        for p in listed
    ]
    if len(both) != count or any(len(p) != 2 or min(p) < 0 for p in both):
        raise ShapeError(
            f"pad {listed} must hold {count} lengths, or (before, after) pairs, of at least 0"
        )
    return tuple((before, after) for before, after in both)


def span(kernel: Sequence[int], dilation: Sequence[int]) -> Lengths:
    """Return the length that a dilated kernel covers, per axis."""
    return tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))


def placements(
    length: Sequence[int],
    covered: Sequence[int],
    stride: Sequence[int],
    pad: Sequence[tuple[int, int]],
) -> Lengths:
    """Return how many windows lie wholly inside each padded axis; none is an error."""
    counts = []
    for n, k, s, (before, after) in zip(length, covered, stride, pad, strict=True):
        count = (n + before + after - k) // s + 1
        if count < 1:
            raise ShapeError(
                f"a window that covers {k} does not fit in an axis of length {n} padded by "
                f"({before}, {after})"
            )
        counts.append(count)
    return tuple(counts)


def trailing(slices: Iterable[slice]) -> tuple[Any, ...]:
    """Return the index that takes slices of the last axes."""
    return (..., *slices)


def padded(x: Array, pad: Sequence[tuple[int, int]], value: float = 0) -> Array:
    """Pad the last axes with ``value``; a negative length crops."""
    first = x.ndim - len(pad)
    widths = [(0, 0)] * first + [(max(0, before), max(0, after)) for before, after in pad]
    grown = np.pad(x, widths, constant_values=value)
    return grown[
        trailing(
            slice(max(0, -before), grown.shape[axis] - max(0, -after))
            for axis, (before, after) in enumerate(pad, start=first)
        )
    ]


def sliding(
    x: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int] | None = None
) -> Array:
    """Return a view of all windows: the kernel's axes are appended to those of the placements."""
    count = len(kernel)
    steps = tuple(dilation or (1,) * count)
    axes = tuple(range(x.ndim - count, x.ndim))
    view = np.lib.stride_tricks.sliding_window_view(x, span(kernel, steps), axis=axes)
    places = tuple(slice(None, None, s) for s in stride)
    taps = tuple(slice(None, None, d) for d in steps)
    return view[trailing((*places, *taps))]


def taps(kernel: Sequence[int]) -> list[Lengths]:
    """Return the positions inside a kernel, in row-major order."""
    return list(itertools.product(*map(range, kernel)))


def volume(kernel: Sequence[int]) -> int:
    """Return the number of positions inside a kernel."""
    return math.prod(kernel)
