"""Copies with borders: constant, or what lies inside, repeated or reflected."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from nnl_native.kernel import CStep, Emission, Operand

ROWS = 4096  # elements that one unit of work writes, at least


class Edge(NamedTuple):
    """An axis: the result's length, the source's and where it begins in the result; strides.

    ``before`` may be negative, and the source may reach over the end. ``mode`` says what is
    outside: ``"constant"``; ``"repeat"``, the outermost element; ``"reflect"`` and ``"mirror"``,
    the source reflected at that element and beyond it.
    """

    length: int
    inside: int
    before: int
    source: int
    target: int
    mode: str

    @property
    def is_whole(self) -> bool:
        """Whether there is no border."""
        return self.length == self.inside and not self.before


# Which element stands at position p, of n > 0. Outside of a constant border it is any.
PLACES = """
#ifndef NNL_PLACES
#define NNL_PLACES
INLINE int64_t nnl_place_constant(int64_t p, int64_t n) { return p; }
INLINE int64_t nnl_place_repeat(int64_t p, int64_t n) { return p < 0 ? 0 : p < n ? p : n - 1; }
INLINE int64_t nnl_place_reflect(int64_t p, int64_t n) {
    if (p >= 0 && p < n) return p;
    if (n == 1) return 0;
    int64_t m = p % (2 * n - 2);
    m += m < 0 ? 2 * n - 2 : 0;
    return m < n ? m : 2 * n - 2 - m;
}
INLINE int64_t nnl_place_mirror(int64_t p, int64_t n) {
    if (p >= 0 && p < n) return p;
    int64_t m = p % (2 * n);
    m += m < 0 ? 2 * n : 0;
    return m < n ? m : 2 * n - 1 - m;
}
#endif
"""


def _merged(edges: Sequence[Edge]) -> list[Edge]:
    """Return the axes from the outermost to the innermost of the target, as few as will do.

    An axis with a constant border takes the whole one inside it along: widths are multiplied.
    """
    result: list[Edge] = []
    for edge in sorted(edges, key=lambda edge: -edge.target):
        if edge.length == 1 and edge.is_whole:
            continue
        outer = result[-1] if result else None
        if (
            outer is not None
            and edge.is_whole
            and (outer.is_whole or outer.mode == "constant")
            and outer.source == edge.source * edge.length
            and outer.target == edge.target * edge.length
        ):
            n = edge.length
            result[-1] = Edge(
                outer.length * n, outer.inside * n, outer.before * n, *edge[3:5], "constant"
            )
        else:
            result.append(edge)
    return result


def copy_with_borders(x: Operand, y: Operand, edges: Sequence[Edge], value: str) -> Emission:
    """Return the steps that copy ``x`` into ``y`` and write the border in the same pass."""
    if not y.size:
        return Emission(())
    order = _merged(edges) or [Edge(1, 1, 0, 1, 1, "constant")]
    order = [Edge(1, 1, 0, 0, 0, "constant")] * (2 - len(order)) + order
    *outer, middle, fast = order
    block = min(middle.length, max(1, ROWS // fast.length))
    dims = [number for edge in order for number in edge[:5]] + [block]
    at = 5 * len(order)
    body = "\n".join(
        [
            f"const int64_t block = d[{at}];",
            f"const int64_t down = (d[{at - 10}] + block - 1) / block;",
            f"const int64_t columns = d[{at - 5}], inside = d[{at - 4}], before = d[{at - 3}];",
            "const int64_t first = MAX(0, MIN(columns, before));",
            "const int64_t last = MAX(first, MIN(columns, before + inside));",
            "for (int64_t unit = begin; unit < end; unit++) {",
            "int64_t rest = unit / down, from0 = 0, to0 = 0;",
            "int beyond = 0;",
            *(_outer(5 * number, edge) for number, edge in reversed([*enumerate(outer)])),
            "const int64_t start = unit % down * block;",
            f"for (int64_t i = start; i < MIN(start + block, d[{at - 10}]); i++) {{",
            f"const int64_t place = nnl_place_{middle.mode}(i - d[{at - 8}], d[{at - 9}]);",
            f"const int outside = beyond | (place < 0) | (place >= d[{at - 9}]);",
            f"const {x.c_type} *p = in0 + from0 + place * d[{at - 7}];",
            f"{y.c_type} *q = out0 + to0 + i * d[{at - 6}];",
            *_row(fast, at, value),
            "} }",
        ]
    )
    units = -(-middle.length // block) * prod(edge.length for edge in outer)
    return Emission((CStep(body, ("in0", "out0"), tuple(dims), units, y.size, PLACES),))


def _outer(at: int, edge: Edge) -> str:
    return (
        f"{{ const int64_t i = rest % d[{at}]; rest /= d[{at}]; "
        f"const int64_t place = nnl_place_{edge.mode}(i - d[{at + 2}], d[{at + 1}]); "
        f"beyond |= (place < 0) | (place >= d[{at + 1}]); "
        f"from0 += place * d[{at + 3}]; to0 += i * d[{at + 4}]; }}"
    )


def _row(fast: Edge, at: int, value: str) -> list[str]:
    """Return the loops over one row: its border before, the inside, the border after."""
    source = "" if fast.source == 1 else f" * d[{at - 2}]"
    target = "" if fast.target == 1 else f" * d[{at - 1}]"
    place = f"p[nnl_place_{fast.mode}(j - before, inside){source}]"
    edge = value if fast.mode == "constant" else place
    lines = [
        "if (outside) {",
        "#pragma omp simd",
        f"for (int64_t j = 0; j < columns; j++) q[j{target}] = {value};",
        "continue;",
        "}",
    ]
    if not fast.is_whole:
        lines.append(f"for (int64_t j = 0; j < first; j++) q[j{target}] = {edge};")
    lines += [
        "#pragma omp simd",
        f"for (int64_t j = first; j < last; j++) q[j{target}] = p[(j - before){source}];",
    ]
    if not fast.is_whole:
        lines.append(f"for (int64_t j = last; j < columns; j++) q[j{target}] = {edge};")
    return lines
