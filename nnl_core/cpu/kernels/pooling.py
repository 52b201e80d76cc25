"""NumPy kernels of pooling.

A window's maximum or sum is that of its rows' maxima or sums, so one axis is done after the other:
the outermost first, while rows are whole. Padding is never made: each position in a window says
for which windows it is inside the data.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core.graph.operator import Array
from nnl_core.operators import pooling as family
from nnl_core.operators.windows import Lengths, Pairs, taps, trailing

BLOCK_BYTES = 1 << 18  # input of a block: with what is made of it, it stays in the cache


def _inside(n: int, m: int, s: int, offset: int) -> tuple[slice, slice]:
    """Return which of ``m`` windows have position ``offset`` inside the data, and where it is."""
    first = max(0, -(offset // s))
    last = max(first, min(m, (n - 1 - offset) // s + 1))
    start = first * s + offset
    return slice(first, last), slice(start, start + max(0, (last - first - 1) * s + 1), s)


def _along(
    ufunc: np.ufunc, identity: float, x: Array, axis: int, k: int, s: int, before: int, out: Array
) -> None:
    """Combine windows along one axis, counted from the end."""
    rest = (slice(None),) * (-axis - 1)
    whole: list[tuple[Array, Array]] = []
    parts: list[tuple[Array, Array]] = []
    for tap in range(k):
        windows, data = _inside(x.shape[axis], out.shape[axis], s, tap - before)
        target, source = out[trailing((windows, *rest))], x[trailing((data, *rest))]
        (whole if target.shape == out.shape else parts).append((target, source))
    if len(whole) > 1:
        ufunc(whole[0][1], whole[1][1], out=out)
    elif whole:
        out[...] = whole[0][1]
    else:
        out.fill(identity)
    for target, source in whole[2 if len(whole) > 1 else 1 :] + parts:
        ufunc(target, source, out=target)


def _reduce(
    ufunc: np.ufunc, identity: float, x: Array, kernel: Lengths, stride: Lengths, pad: Pairs,
    out: Array,
) -> None:  # fmt: skip
    """Combine windows along all axes, a block of the leading ones at a time."""
    count = len(kernel)
    split = x.ndim - count
    rows = math.prod(x.shape[:split])
    flat_x = x.reshape(rows, *x.shape[split:])
    direct = out.flags.c_contiguous and out.dtype == flat_x.dtype
    result = out if direct else np.empty(out.shape, flat_x.dtype)
    flat_out = result.reshape(rows, *out.shape[split:])
    axes = [
        axis
        for axis in range(-count, 0)
        if (kernel[axis], stride[axis]) != (1, 1) or x.shape[axis] != out.shape[axis]
    ]
    step = max(1, BLOCK_BYTES // max(1, flat_x[:1].nbytes))
    for start in range(0, rows, step):
        block, target = flat_x[start : start + step], flat_out[start : start + step]
        if not axes:
            target[...] = block
        for axis in axes:
            if axis == axes[-1]:
                made = target
            else:
                shape = list(block.shape)
                shape[axis] = out.shape[axis]
                made = np.empty(shape, block.dtype)
            _along(ufunc, identity, block, axis, kernel[axis], stride[axis], pad[axis][0], made)
            block = made
    if not direct:
        np.copyto(out, result, casting="unsafe")


def _output(x: Array, out: Array | None, **options: Any) -> Array:
    if out is not None:
        return out
    split = x.ndim - len(options["kernel"])
    return np.empty((*x.shape[:split], *family.pooled(x.shape[split:], **options)), x.dtype)


def _max(x: Array, *, out: Array | None, **options: Any) -> Array:
    out = _output(x, out, **options)
    _reduce(np.maximum, -np.inf, x, options["kernel"], options["stride"], options["pad"], out)
    return out


def _sum(x: Array, *, out: Array | None, **options: Any) -> Array:
    out = _output(x, out, **options)
    _reduce(np.add, 0, x, options["kernel"], options["stride"], options["pad"], out)
    return out


def _average(x: Array, *, including_pad: bool, out: Array | None, **options: Any) -> Array:
    result = _sum(x, out=out, **options)
    if not x.size:
        return result
    spatial = x.shape[x.ndim - len(options["kernel"]) :]
    sizes = family.window_sizes(spatial, including_pad=including_pad, **options)
    if sizes.min() == sizes.max():
        result *= result.dtype.type(1 / sizes.flat[0])
    else:
        result *= (1 / sizes).astype(result.dtype)
    return result


@functools.lru_cache(maxsize=512)
def _places(
    size: Lengths, places: Lengths, kernel: Lengths, stride: Lengths, pad: Pairs
) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Return for each position in a window the index of windows and that of the data there."""
    result = []
    for tap in taps(kernel):
        both = [
            _inside(n, m, s, i - before)
            for n, m, s, i, (before, _) in zip(size, places, stride, tap, pad, strict=True)
        ]
        result.append((trailing(w for w, _ in both), trailing(d for _, d in both)))
    return result


def _sum_gradient(
    dy: Array, *, size: Lengths, kernel: Lengths, stride: Lengths, pad: Pairs, border: str,
    out: Array | None,
) -> Array:  # fmt: skip
    split = dy.ndim - len(size)
    shape = (*dy.shape[:split], *size)
    total = np.zeros(shape, dy.dtype) if out is None else out
    total.fill(0)
    apart = all(s >= k for s, k in zip(stride, kernel, strict=True))
    for windows, data in _places(size, dy.shape[split:], kernel, stride, pad):
        if apart:
            total[data] = dy[windows]
        else:
            total[data] += dy[windows]
    return total


BITS = {4: np.int32, 8: np.int64}  # integers that hold the bits of a float


@functools.lru_cache(maxsize=512)
def _padded_windows(
    spatial: Lengths, places: Lengths, kernel: Lengths, stride: Lengths, pad: Pairs
) -> tuple[Lengths, tuple[Any, ...], list[tuple[Any, ...]]]:
    """Return the shape of padded data, where the data is in it, and where each position reads."""
    size = tuple(
        before + max(n, (m - 1) * s + k - before)
        for n, m, k, s, (before, _) in zip(spatial, places, kernel, stride, pad, strict=True)
    )
    inner = trailing(slice(before, before + n) for n, (before, _) in zip(spatial, pad, strict=True))
    positions = [
        trailing(
            slice(i, i + (m - 1) * s + 1, s) for i, m, s in zip(tap, places, stride, strict=True)
        )
        for tap in taps(kernel)
    ]
    return size, inner, positions


class _Maxima:
    """Finds, a block of the leading axes at a time, where the maxima of windows are.

    Blocks are padded where windows are, so that every position of a window exists in all of them.
    """

    def __init__(
        self, x: Array, y: Array, kernel: Lengths, stride: Lengths, pad: Pairs, border: str
    ) -> None:
        split = x.ndim - len(kernel)
        self.rows = math.prod(x.shape[:split])
        self.size, self.inner, self.taps = _padded_windows(
            x.shape[split:], y.shape[split:], kernel, stride, pad
        )
        self.x, self.y = self.flat(x), self.flat(y)
        self.step = max(1, BLOCK_BYTES // max(1, self.x[:1].nbytes))

    def flat(self, array: Array) -> Array:
        """View the leading axes as one."""
        return array.reshape(self.rows, *array.shape[array.ndim - len(self.size) :])

    def blocks(self) -> Iterator[slice]:
        """Yield ranges of the leading axes."""
        for start in range(0, self.rows, self.step):
            yield slice(start, min(self.rows, start + self.step))

    def padded(self, block: Array, value: float) -> Array:
        """Return a block with its padding, or itself where there is none."""
        if self.size == block.shape[1:]:
            return block
        image = np.full((block.shape[0], *self.size), value, block.dtype)
        image[self.inner] = block
        return image

    def hits(self, block: slice) -> Iterator[tuple[tuple[Any, ...], Array]]:
        """Yield the index of each position in a window, and which windows have their maximum there.

        Of equal elements, the first hits. Padding is ``NaN``, which equals nothing.
        """
        x, y = self.padded(self.x[block], np.nan), self.y[block]
        pending, hit = np.ones(y.shape, bool), np.empty(y.shape, bool)
        for tap in self.taps:
            np.equal(x[tap], y, out=hit)
            hit &= pending
            pending ^= hit
            yield tap, hit


def _max_gradient(dy: Array, x: Array, y: Array, *, out: Array | None, **options: Any) -> Array:
    if np.isnan(y).any():  # which equals nothing
        return _store(family.max_pooling_gradient.reference(dy, x, y, **options), out)
    if out is None or not out.flags.c_contiguous:
        return _store(_max_gradient(dy, x, y, out=np.empty(x.shape, dy.dtype), **options), out)
    maxima = _Maxima(x, y, **options)
    gradient, result = maxima.flat(np.ascontiguousarray(dy)), maxima.flat(out)
    apart = all(s >= k for s, k in zip(options["stride"], options["kernel"], strict=True))
    # Bits times 0 or 1: what does not win stays 0 also where the gradient is not finite.
    bits = gradient.view(BITS[dy.itemsize])
    won = np.empty(bits[: maxima.step].shape, bits.dtype)
    for block in maxima.blocks():
        part = won[: block.stop - block.start]
        image = maxima.padded(result[block], 0)
        image.fill(0)
        for tap, hit in maxima.hits(block):
            if apart:
                np.multiply(bits[block], hit, out=image.view(bits.dtype)[tap])
            else:
                target = image[tap]
                np.add(target, np.multiply(bits[block], hit, out=part).view(dy.dtype), out=target)
        if image.shape != result[block].shape:
            result[block] = image[maxima.inner]
    return out


def _max_gather(h: Array, x: Array, y: Array, *, out: Array | None, **options: Any) -> Array:
    if np.isnan(y).any():
        return _store(family.max_pooling_gather.reference(h, x, y, **options), out)
    if out is None or not out.flags.c_contiguous:
        return _store(_max_gather(h, x, y, out=np.empty(y.shape, h.dtype), **options), out)
    maxima = _Maxima(x, y, **options)
    source = maxima.flat(np.ascontiguousarray(h)).view(BITS[h.itemsize])
    result = maxima.flat(out).view(source.dtype)
    for block in maxima.blocks():
        target, image = result[block], maxima.padded(source[block], 0)
        target.fill(0)
        for tap, hit in maxima.hits(block):
            np.bitwise_or(target, np.multiply(image[tap], hit), out=target)
    return out


def _store(result: Array, out: Array | None) -> Array:
    if out is None:
        return result
    np.copyto(out, result)
    return out


def _unpooling(x: Array, *, kernel: Lengths, out: Array | None) -> Array:
    split = x.ndim - len(kernel)
    spatial = x.shape[split:]
    if out is None:
        longer = (n * k for n, k in zip(spatial, kernel, strict=True))
        out = np.empty((*x.shape[:split], *longer), x.dtype)
    if not out.flags.c_contiguous:
        return _store(family.unpooling_operator.reference(x, kernel=kernel), out)
    blocks = [length for n, k in zip(spatial, kernel, strict=True) for length in (n, k)]
    ones = [length for n in spatial for length in (n, 1)]
    out.reshape(*x.shape[:split], *blocks)[...] = x.reshape(*x.shape[:split], *ones)
    return out


family.max_pooling_operator.kernel("numpy", _max)
family.sum_pooling_operator.kernel("numpy", _sum)
family.average_pooling_operator.kernel("numpy", _average)
family.sum_pooling_gradient.kernel("numpy", _sum_gradient)
family.max_pooling_gradient.kernel("numpy", _max_gradient)
family.max_pooling_gather.kernel("numpy", _max_gather)
family.unpooling_operator.kernel("numpy", _unpooling)
