"""Kernels that pass several times over each group of elements along some axes.

What is done to an element and to a group is written once, as C with names behind ``$``; here it
becomes loops over one group after the other where its elements are neighbours in memory, else over
many groups at once, side by side as the lanes of vectors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from string import Template
from typing import NamedTuple, TypeAlias

from nnl_native.kernel import CStep
from nnl_native.kernels.nest import (
    Dims,
    Loop,
    Member,
    count,
    loops_over,
    moved,
    references,
    split_index,
)

LANES = 64  # groups side by side
BLOCK = 4096  # elements whose sum is kept in their own type; sums of blocks are double
SHORT = 32  # length below which groups are worked at side by side wherever they are
SPLIT = 512  # length from which on sums go in four streams: additions wait for each other


class State(NamedTuple):
    """A variable of each group: ``$name``."""

    c_type: str
    start: str = "0"


class Pass(NamedTuple):
    """Do something with each element of a group.

    ``$x`` is the element of member ``x``, ``$s`` a state. ``sums`` says which states it
    accumulates: ``"+:s"`` (a state of type ``double``), ``"max:m"``, ``"min:i"``. An ``ordered``
    pass goes through the group from its first element to its last, or backwards.
    """

    text: str
    sums: tuple[str, ...] = ()
    ordered: bool = False
    backwards: bool = False


class Once(NamedTuple):
    """Do something once for each group.

    ``$x`` is the element of a member that is not along the axes; ``${x_base}[n * $x_step]`` the
    element number ``n`` along the only axis.
    """

    text: str


Stage: TypeAlias = Pass | Once
_NEUTRAL = {"+": "0", "max": "-INFINITY", "min": "INT64_MAX"}
_JOIN = {
    "+": "{0} += {1};",
    "max": "{0} = {1} > {0} ? {1} : {0};",
    "min": "{0} = {1} < {0} ? {1} : {0};",
}


def group_step(
    shape: Sequence[int],
    axes: Collection[int],
    c_type: str,
    members: Mapping[str, Member],
    states: Mapping[str, State],
    stages: Sequence[Stage],
    *,
    numbers: Mapping[str, int] | None = None,
    weight: int = 4,
) -> CStep:
    """Return the step that runs stages on each group along ``axes`` of a shape that is not empty.

    ``T`` is ``c_type``; the first member's layout decides the order. ``numbers`` are told at run
    time: ``$n``. ``weight`` says how many elements' worth of work one element is.
    """
    loops = loops_over(shape, list(members.values()), axes)
    over = [loop for loop in loops if loop.is_reduced]
    kept = [loop for loop in loops if not loop.is_reduced]
    by_lanes = bool(kept) and (not loops[-1].is_reduced or over[-1].length < SHORT)
    writer = (_Lanes if by_lanes else _Rows)(c_type, members, states, kept, over)
    for name, value in (numbers or {}).items():
        writer.numbers[name] = writer.dims.add(value)
    body, units, dims = writer.write(stages)
    return CStep(body, references(members), tuple(dims), units=units, cost=count(loops) * weight)


class _Writer:
    """What both kinds of loops have in common."""

    def __init__(
        self,
        c_type: str,
        members: Mapping[str, Member],
        states: Mapping[str, State],
        kept: list[Loop],
        over: list[Loop],
    ) -> None:
        self.c_type, self.members, self.states = c_type, members, states
        self.kept, self.over = kept, over
        self.dims = Dims()
        self.numbers: dict[str, str] = {}

    def pointers(self, prefix: str, starts: Mapping[str, str]) -> list[str]:
        """Declare a pointer for each member."""
        return [
            f"{member.pointer}const {prefix}_{name} = {starts[name]};"
            for name, member in self.members.items()
        ]

    def access(self, pointer: str, name: str, index: str) -> str:
        """Return an element at an index, or the offset of a member without memory."""
        if self.members[name].reference:
            return f"{pointer}[{index}]"
        return f"({pointer} + {index})"

    def steps(self) -> dict[str, str]:
        """Return the distance of neighbours along the only axis, for `Once`."""
        last = self.over[-1].strides if self.over else (1,) * len(self.members)
        return {
            f"{name}_step": self.dims.times("1", stride)
            for name, stride in zip(self.members, last, strict=True)
        }


class _Rows(_Writer):
    """One group after the other."""

    def write(self, stages: Sequence[Stage]) -> tuple[str, int, list[int]]:
        """Return the body, its units and its numbers."""
        if not self.over:
            self.over = [Loop(1, (0,) * len(self.members), True)]
        inner = self.over[-1]
        self.length = self.dims.add(inner.length)
        self.is_split = inner.length >= SPLIT
        starts = {
            name: moved(member.reference or "0", self.kept, position, self.dims)
            for position, (name, member) in enumerate(self.members.items())
        }
        lines = [
            f"typedef {self.c_type} T;",
            "for (int64_t u = begin; u < end; u++) {",
            split_index(self.kept, "u", self.dims),
            *self.pointers("p", starts),
            *(f"{one.c_type} v_{name} = {one.start};" for name, one in self.states.items()),
        ]
        plain = {name: f"v_{name}" for name in self.states} | self.numbers
        bases = {f"{name}_base": f"p_{name}" for name in self.members}
        first = {name: self.access(f"p_{name}", name, "0") for name in self.members}
        once = {**plain, **first, **bases, **self.steps()}
        for stage in stages:
            if isinstance(stage, Once):
                lines.append(Template(stage.text).substitute(once))
            else:
                lines += self.nested(stage)
        lines.append("}")
        return "\n".join(lines), count(self.kept), self.dims.values

    def nested(self, stage: Pass) -> list[str]:
        """Return the loops of one pass."""
        outer = self.over[:-1]
        lines = ["{"]
        for position, loop in enumerate(outer):
            length = self.dims.add(loop.length)
            lines.append(f"for (int64_t r{position} = 0; r{position} < {length}; r{position}++) {{")
        starts = {
            name: moved(f"p_{name}", outer, position, self.dims, "r")
            for position, name in enumerate(self.members)
        }
        lines += self.pointers("q", starts)
        if stage.ordered:
            at = f"{self.length} - 1 - i" if stage.backwards else "i"
            lines.append(f"for (int64_t i = 0; i < {self.length}; i++) {{")
            lines.append(self.element(stage, at) + "\n}")
        elif not stage.sums:
            lines.append(f"#pragma omp simd\nfor (int64_t i = 0; i < {self.length}; i++) {{")
            lines.append(self.element(stage, "i") + "\n}")
        else:
            lines += self.summed(stage)
        return [*lines, *("}" for _ in outer), "}"]

    def element(self, stage: Pass, at: str, stream: int | None = None) -> str:
        """Return the text for the element at an index of the innermost loop."""
        names = {name: f"v_{name}" for name in self.states} | self.numbers
        if stream is not None:
            for one in stage.sums:
                name = one.split(":")[1]
                names[name] = f"v_{name}_{stream}"
        strides = self.over[-1].strides
        for (name, _), stride in zip(self.members.items(), strides, strict=True):
            names[name] = self.access(f"q_{name}", name, self.dims.times(at, stride))
        return "{ " + Template(stage.text).substitute(names) + " }"

    def summed(self, stage: Pass) -> list[str]:
        """Return the loops of a pass that accumulates: by blocks, in four streams if long."""
        streams = range(4 if self.is_split else 1)
        parts = [one.split(":") for one in stage.sums]
        lines = [
            f"for (int64_t b = 0; b < {self.length}; b += {BLOCK}) {{",
            f"const int64_t m = MIN({BLOCK}, {self.length} - b);",
        ]
        for operation, name in parts:
            c_type = "T" if operation == "+" else self.states[name].c_type
            several = ", ".join(f"v_{name}_{k} = {_NEUTRAL[operation]}" for k in streams)
            lines.append(f"{c_type} {several};")
        first = "b"
        if self.is_split:
            clauses = [f"{o}:" + ",".join(f"v_{n}_{k}" for k in streams) for o, n in parts]
            lines += [
                "const int64_t q = m / 4;",
                "#pragma omp simd " + " ".join(f"reduction({one})" for one in clauses),
                "for (int64_t i = b; i < b + q; i++) {",
                *(self.element(stage, f"i + {k} * q", k) for k in streams),
                "}",
            ]
            first = "b + 4 * q"
        clauses = [f"reduction({o}:v_{n}_0)" for o, n in parts]
        lines += [
            "#pragma omp simd " + " ".join(clauses),
            f"for (int64_t i = {first}; i < b + m; i++) {{",
            self.element(stage, "i", 0),
            "}",
        ]
        for operation, name in parts:
            join = _JOIN[operation]
            if self.is_split:
                lines.append(join.format(f"v_{name}_0", f"v_{name}_1"))
                lines.append(join.format(f"v_{name}_2", f"v_{name}_3"))
                lines.append(join.format(f"v_{name}_0", f"v_{name}_2"))
            lines.append(join.format(f"v_{name}", f"v_{name}_0"))
        return [*lines, "}"]


class _Lanes(_Writer):
    """Up to `LANES` groups at once, neighbours along the innermost kept loop."""

    def write(self, stages: Sequence[Stage]) -> tuple[str, int, list[int]]:
        """Return the body, its units and its numbers."""
        lane, outer = self.kept[-1], self.kept[:-1]
        blocks = -(-lane.length // LANES)
        self.lane = lane
        starts = {}
        for position, (name, member) in enumerate(self.members.items()):
            start = moved(member.reference or "0", outer, position, self.dims)
            starts[name] = f"{start} + {self.dims.times('first', lane.strides[position])}"
        width, number = self.dims.add(lane.length), self.dims.add(blocks)
        lines = [
            f"typedef {self.c_type} T;",
            "for (int64_t u = begin; u < end; u++) {",
            f"const int64_t first = u % {number} * {LANES};",
            f"const int64_t lanes = MIN({LANES}, {width} - first);",
            split_index(outer, f"u / {number}", self.dims),
            *self.pointers("p", starts),
            *(f"{one.c_type} v_{name}[{LANES}];" for name, one in self.states.items()),
            f"for (int j = 0; j < {LANES}; j++) {{",
            *(f"v_{name}[j] = {one.start};" for name, one in self.states.items()),
            "}",
        ]
        own = {name: f"v_{name}[j]" for name in self.states} | self.numbers
        at = dict(zip(self.members, lane.strides, strict=True))
        bases = {
            f"{name}_base": f"(p_{name} + {self.dims.times('j', stride)})"
            for name, stride in at.items()
        }
        for stage in stages:
            names = dict(own)
            prefix = "p" if isinstance(stage, Once) else "q"
            for name, stride in at.items():
                at_j = self.dims.times("j", stride)
                names[name] = self.access(f"{prefix}_{name}", name, at_j)
            if isinstance(stage, Once):
                text = Template(stage.text).substitute({**names, **bases, **self.steps()})
                lines.append(f"for (int64_t j = 0; j < lanes; j++) {{ {text} }}")
                continue
            lines.append("{")
            for position, loop in enumerate(self.over):
                length, r = self.dims.add(loop.length), f"r{position}"
                head = f"for (int64_t {r} = 0; {r} < {length}; {r}++) {{"
                if stage.backwards:
                    head = f"for (int64_t {r} = {length} - 1; {r} >= 0; {r}--) {{"
                lines.append(head)
            addresses = {
                name: moved(f"p_{name}", self.over, position, self.dims, "r")
                for position, name in enumerate(self.members)
            }
            lines += self.pointers("q", addresses)
            lines.append("#pragma omp simd\nfor (int64_t j = 0; j < lanes; j++) {")
            lines.append(Template(stage.text).substitute(names))
            lines += ["} }", *("}" for _ in self.over)]
        lines.append("}")
        return "\n".join(lines), count(outer) * blocks, self.dims.values
