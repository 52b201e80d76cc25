"""NumPy kernels of extremes along an axis."""

from __future__ import annotations

import numpy as np

from nnl_core.graph.operator import Array
from nnl_core.operators import extremes as family
from nnl_core.operators.sorting import sort_operator

Pair = tuple[Array, Array]
WORTH = 64  # from which length on selecting is faster than sorting


def _running_extreme(
    x: Array, *, axis: int, smallest: bool, reverse: bool, out: Pair | None
) -> Pair:
    """Number the runs of equal extremes: an element's index is where its run begins."""
    y, index = (np.empty(x.shape, x.dtype), np.empty(x.shape, np.int64)) if out is None else out
    way = slice(None, None, -1 if reverse else 1)
    source, running, places = (np.moveaxis(one, axis, -1)[..., way] for one in (x, y, index))
    (np.minimum if smallest else np.maximum).accumulate(source, axis=-1, out=running)
    before, behind = running[..., :-1], running[..., 1:]
    is_new = np.ones(running.shape, bool)
    np.not_equal(before, behind, out=is_new[..., 1:])
    if (running[..., -1:] != running[..., -1:]).any():
        is_new[..., 1:] &= before == before  # only the first NaN is new
    starts = np.flatnonzero(is_new)
    lengths = np.diff(starts, append=x.size)
    steps = starts % max(1, x.shape[axis])
    if reverse:
        np.subtract(x.shape[axis] - 1, steps, out=steps)
    places[...] = np.repeat(steps, lengths).reshape(places.shape)
    return y, index


def _topk(x: Array, *, k: int, axis: int, largest: bool, out: Pair | None) -> Pair:
    """Select what is at least as extreme as the element of rank ``k``, then sort that alone."""
    length = x.shape[axis]
    if length < WORTH or not 0 < k < length // 4 or not x.size:
        found = family.topk_operator.reference(x, k=k, axis=axis, largest=largest)
    else:
        rows = np.moveaxis(x, axis, -1)
        places = _select(rows.reshape(-1, length), k, largest).reshape(*rows.shape[:-1], k)
        chosen = np.take_along_axis(rows, places, -1)
        values, order = sort_operator.reference(chosen, axis=-1, reverse=largest)
        index = np.take_along_axis(places, order, -1)
        found = np.moveaxis(values, -1, axis), np.moveaxis(index, -1, axis)
    if out is None:
        return np.ascontiguousarray(found[0]), np.ascontiguousarray(found[1])
    for result, value in zip(out, found, strict=True):
        np.copyto(result, value)
    return out


def _select(rows: Array, k: int, largest: bool) -> Array:
    """Return for each row the places of its ``k`` extremes, from the first to the last.

    A row that has more than ``k``, as some are equal, or whose bound is NaN, is sorted as a whole.
    """
    at = rows.shape[1] - k if largest else k - 1
    bound = np.partition(rows, at, axis=1)[:, at, None]
    chosen = ~(rows < bound) if largest else rows <= bound  # NaN is larger than all numbers
    unclear = np.flatnonzero((chosen.sum(axis=1) != k) | (bound != bound)[:, 0])
    if unclear.size:
        _, order = sort_operator.reference(rows[unclear], axis=1, reverse=largest)
        chosen[unclear] = False
        chosen[unclear[:, None], order[:, :k]] = True
    places: Array = np.flatnonzero(chosen).reshape(-1, k) % rows.shape[1]
    return places


family.running_extreme.kernel("numpy", _running_extreme)
family.topk_operator.kernel("numpy", _topk)
