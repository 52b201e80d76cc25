"""Copies of boxes: elements from any strides to any others, as generated C."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from nnl_native.kernel import C_TYPES, Call, CStep, Operand, Reference

TILE = 8192  # elements that one unit of work copies, about
SQUARE = 64  # side of a tile whose axes change places: lines of both sides stay in the L1 cache
SHORT = 64  # rows up to this length have it in the text: their copy is a few moves


class Axis(NamedTuple):
    """An axis of a box: its length, and the distance between neighbours on both sides."""

    length: int
    source: int
    target: int


class Side(NamedTuple):
    """One side of a copy: which operand, its element type in C, and where the box begins."""

    name: Reference
    c_type: str
    offset: int = 0


# Vectors of 8 elements are exchanged in three rounds: pairs, pairs of pairs, halves.
TRANSPOSE = """
#ifndef NNL_EXCHANGE_{size}
#define NNL_EXCHANGE_{size}
typedef {word} nnl_line_{size} __attribute__((vector_size(8 * {size})));
INLINE void nnl_exchange_{size}(
    const {word} *restrict from, int64_t apart, {word} *restrict to, int64_t rows) {{
    nnl_line_{size} a[8], b[8];
    for (int k = 0; k < 8; k++) memcpy(&a[k], from + k * apart, 8 * {size});
    for (int k = 0; k < 8; k += 2) {{
        b[k] = __builtin_shufflevector(a[k], a[k + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        b[k + 1] = __builtin_shufflevector(a[k], a[k + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }}
    for (int k = 0; k < 8; k += 4)
        for (int l = k; l < k + 2; l++) {{
            a[l] = __builtin_shufflevector(b[l], b[l + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            a[l + 2] = __builtin_shufflevector(b[l], b[l + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }}
    for (int k = 0; k < 4; k++) {{
        b[k] = __builtin_shufflevector(a[k], a[k + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        b[k + 4] = __builtin_shufflevector(a[k], a[k + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }}
    for (int k = 0; k < 8; k++) memcpy(to + k * rows, &b[k], 8 * {size});
}}
#endif
"""
WORDS = {"float": (4, "uint32_t"), "int32_t": (4, "uint32_t"), "uint32_t": (4, "uint32_t")}
WORDS |= dict.fromkeys(("double", "int64_t", "uint64_t"), (8, "uint64_t"))


def is_known(call: Call) -> bool:
    """Whether generated C has a type for every element of a call."""
    given = (*call.inputs, *call.outputs)
    return all(
        one is None or (one.dtype.name in C_TYPES and one.layout.opaque is None) for one in given
    )


def collapsed(axes: Sequence[Axis]) -> tuple[list[Axis], int, int]:
    """Return the axes by the target's strides, outermost first, as few as hold the same box.

    No target stride is negative: what is added to the offsets of source and target for that is
    returned as well.
    """
    source = target = 0
    turned = []
    for length, one, other in axes:
        if length == 1:
            continue
        if other < 0:
            source += (length - 1) * one
            target += (length - 1) * other
            one, other = -one, -other
        turned.append(Axis(length, one, other))
    turned.sort(key=lambda axis: (-axis.target, -abs(axis.source)))
    merged: list[Axis] = []
    for axis in turned:
        outer = merged[-1] if merged else None
        if (
            outer is not None
            and outer.source == axis.source * axis.length
            and outer.target == axis.target * axis.length
        ):
            merged[-1] = Axis(outer.length * axis.length, axis.source, axis.target)
        else:
            merged.append(axis)
    return merged, source, target


def copy_box(source: Side, target: Side, axes: Sequence[Axis]) -> list[CStep]:
    """Return the step that copies a box, converting the elements' type; none for an empty box.

    A source stride of 0 repeats. Target elements are distinct.
    """
    if not prod(axis.length for axis in axes):
        return []
    order, more_source, more_target = collapsed(axes)
    order = [Axis(1, 0, 0)] * (3 - len(order)) + order
    exchanged = _exchanged(source, target, order)
    if exchanged:
        place = next(p for p, axis in enumerate(order) if axis.source == 1)
        order.insert(len(order) - 2, order.pop(place))
    *outer, slow, middle, fast = order
    if exchanged:
        columns = min(fast.length, SQUARE)
        rows = min(middle.length, max(SQUARE, TILE // columns // 8 * 8))
    else:
        columns = min(fast.length, 2 * TILE)
        rows = min(middle.length, max(1, TILE // columns))
    layers = min(slow.length, max(1, TILE // (columns * rows)))
    tiles = [
        -(-axis.length // size) for axis, size in ((slow, layers), (middle, rows), (fast, columns))
    ]
    inner = (slow, middle, fast)
    dims = [number for axis in (*outer, *inner) for number in axis]
    dims += [layers, rows, columns, source.offset + more_source, target.offset + more_target]
    body, support = _body(source, target, len(outer), middle, fast, exchanged)
    units = prod(tiles) * prod(axis.length for axis in outer)
    size = prod(axis.length for axis in order)
    return [CStep(body, (source.name, target.name), tuple(dims), units, size, support)]


def _exchanged(source: Side, target: Side, order: Sequence[Axis]) -> bool:
    """Whether the innermost axes of both sides differ, and a block of vectors can be turned."""
    fast = order[-1]
    if source.c_type != target.c_type or source.c_type not in WORDS:
        return False
    if fast.target != 1 or fast.source in (0, 1) or fast.length < 8:
        return False
    return any(axis.source == 1 and axis.length >= 8 for axis in order[:-1])


def _body(
    source: Side, target: Side, outer: int, middle: Axis, fast: Axis, exchanged: bool
) -> tuple[str, str]:
    """Return the loops over tiles, and the functions they call."""
    at = 3 * outer
    number = "1" if middle.length == 1 else f"d[{at + 3}]"
    width = str(fast.length) if fast.length <= SHORT and not exchanged else f"d[{at + 6}]"
    lines = [
        f"const int64_t layers = d[{at}], rows = {number}, columns = {width};",
        f"const int64_t from0 = d[{at + 1}], from1 = d[{at + 4}], to0 = d[{at + 2}], "
        f"to1 = d[{at + 5}];",
        f"const int64_t size0 = d[{at + 9}], size1 = d[{at + 10}], size2 = d[{at + 11}];",
        "const int64_t down = (rows + size1 - 1) / size1;",
        "const int64_t across = (columns + size2 - 1) / size2;",
        "const int64_t deep = (layers + size0 - 1) / size0;",
        "for (int64_t unit = begin; unit < end; unit++) {",
        "int64_t rest = unit;",
        "const int64_t column = rest % across * size2; rest /= across;",
        "const int64_t row = rest % down * size1; rest /= down;",
        "const int64_t layer = rest % deep * size0; rest /= deep;",
        f"int64_t from = d[{at + 12}] + column * d[{at + 7}] + row * from1 + layer * from0;",
        f"int64_t to = d[{at + 13}] + column * d[{at + 8}] + row * to1 + layer * to0;",
    ]
    for axis in reversed(range(outer)):
        lines.append(
            f"{{ const int64_t i = rest % d[{3 * axis}]; rest /= d[{3 * axis}]; "
            f"from += i * d[{3 * axis + 1}]; to += i * d[{3 * axis + 2}]; }}"
        )
    wide = width if width.isdigit() else "MIN(size2, columns - column)"
    lines += [
        f"const int64_t wide = {wide}, high = MIN(size1, rows - row);",
        "for (int64_t k = 0, last = MIN(size0, layers - layer); k < last; k++) {",
    ]
    lines += _exchange(source, target, at) if exchanged else _rows(source, target, at, fast)
    return "\n".join([*lines, "} }"]), _support(source) if exchanged else ""


def _support(source: Side) -> str:
    size, word = WORDS[source.c_type]
    return TRANSPOSE.format(size=size, word=word)


def _rows(source: Side, target: Side, at: int, fast: Axis) -> list[str]:
    """Return the loops over one layer of a tile, row by row."""
    stride = {-1: "-j", 0: "0", 1: "j"}.get(fast.source, f"j * d[{at + 7}]")
    goal = "j" if fast.target == 1 else f"j * d[{at + 8}]"
    same = source.c_type == target.c_type
    if same and (stride, goal) == ("j", "j") and fast.length > SHORT:
        inner = ["memcpy(q, p, wide * sizeof *q);"]
    else:
        inner = [
            "#pragma omp simd",
            f"for (int64_t j = 0; j < wide; j++) q[{goal}] = ({target.c_type})p[{stride}];",
        ]
    return [
        "for (int64_t i = 0; i < high; i++) {",
        f"const {source.c_type} *restrict p = {source.name} + from + k * from0 + i * from1;",
        f"{target.c_type} *restrict q = {target.name} + to + k * to0 + i * to1;",
        *inner,
        "}",
    ]


def _exchange(source: Side, target: Side, at: int) -> list[str]:
    """Return the loops over one layer of a tile whose rows are columns of the source."""
    size, word = WORDS[source.c_type]
    return [
        f"const {word} *p = (const {word} *){source.name} + from + k * from0;",
        f"{word} *q = ({word} *){target.name} + to + k * to0;",
        f"const int64_t apart = d[{at + 7}], whole = wide & ~7, tall = high & ~7;",
        "for (int64_t i = 0; i < tall; i += 8)",
        "for (int64_t j = 0; j < whole; j += 8)",
        f"nnl_exchange_{size}(p + i + j * apart, apart, q + i * to1 + j, to1);",
        "for (int64_t i = 0; i < high; i++)",
        "for (int64_t j = i < tall ? whole : 0; j < wide; j++)",
        "q[i * to1 + j] = p[i + j * apart];",
    ]


def fill(target: Side, value: str, axes: Sequence[Axis]) -> list[CStep]:
    """Return the step that writes one value, a C expression, to a box."""
    size = prod(axis.length for axis in axes)
    if not size:
        return []
    merged, _, more = collapsed([axis._replace(source=0) for axis in axes])
    *outer, fast = merged or [Axis(1, 0, 1)]
    block, columns = max(1, TILE // fast.length), min(fast.length, TILE)
    rows, across = prod(axis.length for axis in outer), -(-fast.length // columns)
    decode = "\n".join(
        f"to += rest % d[{7 + 2 * n}] * d[{8 + 2 * n}]; rest /= d[{7 + 2 * n}];"
        for n in reversed(range(len(outer)))
    )
    goal, column = ("j", "column") if fast.target == 1 else ("j * d[4]", "column * d[4]")
    body = f"""for (int64_t unit = begin; unit < end; unit++) {{
const int64_t first = unit / d[6] * d[1], column = unit % d[6] * d[2];
const int64_t wide = MIN(d[2], d[3] - column);
for (int64_t row = first; row < MIN(d[0], first + d[1]); row++) {{
int64_t rest = row, to = d[5];
{decode}
{target.c_type} *restrict q = {target.name} + to + {column};
#pragma omp simd
for (int64_t j = 0; j < wide; j++) q[{goal}] = {value};
}} }}"""
    dims = [rows, block, columns, fast.length, fast.target, target.offset + more, across]
    dims += [number for axis in outer for number in (axis.length, axis.target)]
    units = -(-rows // block) * across
    return [CStep(body, (target.name,), tuple(dims), units, size)]


def side(name: Reference, operand: Operand, offset: int = 0) -> Side:
    """Return an operand as one side of a copy."""
    return Side(name, operand.c_type, offset)


def whole(operand: Operand) -> list[Axis]:
    """Return all axes of an operand, as the target of a fill."""
    return [Axis(n, 0, t) for n, t in zip(operand.shape, operand.strides, strict=True)]
