"""Groups of elementwise operators and of sums over what they compute: one kernel.

All sums leave the same axes, and each element is read once. Where the last axis is summed over, a
team of threads has a result; where it is kept, threads lie along it, and those below each other
have a result. Few results are summed in parts, which a second kernel adds up. The order of all
additions depends on shapes alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nnl_core.codegen.expressions import expressions
from nnl_core.codegen.fuse import is_sum, kept_axes
from nnl_core.codegen.loops import merge_axes
from nnl_core.gpu.families.elementwise import DIALECT, NUMBERED, WIDTH, strides_of
from nnl_core.gpu.kernel import (
    C_TYPES,
    Argument,
    Emission,
    Kernel,
    Launch,
    blocks,
    c_type,
    computing_type,
    given,
    result,
    scratch,
)
from nnl_core.graph.ir import ABSENT, Instruction
from nnl_core.graph.spec import Spec

THREADS = 256
LOADS = 4  # of a thread, at least
PARTS = 512  # of a result, at most


class Axis(NamedTuple):
    """One of the merged axes, and the stride of each operand along it."""

    length: int
    is_kept: bool
    strides: tuple[int, ...]


class Sum(NamedTuple):
    """A sum of a group: of which value, into which of the outputs, divided by what."""

    value: int
    output: int
    divisor: float


class Group(NamedTuple):
    """What a group computes: of each element, the sums, and what follows from these."""

    maps: list[Instruction]
    sums: list[Sum]
    finishes: list[Instruction]
    shape: tuple[int, ...]
    kept: frozenset[int]

    @property
    def read_by_maps(self) -> set[int]:
        """Values that are read for each element."""
        made = {value for member in self.maps for value in member.outputs}
        read = {value for member in self.maps for value in member.inputs}
        return (read | {one.value for one in self.sums}) - made - {ABSENT}

    @property
    def read_by_finishes(self) -> set[int]:
        """Values that are read for each result, and are no sums."""
        made = {value for member in self.finishes for value in member.outputs}
        read = {value for member in self.finishes for value in member.inputs}
        return read - made - {one.output for one in self.sums} - {ABSENT}


def group_of(members: Sequence[Instruction], specs: Sequence[Spec]) -> Group:
    """Return what is computed by members, the sums of which leave the same axes."""
    sums = [member for member in members if is_sum(member)]
    shape = specs[sums[0].inputs[0]].shape
    kept = kept_axes(sums[0], shape, specs[sums[0].outputs[0]].shape)
    count = math.prod(length for axis, length in enumerate(shape) if axis not in kept)
    others = [member for member in members if not is_sum(member)]
    every = math.prod(shape)
    wanted = []
    for member in sums:
        assert member.operator is not None
        divisor = float(count) if member.operator.name == "nnl::mean" else 1.0
        wanted.append(Sum(member.inputs[0], member.outputs[0], divisor))
    maps = [member for member in others if specs[member.outputs[0]].size == every]
    finishes = [member for member in others if specs[member.outputs[0]].size != every]
    return Group(maps, wanted, finishes, shape, kept)


def emit_sums(
    members: Sequence[Instruction],
    inputs: Sequence[int],
    outputs: Sequence[int],
    specs: Sequence[Spec],
    multiprocessors: int,
) -> Emission | None:
    """Return the kernels of a group, or ``None`` where a member cannot be written in C."""
    group = group_of(members, specs)
    body, finish = (
        expressions(some, lambda number: specs[number], DIALECT)
        for some in (group.maps, group.finishes)
    )
    operands = [number for number in (*inputs, *outputs) if number != ABSENT]
    if body is None or finish is None:
        return None
    if any(specs[number].dtype.name not in C_TYPES for number in operands):
        return None
    address: dict[int, Argument] = {number: given(k) for k, number in enumerate(inputs)}
    address |= {number: result(k) for k, number in enumerate(outputs)}
    writer = _Writer(group, inputs, outputs, specs)
    return writer.emission(body, finish, address, multiprocessors)


def _power_of_two(least: int) -> int:
    return 1 << max(0, least - 1).bit_length()


class _Writer:
    """Writes the kernels of a group; lengths and strides are arguments, in ``dims``."""

    def __init__(
        self,
        group: Group,
        inputs: Sequence[int],
        outputs: Sequence[int],
        specs: Sequence[Spec],
    ) -> None:
        self.sums, self.specs = group.sums, specs
        shape, kept = group.shape, group.kept
        mapped = {value for member in group.maps for value in member.outputs}
        mapped_from = group.read_by_maps
        stored = [number for number in outputs if number in mapped]
        read = [number for number in dict.fromkeys(inputs) if number in mapped_from]
        self.stored, self.numbers = len(stored), (*stored, *read)
        self.finished = [number for number in outputs if number not in mapped]
        needed = group.read_by_finishes
        self.finishing = [number for number in dict.fromkeys(inputs) if number in needed]
        of_result = [0] * len(shape)
        step = 1
        for axis in reversed(range(len(shape))):
            if axis in kept:
                of_result[axis] = step
                step *= shape[axis]
        operands = [strides_of(specs[number], shape) for number in self.numbers]
        loops = merge_axes(shape, range(len(shape)), [*operands, of_result])
        self.axes = [
            Axis(length, strides[-1] != 0, strides[:-1])
            for length, strides in zip(loops.lengths, zip(*loops.strides, strict=True), strict=True)
        ]
        self.results = step
        self.count = math.prod(shape) // step
        self.along_last = not self.axes or not self.axes[-1].is_kept
        self.is_long = math.prod(shape) >= 1 << 30
        self.index = "int64_t" if self.is_long else "int32_t"
        self.added = computing_type(specs[self.sums[0].output].dtype)
        self.dims: list[int] = []
        self.width = self._width()

    def _width(self) -> int:
        """Return how many neighbours along the last axis a thread takes at once."""
        if not self.axes:
            return 1
        width = WIDTH // max(self.specs[number].dtype.itemsize for number in self.numbers)
        return max(1, math.gcd(width, self.axes[-1].length))

    def number(self, value: int) -> np.generic:
        """Return a number of the type of indices."""
        return np.int64(value) if self.is_long else np.int32(value)

    def dim(self, number: int) -> str:
        """Return the parameter that holds a number."""
        self.dims.append(number)
        return f"d{len(self.dims) - 1}"

    # Launches -----------------------------------------------------------------------------------

    def emission(
        self, body: str, finish: str, address: Mapping[int, Argument], multiprocessors: int
    ) -> Emission:
        """Return the launches."""
        wanted, threads = 4 * multiprocessors, THREADS
        if self.along_last:
            chunks = self.count // self.width
            down = min(_power_of_two(blocks(chunks, LOADS)), 32 if chunks <= 256 else THREADS)
            threads = down if down > 32 else THREADS
            grid, extent = blocks(self.results, threads // down), down
        else:
            chunks, along = self.count, self.axes[-1].length // self.width
            extent = min(_power_of_two(along), 32)
            down = threads // extent
            grid = blocks(along, extent) * (self.results // self.axes[-1].length)
        parts = max(1, min(wanted // max(1, grid), chunks // (LOADS * down), PARTS))
        each = blocks(chunks, parts)
        parts = blocks(chunks, each)
        in_parts = parts > 1
        room = parts * self.results * (8 if self.added == "double" else 4)
        rooms = [scratch(0, k * room) for k in range(len(self.sums))]
        operands = [address[number] for number in self.numbers]
        ends = [address[number] for number in (*self.finished, *self.finishing)]
        divisors = [self._real(one.divisor) for one in self.sums]
        text = self._text(body, None if in_parts else finish)
        arguments = [*operands, *(rooms if in_parts else (*ends, *divisors))]
        arguments += [self.number(n) for n in (self.results, chunks, each, extent, *self.dims)]
        block = (threads, 1, 1)
        first = Launch(Kernel(text, "sums"), (grid, parts, 1), block, tuple(arguments))
        if not in_parts:
            return Emission((first,))
        team = min(32, _power_of_two(blocks(parts, LOADS))) if self.results < 8192 else 1
        numbers = (self.number(self.results), np.int32(parts), np.int32(team))
        second = Launch(
            Kernel(self._join(finish), "join"),
            (blocks(self.results, THREADS // team), 1, 1),
            (THREADS, 1, 1),
            (*rooms, *ends, *divisors, *numbers),
        )
        return Emission((first, second), (len(self.sums) * room,))

    def _real(self, value: float) -> np.generic:
        return np.float64(value) if self.added == "double" else np.float32(value)

    # Text ---------------------------------------------------------------------------------------

    def _text(self, body: str, finish: str | None) -> str:
        """Return the kernel that sums, and finishes, or else leaves parts."""
        index, added, width = self.index, self.added, self.width
        parameters = [
            f"{'' if p < self.stored else 'const '}{c_type(self.specs[n].dtype)} *__restrict__ x{p}"
            for p, n in enumerate(self.numbers)
        ]
        every = range(len(self.sums))
        if finish is None:
            parameters += [f"{added} *__restrict__ p{k}" for k in every]
        else:
            parameters += self._ends()
        parameters += [f"{index} {name}" for name in ("results", "count", "each", "extent")]
        kept = [axis for axis in self.axes if axis.is_kept]
        reduced = [axis for axis in self.axes if not axis.is_kept]
        starts = {p: f"k{p}" for p in range(len(self.numbers))}
        if self.along_last:
            opening, closing = self._rows(finish)
            bases = self._places("row", kept, "k", {})
            offsets = self._places("r", reduced, "b", starts, width)
        else:
            opening, closing = self._columns(finish)
            bases = self._places("column", kept, "k", {}, width)
            offsets = self._places("r", reduced, "b", starts)
        sums = "\n".join(f"{added} s{k}[{width}] = {{}};" for k in every)
        parameters += [f"{index} d{k}" for k in range(len(self.dims))]
        text = (
            f'extern "C" __global__ void __launch_bounds__({THREADS})\n'
            f"KERNEL(sums)({', '.join(parameters)}) {{\n{opening}\n{sums}\n"
            f"if (there) {{\n{bases}\n"
            f"for ({index} r = begin + lane; r < end; r += team) {{\n"
            f"{offsets}\n{self._visit(body)}\n}}\n}}\n{closing}\n}}\n"
        )
        return self._renumbered(text)

    def _ends(self) -> list[str]:
        """Return parameters for what is written and read for each result."""
        kinds = [c_type(self.specs[number].dtype) for number in (*self.finished, *self.finishing)]
        written = len(self.finished)
        return [
            *(f"{kind} *__restrict__ y{k}" for k, kind in enumerate(kinds[:written])),
            *(f"const {kind} *__restrict__ z{k}" for k, kind in enumerate(kinds[written:])),
            *(f"{self.added} n{k}" for k in range(len(self.sums))),
        ]

    def _end(self, finish: str | None) -> str:
        """Return what is done with sums ``a0``, ``a1``, ... of result ``at``."""
        if finish is None:
            return "\n".join(
                f"p{k}[blockIdx.y * results + at] = a{k};" for k in range(len(self.sums))
            )
        lines = []
        for k, one in enumerate(self.sums):
            dtype = self.specs[one.output].dtype
            rounded = f"wide(narrow<{c_type(dtype)}>(a{k} / n{k}))"
            lines.append(f"const {computing_type(dtype)} v{one.output} = {rounded};")
        for k, number in enumerate(self.finishing):
            spec = self.specs[number]
            place = "0" if spec.size == 1 else "at"
            lines.append(f"const {computing_type(spec.dtype)} v{number} = wide(z{k}[{place}]);")
        lines.append(finish)
        for k, number in enumerate(self.finished):
            lines.append(f"y{k}[at] = narrow<{c_type(self.specs[number].dtype)}>(v{number});")
        return "\n".join(lines)

    def _rows(self, finish: str | None) -> tuple[str, str]:
        """Return what comes before and after the elements where teams have rows."""
        index, added = self.index, self.added
        opening = (
            f"__shared__ {added} room[32];\n"
            f"const {index} team = extent, lane = threadIdx.x % team;\n"
            f"const {index} row = blockIdx.x * (blockDim.x / team) + threadIdx.x / team;\n"
            f"const bool there = row < results;\n{self._share()}"
        )
        lines = [
            f"const {added} a{k} ="
            f" team_all<Add>({self._neighbours(k)}, ({added})0, (int)team, room);"
            for k in range(len(self.sums))
        ]
        end = f"const {index} at = row;\n{self._end(finish)}"
        lines.append(f"if (there && lane == 0) {{\n{end}\n}}")
        return opening, "\n".join(lines)

    def _columns(self, finish: str | None) -> tuple[str, str]:
        """Return the same where threads lie along columns, ``width`` for each."""
        index, added, width = self.index, self.added, self.width
        chunks = self.dim(self.axes[-1].length // width)
        opening = (
            f"__shared__ {added} room[{THREADS}];\n"
            f"const {index} across = extent, team = {THREADS} / across;\n"
            f"const {index} lane = threadIdx.x / across;\n"
            f"const {index} tiles = ({chunks} + across - 1) / across;\n"
            f"const {index} outer = ({index})blockIdx.x / tiles;\n"
            f"const {index} place = (({index})blockIdx.x - outer * tiles) * across"
            f" + threadIdx.x % across;\n"
            f"const {index} column = (outer * {chunks} + place) * {width};\n"
            f"const bool there = place < {chunks};\n{self._share()}"
        )
        every = range(len(self.sums))
        lines = [f"#pragma unroll\nfor (int e = 0; e < {width}; e++) {{"]
        for k in every:
            lines.append(
                f"room[threadIdx.x] = s{k}[e];\n__syncthreads();\n"
                f"for ({index} half = team / 2; half > 0; half /= 2) {{\n"
                f"if (lane < half) room[threadIdx.x] += room[threadIdx.x + half * across];\n"
                f"__syncthreads();\n}}\n"
                f"const {added} a{k} = room[threadIdx.x];\n__syncthreads();"
            )
        end = f"const {index} at = column + e;\n{self._end(finish)}"
        lines.append(f"if (there && lane == 0) {{\n{end}\n}}\n}}")
        return opening, "\n".join(lines)

    def _share(self) -> str:
        """Return what of all elements of a result a block goes through, in units of a load."""
        return (
            f"const {self.index} begin = ({self.index})blockIdx.y * each;\n"
            f"const {self.index} end = begin + each < count ? begin + each : count;"
        )

    def _neighbours(self, k: int) -> str:
        """Return the sum of what neighbours of a load came to, in pairs."""
        terms = [f"s{k}[{e}]" for e in range(self.width)]
        while len(terms) > 1:
            half = len(terms) // 2
            terms = [f"({terms[e]} + {terms[e + half]})" for e in range(half)]
        return terms[0]

    def _places(
        self, rest: str, axes: Sequence[Axis], name: str, base: dict[int, str], width: int = 1
    ) -> str:
        """Return statements that find where each operand is, from the number of a load."""
        index = self.index
        lines, places = [], [""] * len(axes)
        for n in reversed(range(1, len(axes))):
            inner = n == len(axes) - 1 and name == "b" and width > 1
            length = self.dim(axes[n].length // width if inner else axes[n].length)
            lines.append(f"const {index} {name}i{n} = {rest} % {length};")
            lines.append(f"const {index} {name}r{n} = {rest} / {length};")
            places[n], rest = f"{name}i{n}", f"{name}r{n}"
        if axes:
            places[0] = rest
        for p in range(len(self.numbers)):
            terms = [base[p]] if p in base else []
            for n, (place, axis) in enumerate(zip(places, axes, strict=True)):
                step = axis.strides[p]
                if name == "b" and n == len(axes) - 1:
                    step *= width
                if step == 1:
                    terms.append(place)
                elif step:
                    terms.append(f"{place} * {self.dim(step)}")
            lines.append(f"const {index} {name}{p} = {' + '.join(terms) or '0'};")
        return "\n".join(lines)

    def _visit(self, body: str) -> str:
        """Return loads, the members' statements for each element, stores, and additions."""
        width = self.width
        before, loads, after, stores = [], [], [], []
        for p, number in enumerate(self.numbers):
            dtype = self.specs[number].dtype
            kind, computing = c_type(dtype), computing_type(dtype)
            moves = bool(self.axes) and self.axes[-1].strides[p] != 0
            vector = f"Vector<{kind}, {width}>"
            if p < self.stored:
                before.append(f"{vector} w{number};")
                stores.append(f"w{number}.at[e] = narrow<{kind}>(v{number});")
                after.append(f"store(x{p} + b{p}, w{number});")
            elif moves:
                before.append(f"const {vector} w{number} = load<{width}>(x{p} + b{p});")
                loads.append(f"const {computing} v{number} = wide(w{number}.at[e]);")
            else:
                before.append(f"const {computing} v{number} = wide(x{p}[b{p}]);")
        sums = [f"s{k}[e] += ({self.added})v{one.value};" for k, one in enumerate(self.sums)]
        loop = f"#pragma unroll\nfor (int e = 0; e < {width}; e++) {{"
        return "\n".join([*before, loop, *loads, body, *stores, *sums, "}", *after])

    def _renumbered(self, text: str) -> str:
        """Number values as they come, so that equal loops of other graphs are one text."""
        numbers: dict[str, int] = {}
        return NUMBERED.sub(lambda it: f"{it[1]}{numbers.setdefault(it[2], len(numbers))}", text)

    def _join(self, finish: str) -> str:
        """Return the kernel that adds parts up, a team for each result."""
        index, added, every = self.index, self.added, range(len(self.sums))
        parameters = [f"const {added} *__restrict__ p{k}" for k in every]
        parameters += [*self._ends(), f"{index} results", "int32_t parts", "int32_t team"]
        lines = []
        for k in every:
            lines.append(
                f"{added} a{k} = 0;\n"
                f"if (at < results) for (int i = lane; i < parts; i += team)"
                f" a{k} += p{k}[({index})i * results + at];\n"
                f"a{k} = team_all<Add>(a{k}, ({added})0, team, ({added} *)0);"
            )
        body = "\n".join(lines)
        text = (
            f'extern "C" __global__ void KERNEL(join)({", ".join(parameters)}) {{\n'
            f"const {index} at = ({index})blockIdx.x * ({THREADS} / team) + threadIdx.x / team;\n"
            f"const int lane = threadIdx.x % team;\n{body}\n"
            f"if (lane || at >= results) return;\n{self._end(finish)}\n}}\n"
        )
        return self._renumbered(text)
