"""Kernels of mean and variance over any axes, read from memory once.

Distances and their squares are summed from what the mean seems to be: the first block's, which is
passed over twice, then that of all blocks so far. What the distances add up to is put right, and
blocks and pieces are merged as Chan, Golub and LeVeque do (1979).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from nnl_native.kernel import Call, CStep, Emission, Operand, as_they_are, chunks, emitter
from nnl_native.kernels.nest import (
    Dims,
    Loop,
    broadcast,
    count,
    loops_over,
    moved,
    reduced,
    references,
    split_index,
)

WIDTH = 256  # lanes side by side
BLOCK_ROWS = 64  # rows of them in a block
BLOCK = 1 << 15  # elements of a block of one group
LONGEST = 1 << 13  # elements that are added in one go
SHORT = 16  # lanes at least
LEAST = 1 << 14  # elements that are worth a piece of their own
MOST = 16  # pieces
MERGE = """
const double both = number + {number}, delta = {mean} - mean;
mean += delta * ({number} / both);
squares += {squares} + delta * delta * (number * {number} / both);
number = both;"""


@emitter("nnl::moments", layouts=as_they_are)
def moments(call: Call) -> Emission | None:
    """Mean and biased variance."""
    (x,), (mean, variance) = call.inputs, call.outputs
    if x is None or not call.has_only("float32", "float64"):
        return None
    if not x.size:
        return Emission(()) if not mean.size else None
    axes = [axis % len(x.shape) for axis in call.attributes["axes"]]
    return _Moments(x, mean, variance, axes, "{} / number").emission()


@emitter("nnl::var", "nnl::std", layouts=as_they_are)
def spread(call: Call) -> Emission | None:
    """Variance or standard deviation, with fewer degrees of freedom than elements."""
    (x,), (y,) = call.inputs, call.outputs
    if x is None or not call.has_only("float32", "float64"):
        return None
    if not x.size:
        return Emission(()) if not y.size else None
    finish = f"{{}} / (number - {int(call.attributes['ddof'])})"
    if call.operator.name == "nnl::std":
        finish = f"sqrt({finish})"
    return _Moments(x, None, y, call.attributes["axes"], finish).emission()


class _Moments:
    """The loops, and the text of the steps."""

    def __init__(
        self,
        x: Operand,
        mean: Operand | None,
        variance: Operand,
        axes: Collection[int],
        finish: str,
    ) -> None:
        self.x, self.finish = x, finish
        self.members = {"x": broadcast("in0", x, x.shape)}
        if mean is not None:
            self.members["mean"] = reduced("out0", mean, x.shape, axes)
        last = "out0" if mean is None else "out1"
        self.members["variance"] = reduced(last, variance, x.shape, axes)
        loops = loops_over(x.shape, list(self.members.values()), axes)
        self.kept = [loop for loop in loops if not loop.is_reduced]
        self.over = [loop for loop in loops if loop.is_reduced]
        self.by_lanes = bool(self.kept) and not loops[-1].is_reduced
        none = (0,) * len(self.members)
        self.over = self.over or [Loop(1, none, True)]
        self.results, self.number = count(self.kept), count(self.over)
        self.times = 1
        if self.by_lanes:
            self.widen()
        elif len(self.over) > 1 and SHORT <= self.over[-1].length <= WIDTH:
            # Short rows, many for each group: their elements are the lanes of one wide row.
            inner = self.over.pop()
            self.times, self.by_lanes = inner.length, True
            self.kept.append(Loop(1, inner.strides, False))
        natural = self.results
        if self.by_lanes:
            natural = count(self.kept[:-1]) * -(-self.kept[-1].length // WIDTH)
        pieces = chunks(x.size, LEAST, MOST) // natural if natural < MOST // 2 else 1
        self.longest = self.over[0].length
        self.pieces = max(1, min(pieces, self.longest))

    def widen(self) -> None:
        """Join rows that follow each other in memory to one, where rows are short."""
        row, lane = self.over[-1], self.kept[-1]
        if row.strides[0] == lane.length * lane.strides[0]:
            most = max(1, WIDTH // lane.length)
            self.times = next(n for n in range(most, 0, -1) if row.length % n == 0)
            strides = (row.strides[0] * self.times, *row.strides[1:])
            self.over[-1] = Loop(row.length // self.times, strides, True)

    def emission(self) -> Emission:
        """Return one step, or two where pieces are merged in the end."""
        step = self.lanes() if self.by_lanes else self.rows()
        if self.pieces == 1:
            return Emission((step,))
        return Emission((step, self.joining()), (self.results * self.pieces * 16,))

    def step(self, body: list[str], dims: Dims, units: int) -> CStep:
        """Return the step that makes the moments of each piece."""
        members = dict(self.members)
        if self.pieces > 1:
            members = {"x": members["x"]}
        operands = references(members)
        if self.pieces > 1:
            operands = (*operands, "tmp0:double")
        units *= self.pieces
        return CStep("\n".join(body), operands, tuple(dims.values), units, 2 * self.x.size)

    def bounds(self, dims: Dims, pieces: str) -> str:
        """Return C for a piece's range of the outermost reduced loop."""
        longest = dims.add(self.longest)
        return (
            f"const int64_t low = {longest} * piece / {pieces}, "
            f"high = {longest} * (piece + 1) / {pieces};"
        )

    def results_at(self, kept: list[Loop], dims: Dims, lane: Loop | None = None) -> list[str]:
        """Return C that stores the results of a group; ``first + j`` counts along the lane."""
        values = {"mean": "mean", "variance": self.finish.format("squares")}
        lines = []
        for position, (name, member) in enumerate(self.members.items()):
            if name != "x":
                at = "0" if lane is None else dims.times("(first + j)", lane.strides[position])
                address = moved(member.reference, kept, position, dims)
                lines.append(f"({address})[{at}] = {values[name]};")
        return lines

    # One group after the other -------------------------------------------------------------------

    def rows(self) -> CStep:
        """Return the step for groups whose elements are neighbours in memory."""
        dims = Dims()
        pieces = dims.add(self.pieces)
        inside = self.number // self.longest
        limit = BLOCK if len(self.over) > 1 else LONGEST
        at_once = dims.add(max(1, limit // inside))
        body = [
            f"typedef {self.x.c_type} T;",
            "for (int64_t u = begin; u < end; u++) {",
            f"const int64_t piece = u % {pieces};",
            split_index(self.kept, f"u / {pieces}", dims),
            f"const T *const group = {moved('in0', self.kept, 0, dims)};",
            self.bounds(dims, pieces),
            "double number = 0, mean = 0, squares = 0;",
            f"for (int64_t from = low; from < high; from += {at_once}) {{",
            f"const int64_t to = MIN(high, from + {at_once});",
            f"const double many = (double)(to - from) * {dims.add(inside)};",
            "T c = mean;",
            "if (number == 0) { double first = 0;",
            self.summed("{}", {"first": "e"}, dims),
            "c = first / many; }",
            "double along = 0, square = 0;",
            self.summed("{} - c", {"along": "e", "square": "e * e"}, dims),
            "const double centre = c + along / many;",
            "const double spread = MAX(0, square - along * along / many);",
            MERGE.format(number="many", mean="centre", squares="spread"),
            "}",
        ]
        if self.pieces > 1:
            at = f"2 * (piece * {dims.add(self.results)} + u / {pieces})"
            body.append(f"tmp0[{at}] = mean; tmp0[{at} + 1] = squares;")
        else:
            body += self.results_at(self.kept, dims)
        body.append("}")
        return self.step(body, dims, self.results)

    def summed(self, text: str, totals: Mapping[str, str], dims: Dims) -> str:
        """Return the loops that add to totals what ``e``, of an element, makes; in four streams."""
        outer, inner = self.over[:-1], self.over[-1]
        lines = []
        for position, loop in enumerate(outer):
            low, high = ("from", "to") if not position else ("0", dims.add(loop.length))
            lines.append(f"for (int64_t r{position} = {low}; r{position} < {high}; r{position}++)")
        start = moved("group", outer, 0, dims, "r")
        length = dims.add(inner.length) if outer else "to - from"
        if not outer:
            start = f"group + {dims.times('from', inner.strides[0])}"

        def element(index: str, stream: int) -> str:
            value = text.replace("{}", f"x[{dims.times(index, inner.strides[0])}]")
            adds = "".join(f" {name}_{stream} += {one};" for name, one in totals.items())
            return f"{{ const T e = {value};{adds} }}"

        parts = [f"{name}_{k}" for name in totals for k in range(4)]
        first = [f"{name}_0" for name in totals]
        lines += [
            f"{{ const T *const x = {start}; const int64_t length = {length};",
            f"for (int64_t b = 0; b < length; b += {LONGEST}) {{",
            f"const int64_t part = MIN({LONGEST}, length - b), q = part / 4;",
            f"T {', '.join(f'{one} = 0' for one in parts)};",
            f"#pragma omp simd reduction(+:{','.join(parts)})",
            "for (int64_t i = b; i < b + q; i++) {",
            *(element(f"i + {k} * q", k) for k in range(4)),
            f"}}\n#pragma omp simd reduction(+:{','.join(first)})",
            f"for (int64_t i = b + 4 * q; i < b + part; i++) {element('i', 0)}",
            *(f"{one} += (double)(({one}_0 + {one}_1) + ({one}_2 + {one}_3));" for one in totals),
            "} }",
        ]
        return "\n".join(lines)

    # Many groups side by side --------------------------------------------------------------------

    def lanes(self) -> CStep:
        """Return the step for groups that are neighbours in memory."""
        dims = Dims()
        lane, kept, outer, row = self.kept[-1], self.kept[:-1], self.over[:-1], self.over[-1]
        blocks = -(-lane.length // WIDTH)
        pieces, number, lanes = dims.add(self.pieces), dims.add(blocks), dims.add(lane.length)
        times = dims.add(self.times)
        self.row_step = dims.times("1", row.strides[0])
        self.lane_at = dims.times("j", lane.strides[0])
        simd = "#pragma omp simd\nfor (int64_t j = 0; j < width; j++) "
        body = [
            f"typedef {self.x.c_type} T;",
            f"double means[{WIDTH}], spreads[{WIDTH}]; T along[{WIDTH}], square[{WIDTH}], "
            f"centre[{WIDTH}];",
            "for (int64_t u = begin; u < end; u++) {",
            f"const int64_t piece = u % {pieces}, first = u / {pieces} % {number} * {WIDTH};",
            f"const int64_t own = MIN({WIDTH}, {lanes} - first), width = {times} * own;",
            split_index(kept, f"u / {pieces} / {number}", dims),
            f"const T *const group = {moved('in0', kept, 0, dims)} + "
            f"{dims.times('first', lane.strides[0])};",
            self.bounds(dims, pieces),
            f"{simd}means[j] = spreads[j] = 0;",
            "double number = 0;",
        ]
        for position, loop in enumerate(outer):
            low, high = ("low", "high") if not position else ("0", dims.add(loop.length))
            body.append(
                f"for (int64_t r{position} = {low}; r{position} < {high}; r{position}++) {{"
            )
        low, high = ("0", dims.add(row.length)) if outer else ("low", "high")
        body += [
            f"for (int64_t from = {low}; from < {high}; from += {BLOCK_ROWS}) {{",
            f"const int64_t rows = MIN({BLOCK_ROWS}, {high} - from);",
            f"const T *const block = {moved('group', outer, 0, dims, 'r')} + "
            f"from * {self.row_step};",
            f"{simd}along[j] = square[j] = 0;",
            "if (number == 0) {",
            *self.added("{}", "along[j] += (e0 + e1) + (e2 + e3);"),
            f"{simd}{{ means[j] = centre[j] = along[j] / rows; along[j] = 0; }}",
            "}",
            *self.added(
                "{} - centre[j]",
                "along[j] += (e0 + e1) + (e2 + e3); "
                "square[j] += (e0 * e0 + e1 * e1) + (e2 * e2 + e3 * e3);",
            ),
            "const double part = 1.0 / rows, share = rows / (number + rows);",
            "const double cross = number * share;",
            f"{simd}{{ const double mean = along[j] * part;",
            "const double delta = centre[j] + mean - means[j];",
            "const double spread = square[j] - along[j] * mean;",
            "means[j] += delta * share; centre[j] = means[j];",
            "spreads[j] += MAX(0, spread) + delta * delta * cross; }",
            "number += rows;",
            "}",
            *("}" for _ in outer),
        ]
        if self.times > 1:
            body += [
                f"for (int64_t k = 1; k < {times}; k++) {{",
                "const double share = 1.0 / (k + 1), cross = number * k * share;",
                "#pragma omp simd\nfor (int64_t j = 0; j < own; j++) {",
                "const double delta = means[k * own + j] - means[j];",
                "means[j] += delta * share;",
                "spreads[j] += spreads[k * own + j] + delta * delta * cross;",
                "} }",
                f"number *= {times};",
            ]
        body.append("for (int64_t j = 0; j < own; j++) {")
        if self.pieces > 1:
            group = f"u / {pieces} / {number} * {lanes} + first + j"
            at = f"2 * (piece * {dims.add(self.results)} + {group})"
            body.append(f"tmp0[{at}] = means[j]; tmp0[{at} + 1] = spreads[j];")
        else:
            body.append("const double mean = means[j], squares = spreads[j];")
            body += self.results_at(kept, dims, lane)
        body += ["}", "}"]
        return self.step(body, dims, count(kept) * blocks)

    def added(self, text: str, add: str) -> list[str]:
        """Return the loops that add what ``e0`` ... ``e3``, of elements of four rows, make."""

        def element(name: str, row: str) -> str:
            at = f"block[({row}) * {self.row_step} + {self.lane_at}]"
            return f"const T {name} = {text.replace('{}', at)};"

        simd = "#pragma omp simd\nfor (int64_t j = 0; j < width; j++) {"
        four = " ".join(element(f"e{k}", f"r + {k}") for k in range(4))
        one = f"{element('e0', 'r')} const T e1 = 0, e2 = 0, e3 = 0;"
        return [
            "{ int64_t r = 0;",
            f"for (; r + 4 <= rows; r += 4) {{\n{simd} {four}\n{add} }} }}",
            f"for (; r < rows; r++) {{\n{simd} {one}\n{add} }} }}",
            "}",
        ]

    # The end -------------------------------------------------------------------------------------

    def joining(self) -> CStep:
        """Return the step that merges the pieces."""
        dims = Dims()
        pieces, results = dims.add(self.pieces), dims.add(self.results)
        longest, inside = dims.add(self.longest), dims.add(self.number // self.longest)
        body = [
            "for (int64_t e = begin; e < end; e++) {",
            "double number = 0, mean = 0, squares = 0;",
            f"for (int64_t k = 0; k < {pieces}; k++) {{",
            f"const int64_t turns = {longest} * (k + 1) / {pieces} - {longest} * k / {pieces};",
            f"const double many = (double)turns * {inside};",
            f"const double *const piece = tmp0 + 2 * (k * {results} + e);",
            MERGE.format(number="many", mean="piece[0]", squares="piece[1]"),
            "}",
            split_index(self.kept, "e", dims),
            *self.results_at(self.kept, dims),
            "}",
        ]
        operands = ("tmp0:double", *references(self.members)[1:])
        units = self.results
        return CStep("\n".join(body), operands, tuple(dims.values), units, units * self.pieces)
