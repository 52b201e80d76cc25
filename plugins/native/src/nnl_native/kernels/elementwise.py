"""Elementwise operators, alone or in fused groups: one loop made of their C expressions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from nnl_core.codegen.expressions import Dialect, expressions
from nnl_core.codegen.loops import Loops, merge_axes
from nnl_core.graph.ir import Instruction
from nnl_native.kernel import C_TYPES, CStep, Emission, Layout, Operand, dense, plain
from nnl_native.kernels.foreign import expression_compiles

Value = Callable[[int], Operand]

# What expressions call, and what is called in its place. The others are the C library's, which
# `#pragma omp simd` turns into vector functions where it has them.
DIALECT = Dialect(
    C_TYPES,
    {name: f"nnl_{name}" for name in ("expf", "tanhf", "logf", "log1pf")},
    accept=expression_compiles,
)
NUMBERED = re.compile(r"\b([vpq])(\d+)\b")  # values of a graph in a loop, and their places


def broadcast_strides(operand: Operand, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the operand's strides along the axes of a shape that it broadcasts to."""
    missing = len(shape) - len(operand.shape)
    own = [
        0 if length == 1 else stride
        for length, stride in zip(operand.shape, operand.strides, strict=True)
    ]
    return (*(0 for _ in range(missing)), *own)


def group_layout(shape: Sequence[int], inputs: Sequence[Operand]) -> Layout:
    """Return the layout of a group's outputs: that of most inputs of their shape, dense.

    Of two layouts, that of convolutions is taken: neighbours are likely to have it.
    """
    usual = plain(shape)
    layouts = [
        dense(shape, given.order)
        for given in inputs
        if given.shape == shape and 0 not in given.strides
    ]
    return max(layouts, key=lambda one: (layouts.count(one), one != usual), default=usual)


def emit_group(
    members: Sequence[Instruction],
    inputs: Sequence[int],
    outputs: Sequence[int],
    value: Value,
) -> Emission | None:
    """Return one loop over all elements, or ``None`` where a member cannot be written in C.

    Values that only members read exist in registers alone.
    """
    body = expressions(members, value, DIALECT)
    if body is None:
        return None
    given, results = [value(number) for number in inputs], [value(number) for number in outputs]
    if any(one.dtype.name not in C_TYPES for one in (*given, *results)):
        return None
    shape = results[0].shape
    operands = [*results, *given]
    loops = merge_axes(shape, results[0].order, [broadcast_strides(one, shape) for one in operands])
    names = [f"out{k}" for k in range(len(outputs))] + [f"in{k}" for k in range(len(inputs))]
    numbers = [*outputs, *inputs]
    size = math.prod(shape)
    if not size:
        return Emission(())
    writer = LoopWriter(loops, names)
    is_input = [False] * len(outputs) + [True] * len(inputs)
    for position, (name, number) in enumerate(zip(names, numbers, strict=True)):
        if is_input[position]:
            c_type = operands[position].c_type
            writer.load(position, f"const {c_type} v{number} = {name}[{{at}}];")
    for position, (name, number) in enumerate(zip(names, numbers, strict=True)):
        if not is_input[position]:
            writer.store(position, f"{name}[{{at}}] = v{number};")
    text, dims, units = writer.write(body)
    cost = size * (1 + len(members) // 4)
    return Emission((CStep(renumbered(text), tuple(names), dims, units, cost),))


def renumbered(text: str) -> str:
    """Return a text whose values are numbered as they come, so that equal loops are one function.

    They come in by their numbers in the graph, which other calls of the same operators do not have.
    """
    numbers: dict[str, int] = {}
    return NUMBERED.sub(lambda it: f"{it[1]}{numbers.setdefault(it[2], len(numbers))}", text)


class LoopWriter:
    """Writes loops over operands: loads, a body, stores; strides other than 0 and 1 are dims."""

    def __init__(self, loops: Loops, names: Sequence[str]) -> None:
        self.loops, self.names = loops, names
        self.loads: list[tuple[int, str]] = []
        self.stores: list[tuple[int, str]] = []
        self.dims: list[int] = []

    def load(self, position: int, text: str) -> None:
        """Add a statement that reads an operand ``{at}`` its place."""
        self.loads.append((position, text))

    def store(self, position: int, text: str) -> None:
        """Add a statement that writes to an operand ``{at}`` its place."""
        self.stores.append((position, text))

    def dim(self, number: int) -> str:
        """Return how C reads a number that is given at run time."""
        self.dims.append(number)
        return f"d[{len(self.dims) - 1}]"

    def term(self, index: str, stride: int) -> str:
        """Return ``index * stride``, or nothing where that is 0."""
        if stride in (0, 1):
            return index if stride else ""
        return f"{index} * {self.dim(stride)}"

    def write(self, body: str) -> tuple[str, tuple[int, ...], int]:
        """Return the function's body, its dims, and the number of units."""
        lengths, strides = self.loops
        rank = len(lengths)
        if rank == 0:
            text = "\n".join(
                [
                    *(load.format(at="0") for _, load in self.loads),
                    body,
                    *(store.format(at="0") for _, store in self.stores),
                ]
            )
            return text, (), 1
        # The innermost loop runs over one axis; what it does not change is read before it. The
        # one around it has an index of its own; further axes are told apart by division.
        nested = 2 if rank > 1 else 1
        outer = rank - nested
        lines: list[str] = []
        if outer == 0:
            units = lengths[0]
            lines.append("for (int64_t i = begin; i < end; i++) {")
            base = {p: [self.term("i", strides[p][0])] for p in range(len(self.names))}
        else:
            units = math.prod(lengths[:-1])
            lines.append("for (int64_t unit = begin; unit < end; unit++) {")
            rest = "unit"
            indices = [""] * (rank - 1)
            for axis in reversed(range(1, rank - 1)):
                length = self.dim(lengths[axis])
                lines.append(f"const int64_t i{axis} = {rest} % {length};")
                lines.append(f"const int64_t r{axis} = {rest} / {length};")
                indices[axis], rest = f"i{axis}", f"r{axis}"
            indices[0] = rest
            base = {
                p: [self.term(indices[axis], strides[p][axis]) for axis in range(rank - 1)]
                for p in range(len(self.names))
            }
        if rank == 1:
            lines = ["#pragma omp simd", *lines]
            place = {p: " + ".join(filter(None, base[p])) or "0" for p in base}
            lines += [text.format(at=place[p]) for p, text in self.loads if strides[p][0]]
            lines += [body]
            lines += [text.format(at=place[p]) for p, text in self.stores]
            hoisted = [text.format(at="0") for p, text in self.loads if not strides[p][0]]
            return "\n".join([*hoisted, *lines, "}"]), tuple(self.dims), units
        for p in base:
            lines.append(f"const int64_t b{p} = {' + '.join(filter(None, base[p])) or '0'};")
        inner = self.dim(lengths[-1])
        lines += [text.format(at=f"b{p}") for p, text in self.loads if not strides[p][-1]]
        place = {p: f"b{p} + {self.term('j', strides[p][-1]) or '0'}" for p in base}
        lines += ["#pragma omp simd", f"for (int64_t j = 0; j < {inner}; j++) {{"]
        lines += [text.format(at=place[p]) for p, text in self.loads if strides[p][-1]]
        lines += [body]
        lines += [text.format(at=place[p]) for p, text in self.stores]
        return "\n".join([*lines, "}", "}"]), tuple(self.dims), units
