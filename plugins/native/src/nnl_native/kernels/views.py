"""Outputs that are seen through their input's memory, and need no step."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from nnl_core.graph.spec import normalize_axes
from nnl_native.kernel import LayoutRequest, Operand, View, plain, viewer


def reshaped(
    shape: Sequence[int], strides: Sequence[int], wanted: Sequence[int]
) -> tuple[int, ...] | None:
    """Return the strides of the same elements, in row-major order, in another shape.

    ``None`` where no strides reach them. The sizes agree.
    """
    if not prod(wanted):
        return plain(wanted).strides
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    # Runs of axes that are evenly spaced as one: their length and innermost stride.
    runs: list[list[int]] = []
    for length, stride in old:
        if runs and runs[-1][1] == stride * length:
            runs[-1] = [runs[-1][0] * length, stride]
        else:
            runs.append([length, stride])
    result = [1] * len(wanted)
    left, stride = runs.pop() if runs else (1, 1)
    for axis in reversed(range(len(wanted))):
        length = wanted[axis]
        if left == 1 and length != 1 and runs:
            left, stride = runs.pop()
        if left % length:
            return None
        result[axis] = stride
        left, stride = left // length, stride * length
    return tuple(result)


def _seen(request: LayoutRequest) -> Operand | None:
    """Return the first input, where strides say where its elements are."""
    first = request.inputs[0]
    return None if first is None or first.layout.opaque is not None else first


@viewer("nnl::reshape", "nnl::expand_dims", "nnl::squeeze")
def see_reshaped(request: LayoutRequest) -> View | None:
    """See the elements in another shape, where strides can say so."""
    x = _seen(request)
    if x is None:
        return None
    strides = reshaped(x.shape, x.strides, request.outputs[0].shape)
    return None if strides is None else View(strides)


@viewer("nnl::transpose")
def see_transposed(request: LayoutRequest) -> View | None:
    """See the axes in another order."""
    x = _seen(request)
    if x is None:
        return None
    return View(tuple(x.strides[axis] for axis in request.attributes["axes"]))


@viewer("nnl::getitem")
def see_part(request: LayoutRequest) -> View | None:
    """See a part, where no step is negative."""
    x = _seen(request)
    if x is None:
        return None
    strides, offset = part_of(x.shape, x.strides, request.attributes["key"])
    return View(strides, offset) if min(strides, default=1) > 0 else None


@viewer("nnl::split")
def see_split(request: LayoutRequest) -> tuple[View, ...] | None:
    """See each position along an axis, which goes."""
    x = _seen(request)
    if x is None:
        return None
    axis = request.attributes["axis"] % len(x.shape)
    strides = (*x.strides[:axis], *x.strides[axis + 1 :])
    return tuple(View(strides, k * x.strides[axis]) for k in range(x.shape[axis]))


def part_of(
    shape: Sequence[int], strides: Sequence[int], key: Sequence[Any]
) -> tuple[tuple[int, ...], int]:
    """Return strides and offset of what an encoded key of `getitem` takes.

    A new axis has stride 1. Strides are negative along steps that are.
    """
    taken: list[int] = []
    offset = axis = 0
    for item in key:
        if item is None:
            taken.append(1)
            continue
        if isinstance(item, tuple):
            start, stop, step = slice(*item).indices(shape[axis])
            taken.append(step * strides[axis])
            if range(start, stop, step):
                offset += start * strides[axis]
        else:
            offset += (item % shape[axis]) * strides[axis]
        axis += 1
    return (*taken, *strides[axis:]), offset


def reversed_along(
    shape: Sequence[int], strides: Sequence[int], axes: Sequence[int]
) -> tuple[tuple[int, ...], int]:
    """Return strides and offset of the elements in reverse order along axes."""
    turned = set(normalize_axes(axes, len(shape)))
    offset = sum((shape[axis] - 1) * strides[axis] for axis in turned if shape[axis])
    return tuple(-s if axis in turned else s for axis, s in enumerate(strides)), offset
