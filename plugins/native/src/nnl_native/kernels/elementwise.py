"""Elementwise operators, alone or in fused groups: one loop made of their C expressions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nnl_core.graph.ir import ABSENT, Instruction
from nnl_core.graph.operator import Operator
from nnl_native.kernel import C_TYPES, CStep, Emission, Layout, Operand, dense, plain
from nnl_native.kernels.foreign import expression_compiles

Value = Callable[[int], Operand]

# What expressions call, and what is called in its place. The others are the C library's, which
# `#pragma omp simd` turns into vector functions where it has them.
FLOAT_FUNCTIONS = {name: f"nnl_{name}" for name in ("expf", "tanhf", "logf", "log1pf")}
FLOAT_NUMBER = re.compile(r"(?<![\w.])((?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?)f\b")
NUMBERED = re.compile(r"\b([vpq])(\d+)\b")  # values of a graph in a loop, and their places
CALL = re.compile(r"\b([a-z]\w*)(?=\s*\()")
DOUBLE_FUNCTIONS = frozenset(
    "acosf acoshf asinf asinhf atan2f atanf atanhf cbrtf ceilf copysignf cosf coshf erfcf erff "
    "exp2f expf expm1f fabsf fdimf floorf fmaxf fminf fmodf hypotf ilogbf ldexpf lgammaf log10f "
    "log1pf log2f logf nearbyintf powf remainderf rintf roundf sinf sinhf sqrtf tanf tanhf tgammaf "
    "truncf".split()
)

ON_INTEGERS = frozenset(
    f"nnl::{name}"
    for name in (
        "identity cast add sub mul where equal not_equal greater greater_equal less less_equal "
        "logical_and logical_or logical_xor logical_not unlink"
    ).split()
)
"""Operators whose expression means the same when its inputs are integers of C."""


class Loops(NamedTuple):
    """Axes of the elements to go through, merged where strides allow, the innermost last.

    ``strides`` has, for each operand, its stride along each of the axes.
    """

    lengths: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]


def merge_axes(
    shape: Sequence[int], order: Sequence[int], strides: Sequence[Sequence[int]]
) -> Loops:
    """Return the loops over a shape, axes from the outermost to the innermost as ``order`` says.

    ``strides`` are those of each operand along the axes of ``shape``, 0 where it repeats.
    """
    axes = [axis for axis in order if shape[axis] != 1]
    lengths: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis in axes:
        joins = bool(lengths) and all(
            known[-1] == given[axis] * shape[axis]
            for known, given in zip(steps, strides, strict=True)
        )
        if joins:
            lengths[-1] *= shape[axis]
            for known, given in zip(steps, strides, strict=True):
                known[-1] = given[axis]
        else:
            lengths.append(shape[axis])
            for known, given in zip(steps, strides, strict=True):
                known.append(given[axis])
    return Loops(tuple(lengths), tuple(map(tuple, steps)))


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
    body = expressions(members, value)
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


def expressions(members: Sequence[Instruction], value: Value) -> str | None:
    """Return C statements that compute ``v<number>`` for each member's result, in order.

    They read ``v<number>`` of their inputs. ``None`` where a member has no expression in C.
    """
    lines = []
    for member in members:
        operator = member.operator
        assert operator is not None
        text = expression_of(operator, member.attributes, member, value)
        if text is None:
            return None
        lines.append(text)
    return "\n".join(lines)


def expression_of(
    operator: Operator, attributes: Mapping[str, Any], member: Instruction, value: Value
) -> str | None:
    """Return the statements that compute one member."""
    expression = IN_PLACE_OF_EXPRESSIONS.get(operator.name, operator.expression)
    if expression is None:
        return None
    given = [None if number == ABSENT else value(number) for number in member.inputs]
    result = value(member.outputs[0])
    involved = [one.dtype for one in (*given, result) if one is not None]
    if any(dtype.name not in C_TYPES for dtype in involved):
        return None
    if any(dtype.kind in "iu" for dtype in involved):
        if operator.name not in ON_INTEGERS or not _keeps_integers(given, result, attributes):
            return None
    is_double = any(dtype == np.float64 for dtype in involved)
    if is_double and any(dtype == np.float32 for dtype in involved) and len(member.inputs) > 1:
        return None
    lines = []
    for name, number in zip(operator.parameters.inputs, member.inputs, strict=False):
        if number != ABSENT:
            lines.append(f"const {value(number).c_type} {name} = v{number};")
    lines += [c_constant(name, one, is_double) for name, one in attributes.items()]
    text = in_double(expression) if is_double else in_float(expression)
    number = member.outputs[0]
    converted = f"(({text}) != 0)" if result.dtype == np.bool_ else f"({text})"
    statement = (
        f"{result.c_type} v{number}; {{ {' '.join(lines)} "
        f"v{number} = ({result.c_type}){converted}; }}"
    )
    if not operator.module.startswith("nnl_core."):
        types = {one: value(one).c_type for one in member.inputs if one != ABSENT}
        if not expression_compiles(operator, statement, types):
            return None
    return statement


IN_PLACE_OF_EXPRESSIONS = {"nnl::broadcast_to": "x", "nnl::cast": "x"}
"""Operators that are elementwise here, though they are not to the core."""


def _keeps_integers(
    given: Sequence[Operand | None], result: Operand, attributes: Mapping[str, Any]
) -> bool:
    """Whether no conversion on the way loses or rounds differently than NumPy's."""
    dtypes = {one.dtype for one in given if one is not None if one.dtype.kind != "b"}
    if result.dtype.kind in "iu" and any(dtype.kind == "f" for dtype in dtypes):
        return False
    return len(dtypes) == 1


def in_float(expression: str) -> str:
    """Return an expression with our functions in place of the C library's."""
    return CALL.sub(lambda found: FLOAT_FUNCTIONS.get(found[1], found[1]), expression)


def in_double(expression: str) -> str:
    """Return an expression with double-precision numbers and functions."""
    plain = FLOAT_NUMBER.sub(
        lambda found: found[1] if {".", "e", "E"} & set(found[1]) else f"{found[1]}.", expression
    )
    return CALL.sub(
        lambda found: found[1][:-1] if found[1] in DOUBLE_FUNCTIONS else found[1], plain
    )


def c_constant(name: str, value: object, is_double: bool = False) -> str:
    """Return the declaration of an attribute; of one that is no number, nothing."""
    if isinstance(value, (bool, np.bool_)):
        return f"const int {name} = {int(value)};"
    if isinstance(value, (int, np.integer)):
        number = int(value)
        return f"const int64_t {name} = {number}LL;" if abs(number) < 1 << 63 else ""
    if isinstance(value, (float, np.floating)):
        kind, suffix = ("double", "") if is_double else ("float", "f")
        return f"const {kind} {name} = {c_number(float(value), suffix)};"
    return ""


def c_number(number: float, suffix: str = "f") -> str:
    """Return a floating number as C writes it."""
    if math.isnan(number):
        return "NAN"
    if math.isinf(number):
        return "-INFINITY" if number < 0 else "INFINITY"
    return f"{number!r}{suffix}"
