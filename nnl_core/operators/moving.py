"""Elements that come from elsewhere along each axis of an example: taken, and put back."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from nnl_core.errors import ShapeError
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.operators.dtypes import wide

Indexer: TypeAlias = slice | Array


def count_examples(shape: tuple[int, ...], base: int) -> int:
    """Return how many draws there are: one for each example, and one where there is none."""
    return max(1, math.prod(shape[:base]))


def _indexers(rows: Array) -> list[Indexer]:
    """Return each row of positions, as a slice where they follow one another."""
    length = rows.shape[1]
    if not length:
        return [slice(0, 0)] * len(rows)
    steps = np.diff(rows, axis=1)
    ascending = ((steps == 1).all(axis=1) & (rows[:, 0] >= 0)).tolist()
    descending = ((steps == -1).all(axis=1) & (rows[:, -1] >= 0)).tolist()
    return [
        slice(first, first + length)
        if up
        else slice(first, None if first < length else first - length, -1)
        if down
        else row
        for row, first, up, down in zip(
            rows, rows[:, 0].tolist(), ascending, descending, strict=True
        )
    ]


def _by_axis(rows: Array, lengths: Sequence[int]) -> list[Array]:
    """Divide the positions of all axes."""
    return np.split(rows, np.cumsum(lengths)[:-1], axis=1) if len(lengths) else []


def _slices(indexers: Sequence[Indexer]) -> tuple[slice, ...]:
    return tuple(one if isinstance(one, slice) else slice(None) for one in indexers)


def _taken(x: Array, indexers: Sequence[Indexer]) -> Array:
    x = x[_slices(indexers)]
    for axis, one in enumerate(indexers):
        if not isinstance(one, slice):
            x = np.take(x, np.maximum(one, 0), axis=axis)
    return x


def _summed(g: Array, axis: int, positions: Array, length: int) -> Array:
    """Add slices along an axis to zeros at their positions, run by run; -1 drops them."""
    result = np.zeros((*g.shape[:axis], length, *g.shape[axis + 1 :]), g.dtype)
    before: tuple[slice, ...] = (slice(None),) * axis
    starts = [0, *(np.flatnonzero(np.diff(positions) != 1) + 1).tolist()]
    for start, stop in itertools.pairwise([*starts, len(positions)]):
        begin = start + (positions[start] < 0) if start < stop else stop
        if begin < stop:
            first = int(positions[begin])
            run = result[(*before, slice(first, first + stop - begin))]
            np.add(run, g[(*before, slice(begin, stop))], out=run)
    return result


@defop("nnl::pick", save=("rows",))
def pick(x: Array, rows: Array, *, lengths: tuple[int, ...], base: int) -> Array:
    """Take from each example, along each axis, the elements at the positions of its row.

    A row holds the positions along all axes one behind the other, ``lengths`` of them. Along the
    axes before ``base``, which count examples, the first row holds for all. Where a position is
    negative the result is 0.
    """
    axes = _by_axis(rows, lengths)
    y = np.empty(lengths, x.dtype)
    common = [_indexers(one[:1])[0] for one in axes[:base]]
    source = _taken(x, [*common, *(slice(None),) * (x.ndim - base)])
    source = source.reshape(-1, *x.shape[base:]) if y.size else source
    target = y.reshape(-1, *lengths[base:]) if y.size else y[:0]
    own = zip(*(_indexers(one) for one in axes[base:]), strict=True)
    for example in range(len(target)):
        target[example] = _taken(source[example], next(own, ()))
    for axis, one in enumerate(axes):
        if (one < 0).any():
            y[np.broadcast_to(_spread(one < 0, axis, lengths, base), lengths)] = 0
    return y


def _spread(rows: Array, axis: int, lengths: tuple[int, ...], base: int) -> Array:
    """Give what belongs to positions along an axis all axes of the result."""
    behind = (1,) * (len(lengths) - axis - 1)
    if axis < base:
        return rows[0].reshape(-1, *behind)
    count = math.prod(lengths[:base])
    shape = (*lengths[:base], *(1,) * (axis - base), lengths[axis], *behind)
    return rows[:count].reshape(shape)


def outside(rows: Array, lengths: tuple[int, ...], base: int) -> Array:
    """Return where a position is negative, broadcasting to the result."""
    found = np.zeros((), bool)
    for axis, one in enumerate(_by_axis(rows, lengths)):
        if (one < 0).any():
            found = found | _spread(one < 0, axis, lengths, base)
    return found


@pick.infer
def pick_infer(x: Spec, rows: Spec, *, lengths: tuple[int, ...], base: int) -> Spec:
    """``lengths``."""
    _check(rows, lengths, base)
    return x.with_shape(lengths)


def _check(rows: Spec, lengths: tuple[int, ...], base: int) -> None:
    if rows.shape != (count_examples(lengths, base), sum(lengths)):
        raise ShapeError(f"rows of shape {rows.shape} do not hold positions for {lengths}")


@pick.vjp
def pick_vjp(
    g: Any, y: Any, x: Any, rows: Any, *, lengths: tuple[int, ...], base: int
) -> tuple[Any, ...]:
    """Put the gradient back."""
    return put(g, rows, shape=x.shape, base=base), None


@defop("nnl::put", save=("rows",))
def put(g: Array, rows: Array, *, shape: tuple[int, ...], base: int) -> Array:
    """Add each example's elements to zeros of ``shape``, at the places that `pick` reads."""
    axes = _by_axis(rows, g.shape)
    values = wide(g)
    middle = np.zeros((*g.shape[:base], *shape[base:]), values.dtype)
    if g.size and middle.size:
        source = values.reshape(-1, *g.shape[base:])
        target = middle.reshape(-1, *shape[base:])
        own = zip(*(_indexers(one) for one in axes[base:]), strict=True)
        for example in range(len(source)):
            part, indexers = source[example], next(own, ())
            for axis, one in enumerate(indexers):
                if not isinstance(one, slice):
                    part = _summed(part, axis, one, shape[base + axis])
            target[example : example + 1][(slice(None), *_slices(indexers))] = part
    for axis, one in enumerate(axes[:base]):
        if one.shape[1] != shape[axis] or (one[0] != np.arange(shape[axis])).any():
            middle = _summed(middle, axis, one[0], shape[axis])
    return middle.astype(g.dtype, copy=False)


@put.infer
def put_infer(g: Spec, rows: Spec, *, shape: tuple[int, ...], base: int) -> Spec:
    """``shape``."""
    _check(rows, g.shape, base)
    return g.with_shape(shape)


@put.vjp
def put_vjp(
    g: Any, y: Any, x: Any, rows: Any, *, shape: tuple[int, ...], base: int
) -> tuple[Any, ...]:
    """Take them again."""
    return pick(g, rows, lengths=x.shape, base=base), None


def _samples(rng: np.random.Generator) -> Iterator[tuple[tuple[int, ...], Array, Any, int]]:
    """Runs, runs backwards, repeats, positions outside; examples in no axis, one and two."""
    for shape, lengths, base in [
        ((3, 4, 5), (3, 2, 7), 1),
        ((2, 3, 4), (1, 3, 2), 2),
        ((4, 3), (5, 3), 0),
        ((4,), (3,), 1),
        ((0, 3), (0, 2), 1),
        ((2, 3), (2, 0), 1),
        ((), (), 0),
    ]:
        count = count_examples(lengths, base)
        own = [rng.integers(-1, max(n, 1), (count, m)) for n, m in zip(shape, lengths, strict=True)]
        runs = [
            np.broadcast_to(np.arange(m) % max(n, 1), (count, m))
            for n, m in zip(shape, lengths, strict=True)
        ]
        for axes in (own, runs, [row[:, ::-1] for row in runs]):
            rows = np.concatenate([np.zeros((count, 0), np.int64), *axes], axis=1)
            yield shape, rows, lengths, base


@pick.samples
def pick_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """All of them."""
    for shape, rows, lengths, base in _samples(rng):
        yield Sample(rng.normal(size=shape), rows, lengths=lengths, base=base)


@put.samples
def put_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """All of them."""
    for shape, rows, lengths, base in _samples(rng):
        yield Sample(rng.normal(size=lengths), rows, shape=shape, base=base)
