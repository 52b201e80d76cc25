"""NumPy kernels of convolution: windows gathered into columns, one matrix product a block.

Columns are made for a few examples at a time, so that they stay in the cache. Positions run over
(example, place), or over (place, example) where rows of places are too short to copy fast.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from nnl_core.cpu.threads import product, share
from nnl_core.graph.operator import Array
from nnl_core.operators import convolution as family
from nnl_core.operators.windows import Lengths, Pairs, placements, span, taps

Result = TypeVar("Result")

COLUMN_BYTES = 1 << 20  # columns of a block: what a second-level cache holds
BAND_BYTES = 8 << 20  # columns of one example from which on its rows are divided
SHORT_ROW = 16  # places below which copying row by row costs more than transposing
GATHER = 1.5  # how many more columns gathering may make than scattering, which is slower
WORTH_TRANSPOSING = 4  # examples of a block from which on short rows are transposed


class _Geometry:
    """Where the taps of a convolution read, and how many examples make a block."""

    def __init__(
        self,
        shape: tuple[int, ...],
        outer: tuple[int, ...],
        dtype: np.dtype,
        kernel: Lengths,
        stride: Lengths,
        pad: Pairs,
        dilation: Lengths,
        group: int,
        column_bytes: int,
        short_row: int,
    ) -> None:
        self.batch, self.channels, *spatial = shape
        self.maps, self.places = outer[1], outer[2:]
        self.group, self.dtype = group, dtype
        example = self.channels * math.prod(kernel) * math.prod(self.places) * dtype.itemsize
        self.block = max(1, min(self.batch, column_bytes // max(1, example)))
        self.examples_last = self.places[-1] < short_row and self.block >= WORTH_TRANSPOSING
        self.last = (*range(1, len(shape)), 0)  # order of axes that puts examples last
        ends = list(zip(spatial, pad, strict=True))
        self.is_padded = any(length > 0 for both in pad for length in both)
        self.padded = tuple(n + max(0, before) + max(0, after) for n, (before, after) in ends)
        whole = slice(None)
        self.inner = (
            whole,
            *(slice(max(0, before), max(0, before) + n) for n, (before, _) in ends),
        )
        # Padding that crops is where the first window starts.
        first = [max(0, -before) for before, _ in pad]
        self.taps = [
            (
                whole,
                *(
                    slice(start + i * d, start + i * d + (m - 1) * s + 1, s)
                    for start, i, d, m, s in zip(
                        first, tap, dilation, self.places, stride, strict=True
                    )
                ),
            )
            for tap in taps(kernel)
        ]

    def ranges(self) -> list[tuple[int, int]]:
        """Divide the examples into blocks."""
        return [
            (start, min(self.batch, start + self.block))
            for start in range(0, self.batch, self.block)
        ]

    def with_scratch(self, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[slice, _Block]]:
        """Yield blocks with scratch memory, the same for blocks of one size."""
        scratch = None
        for start, stop in ranges:
            if scratch is None or scratch.examples != stop - start:
                scratch = _Block(self, stop - start)
            yield slice(start, stop), scratch


_cached_geometry = functools.lru_cache(maxsize=512)(_Geometry)


def _geometry(
    x: Array, dy: Array, kernel: Lengths, stride: Lengths, pad: Pairs, dilation: Lengths, group: int
) -> _Geometry:
    """Return what depends on shapes alone, which a program asks for at every run."""
    return _cached_geometry(
        x.shape, dy.shape, x.dtype, kernel, stride, pad, dilation, group, COLUMN_BYTES, SHORT_ROW
    )


class _Block:
    """Scratch memory for a number of examples; arrays are seen as (channels, ..., examples)."""

    def __init__(self, geometry: _Geometry, examples: int) -> None:
        self.geometry, self.examples = geometry, examples
        g = geometry
        self.image, _ = self.empty(g.channels, spatial=g.padded)
        self.columns, self.column_matrix = self.empty(g.channels, len(g.taps), spatial=g.places)
        self.outer, self.outer_matrix = self.empty(g.maps, spatial=g.places)
        self.is_clear = False

    def empty(self, *leading: int, spatial: Lengths) -> tuple[Array, Array]:
        """Return memory seen as (*leading, *spatial, examples), and as (group, rows, positions)."""
        g = self.geometry
        if g.examples_last:
            memory = seen = np.empty((*leading, *spatial, self.examples), g.dtype)
        else:
            memory = np.empty((*leading, self.examples, *spatial), g.dtype)
            count = len(leading)
            seen = memory.transpose(*range(count), *range(count + 1, memory.ndim), count)
        rows = math.prod(leading) // g.group
        return seen, memory.reshape(g.group, rows, self.examples * math.prod(spatial))

    def gather(self, x: Array) -> None:
        """Fill the columns from examples of the data."""
        g = self.geometry
        source = x.transpose(g.last)
        if g.is_padded or g.examples_last:
            if not self.is_clear:
                self.image.fill(0)
                self.is_clear = True
            self.image[g.inner] = source
            source = self.image
        for position, tap in enumerate(g.taps):
            self.columns[:, position] = source[tap]

    def scatter(self, dx: Array, add: bool) -> None:
        """Add the columns up where they were gathered from, and to ``dx`` or in place of it."""
        g = self.geometry
        self.image.fill(0)
        for position, tap in enumerate(g.taps):
            target = self.image[tap]
            np.add(target, self.columns[:, position], out=target)
        target = dx.transpose(g.last)
        if add:
            np.add(target, self.image[g.inner], out=target, casting="unsafe")
        else:
            target[...] = self.image[g.inner]

    def load(self, dy: Array) -> None:
        """Fill the outer matrix from examples of an output's gradient."""
        self.outer[...] = dy.transpose(self.geometry.last)


def _bands(
    x: Array, dy: Array, kernel: Lengths, stride: Lengths, pad: Pairs, dilation: Lengths
) -> list[tuple[slice, slice, Pairs]]:
    """Divide the first spatial axis where the columns of one example would be too large.

    Return for each band the rows of the data, those of the places, and the padding of the band.
    """
    places, length = dy.shape[2], x.shape[2]
    row = x.shape[1] * math.prod(kernel) * math.prod(dy.shape[3:]) * max(4, x.itemsize)
    step = max(1, BAND_BYTES // max(1, row))
    if step >= places or not len(x):
        return [(slice(None), slice(None), pad)]
    bands = []
    for first in range(0, places, step):
        last = min(places, first + step)
        start = first * stride[0] - pad[0][0]
        stop = (last - 1) * stride[0] + (kernel[0] - 1) * dilation[0] + 1 - pad[0][0]
        data = slice(min(length, max(0, start)), max(0, min(length, stop)))
        margin = (data.start - start, stop - max(data.start, data.stop))
        bands.append((data, slice(first, last), (margin, *pad[1:])))
    return bands


Blocks = Iterable[tuple[Array, Array, _Block]]


def _in_blocks(
    work: Callable[[Blocks], Result],
    x: Array,
    dy: Array,
    kernel: Lengths,
    stride: Lengths,
    pad: Pairs,
    dilation: Lengths,
    group: int,
) -> list[Result]:
    """Call ``work``, on a few threads, with parts of the data and output and scratch memory."""
    results: list[Result] = []
    for data, rows, margin in _bands(x, dy, kernel, stride, pad, dilation):
        x_band, dy_band = x[:, :, data], dy[:, :, rows]
        geometry = _geometry(x_band, dy_band, kernel, stride, margin, dilation, group)

        def on_run(
            ranges: Sequence[tuple[int, int]],
            geometry: _Geometry = geometry,
            x_band: Array = x_band,
            dy_band: Array = dy_band,
        ) -> Result:
            return work(
                (x_band[block], dy_band[block], scratch)
                for block, scratch in geometry.with_scratch(ranges)
            )

        results += share(on_run, geometry.ranges())
    return results


def _weights(weight: Array, group: int) -> Array:
    """View a weight as (group, maps of a group, channels of a group * taps)."""
    inside = math.prod(weight.shape[1:])
    return weight.reshape(group, weight.shape[0] // group, inside)


def _is_pointwise(kernel: Lengths, stride: Lengths, pad: Pairs, group: int) -> bool:
    """Whether the convolution is a product of matrices as it stands."""
    return group == 1 and max((*kernel, *stride)) == 1 and not any(map(any, pad))


def _flat(array: Array) -> Array:
    """View (examples, channels, *spatial) as (examples, channels, positions)."""
    return array.reshape(*array.shape[:2], math.prod(array.shape[2:]))


def _convolution(
    x: Array,
    weight: Array,
    bias: Array | None,
    *,
    stride: Lengths,
    pad: Pairs,
    dilation: Lengths,
    group: int,
    out: Array | None,
) -> Array:
    kernel = weight.shape[2:]
    if out is None:
        places = placements(x.shape[2:], span(kernel, dilation), stride, pad)
        out = np.empty((x.shape[0], weight.shape[0], *places), x.dtype)
    weights = _weights(weight, group)
    shift = None if bias is None else bias.reshape(-1, *(1,) * (len(kernel) + 1))
    if _is_pointwise(kernel, stride, pad, group):
        _product(weights[0], x, out)
        if shift is not None:
            np.add(out, shift[..., 0], out=out, casting="unsafe")
        return out

    def work(blocks: Blocks) -> None:
        for data, part, scratch in blocks:
            scratch.gather(data)
            np.matmul(weights, scratch.column_matrix, out=scratch.outer_matrix)
            target = part.transpose(scratch.geometry.last)
            if shift is None:
                target[...] = scratch.outer
            else:
                np.add(scratch.outer, shift, out=target, casting="unsafe")

    _in_blocks(work, x, out, kernel, stride, pad, dilation, group)
    return out


def _product(weights: Array, x: Array, out: Array) -> None:
    """Multiply a matrix with the channels of each place."""
    if out.flags.c_contiguous and out.dtype == weights.dtype:
        product(weights, _flat(x), _flat(out))
    else:
        np.copyto(out, product(weights, _flat(x)).reshape(out.shape), casting="unsafe")


def _data_gradient(
    dy: Array,
    weight: Array,
    *,
    stride: Lengths,
    pad: Pairs,
    dilation: Lengths,
    group: int,
    out: Array | None,
) -> Array:
    kernel = weight.shape[2:]
    if out is None:
        spatial = [
            (n - 1) * s + covered - before - after
            for n, s, covered, (before, after) in zip(
                dy.shape[2:], stride, span(kernel, dilation), pad, strict=True
            )
        ]
        out = np.empty((dy.shape[0], weight.shape[1] * group, *spatial), dy.dtype)
    weights = _weights(weight, group).swapaxes(1, 2)
    if _is_pointwise(kernel, stride, pad, group):
        _product(weights[0], dy, out)
        return out
    gathered = weight.shape[0] * math.prod(out.shape[2:])
    scattered = out.shape[1] * math.prod(dy.shape[2:])
    if max(stride) == 1 and gathered < GATHER * scattered:
        return _turned(dy, weight, pad, dilation, group, out)
    overlap = len(_bands(out, dy, kernel, stride, pad, dilation)) > 1
    if overlap:
        out.fill(0)

    def work(blocks: Blocks) -> None:
        for data, part, scratch in blocks:
            scratch.load(part)
            np.matmul(weights, scratch.outer_matrix, out=scratch.column_matrix)
            scratch.scatter(data, add=overlap)

    _in_blocks(work, out, dy, kernel, stride, pad, dilation, group)
    return out


def _turned(
    dy: Array, weight: Array, pad: Pairs, dilation: Lengths, group: int, out: Array
) -> Array:
    """Compute the data gradient of stride 1 as a convolution with the kernel turned around."""
    maps, inside, *kernel = weight.shape
    turned = np.flip(weight, tuple(range(2, weight.ndim)))
    turned = turned.reshape(group, maps // group, inside, *kernel).swapaxes(1, 2)
    outer = tuple(
        ((k - 1) * d - before, (k - 1) * d - after)
        for k, d, (before, after) in zip(kernel, dilation, pad, strict=True)
    )
    return _convolution(
        dy,
        turned.reshape(group * inside, maps // group, *kernel),
        None,
        stride=(1,) * len(kernel),
        pad=outer,
        dilation=dilation,
        group=group,
        out=out,
    )


def _weight_gradient(
    x: Array,
    dy: Array,
    *,
    kernel: Lengths,
    stride: Lengths,
    pad: Pairs,
    dilation: Lengths,
    group: int,
    out: Array | None,
) -> Array:
    maps, inside = dy.shape[1], x.shape[1] // group * math.prod(kernel)
    if _is_pointwise(kernel, stride, pad, group) and min(maps, inside) <= math.prod(x.shape[2:]):
        total = product(_flat(dy), _flat(x).swapaxes(1, 2)).sum(axis=0)
    else:
        zero = np.zeros((group, maps // group, inside), x.dtype)

        def work(blocks: Blocks) -> Array:
            part = zero.copy()
            for data, outer, scratch in blocks:
                scratch.gather(data)
                scratch.load(outer)
                part += np.matmul(scratch.outer_matrix, scratch.column_matrix.swapaxes(1, 2))
            return part

        parts = _in_blocks(work, x, dy, kernel, stride, pad, dilation, group)
        total = sum(parts, zero)
    if out is None:
        out = np.empty((maps, x.shape[1] // group, *kernel), x.dtype)
    np.copyto(out, total.reshape(out.shape), casting="unsafe")
    return out


family.convolution_operator.kernel("numpy", _convolution)
family.convolution_data_gradient.kernel("numpy", _data_gradient)
family.convolution_weight_gradient.kernel("numpy", _weight_gradient)
