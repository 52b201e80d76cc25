"""Fourier transforms: an axis in one launch, in two, or as a convolution with a chirp."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nnl_core.gpu.kernel import (
    FLOATING,
    Address,
    Argument,
    Call,
    Emission,
    Kernel,
    Launch,
    blocks,
    c_type,
    emitter,
    given,
    kernel,
    over,
    result,
    scratch,
)
from nnl_core.graph.spec import Spec

FILE = "fourier.cu"
THREADS = 256
LARGEST_FACTOR = 61  # that a stage sums directly; 6 bits hold it
PAIRS, WIDE, REALS, HALVES = 0, 1, 2, 4  # as in the kernels


class Numbers(NamedTuple):
    """Where numbers along an axis are, of what kind, and how many of them."""

    address: Address
    kind: int
    length: int


def find_radices(length: int) -> tuple[int, ...] | None:
    """Return what the stages of a transform multiply to its length, if that is possible."""
    radices = []
    for radix in (8, 4, 2, 3, *range(5, LARGEST_FACTOR + 1, 2)):
        while length % radix == 0:
            radices.append(radix)
            length //= radix
    return tuple(radices) if length == 1 else None


def split_length(length: int, most: int) -> tuple[int, int] | None:
    """Return two lengths, none above ``most``, whose product is this one, as alike as can be."""
    for first in range(math.isqrt(length), 0, -1):
        if length % first == 0:
            return (first, length // first) if length // first <= most else None
    return None


class Transform:
    """Makes the launches of one call."""

    def __init__(self, call: Call, dtype: np.dtype, sign: int) -> None:
        self.call, self.sign = call, sign
        self.is_double = dtype == np.float64
        self.element = c_type(dtype)
        self.pair_bytes = 16 if self.is_double else 8
        room = min(call.device.shared_memory, 48 << 10)
        self.most = room // (2 * self.pair_bytes) - 1
        self.launches: list[Launch] = []
        self.room: list[int] = []
        self._roots: dict[int, Address] = {}

    def kernel(self, entry: str) -> Kernel:
        """Return a kernel for the call's type."""
        return kernel(FILE, entry, T=self.element)

    def real(self, value: float) -> np.generic:
        """Return a number of the type that is computed in."""
        return np.float64(value) if self.is_double else np.float32(value)

    def new_pairs(self, count: int) -> Address:
        """Return memory for complex numbers."""
        self.room.append(max(1, count) * self.pair_bytes)
        return scratch(len(self.room) - 1)

    def roots(self, n: int) -> Address:
        """Return where the roots of unity are, which are computed once."""
        if n not in self._roots:
            self._roots[n] = self.new_pairs(n)
            self.launches.append(over(self.kernel("roots"), n, (self._roots[n],)))
        return self._roots[n]

    def axis(
        self, source: Numbers, target: Numbers, outer: int, n: int, inner: int, scale: float
    ) -> None:
        """Transform lines of n numbers, ``(outer, n, inner)``."""
        self._axis(source, target, outer, n, inner, self.sign, scale)

    def _axis(
        self,
        source: Numbers,
        target: Numbers,
        outer: int,
        n: int,
        inner: int,
        sign: int,
        scale: float,
    ) -> None:
        parts = None if find_radices(n) is None else (1, n) if n <= self.most else None
        if parts is None and find_radices(n) is not None:
            parts = split_length(n, self.most)
        if parts is None:
            self._by_chirp(source, target, outer, n, inner, sign, scale)
        elif parts[0] == 1:
            self._lines(source, target, outer, n, inner, n, 1, (1, 0, 1, 0, 0), sign, scale)
        else:
            first, second = parts
            between = Numbers(self.new_pairs(outer * n * inner), WIDE, n)
            steps = (second, 1, second, 1, n)
            self._lines(source, between, outer, first, inner, n, second, steps, sign, 1.0)
            steps = (1, second, first, 1, 0)
            self._lines(between, target, outer, second, inner, n, first, steps, sign, scale)

    def _lines(
        self,
        source: Numbers,
        target: Numbers,
        outer: int,
        n: int,
        inner: int,
        of: int,
        middle: int,
        steps: Sequence[int],
        sign: int,
        scale: float,
    ) -> None:
        """Launch the transform of lines; ``of`` is the whole length of the axis."""
        radices = find_radices(n)
        assert radices is not None
        packed = sum(radix << 6 * index for index, radix in enumerate(radices))
        lines = outer * middle * inner
        fit = self.most // (n | 1) or 1
        each = max(1, min(fit, max(4 * THREADS // n, 8), lines))
        arguments: tuple[Argument, ...] = (
            source.address, np.int32(source.kind), np.int64(source.length),
            target.address, np.int32(target.kind), np.int64(target.length),
            np.int64(inner), np.int64(of), self.roots(n), np.int32(n), np.int64(packed),
            np.int64(lines), np.int32(each), np.int64(middle), *map(np.int64, steps),
            self.real(sign), self.real(scale),
        )  # fmt: skip
        grid, shared = (blocks(lines, each), 1, 1), 2 * each * (n | 1) * self.pair_bytes
        launch = Launch(self.kernel("lines"), grid, (THREADS, 1, 1), arguments, shared)
        self.launches.append(launch)

    def _by_chirp(
        self,
        source: Numbers,
        target: Numbers,
        outer: int,
        n: int,
        inner: int,
        sign: int,
        scale: float,
    ) -> None:
        m = 1 << (2 * n - 2).bit_length()
        lines, turn = outer * inner, self.real(sign)
        z = Numbers(self.new_pairs(lines * m), WIDE, m)
        filtered = Numbers(self.new_pairs(m), WIDE, m)
        n_, m_, inner_ = np.int64(n), np.int64(m), np.int64(inner)
        given_ = (source.address, np.int32(source.kind), np.int64(source.length), inner_)
        add = self.launches.append
        add(over(self.kernel("chirp_in"), lines * m, (*given_, z.address, n_, m_, turn)))
        add(over(self.kernel("chirp_filter"), m, (filtered.address, n_, turn)))
        self._axis(filtered, filtered, 1, m, 1, -1, 1.0)
        self._axis(z, z, lines, m, 1, -1, 1.0)
        product = (z.address, filtered.address, m_)
        add(over(self.kernel("chirp_product"), lines * m, product))
        self._axis(z, z, lines, m, 1, 1, 1.0 / m)
        wanted = (target.address, np.int32(target.kind), np.int64(target.length), inner_)
        numbers = (n_, m_, turn, self.real(scale))
        add(over(self.kernel("chirp_out"), lines * n, (z.address, *wanted, *numbers)))

    def done(self) -> Emission:
        """Return all launches."""
        return Emission(tuple(self.launches), tuple(self.room))


@emitter("nnl::fft")
def fft(call: Call) -> Emission | None:
    """Transform the last axis, then the others."""
    x = _signal(call)
    if x is None or not x.size:
        return None if x is None else Emission(())
    rank, inverse = call.attributes["signal_ndim"], call.attributes["inverse"]
    shape = x.shape[:-1]
    transform = Transform(call, x.dtype, 1 if inverse else -1)
    scale = _scale(call.attributes["norm"], shape[-rank:], inverse=inverse)
    source, target = (Numbers(at, PAIRS, shape[-rank]) for at in (given(0), result()))
    _axes(transform, shape, range(-1, -rank - 1, -1), source, target, scale)
    return transform.done()


@emitter("nnl::rfft")
def rfft(call: Call) -> Emission | None:
    """Transform the last axis, of whose frequencies half are kept, then the others."""
    x = _signal(call)
    if x is None or not x.size:
        return None if x is None else Emission(())
    rank = call.attributes["signal_ndim"]
    half = call.outputs[0].shape[:-1]
    transform = Transform(call, x.dtype, -1)
    scale = _scale(call.attributes["norm"], x.shape[-rank:], inverse=False)
    source, target = Numbers(given(0), REALS, x.shape[-1]), Numbers(result(), PAIRS, half[-1])
    outer = math.prod(x.shape[:-1])
    if rank == 1:
        transform.axis(source, target, outer, x.shape[-1], 1, scale)
        return transform.done()
    between = Numbers(transform.new_pairs(math.prod(half)), WIDE, half[-1])
    transform.axis(source, between, outer, x.shape[-1], 1, 1.0)
    _axes(transform, half, range(-2, -rank - 1, -1), between, target, scale)
    return transform.done()


@emitter("nnl::irfft")
def irfft(call: Call) -> Emission | None:
    """Transform all axes but the last, then that one, to reals."""
    x = _signal(call)
    if x is None or not x.size:
        return None if x is None else Emission(())
    rank, length = call.attributes["signal_ndim"], call.attributes["length"]
    half = x.shape[:-1]
    transform = Transform(call, x.dtype, 1)
    scale = _scale(call.attributes["norm"], (*half[-rank:-1], length), inverse=True)
    source, target = Numbers(given(0), PAIRS, half[-1]), Numbers(result(), REALS, length)
    if rank > 1:
        between = Numbers(transform.new_pairs(math.prod(half)), WIDE, half[-1])
        _axes(transform, half, range(-2, -rank - 1, -1), source, between, 1.0)
        source = between
    halves = source._replace(kind=source.kind | HALVES)
    transform.axis(halves, target, math.prod(half[:-1]), length, 1, scale)
    return transform.done()


def _axes(
    transform: Transform,
    shape: Sequence[int],
    axes: Sequence[int],
    source: Numbers,
    target: Numbers,
    scale: float,
) -> None:
    """Transform axes of complex numbers one after the other; the last scales the result.

    What one hands the next is not rounded to half precision.
    """
    between: Address | None = None
    for place, axis in enumerate(axes):
        n, last = shape[axis], place == len(axes) - 1
        into = target
        if not last:
            between = transform.new_pairs(math.prod(shape)) if between is None else between
            into = Numbers(between, WIDE, n)
        outer, inner = math.prod(shape[:axis]), math.prod(shape[len(shape) + axis + 1 :])
        transform.axis(
            source._replace(length=n), into._replace(length=n), outer, n, inner,
            scale if last else 1.0,
        )  # fmt: skip
        source = into


def _signal(call: Call) -> Spec | None:
    """Return what is transformed, where kernels can do it."""
    x = call.inputs[0]
    assert x is not None
    return x if call.has_only(*FLOATING) else None


def _scale(norm: str, lengths: Sequence[int], *, inverse: bool) -> float:
    """Return what a transform of these lengths is multiplied by."""
    points = math.prod(lengths)
    if norm == "ortho":
        return 1 / math.sqrt(points)
    return 1 / points if inverse == (norm == "backward") else 1.0
