"""NumPy kernels of taking elements by position, and of summing where positions repeat."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nnl_core.graph.operator import Array
from nnl_core.graph.spec import promote
from nnl_core.operators import gathering, scattering
from nnl_core.operators.gathering import as_positions, flat_places

SMALL = 4096  # numbers up to which NumPy's own loop is faster than sorting the positions
MANY = 8  # repetitions of one position from which runs of equal positions are summed as a whole


def sum_rows(rows: Array, positions: Array, result: Array) -> None:
    """Do ``result[positions[i]] += rows[i]``, in an order that the positions alone decide.

    ``rows`` is (count, width), ``positions`` (count,), ``result`` (length, width). NumPy adds one
    number at a time; here whole rows are, or for many repetitions whole runs.
    """
    if not rows.size:
        return
    if rows.shape[1] == 1:
        np.add.at(result[:, 0], positions, rows[:, 0])
        return
    if rows.size <= SMALL:
        np.add.at(result, positions, rows)
        return
    order = np.argsort(positions, kind="stable")
    ordered = positions[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    lengths = np.diff(np.append(first, len(ordered)))
    longest = int(lengths.max())
    if longest > MANY:
        result[ordered[first]] += np.add.reduceat(rows[order], first, axis=0)
        return
    for turn in range(longest):
        at = first[lengths > turn] + turn
        result[ordered[at]] += rows[order[at]]


def _summed(rows: Array, positions: Array, length: int, out: Array | None) -> Array:
    """Sum rows into zeros of (length, width)."""
    result = np.empty((length, rows.shape[1]), rows.dtype) if out is None else out
    result.fill(0)
    sum_rows(rows, positions, result)
    return result


def _gather(x: Array, indices: Array, *, axis: int, batch_dims: int, out: Array | None) -> Array:
    if batch_dims:
        taken: Array = gathering.gather_operator.reference(
            x, indices, axis=axis, batch_dims=batch_dims
        )
        if out is None:
            return taken
        np.copyto(out, taken)
        return out
    axis %= x.ndim
    positions = as_positions(indices, x.shape[axis], f"gather along axis {axis}")
    # They are in range: "clip" tells NumPy to check nothing and to write to `out` directly.
    return np.asarray(np.take(x, positions, axis, out=out, mode="clip"))


def _gather_adjoint(
    g: Array, indices: Array, *, size: int, axis: int, batch_dims: int, out: Array | None
) -> Array:
    positions = as_positions(indices, size, f"gather along axis {axis}")
    batch, outer = math.prod(g.shape[:batch_dims]), math.prod(g.shape[batch_dims:axis])
    taken = math.prod(indices.shape[batch_dims:])
    inner = g.shape[axis + indices.ndim - batch_dims :]
    shape = (*g.shape[:axis], size, *inner)
    if not math.prod(shape) or not g.size:
        if out is None:
            return np.zeros(shape, g.dtype)
        out.fill(0)
        return out
    # Batches and outer axes become a part of the position: row (batch, outer, position).
    rows = g.reshape(batch * outer * taken, math.prod(inner))
    starts = np.arange(batch * outer).reshape(batch, outer, 1) * size
    flat = (starts + positions.reshape(batch, 1, taken)).reshape(-1)
    target = None if out is None else out.reshape(batch * outer * size, math.prod(inner))
    result = _summed(rows, flat, batch * outer * size, target)
    return result.reshape(shape) if out is None else out


def _gather_elements(x: Array, indices: Array, *, axis: int, out: Array | None) -> Any:
    places = flat_places(indices, x.shape, axis % x.ndim, "gather_elements")
    if not places.size:
        return np.empty(indices.shape, x.dtype) if out is None else out
    return np.take(x.reshape(-1), places.reshape(indices.shape), out=out, mode="clip")


def _scatter_add(x0: Array, indices: Array, x1: Array, *, axis: int, out: Array | None) -> Array:
    places = flat_places(indices, x0.shape, axis % x0.ndim, "scatter_add")
    values = x1[tuple(slice(length) for length in indices.shape)]
    y = np.empty(x0.shape, promote(x0.dtype, x1.dtype)) if out is None else out
    np.copyto(y, x0)
    np.add.at(y.reshape(-1), places, values.reshape(-1).astype(y.dtype, copy=False))
    return y


gathering.gather_elements_operator.kernel("numpy", _gather_elements)
gathering.scatter_add_operator.kernel("numpy", _scatter_add)
gathering.gather_operator.kernel("numpy", _gather)
gathering.gather_adjoint.kernel("numpy", _gather_adjoint)


def _flat(indices: Array, shape: tuple[int, ...], what: str) -> Array:
    """Return the row that each column of indices names, of an array with its first axes as one."""
    flat = np.zeros(indices.shape[1:], np.intp)
    for axis, row in enumerate(indices):
        flat *= shape[axis]
        flat += as_positions(row, shape[axis], f"{what}, axis {axis}", from_end=True)
    return flat


def _gather_nd(data: Array, indices: Array, *, out: Array | None) -> Array:
    depth = len(indices)
    flat = _flat(indices, data.shape, "gather_nd")
    if not data.size:
        return np.empty((*flat.shape, *data.shape[depth:]), data.dtype) if out is None else out
    rows = data.reshape(-1, *data.shape[depth:])
    return np.asarray(np.take(rows, flat, 0, out=out, mode="clip"))


def _scatter_nd(
    data: Array,
    indices: Array,
    base: Array | None = None,
    *,
    shape: tuple[int, ...],
    add: bool,
    out: Array | None,
) -> Array:
    if not add or base is not None or not data.size or not indices.size:
        result: Array = scattering.scatter_nd_operator.reference(
            data, indices, base, shape=shape, add=add
        )
        if out is None:
            return result
        np.copyto(out, result)
        return out
    depth = len(indices)
    width, length = math.prod(shape[depth:]), math.prod(shape[:depth])
    flat = _flat(indices, shape, "scatter_nd").reshape(-1)
    target = None if out is None else out.reshape(length, width)
    summed = _summed(data.reshape(-1, width), flat, length, target)
    return summed.reshape(shape) if out is None else out


scattering.gather_nd_operator.kernel("numpy", _gather_nd)
scattering.scatter_nd_operator.kernel("numpy", _scatter_nd)


def _one_hot(x: Array, *, shape: tuple[int, ...], out: Array | None) -> Any:
    if out is None:
        return scattering.one_hot_operator.reference(x, shape=shape)
    flat = _flat(np.moveaxis(x, -1, 0), shape, "one_hot") if x.size else np.zeros(0, np.intp)
    out.fill(0)
    np.put_along_axis(out.reshape(-1, math.prod(shape)), flat.reshape(-1, 1), 1, axis=1)
    return out


scattering.one_hot_operator.kernel("numpy", _one_hot)
