"""Loops over the elements of operands that broadcast: axes merged where strides allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Loops(NamedTuple):
    """Axes of the elements to go through, merged where strides allow, the innermost last.

    ``strides`` has, for each operand, its stride along each of the axes.
    """

    lengths: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]


def merge_axes(
    shape: Sequence[int], order: Sequence[int], strides: Sequence[Sequence[int]]
) -> Loops:
    """Return the loops over a shape, axes from the outermost to the innermost as ``order`` says.

    ``strides`` are those of each operand along the axes of ``shape``, 0 where it repeats.
    """
    axes = [axis for axis in order if shape[axis] != 1]
    lengths: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis in axes:
        joins = bool(lengths) and all(
            known[-1] == given[axis] * shape[axis]
            for known, given in zip(steps, strides, strict=True)
        )
        if joins:
            lengths[-1] *= shape[axis]
            for known, given in zip(steps, strides, strict=True):
                known[-1] = given[axis]
        else:
            lengths.append(shape[axis])
            for known, given in zip(steps, strides, strict=True):
                known.append(given[axis])
    return Loops(tuple(lengths), tuple(map(tuple, steps)))
