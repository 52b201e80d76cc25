"""The loops of a kernel that works along some axes: kept ones, reduced ones, and their strides."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import NamedTuple

from nnl_native.kernel import Operand


class Member(NamedTuple):
    """An operand as loops over a shape see it."""

    reference: str  # "in0", "out1", "tmp0"; "" for one without memory: it is its own offset
    c_type: str
    strides: tuple[int, ...]  # of each axis of the shape; 0 along which it is repeated

    @property
    def pointer(self) -> str:
        """Type of a pointer to it."""
        if not self.reference:
            return "int64_t "
        return f"{'const ' if self.reference.startswith('in') else ''}{self.c_type} *"


class Loop(NamedTuple):
    """One loop: its length and, for each member by position, how far one turn moves."""

    length: int
    strides: tuple[int, ...]
    is_reduced: bool


class Dims:
    """The numbers that a kernel is told at run time, and what its text calls them."""

    def __init__(self) -> None:
        self.values: list[int] = []

    def add(self, value: int) -> str:
        """Return the name of a number."""
        self.values.append(value)
        return f"d[{len(self.values) - 1}]"

    def times(self, index: str, stride: int) -> str:
        """Return C for an index times a stride; strides 0 and 1 are told by the text."""
        if stride in (0, 1):
            return index if stride else "0"
        return f"({index}) * {self.add(stride)}"


def broadcast(reference: str, operand: Operand, shape: Sequence[int]) -> Member:
    """Return an operand that broadcasts to a shape."""
    missing = len(shape) - len(operand.shape)
    pairs = zip(operand.shape, operand.strides, strict=True)
    strides = (*(0 for _ in range(missing)), *(0 if n == 1 else s for n, s in pairs))
    return Member(reference, operand.c_type, strides)


def reduced(
    reference: str, operand: Operand, shape: Sequence[int], axes: Collection[int]
) -> Member:
    """Return a result without the reduced axes, or with length 1 along them."""
    if len(operand.shape) == len(shape):
        return broadcast(reference, operand, shape)
    own = iter(operand.strides)
    strides = tuple(0 if axis in axes else next(own) for axis in range(len(shape)))
    return Member(reference, operand.c_type, strides)


def counting(shape: Sequence[int], axes: Sequence[int]) -> Member:
    """Return what is an element's number in its group, the last of the axes counting fastest."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(axes):
        strides[axis] = step
        step *= shape[axis]
    return Member("", "int64_t", tuple(strides))


def loops_over(
    shape: Sequence[int], members: Sequence[Member], axes: Collection[int]
) -> list[Loop]:
    """Return the fewest loops over a shape, in the order in which the first member lies in memory.

    Neighbours of one kind are joined where each member's strides allow.
    """
    order = sorted(range(len(shape)), key=lambda axis: (-abs(members[0].strides[axis]), axis))
    loops: list[Loop] = []
    for axis in order:
        if shape[axis] == 1:
            continue
        loop = Loop(shape[axis], tuple(one.strides[axis] for one in members), axis in axes)
        before = loops[-1] if loops else None
        if (
            before is not None
            and before.is_reduced == loop.is_reduced
            and all(a == b * loop.length for a, b in zip(before.strides, loop.strides, strict=True))
        ):
            loops.pop()
            loop = loop._replace(length=before.length * loop.length)
        loops.append(loop)
    return loops


def count(loops: Sequence[Loop]) -> int:
    """Return how many turns loops make together."""
    return prod(loop.length for loop in loops)


def split_index(loops: Sequence[Loop], index: str, dims: Dims, prefix: str = "k") -> str:
    """Return C that makes ``k0``, ``k1``, ... of an index through loops, the last one fastest."""
    lines = [f"int64_t {prefix}_rest = {index};"] if loops else []
    for position in reversed(range(len(loops))):
        if position:
            length = dims.add(loops[position].length)
            lines.append(f"const int64_t {prefix}{position} = {prefix}_rest % {length};")
            lines.append(f"{prefix}_rest /= {length};")
        else:
            lines.append(f"const int64_t {prefix}0 = {prefix}_rest;")
    return "\n".join(lines)


def moved(start: str, loops: Sequence[Loop], member: int, dims: Dims, prefix: str = "k") -> str:
    """Return C for an address, a member's number in the loops' strides, at ``k0``, ``k1``, ..."""
    terms = [
        dims.times(f"{prefix}{position}", loop.strides[member])
        for position, loop in enumerate(loops)
        if loop.strides[member]
    ]
    return " + ".join([start, *terms])


def references(members: Mapping[str, Member]) -> tuple[str, ...]:
    """Return what a step's ``operands`` say."""
    names = (
        f"{one.reference}:{one.c_type}" if one.reference.startswith("tmp") else one.reference
        for one in members.values()
        if one.reference
    )
    return tuple(dict.fromkeys(names))
