"""Elementwise operators, alone or in fused groups: one kernel made of their C expressions.

A thread takes as many neighbouring elements as 16 bytes hold, and goes on in steps of the grid.
Moved are the bytes of each operand once, repeated ones less.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from nnl_core.codegen.expressions import Dialect, Value, expressions
from nnl_core.codegen.loops import Loops, merge_axes
from nnl_core.gpu.foreign import expression_compiles
from nnl_core.gpu.kernel import (
    C_TYPES,
    HALF_TYPES,
    THREADS,
    Argument,
    Emission,
    Kernel,
    Launch,
    blocks,
    c_type,
    computing_type,
    given,
    result,
)
from nnl_core.graph.ir import ABSENT, Instruction
from nnl_core.graph.spec import Spec

NUMBERED = re.compile(r"\b([vw])(\d+)\b")  # values of a graph, alone and as vectors
WIDTH = 16  # bytes of the widest load
WAVES = 32  # blocks for each multiprocessor: more threads go on in steps of the grid


def _convert(dtype: np.dtype, name: str, text: str) -> str:
    # Half precision is rounded after each operator, as in a graph that runs node by node.
    if dtype.name in HALF_TYPES:
        return f"wide(narrow<{c_type(dtype)}>({text}))"
    return f"({name})({text})"


DIALECT = Dialect(
    {name: "float" if name in HALF_TYPES else text for name, text in C_TYPES.items()},
    {},
    convert=_convert,
    accept=expression_compiles,
    to_integers=True,
)


def strides_of(spec: Spec, shape: Sequence[int]) -> tuple[int, ...]:
    """Return a value's strides along the axes of a shape that it broadcasts to."""
    strides: list[int] = []
    step = 1
    for length in reversed(spec.shape):
        strides.insert(0, 0 if length == 1 else step)
        step *= length
    return (*(0 for _ in range(len(shape) - len(strides))), *strides)


def emit_group(
    members: Sequence[Instruction],
    inputs: Sequence[int],
    outputs: Sequence[int],
    value: Value,
    specs: Sequence[Spec],
    multiprocessors: int,
) -> Emission | None:
    """Return one kernel over all elements, or ``None`` where a member cannot be written in C.

    Values that only members read exist in registers alone.
    """
    body = expressions(members, value, DIALECT)
    if body is None:
        return None
    numbers = [number for number in (*outputs, *inputs) if number != ABSENT]
    operands = [specs[number] for number in numbers]
    if any(one.dtype.name not in C_TYPES for one in operands):
        return None
    shape = operands[0].shape
    size = math.prod(shape)
    if not size:
        return Emission(())
    rank = len(shape)
    loops = merge_axes(shape, range(rank), [strides_of(one, shape) for one in operands])
    width = _width(loops, operands)
    names = [f"out{k}" for k in range(len(outputs))]
    names += [f"in{k}" for k in range(len(numbers) - len(outputs))]
    is_long = size >= 1 << 30
    writer = _Writer(loops, width, operands, numbers, names, len(outputs), is_long)
    text = writer.write(body)
    count = blocks(size, width)
    grid = min(blocks(count), WAVES * multiprocessors)
    addresses: list[Argument] = [result(k) for k in range(len(outputs))]
    addresses += [given(k) for k, number in enumerate(inputs) if number != ABSENT]
    integer = np.int64 if is_long else np.int32
    arguments = (*addresses, integer(size), *(integer(dim) for dim in writer.dims))
    launch = Launch(Kernel(text, "loop"), (grid, 1, 1), (THREADS, 1, 1), arguments)
    return Emission((launch,))


def _width(loops: Loops, operands: Sequence[Spec]) -> int:
    """Return how many neighbours a thread takes: all of them in one load of each operand."""
    if not loops.lengths:
        return 1
    width = WIDTH // max(one.dtype.itemsize for one in operands)
    while len(loops.lengths) > 1 and loops.lengths[-1] % width:
        width //= 2
    return max(1, width)


class _Writer:
    """Writes the kernel of a group; lengths and strides are arguments, in ``dims``."""

    def __init__(
        self,
        loops: Loops,
        width: int,
        operands: Sequence[Spec],
        numbers: Sequence[int],
        names: Sequence[str],
        results: int,
        is_long: bool,
    ) -> None:
        self.loops, self.width = loops, width
        self.operands, self.numbers, self.names = operands, numbers, names
        self.results = results
        self.index = "int64_t" if is_long else "int32_t"
        self.dims: list[int] = []

    def dim(self, number: int) -> str:
        """Return the parameter that holds a number."""
        self.dims.append(number)
        return f"d{len(self.dims) - 1}"

    def write(self, body: str) -> str:
        """Return the kernel's text."""
        width, index = self.width, self.index
        flat = len(self.loops.lengths) < 2
        lines = [] if flat else self._places()
        at = {p: "at" if flat else f"b{p}" for p in range(len(self.operands))}
        inner = [strides[-1] if strides else 0 for strides in self.loops.strides]
        for p in range(self.results, len(self.operands)):
            if not inner[p]:
                at[p] = "0" if flat else at[p]
        whole = self._body(body, at, inner, width)
        if flat and width > 1:
            one = self._body(body, {p: "k" if at[p] == "at" else "0" for p in at}, inner, 1)
            whole = (
                f"if (at + {width} <= size) {{\n{whole}\n}} else {{\n"
                f"for ({index} k = at; k < size; k++) {{\n{one}\n}}\n}}"
            )
        parameters = [
            f"{'' if p < self.results else 'const '}{c_type(one.dtype)} *{name}"
            for p, (one, name) in enumerate(zip(self.operands, self.names, strict=True))
        ]
        parameters += [f"{index} size", *(f"{index} d{k}" for k in range(len(self.dims)))]
        loop = "\n".join([*lines, whole])
        text = (
            f'extern "C" __global__ void __launch_bounds__({THREADS})\n'
            f"KERNEL(loop)({', '.join(parameters)}) {{\n"
            f"for ({index} at = ({index})(blockIdx.x * {THREADS} + threadIdx.x) * {width}; "
            f"at < size; at += ({index})gridDim.x * {THREADS * width}) {{\n{loop}\n}}\n}}\n"
        )
        return self._renumbered(text)

    def _places(self) -> list[str]:
        """Return statements that find each operand's place from the number of an element."""
        lengths, strides = self.loops
        lines = []
        rest = "at"
        places = [""] * len(lengths)
        for axis in reversed(range(1, len(lengths))):
            length = self.dim(lengths[axis])
            lines.append(f"const {self.index} i{axis} = {rest} % {length};")
            lines.append(f"const {self.index} r{axis} = {rest} / {length};")
            places[axis], rest = f"i{axis}", f"r{axis}"
        places[0] = rest
        for p, steps in enumerate(strides):
            terms = []
            for place, step in zip(places, steps, strict=True):
                if step == 1:
                    terms.append(place)
                elif step:
                    terms.append(f"{place} * {self.dim(step)}")
            lines.append(f"const {self.index} b{p} = {' + '.join(terms) or '0'};")
        return lines

    def _body(self, body: str, at: dict[int, str], inner: Sequence[int], width: int) -> str:
        """Return loads, the members' statements for each element, and stores."""
        before, loads, after, stores = [], [], [], []
        for p, (spec, number, name) in enumerate(
            zip(self.operands, self.numbers, self.names, strict=True)
        ):
            kind, computing = c_type(spec.dtype), computing_type(spec.dtype)
            if p < self.results:
                if width == 1:
                    stores.append(f"{name}[{at[p]}] = narrow<{kind}>(v{number});")
                else:
                    before.append(f"Vector<{kind}, {width}> w{number};")
                    stores.append(f"w{number}.at[e] = narrow<{kind}>(v{number});")
                    after.append(f"store({name} + {at[p]}, w{number});")
            elif width == 1:
                loads.append(f"const {computing} v{number} = wide({name}[{at[p]}]);")
            elif not inner[p]:
                before.append(f"const {computing} v{number} = wide({name}[{at[p]}]);")
            else:
                vector = f"Vector<{kind}, {width}>"
                before.append(f"const {vector} w{number} = load<{width}>({name} + {at[p]});")
                loads.append(f"const {computing} v{number} = wide(w{number}.at[e]);")
        if width == 1:
            return "\n".join([*loads, body, *stores])
        loop = f"#pragma unroll\nfor (int e = 0; e < {width}; e++) {{"
        return "\n".join([*before, loop, *loads, body, *stores, "}", *after])

    def _renumbered(self, text: str) -> str:
        """Number values as they come, so that equal loops of other graphs are one text."""
        numbers: dict[str, int] = {}
        return NUMBERED.sub(lambda it: f"{it[1]}{numbers.setdefault(it[2], len(numbers))}", text)
