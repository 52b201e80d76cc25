"""Groups of elementwise operators and of sums over what they compute: one pass over the elements.

Sums are exact enough for float32 without a wider type: a few dozen elements in a row, then these
partial sums, then those of a fixed number of chunks. The order depends on shapes alone, so results
are the same bits for any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from nnl_core.codegen.expressions import c_number, expressions
from nnl_core.codegen.fuse import is_sum, kept_axes
from nnl_core.codegen.loops import merge_axes
from nnl_core.graph.ir import Instruction
from nnl_native.kernel import C_TYPES, CStep, Emission
from nnl_native.kernels.elementwise import DIALECT, Value, broadcast_strides, renumbered

SUMMED = ("float32", "float64")
ROWS = 64  # rows whose sum is taken before it is added to that of the chunk
BLOCK = 4096  # the same for elements of one row; vectors have 16 partial sums of them
WIDEST = 1024  # columns that have partial sums of their own
CHUNKS = 16


class Sum(NamedTuple):
    """A sum of a group: of which value, into which, times what."""

    value: int
    result: int
    scale: float


def emit_sums(
    members: Sequence[Instruction],
    inputs: Sequence[int],
    outputs: Sequence[int],
    value: Value,
) -> Emission | None:
    """Return the steps of a group whose members are elementwise, or sums of one shape.

    All sums leave the same axes. ``None`` where something cannot be written in C.
    """
    maps = [member for member in members if not is_sum(member)]
    reductions = [member for member in members if is_sum(member)]
    body = expressions(maps, value, DIALECT)
    involved = [value(number) for number in (*inputs, *outputs)]
    if body is None or any(one.dtype.name not in C_TYPES for one in involved):
        return None
    shape = value(reductions[0].inputs[0]).shape
    kept = kept_axes(reductions[0], shape, value(reductions[0].outputs[0]).shape)
    count = math.prod(shape[axis] for axis in range(len(shape)) if axis not in kept)
    sums = []
    for member in reductions:
        assert member.operator is not None
        scale = 1.0 / count if member.operator.name == "nnl::mean" and count else 1.0
        dtypes = {value(member.inputs[0]).dtype, value(member.outputs[0]).dtype}
        if len(dtypes) != 1 or next(iter(dtypes)).name not in SUMMED:
            return None
        sums.append(Sum(member.inputs[0], member.outputs[0], scale))
    if len({value(one.result).dtype for one in sums}) != 1 or not math.prod(shape):
        return None
    return _Writer(shape, kept, sums, inputs, outputs, value, body).emission(len(members))


class _Writer:
    """Writes the loops: operands are the outputs, then the inputs, then the sums' results."""

    def __init__(
        self,
        shape: tuple[int, ...],
        kept: frozenset[int],
        sums: Sequence[Sum],
        inputs: Sequence[int],
        outputs: Sequence[int],
        value: Value,
        body: str,
    ) -> None:
        self.sums, self.body, self.value = sums, body, value
        results = {one.result for one in sums}
        self.stored = [number for number in outputs if number not in results]
        self.inputs = list(inputs)
        self.names = {number: f"out{k}" for k, number in enumerate(outputs)}
        self.names |= {number: f"in{k}" for k, number in enumerate(inputs)}
        self.c_type = value(sums[0].result).c_type
        self.operands = [value(number) for number in (*self.stored, *self.inputs)]
        kept_strides = [0] * len(shape)
        step = 1
        for axis in reversed(range(len(shape))):
            if axis in kept:
                kept_strides[axis] = step
                step *= shape[axis]
        self.kept_size = step
        leader = next((one for one in self.operands if one.shape == shape), None)
        order = range(len(shape)) if leader is None else leader.order
        strides = [broadcast_strides(one, shape) for one in self.operands]
        self.loops = merge_axes(shape, tuple(order), [*strides, kept_strides])
        self.dims: list[int] = []

    def dim(self, number: int) -> str:
        """Return how C reads a number that is given at run time."""
        if number not in self.dims:
            self.dims.append(number)
        return f"d[{self.dims.index(number)}]"

    def place(self, operand: int, indices: Sequence[str]) -> str:
        """Return where an operand's element is, given the index of each loop."""
        terms = []
        for index, stride in zip(indices, self.loops.strides[operand], strict=False):
            if stride == 1:
                terms.append(index)
            elif stride:
                terms.append(f"{index} * {self.dim(stride)}")
        return " + ".join(terms) or "0"

    def emission(self, weight: int) -> Emission | None:
        """Return the steps: one pass, and one that adds up chunks where there are several."""
        lengths, strides = self.loops
        if not lengths:
            return None
        is_kept = [stride != 0 for stride in strides[-1]]
        size = math.prod(lengths)
        cost = size * (1 + weight // 4)
        direct = is_kept[0]
        if direct:
            units, chunked = lengths[0], False
            if strides[-1][0] != self.kept_size // lengths[0]:
                return None  # a unit's sums are not neighbours
        else:
            row = size // lengths[0]
            units = max(1, min(CHUNKS, lengths[0], size // 8192, lengths[0] * row // 2048))
            chunked = units > 1
        names = [self.names[number] for number in (*self.stored, *self.inputs)]
        results = [self.names[one.result] for one in self.sums]
        text = self._pass(is_kept, direct, chunked, units)
        operands = [*names, *results, *(["tmp0:" + self.c_type] if chunked else [])]
        steps = [CStep(renumbered(text), tuple(operands), tuple(self.dims), units, cost)]
        if not chunked:
            return Emission(tuple(steps))
        self.dims = []
        finish = self._finish(units)
        steps.append(
            CStep(
                finish,
                (*results, "tmp0:" + self.c_type),
                tuple(self.dims),
                self.kept_size,
                self.kept_size * units * len(self.sums),
            )
        )
        itemsize = self.value(self.sums[0].result).dtype.itemsize
        return Emission(tuple(steps), (units * len(self.sums) * self.kept_size * itemsize,))

    def _pass(self, is_kept: list[bool], direct: bool, chunked: bool, units: int) -> str:
        """Return the pass over all elements."""
        lengths = self.loops.lengths
        rank = len(lengths)
        total = self.dim(self.kept_size)
        lines = [f"typedef {self.c_type} T;", "for (int64_t unit = begin; unit < end; unit++) {"]
        # Where this unit's sums go. Those of rows that nobody else sums are written at once.
        for k, one in enumerate(self.sums):
            if chunked:
                target = f"tmp0 + (unit * {len(self.sums)} + {k}) * {total}"
            else:
                target = self.names[one.result]
            lines.append(f"T *const sum{k} = {target};")
        if not direct:
            for k in range(len(self.sums)):
                lines.append(f"memset(sum{k}, 0, {total} * sizeof(T));")
            lines.append(
                f"const int64_t first = {self.dim(lengths[0])} * unit / {self.dim(units)};"
            )
            lines.append(
                f"const int64_t last = {self.dim(lengths[0])} * (unit + 1) / {self.dim(units)};"
            )
        indices = [f"i{axis}" for axis in range(rank)]
        if direct:
            lines.append("const int64_t i0 = unit;")
            inner = self.dim(self.kept_size // lengths[0])
            for k in range(len(self.sums)):
                lines.append(f"memset(sum{k} + unit * {inner}, 0, {inner} * sizeof(T));")
        if rank == 1:
            lines += self._row(indices, "first", "last") if not direct else self._single(indices)
        elif is_kept[-1]:
            lines += self._columns(indices, direct)
        else:
            lines += self._rows(indices, direct)
        if not chunked:
            lines += self._scaled(direct, lengths)
        return "\n".join([*lines, "}"])

    def _scaled(self, direct: bool, lengths: Sequence[int]) -> list[str]:
        """Multiply what this unit has summed, where it is a mean."""
        lines = []
        for k, one in enumerate(self.sums):
            if one.scale != 1.0:
                count = (
                    self.dim(self.kept_size // lengths[0]) if direct else self.dim(self.kept_size)
                )
                start = f"unit * {count}" if direct else "0"
                lines.append(
                    f"for (int64_t k = 0; k < {count}; k++) "
                    f"sum{k}[{start} + k] *= {self._number(one.scale)};"
                )
        return lines

    def _number(self, number: float) -> str:
        return c_number(number, "f" if self.c_type == "float" else "")

    def _open(self, indices: Sequence[str], axes: Sequence[int]) -> list[str]:
        """Open the loops of axes between the outermost and the innermost."""
        return [
            f"for (int64_t {indices[axis]} = 0; {indices[axis]} < "
            f"{self.dim(self.loops.lengths[axis])}; {indices[axis]}++) {{"
            for axis in axes
        ]

    def _loads(self, indices: Sequence[str], inner: bool) -> tuple[list[str], list[str]]:
        """Return what is read before the innermost loop, and what in it."""
        before: list[str] = []
        within: list[str] = []
        last = len(self.loops.lengths) - 1
        for k, number in enumerate(self.inputs):
            position = len(self.stored) + k
            operand = self.operands[position]
            name = self.names[number]
            stride = self.loops.strides[position][last]
            base = self.place(position, indices[:last])
            before.append(f"const {operand.c_type} *const p{number} = {name} + {base};")
            step = {0: "0", 1: "j"}.get(stride) or f"j * {self.dim(stride)}"
            load = f"const {operand.c_type} v{number} = p{number}[{step}];"
            (within if stride and inner else before).append(load)
        for position, number in enumerate(self.stored):
            base = self.place(position, indices[:last])
            kind = self.operands[position].c_type
            before.append(f"{kind} *const q{number} = {self.names[number]} + {base};")
        return before, within

    def _stores(self) -> list[str]:
        last = len(self.loops.lengths) - 1
        lines = []
        for position, number in enumerate(self.stored):
            stride = self.loops.strides[position][last]
            step = "j" if stride == 1 else f"j * {self.dim(stride)}"
            lines.append(f"q{number}[{step}] = v{number};")
        return lines

    def _row(self, indices: Sequence[str], start: str, stop: str) -> list[str]:
        """Sum along the innermost loop from ``start`` to ``stop``, into where ``at`` says."""
        before, within = self._loads(indices, True)
        sums = range(len(self.sums))
        target = self.place(len(self.operands), indices[:-1])
        names = ", ".join(f"s{k}" for k in sums)
        return [
            *before,
            f"for (int64_t block = {start}; block < {stop}; block += {BLOCK}) {{",
            f"const int64_t rim = MIN(block + {BLOCK}, {stop});",
            *(f"T s{k} = 0;" for k in sums),
            f"#pragma omp simd reduction(+:{names})",
            "for (int64_t j = block; j < rim; j++) {",
            *within,
            self.body,
            *(f"s{k} += v{one.value};" for k, one in enumerate(self.sums)),
            *self._stores(),
            "}",
            *(f"sum{k}[{target}] += s{k};" for k in sums),
            "}",
        ]

    def _single(self, indices: Sequence[str]) -> list[str]:
        """A loop that sums nothing: each element is its own sum."""
        before, within = self._loads(["i0"], True)
        lines = [line.replace("[j", "[i0") for line in within]
        stores = [line.replace("[j", "[i0") for line in self._stores()]
        return [
            *before,
            *lines,
            self.body,
            *(f"sum{k}[i0] += v{one.value};" for k, one in enumerate(self.sums)),
            *stores,
        ]

    def _rows(self, indices: Sequence[str], direct: bool) -> list[str]:
        """Sum along rows that are neighbours in memory."""
        middle = self._open(indices, range(1, len(indices) - 1))
        inner = self._row(indices, "0", self.dim(self.loops.lengths[-1]))
        if direct:
            return [*middle, *inner, *("}" for _ in middle)]
        head = "for (int64_t i0 = first; i0 < last; i0++) {"
        return [head, *middle, *inner, *("}" for _ in middle), "}"]

    def _columns(self, indices: Sequence[str], direct: bool) -> list[str]:
        """Sum rows onto each other: all columns side by side."""
        width = self.loops.lengths[-1]
        sums = range(len(self.sums))
        target = self.place(len(self.operands), indices[:-1])
        columns = str(width) if width <= 64 else self.dim(width)
        rows = len(indices) - 2  # the loop around that over columns
        has_rows = rows >= 0 and self.loops.strides[-1][rows] == 0
        outer = [] if direct else ["for (int64_t i0 = first; i0 < last; i0++) {"]
        if not has_rows or width > WIDEST:
            head = [*outer, *self._open(indices, range(1, rows + 1))]
            loop = self._row_of_columns(indices, columns, [f"sum{k}[{target} + j]" for k in sums])
            return [*head, *loop, *("}" for _ in head)]
        # Rows that follow each other have partial sums of their own.
        start, stop = ("first", "last") if rows == 0 else ("0", self.dim(self.loops.lengths[rows]))
        head = [*outer, *self._open(indices, range(1, rows))] if rows else []
        block = [
            f"for (int64_t block = {start}; block < {stop}; block += {ROWS}) {{",
            f"const int64_t rim = MIN(block + {ROWS}, {stop});",
            *(f"T part{k}[{width if width <= 64 else WIDEST}];" for k in sums),
            *(f"memset(part{k}, 0, {columns} * sizeof(T));" for k in sums),
            f"for (int64_t i{rows} = block; i{rows} < rim; i{rows}++) {{",
            *self._row_of_columns(indices, columns, [f"part{k}[j]" for k in sums]),
            "}",
            f"for (int64_t j = 0; j < {columns}; j++) {{",
            *(f"sum{k}[{target} + j] += part{k}[j];" for k in sums),
            "}",
            "}",
        ]
        return [*head, *block, *("}" for _ in head)]

    def _row_of_columns(
        self, indices: Sequence[str], columns: str, into: Sequence[str]
    ) -> list[str]:
        before, within = self._loads(indices, True)
        return [
            *before,
            "#pragma omp simd",
            f"for (int64_t j = 0; j < {columns}; j++) {{",
            *within,
            self.body,
            *(f"{into[k]} += v{one.value};" for k, one in enumerate(self.sums)),
            *self._stores(),
            "}",
        ]

    def _finish(self, units: int) -> str:
        """Add up the chunks, in order."""
        total, count = self.dim(self.kept_size), self.dim(units)
        lines = [f"typedef {self.c_type} T;", "for (int64_t at = begin; at < end; at++) {"]
        for k, one in enumerate(self.sums):
            scale = "" if one.scale == 1.0 else f" * {self._number(one.scale)}"
            lines += [
                "{",
                "T sum = 0;",
                f"for (int64_t chunk = 0; chunk < {count}; chunk++) "
                f"sum += tmp0[(chunk * {len(self.sums)} + {k}) * {total} + at];",
                f"{self.names[one.result]}[at] = sum{scale};",
                "}",
            ]
        return "\n".join([*lines, "}"])
