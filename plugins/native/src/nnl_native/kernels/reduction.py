"""Sums, products and extremes over any axes of what an expression makes of several arrays."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from string import Template
from typing import NamedTuple

from nnl_native.kernel import (
    C_TYPES,
    Call,
    CStep,
    Emission,
    Operand,
    as_they_are,
    chunks,
    emitter,
)
from nnl_native.kernels.nest import (
    Dims,
    Loop,
    Member,
    broadcast,
    count,
    loops_over,
    moved,
    reduced,
    references,
    split_index,
)

WIDTH = 256  # lanes that are accumulated side by side
TURNS = 64  # rows in fours whose sum is kept in the elements' own type; sums of those are wider
SHORT = 32  # length below which a row is not worth an accumulator of its own
LEAST = 1 << 14  # elements that are worth a piece of their own
MOST = 16  # pieces


class Fold(NamedTuple):
    """How two values become one: ``$a`` and ``$b`` stand for them."""

    text: str
    start: str
    finish: str = "$t"  # what the result is of the total ``$t`` of ``$n`` elements


SUM = Fold("$a + $b", "0")
MEAN = Fold("$a + $b", "0", "$t / (double)$n")
PRODUCT = Fold("$a * $b", "1")
# NaN stays, whichever of the two it is. Written this way, gcc makes vectors of it.
MAXIMUM = Fold("({ const T more = $a > $b ? $a : $b; $a == $a ? more : $a; })", "-INFINITY")
MINIMUM = Fold("({ const T less = $a < $b ? $a : $b; $a == $a ? less : $a; })", "INFINITY")


class Source(NamedTuple):
    """What is reduced: an element as C, in which ``$x`` is the element of an operand.

    ``load`` may call functions of the prelude; its value is converted to ``c_type``, in which up
    to some hundred values are folded before they are added to a total of type ``total``.
    """

    load: str
    operand: Member
    c_type: str
    total: str


def reduce_source(
    source: Source, fold: Fold, shape: Sequence[int], axes: Collection[int], target: Member
) -> Emission | None:
    """Return the steps that fold an expression over axes; ``None`` where there is nothing to fold.

    ``target`` is the result, with strides by the axes of ``shape`` and 0 along the reduced ones
    (`nnl_native.kernels.nest.reduced`). The pieces that threads share are the same for any number
    of them, and so are the bits of the result.
    """
    if not prod(shape):
        return Emission(()) if not _results(shape, axes) else None
    return _Reduction(source, fold, shape, axes, target).emission()


def _results(shape: Sequence[int], axes: Collection[int]) -> int:
    return prod(n for axis, n in enumerate(shape) if axis not in axes)


class _Reduction:
    """The loops: outer kept ones, outer reduced ones, and inside a panel of rows of lanes.

    Lanes are neighbours that are accumulated side by side. They run along the innermost loop if
    that is kept. Where it is short, or reduced, several rows that follow each other in memory make
    one wide row; in the end its parts are folded into one.
    """

    def __init__(
        self,
        source: Source,
        fold: Fold,
        shape: Sequence[int],
        axes: Collection[int],
        target: Member,
    ) -> None:
        self.source, self.fold, self.target = source, fold, target
        loops = loops_over(shape, [source.operand, target], axes)
        none = (0, 0)
        kept = [loop for loop in loops if not loop.is_reduced]
        over = [loop for loop in loops if loop.is_reduced] or [Loop(1, none, True)]
        # Rows that are too short for a vector are folded side by side, too.
        by_lanes = bool(kept) and (not loops[-1].is_reduced or over[-1].length < SHORT)
        self.lane = kept.pop() if by_lanes else Loop(1, none, False)
        self.kept, self.outer, self.row = kept, over[:-1], over[-1]
        self.number = count(over)
        self.widen()
        self.blocks = -(-self.lane.length // WIDTH)
        natural = count(kept) * self.blocks
        longest = over[0].length
        pieces = chunks(count(loops), LEAST, MOST) // natural if natural < MOST // 2 else 1
        self.pieces = max(1, min(pieces, longest))
        self.dims = Dims()

    def widen(self) -> None:
        """Choose how many rows make a wide one."""
        lanes, rows = self.lane.length, self.row.length
        if lanes == 1:
            self.times = 1 if rows < SHORT else min(64, rows // 128 * 16 or 16)
        elif self.row.strides[0] == lanes * self.lane.strides[0]:
            self.times = max(1, min(WIDTH // lanes, rows // 4))
        else:
            self.times = 1

    def emission(self) -> Emission:
        """Return one step, or two where pieces are folded in the end."""
        kept = count(self.kept) * self.lane.length
        if self.pieces == 1:
            return Emission((self.step(),))
        step = self.step()
        return Emission((step, self.joining(kept)), (kept * self.pieces * 8,))

    # Text ----------------------------------------------------------------------------------------

    def both(self, a: str, b: str) -> str:
        """Return two values folded."""
        return Template(self.fold.text).substitute(a=a, b=b)

    def finished(self, total: str, dims: Dims) -> str:
        """Return a result."""
        number = dims.add(self.number) if "$n" in self.fold.finish else ""
        return Template(self.fold.finish).substitute(t=total, n=number)

    def element(self, variable: str, row: str) -> str:
        """Declare a variable: the element of a row at lane ``j``."""
        load = Template(self.source.load).substitute(x=f"rows[{row} * step + {self.at}]")
        return f"const T {variable} = {load};"

    def step(self) -> CStep:
        """Return the step that folds each piece."""
        dims = self.dims
        pieces, blocks = dims.add(self.pieces), dims.add(self.blocks)
        lanes, times = dims.add(self.lane.length), dims.add(self.times)
        self.at = dims.times("j", (self.row if self.lane.length == 1 else self.lane).strides[0])
        wide = self.times > 1
        body = [
            f"typedef {self.source.c_type} T;\ntypedef {self.source.total} A;",
            f"T part[{WIDTH}]; A total[{WIDTH}];",
            "for (int64_t u = begin; u < end; u++) {",
            f"const int64_t piece = u % {pieces}, first = u / {pieces} % {blocks} * {WIDTH};",
            f"const int64_t own = MIN({WIDTH}, {lanes} - first), width = {times} * own;",
            split_index(self.kept, f"u / {pieces} / {blocks}", dims),
            f"for (int64_t j = 0; j < width; j++) {{ total[j] = {self.fold.start}; "
            f"part[j] = {self.fold.start}; }}",
            "int64_t turns = 0;",
        ]
        loops = [*self.outer, self.row]
        longest = dims.add(loops[0].length)
        body.append(
            f"const int64_t low = {longest} * piece / {pieces}, "
            f"high = {longest} * (piece + 1) / {pieces};"
        )
        for position, loop in enumerate(self.outer):
            low, high = ("low", "high") if not position else ("0", dims.add(loop.length))
            r = f"r{position}"
            body.append(f"for (int64_t {r} = {low}; {r} < {high}; {r}++) {{")
        start = "0" if self.outer else "low"
        length = dims.add(self.row.length) if self.outer else "(high - low)"
        operand, along = self.source.operand, self.row.strides[0]
        address = moved(moved(operand.reference, self.kept, 0, dims), self.outer, 0, dims, "r")
        address += f" + {dims.times('first', self.lane.strides[0])} + {dims.times(start, along)}"
        body.append(f"{operand.pointer}const rows = {address};")
        body.append(f"const int64_t step = {times} * {dims.add(along)};")
        body += self.panel(length, times if wide else "1")
        body += ["}" for _ in self.outer]
        add = self.both("total[j]", "part[j]")
        body.append(f"#pragma omp simd\nfor (int64_t j = 0; j < width; j++) total[j] = {add};")
        if wide:
            body.append(self.narrowing(times))
        body.append(self.writing(dims, lanes))
        body.append("}")
        members = {"x": self.source.operand, "y": self.target}
        if self.pieces > 1:
            members["y"] = Member("tmp0", self.source.total, ())
        return CStep(
            "\n".join(body),
            references(members),
            tuple(dims.values),
            units=count(self.kept) * self.blocks * self.pieces,
            cost=self.number * count(self.kept) * self.lane.length,
        )

    def panel(self, length: str, times: str) -> list[str]:
        """Return the loops over the rows of a panel, four at a time."""
        four = "\n".join(self.element(f"t{k}", f"(r + {k})") for k in range(4))
        pairs = f"const T s0 = {self.both('t0', 't1')}, s1 = {self.both('t2', 't3')};"
        one = self.element("t", "r")
        simd = "#pragma omp simd\n"
        add = self.both("total[j]", "part[j]")
        return [
            f"const int64_t full = {length} / {times}, rest = {length} % {times} * own;",
            "int64_t r = 0;",
            "for (; r + 4 <= full; r += 4) {",
            f"{simd}for (int64_t j = 0; j < width; j++) {{",
            four,
            f"{pairs}\nconst T t = {self.both('s0', 's1')}, old = part[j];",
            f"part[j] = {self.both('old', 't')};",
            "}",
            f"if (++turns == {TURNS}) {{ turns = 0;",
            f"{simd}for (int64_t j = 0; j < width; j++) {{ total[j] = {add}; "
            f"part[j] = {self.fold.start}; }}",
            "}",
            "}",
            f"for (; r < full; r++) {{\n{simd}for (int64_t j = 0; j < width; j++) {{",
            one,
            f"part[j] = {self.both('part[j]', 't')};",
            "}\n}",
            f"{simd}for (int64_t j = 0; j < rest; j++) {{",
            one,
            f"total[j] = {self.both('total[j]', '(A)t')};",
            "}",
        ]

    def narrowing(self, times: str) -> str:
        """Return the loop that folds a wide row into one, half by half."""
        add = self.both("total[j]", "total[(many - half) * own + j]")
        return (
            f"for (int64_t many = {times}; many > 1;) {{\nconst int64_t half = many / 2;\n"
            f"#pragma omp simd\nfor (int64_t j = 0; j < half * own; j++) total[j] = {add};\n"
            "many -= half;\n}"
        )

    def writing(self, dims: Dims, lanes: str) -> str:
        """Return the loop that stores a row: as the result, or as a piece of it."""
        if self.pieces > 1:
            everything = dims.add(count(self.kept) * self.lane.length)
            pieces, blocks = dims.add(self.pieces), dims.add(self.blocks)
            target = f"tmp0[piece * {everything} + u / {pieces} / {blocks} * {lanes} + first + j]"
            return f"for (int64_t j = 0; j < own; j++) {target} = total[j];"
        address = moved(self.target.reference, self.kept, 1, dims)
        at = dims.times("(first + j)", self.lane.strides[1])
        value = self.finished("total[j]", dims)
        return (
            f"{self.target.c_type} *const to = {address};\n"
            f"for (int64_t j = 0; j < own; j++) to[{at}] = {value};"
        )

    def joining(self, results: int) -> CStep:
        """Return the step that folds the pieces."""
        dims = Dims()
        everything, pieces = dims.add(results), dims.add(self.pieces)
        loops = [*self.kept, *([self.lane] if self.lane.length > 1 else [])]
        where = split_index(loops, "e", dims)
        address = moved("0", loops, 1, dims)
        body = [
            f"typedef {self.source.total} A, T;",
            "for (int64_t e = begin; e < end; e++) {",
            "A total = tmp0[e];",
            f"for (int64_t k = 1; k < {pieces}; k++) {{",
            f"const A piece = tmp0[k * {everything} + e];",
            f"total = {self.both('total', 'piece')}; }}",
            where,
            f"{self.target.reference}[{address}] = {self.finished('total', dims)};",
            "}",
        ]
        operands = (f"tmp0:{self.source.total}", self.target.reference)
        return CStep("\n".join(body), operands, tuple(dims.values), results, results * self.pieces)


# Operators ---------------------------------------------------------------------------------------


def _reduce(
    x: Operand | None, y: Operand, fold: Fold, axes: Collection[int], target: Member | None = None
) -> Emission | None:
    """Fold an input over axes."""
    if x is None or x.dtype.name not in C_TYPES or y.dtype.name not in C_TYPES:
        return None
    total = "double" if y.c_type == "float" and fold in (SUM, MEAN) else y.c_type
    source = Source(f"({y.c_type})$x", broadcast("in0", x, x.shape), y.c_type, total)
    target = target or reduced("out0", y, x.shape, axes)
    return reduce_source(source, fold, x.shape, axes, target)


@emitter("nnl::sum", "nnl::mean", "nnl::prod", layouts=as_they_are)
def sum_or_product(call: Call) -> Emission | None:
    """Sums, means and products."""
    folds = {"nnl::sum": SUM, "nnl::mean": MEAN, "nnl::prod": PRODUCT}
    fold = folds[call.operator.name]
    return _reduce(call.inputs[0], call.outputs[0], fold, call.attributes["axes"])


@emitter("nnl::max", "nnl::min", layouts=as_they_are)
def extreme(call: Call) -> Emission | None:
    """Extremes; NaN where there is one."""
    if not call.has_only("float32", "float64"):
        return None
    fold = MAXIMUM if call.operator.name == "nnl::max" else MINIMUM
    return _reduce(call.inputs[0], call.outputs[0], fold, call.attributes["axes"])


@emitter("nnl::sum_to", layouts=as_they_are)
def sum_to(call: Call) -> Emission | None:
    """Sums over what broadcasting repeats."""
    x, y = call.inputs[0], call.outputs[0]
    if x is None or x.dtype.name not in C_TYPES:
        return None
    missing = len(x.shape) - len(y.shape)
    axes = [
        axis
        for axis, n in enumerate(x.shape)
        if axis < missing or (y.shape[axis - missing] == 1 and n != 1)
    ]
    return _reduce(x, y, SUM, axes, broadcast("out0", y, x.shape))
