"""Moments, what is normalised by them, its gradient, and running statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nnl_core.gpu.kernel import (
    FLOATING,
    NULL,
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

FILE = "normalization.cu"
IN_REGISTERS = 16  # elements of a thread
LONGEST_ROW = 1024 * IN_REGISTERS
SMALL = 1 << 31  # what 32 bits count


class Layout(NamedTuple):
    """Which elements a moment is of.

    Of axes ``(outer, count, inner)`` the first and the last are summed over; ``columns`` says that
    it is ``(outer, members, columns)``, summed over the second. Of anything else `at` and `kept`
    say it as text (see the kernels).
    """

    moments: int
    members: int
    inner: int
    columns: int = 0
    at: str = ""
    kept: str = ""

    @property
    def is_rows(self) -> bool:
        """Whether each moment is of a row of its own."""
        return not self.columns and not self.at and self.inner == self.members


class Gain(NamedTuple):
    """Element ``(i / inner) % size`` belongs to element ``i``."""

    address: Address
    inner: int
    size: int

    def fits(self, vector: int) -> bool:
        """Whether that many elements, loaded at once, have one of it or as many side by side."""
        if self.size == 1:
            return True
        return not (self.size if self.inner == 1 else self.inner) % vector


def find_layout(shape: Sequence[int], axes: Sequence[int]) -> Layout:
    """Return what moments over axes are of."""
    over_axes = {axis % len(shape) for axis in axes}
    count = math.prod(n for axis, n in enumerate(shape) if axis not in over_axes)
    members = math.prod(shape[axis] for axis in over_axes)
    runs: list[tuple[bool, int]] = []  # whether they are summed over, and how many
    for axis, length in enumerate(shape):
        if length == 1:
            continue
        summed = axis in over_axes
        if runs and runs[-1][0] == summed:
            runs[-1] = (summed, runs[-1][1] * length)
        else:
            runs.append((summed, length))
    order = "".join("r" if summed else "k" for summed, _ in runs)
    if order in ("", "k"):
        return Layout(count, members, 1)
    if order in ("r", "kr"):
        return Layout(count, members, members)
    if order == "rkr":
        return Layout(count, members, runs[-1][1])
    if order == "rk":
        return Layout(count, members, 1, columns=count)
    if order == "krk":
        columns = runs[-1][1]
        kept = f"i / {members * columns} * {columns} + i % {columns}"
        return Layout(count, members, 1, columns=columns, kept=kept)
    at: list[str] = []
    kept_at: list[str] = []
    strides = [math.prod(length for _, length in runs[n + 1 :]) for n in range(len(runs))]
    inside = {True: 1, False: 1}
    for (summed, length), stride in reversed(list(zip(runs, strides, strict=True))):
        letter = "r" if summed else "k"
        at.append(f"{letter} / {inside[summed]} % {length} * {stride}")
        if not summed:
            kept_at.append(f"i / {stride} % {length} * {inside[False]}")
        inside[summed] *= length
    return Layout(count, members, 1, at=" + ".join(at), kept=" + ".join(kept_at))


class Maker:
    """Makes the launches of one call."""

    def __init__(self, call: Call, x: Spec) -> None:
        self.call, self.x = call, x
        self.layout = find_layout(x.shape, call.attributes["axes"])
        self.wide = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
        self.eps = self.real(call.attributes.get("eps", 0.0))
        self.small = x.size < SMALL
        self.launches: list[Launch] = []
        self.room: list[int] = []

    def number(self, value: int) -> np.generic:
        """Return a number of the type of indices."""
        return np.int32(value) if self.small else np.int64(value)

    def real(self, value: float) -> np.generic:
        """Return a number of the type that is computed in."""
        return np.float64(value) if self.wide == np.float64 else np.float32(value)

    def kernel(self, entry: str, vector: int, **defines: str | int) -> Kernel:
        """Return a kernel for the call's types."""
        index = "int32_t" if self.small else "int64_t"
        return kernel(FILE, entry, T=c_type(self.x.dtype), I=index, VEC=vector, **defines)

    def vector(self, length: int, gains: Sequence[Gain]) -> int:
        """Return how many elements can be loaded at once."""
        whole = 16 // self.x.dtype.itemsize
        fits = not length % whole and all(gain.fits(whole) for gain in gains)
        return whole if fits else 1

    def new_room(self, values: int, dtype: np.dtype) -> Address:
        """Return memory for values."""
        self.room.append(max(1, values) * dtype.itemsize)
        return scratch(len(self.room) - 1)

    def gain(self, index: int) -> Gain:
        """Return an input that is broadcast to ``x``, spread where its axes do not lie together."""
        spec = self.call.inputs[index]
        assert spec is not None
        shape = self.x.shape
        own = (1,) * (len(shape) - len(spec.shape)) + spec.shape
        along = [axis for axis, n in enumerate(own) if n != 1]
        if not along:
            return Gain(given(index), 1, 1)
        first, last = along[0], along[-1]
        if own[first : last + 1] == shape[first : last + 1]:
            return Gain(given(index), math.prod(shape[last + 1 :]), spec.size)
        terms, stride = [], 1
        for axis in reversed(along):
            terms.append(f"i / {math.prod(shape[axis + 1 :])} % {own[axis]} * {stride}")
            stride *= own[axis]
        spread = self.kernel("spread_gain", 1, SPREAD=" + ".join(terms))
        room = self.new_room(self.x.size, self.x.dtype)
        self.launches.append(over(spread, self.x.size, (given(index), room)))
        return Gain(room, 1, self.x.size)

    def numbers(self, *gains: Gain) -> tuple[Argument, ...]:
        """Return how gains lie."""
        return tuple(self.number(n) for gain in gains for n in (gain.inner, gain.size))

    def rows(self, entry: str, arguments: Sequence[Argument], *gains: Gain) -> None:
        """Launch a kernel that keeps each row in registers."""
        length = self.layout.members
        vector = self.vector(length, gains)
        loads = length // vector
        most = IN_REGISTERS // vector
        if loads <= 32 * most:  # a part of a warp, or a warp
            threads = 1
            while threads < 32 and threads * 2 <= loads:
                threads *= 2
            block = (threads, 256 // threads, 1)
        else:
            block = (32 * blocks(blocks(loads, most), 32), 1, 1)
        per = 1
        while per * block[0] < loads:
            per *= 2
        grid = (blocks(self.layout.moments, block[1]), 1, 1)
        numbers = (
            np.int64(self.layout.moments), np.int32(length), self.eps, *self.numbers(*gains)
        )  # fmt: skip
        function = self.kernel(entry, vector, PER=per)
        self.launches.append(Launch(function, grid, block, (*arguments, *numbers)))

    def sums(
        self, of: str, arguments: Sequence[Argument], width: int, gains: Sequence[Gain]
    ) -> tuple[Address, int]:
        """Launch what sums parts of all moments; return where they are, and how many of each."""
        layout = self.layout
        enough = 8 * self.call.device.multiprocessors
        if layout.columns:
            tiles = blocks(layout.columns, 32)
            outer = layout.moments // layout.columns
            most, fill = blocks(layout.members, 128), blocks(enough, tiles * outer)
            parts = max(1, min(most, fill, 512))
            grid, block = (tiles, parts, min(outer, 65535)), (32, 8, 1)
            function = self.kernel(f"{of}_of_columns", 1)
            lengths = (layout.columns, outer, layout.members)
        else:
            vector = self.element_vector(gains)
            most, fill = blocks(layout.members, 2048 * vector), blocks(enough, layout.moments)
            parts = max(1, min(most, fill, 512))
            grid, block = (layout.moments * parts, 1, 1), (256, 1, 1)
            function = self.kernel(f"{of}_of_elements", vector, **self.texts())
            lengths = (layout.inner, layout.moments, layout.members)
        room = self.new_room(width * layout.moments * parts, self.wide)
        numbers = (*map(self.number, lengths), np.int32(parts))
        self.launches.append(Launch(function, grid, block, (*arguments, room, *numbers)))
        return room, parts

    def texts(self) -> dict[str, str]:
        """Return where elements are, where that is unusual."""
        texts = {"AT": self.layout.at, "KEPT": self.layout.kept}
        return {name: text for name, text in texts.items() if text}

    def element_vector(self, gains: Sequence[Gain]) -> int:
        """Return how many elements can be loaded at once that belong to one moment."""
        return self.vector(1 if self.texts() else self.layout.inner, gains)

    def finish(self, entry: str, parts: tuple[Address, int], arguments: Sequence[Argument]) -> None:
        """Launch what joins parts."""
        count = self.layout.moments
        numbers = (np.int32(parts[1]), np.int64(count), self.real(max(1, self.layout.members)))
        grid, block = (blocks(count, 8), 1, 1), (32, 8, 1)
        function = self.kernel(entry, 1)
        self.launches.append(Launch(function, grid, block, (parts[0], *numbers, *arguments)))

    def apply(self, entry: str, arguments: Sequence[Argument], *gains: Gain) -> None:
        """Launch what goes through all elements again."""
        vector = self.element_vector(gains)
        numbers = map(self.number, (self.layout.inner, self.layout.moments))
        function = self.kernel(entry, vector, **self.texts())
        every = (*arguments, *numbers, *self.numbers(*gains))
        self.launches.append(over(function, self.x.size // vector, every))

    def done(self) -> Emission:
        """Return all launches."""
        return Emission(tuple(self.launches), tuple(self.room))


def _maker(call: Call, x: Spec | None) -> Maker | None:
    """Return what makes the launches, where all have one dtype, which is floating."""
    assert x is not None
    return Maker(call, x) if x.dtype.name in FLOATING and call.has_only(x.dtype.name) else None


@emitter("nnl::moments")
def moments(call: Call) -> Emission | None:
    """Read ``x`` once: rows by their own threads, else parts, which are joined."""
    maker = _maker(call, call.inputs[0])
    if maker is None:
        return None
    if maker.layout.is_rows and maker.layout.members <= LONGEST_ROW:
        plain = Gain(NULL, 1, 1)
        arguments = (given(0), NULL, NULL, NULL, result(0), result(1))
        maker.rows("standardize_rows", arguments, plain, plain)
    elif maker.layout.moments:
        parts = maker.sums("moments", (given(0),), 3, ())
        maker.finish("finish_moments", parts, (maker.eps, result(0), result(1), NULL, NULL))
    return maker.done()


@emitter("nnl::standardize")
def standardize(call: Call) -> Emission | None:
    """Read ``x`` once where it is rows that fit into registers, else twice."""
    maker = _maker(call, call.inputs[0])
    if maker is None:
        return None
    gamma, beta = maker.gain(1), maker.gain(2)
    if maker.layout.is_rows and maker.layout.members <= LONGEST_ROW:
        arguments = (
            given(0), gamma.address, beta.address, result(0), result(1), result(2)
        )  # fmt: skip
        maker.rows("standardize_rows", arguments, gamma, beta)
    elif maker.layout.moments:
        parts = maker.sums("moments", (given(0),), 3, ())
        center, factor = (maker.new_room(maker.layout.moments, maker.wide) for _ in range(2))
        joined = (maker.eps, result(1), result(2), center, factor)
        maker.finish("finish_moments", parts, joined)
        arguments = (given(0), center, factor, gamma.address, beta.address, result(0))
        maker.apply("apply_moments", arguments, gamma, beta)
    return maker.done()


@emitter("nnl::standardize_gradient")
def standardize_gradient(call: Call) -> Emission | None:
    """Read ``g`` and ``x`` once where they are rows that fit into registers, else twice."""
    maker = _maker(call, call.inputs[1])
    if maker is None:
        return None
    if not maker.x.size:
        return Emission(())
    gamma = maker.gain(4)
    operands = (given(0), given(1), given(2), given(3), gamma.address)
    if maker.layout.is_rows and maker.layout.members <= LONGEST_ROW // 2:
        maker.rows("gradient_rows", (*operands, result(0)), gamma)
        return maker.done()
    of = (*operands, *maker.numbers(gamma), maker.eps)
    parts = maker.sums("gradients", of, 2, (gamma,))
    level, along = (maker.new_room(maker.layout.moments, maker.wide) for _ in range(2))
    maker.finish("finish_gradients", parts, (level, along))
    maker.apply("apply_gradients", (*operands, level, along, result(0), maker.eps), gamma)
    return maker.done()


@emitter("nnl::running_statistic")
def running_statistic(call: Call) -> Emission | None:
    """Mix the old and the new value, one thread for each."""
    running, value, x = call.inputs
    assert running is not None and value is not None and x is not None
    if running.dtype.name not in FLOATING or running.dtype != value.dtype:
        return None
    count, decay = x.size // max(1, value.size), float(call.attributes["decay"])
    share = 1 - decay
    if call.attributes["unbiased"] and count > 1:
        share *= count / (count - 1)
    wide = np.float64 if running.dtype == np.float64 else np.float32
    function = kernel(FILE, "running_statistic", T=c_type(running.dtype), I="int32_t", VEC=1)
    arguments = (given(0), given(1) if count else NULL, result(), wide(decay), wide(share))
    return Emission((over(function, running.size, arguments),))
