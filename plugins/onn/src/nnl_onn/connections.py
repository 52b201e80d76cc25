"""The connections of an operational layer: windows of its input against its weights, in blocks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nnl_core.errors import ShapeError
from nnl_core.graph.operator import Array
from nnl_onn.nodal import find_nodal
from nnl_onn.pools import find_pool

Lengths = tuple[int, ...]

BLOCK = 1 << 20
"""How many values of connections are held at a time."""


def places(
    spatial: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Lengths:
    """Return how many windows lie in each axis; raise `ShapeError` where none does."""
    if not len(spatial) == len(kernel) == len(stride) == len(dilation):
        raise ShapeError(
            f"kernel {tuple(kernel)}, stride {tuple(stride)} and dilation {tuple(dilation)} need "
            f"one length for each of {len(spatial)} spatial axes"
        )
    counts = []
    for n, k, s, d in zip(spatial, kernel, stride, dilation, strict=True):
        if min(k, s, d) < 1:
            raise ShapeError(f"kernel {k}, stride {s} and dilation {d} must be at least 1")
        covered = (k - 1) * d + 1
        if n < covered:
            raise ShapeError(f"a kernel that covers {covered} does not fit in an axis of {n}")
        counts.append((n - covered) // s + 1)
    return tuple(counts)


class Block(NamedTuple):
    """A part of all connections: the slices that it takes of each array."""

    group: int
    samples: slice
    maps: slice  # among all output maps
    inner: slice  # input maps inside a group
    channels: slice  # the same among all input maps
    rows: slice  # placements along the first spatial axis


class Connections:
    """The connections of a layer, block by block, in ``float64``."""

    def __init__(
        self,
        x: Array,
        w: Array,
        stride: Lengths,
        dilation: Lengths,
        groups: int,
        nodal: str,
        pool: str,
        derivative: str,
    ) -> None:
        found = find_nodal(nodal)
        self.value, self.function = found.function(), found.function(derivative)
        self.is_value = not derivative
        self.select = find_pool(pool).select
        self.x, self.w = x.astype(np.float64), w.astype(np.float64)
        self.stride, self.dilation, self.groups = stride, dilation, groups
        self.kernel = w.shape[2:]
        self.places = places(x.shape[2:], self.kernel, stride, dilation)
        self.taps = list(itertools.product(*map(range, self.kernel)))

    def blocks(self) -> Iterator[Block]:
        """Yield blocks of at most about `BLOCK` values, each connection in one of them."""
        batch, maps, inner = self.x.shape[0], self.w.shape[0] // self.groups, self.w.shape[1]
        size = max(1, math.prod(self.places[1:]) * len(self.taps))
        steps = []
        for count in (self.places[0], maps, inner, batch):
            step = max(1, min(count, BLOCK // size))
            steps.append(step)
            size *= step
        for group in range(self.groups):
            for n, o, c, p in itertools.product(
                _cut(batch, steps[3]), _cut(maps, steps[1]), _cut(inner, steps[2]),
                _cut(self.places[0], steps[0]),
            ):  # fmt: skip
                yield Block(group, n, _moved(o, group * maps), c, _moved(c, group * inner), p)

    def windows(self, x: Array, block: Block) -> Array:
        """Return the block's elements of data as ``(n, 1, c, *places, taps)``."""
        samples, channels = block.samples, block.channels
        taken = [x[(samples, channels, *self.reached(tap, block))] for tap in self.taps]
        return np.stack(taken, axis=-1)[:, np.newaxis]

    def reached(self, tap: Lengths, block: Block) -> tuple[slice, ...]:
        """Return what a tap reaches along the spatial axes from the block's placements."""
        slices = []
        for axis, (k, s, d, count) in enumerate(
            zip(tap, self.stride, self.dilation, self.places, strict=True)
        ):
            first, last = (block.rows.start, block.rows.stop) if axis == 0 else (0, count)
            slices.append(slice(k * d + first * s, k * d + (last - 1) * s + 1, s))
        return tuple(slices)

    def weights(self, w: Array, block: Block) -> Array:
        """Return the block's elements of weights as ``(1, o, c, 1..., taps)``."""
        part = w[block.maps, block.inner]
        ones = (1,) * len(self.kernel)
        return part.reshape(1, *part.shape[:2], *ones, len(self.taps))

    def values(self, block: Block) -> tuple[Array, Array | None]:
        """Return a derivative at ``(n, o, c, *places, taps)``, and which tap is selected."""
        x, w = self.windows(self.x, block), self.weights(self.w, block)
        values = self.function(x, w)
        if self.select is None:
            return values, None
        chosen = self.select(values if self.is_value else self.value(x, w))
        return values, chosen[..., np.newaxis]

    def rows_of(self, block: Block) -> tuple[slice, ...]:
        """Return the index of the block in an array of outputs."""
        return block.samples, block.maps, block.rows

    def spread(self, g: Array, block: Block) -> Array:
        """Return the block's elements of an array of outputs as ``(n, o, 1, *places, 1)``."""
        part: Array = g[self.rows_of(block)].astype(np.float64)
        return part[:, :, np.newaxis, ..., np.newaxis]


def _cut(count: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def _moved(part: slice, by: int) -> slice:
    return slice(part.start + by, part.stop + by)


def only(values: Array, chosen: Array | None) -> Array:
    """Return the values with all but the selected tap made 0."""
    if chosen is None:
        return values
    result = np.zeros(values.shape)
    np.put_along_axis(result, chosen, np.take_along_axis(values, chosen, -1), -1)
    return result
