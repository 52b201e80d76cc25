"""NumPy kernels of warping: taps of many points at once, then picture by picture, in threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnl_core.cpu.threads import share
from nnl_core.graph.operator import Array
from nnl_core.graph.spec import promote
from nnl_core.operators import warping as family
from nnl_core.operators.taps import as_rows, read_rows

POINTS = 1 << 14  # points whose taps are found at once, unless one picture has more

Taps = list[tuple[Array, Array]]


def _each(
    function: Callable[[Array, Taps], Array],
    pictures: Array,
    points: Array,
    shape: tuple[int, ...],
    result: Array,
    options: dict[str, Any],
) -> Array:
    """Turn the rows of one picture after the other into those of the result."""
    dtype, pixels = promote(pictures.dtype, points.dtype), math.prod(shape)
    step = max(1, POINTS // max(1, math.prod(points.shape[1:-1])))

    def work(run: Sequence[int]) -> None:
        for start in range(run[0], run[-1] + 1, step):
            part = range(start, min(run[-1] + 1, start + step))
            taps = [
                (at.reshape(len(part), -1), weight.reshape(len(part), -1))
                for at, weight in family.find_taps(
                    points[part.start : part.stop], shape, dtype=dtype, **options
                )
            ]
            for number, place in enumerate(part):
                own = [(at[number] - number * pixels, weight[number]) for at, weight in taps]
                rows = function(as_rows(pictures[place : place + 1]), own)
                result[place] = rows.T.reshape(result.shape[1:])

    if result.size:
        share(work, range(len(pictures)))
    return result


def sample_points(x: Array, points: Array, *, out: Array | None = None, **options: Any) -> Array:
    """Read pictures at points."""
    y = np.empty((*x.shape[:2], *points.shape[1:-1]), x.dtype) if out is None else out
    dtype = promote(x.dtype, points.dtype)

    def read(rows: Array, taps: Taps) -> Array:
        return read_rows(rows, taps, dtype)

    return _each(read, x, points, x.shape[2:], y, options)


def sample_points_adjoint(
    g: Array, points: Array, *, shape: tuple[int, ...], out: Array | None = None, **options: Any
) -> Array:
    """Add gradients to the pixels that were read."""
    dx = np.empty((*g.shape[:2], *shape), g.dtype) if out is None else out
    dtype, channels = promote(g.dtype, points.dtype), np.arange(g.shape[1])
    pixels = math.prod(shape)

    def write(rows: Array, taps: Taps) -> Array:
        sums = np.zeros(pixels * len(channels), dtype)
        for at, weight in taps:
            counts = np.flatnonzero(weight)
            places = at[counts, None] * len(channels) + channels
            np.add.at(sums, places.reshape(-1), (rows[counts] * weight[counts, None]).reshape(-1))
        return sums.reshape(pixels, len(channels))

    return _each(write, g, points, shape, dx, options)


family.sample_points.kernel("numpy", sample_points)
family.sample_points_adjoint.kernel("numpy", sample_points_adjoint)
