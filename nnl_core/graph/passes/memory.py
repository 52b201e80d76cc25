"""Plan where intermediates live: liveness, reuse in place, one arena."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from heapq import heappop, heappush
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from nnl_core.graph.flat import layout
from nnl_core.graph.ir import ABSENT, Graph, Instruction

ALIGNMENT = 64  # bytes: a cache line, and the widest vector register
SORTED_BELOW = 4096  # blocks, each of which is compared with all before


class MemoryReport(NamedTuple):
    """Bytes of a program."""

    peak: int
    """size of the arena: what the program holds for intermediates while it runs"""
    intermediates: int
    """what the intermediates would take without reuse"""
    outputs: int
    """what is written to storages outside the program"""
    leaves: int
    """what is read from storages outside the program"""
    prepared: int = 0
    """what each of its users holds of results that follow from steady leaves alone"""


class MemoryPlan:
    """Where each value is.

    Attributes
    ----------
    offsets
        value -> byte offset in the arena
    viewed
        value -> value whose memory it is a view of
    external
        value -> position in the graph's outputs whose storage it is written to directly
    in_place
        values that overwrite an input of their instruction
    packed
        value -> (block, start, stop): computed in its place in a flat block outside
    """

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}
        self.viewed: dict[int, int] = {}
        self.external: dict[int, int] = {}
        self.in_place: dict[int, int] = {}
        self.packed: dict[int, tuple[int, int, int]] = {}
        self.arena_bytes = 0
        self.report = MemoryReport(0, 0, 0, 0)

    def root(self, value: int) -> int:
        """Follow views to the value that owns the memory."""
        while value in self.viewed:
            value = self.viewed[value]
        return value


def plan_memory(
    graph: Graph,
    views: Mapping[int, int] | None = None,
    same_place: Callable[[int, int], bool] = lambda one, other: True,
    apart: Set[int] = frozenset(),
) -> MemoryPlan:
    """Give every intermediate an offset such that values alive together never overlap.

    Parameters
    ----------
    views
        value -> value whose memory it is a view of; without it, view operators say so
    same_place
        whether the elements of two values of one shape lie at the same places of their memory, so
        that one may overwrite the other
    apart
        values that stay from run to run, in memory of their own
    """
    plan = MemoryPlan()
    specs = graph.specs
    given = {*graph.leaves, *graph.constants}
    produced = [value for i in graph.instructions for value in i.outputs]
    for position, value in enumerate(graph.outputs):
        if value not in given and position not in graph.updates:
            plan.external.setdefault(value, position)
    _write_updates_directly(graph, plan, same_place)
    if views is not None:
        plan.viewed.update(views)
    else:
        _view(graph, plan, given)
    _compute_in_blocks(graph, plan, given | apart)
    elsewhere = {*plan.viewed, *plan.external, *plan.packed, *apart}
    last = _last_uses_of_roots(graph, plan)
    lives = _share_in_place(graph, plan, produced, elsewhere, last, same_place)
    blocks = [_Block(value, _aligned(specs[value].nbytes), *lives[value]) for value in lives]
    places = _place(blocks, reuse=not graph.observed)
    for value in produced:
        if value not in elsewhere:
            reused = plan.in_place.get(value)
            plan.offsets[value] = places[value] if reused is None else plan.offsets[reused]
    plan.arena_bytes = max((places[one.owner] + one.size for one in blocks), default=0)
    plan.report = MemoryReport(
        peak=plan.arena_bytes,
        intermediates=sum(
            _aligned(specs[value].nbytes)
            for value in produced
            if value not in plan.external and value not in plan.packed and value not in apart
        ),
        outputs=sum(specs[value].nbytes for value in set(graph.outputs)),
        leaves=sum(specs[value].nbytes for value in graph.leaves),
        prepared=sum(_aligned(specs[value].nbytes) for value in apart),
    )
    return plan


def _share_in_place(
    graph: Graph,
    plan: MemoryPlan,
    produced: Sequence[int],
    elsewhere: Set[int],
    last: Mapping[int, int],
    same_place: Callable[[int, int], bool],
) -> dict[int, tuple[int, int]]:
    """Let results overwrite inputs that die; return who owns memory, from when to when."""
    lives: dict[int, tuple[int, int]] = {}
    owners: dict[int, int] = {}
    dying: dict[int, list[int]] = {}
    for value in produced:
        if value not in elsewhere:
            dying.setdefault(last[value], []).append(value)
    for index, instruction in enumerate(graph.instructions):
        ending = [
            value
            for value in dying.get(index, ())
            if value in owners and value not in instruction.outputs
        ]
        for value in instruction.outputs:
            if value in elsewhere:
                continue
            reused = None
            if not graph.observed:
                alike = [one for one in ending if same_place(one, value)]
                reused = _reusable(instruction, value, alike, graph, plan)
            if reused is None:
                owners[value] = value
                lives[value] = index, last[value]
            else:
                ending.remove(reused)
                plan.in_place[value] = reused
                owner = owners[value] = owners[reused]
                lives[owner] = lives[owner][0], last[value]
    return lives


def _view(graph: Graph, plan: MemoryPlan, given: set[int]) -> None:
    """Let the results of view operators be views."""
    outputs = set(graph.outputs)
    for instruction in graph.instructions:
        operator = instruction.operator
        if operator is not None and operator.view:
            result, source = instruction.outputs[0], instruction.inputs[0]
            # A view of a storage outside would change with it; asked-for values are copies.
            if result not in outputs and plan.root(source) not in given:
                plan.viewed[result] = source


def _write_updates_directly(
    graph: Graph, plan: MemoryPlan, same_place: Callable[[int, int], bool]
) -> None:
    """Let an elementwise instruction overwrite a leaf that nothing reads after it."""
    maker = {v: index for index, i in enumerate(graph.instructions) for v in i.outputs}
    aliases: dict[int, list[int]] = {}
    for leaf, alias in zip(graph.leaves, graph.aliases, strict=True):
        aliases.setdefault(alias, []).append(leaf)
    last = graph.last_uses()
    for position, leaf_position in graph.updates.items():
        value = graph.outputs[position]
        sharing = aliases[graph.aliases[leaf_position]]
        target = graph.leaves[leaf_position]
        if value not in maker or value in plan.external:
            continue
        index = maker[value]
        if graph.specs[value] != graph.specs[target] or not same_place(value, target):
            continue
        others_read = max((last.get(leaf, -1) for leaf in sharing if leaf != target), default=-1)
        if others_read >= index or last.get(target, -1) > index:
            continue
        if last.get(target, -1) < index or _may_overwrite(graph.instructions[index], value, target):
            plan.external[value] = position


def _compute_in_blocks(graph: Graph, plan: MemoryPlan, given: set[int]) -> None:
    """Give what is only packed into a block outside its place there from the start."""
    outputs = set(graph.outputs)
    for instruction in graph.instructions:
        if instruction.operator is None or instruction.operator.name != "nnl::pack":
            continue
        block = instruction.outputs[0]
        if block not in plan.external or plan.external[block] in graph.updates:
            continue
        places, _ = layout(graph.specs[value].size for value in instruction.inputs)
        for value, (start, stop) in zip(instruction.inputs, places, strict=True):
            if not (
                value in given
                or value in outputs
                or value in plan.viewed
                or value in plan.packed
                or graph.specs[value].dtype != graph.specs[block].dtype
            ):
                plan.packed[value] = (block, start, stop)


def _last_uses_of_roots(graph: Graph, plan: MemoryPlan) -> dict[int, int]:
    last: dict[int, int] = {}
    for value, index in graph.last_uses().items():
        root = plan.root(value)
        last[root] = max(index, last.get(root, -1))
    return last


def _reusable(
    instruction: Instruction, value: int, ending: list[int], graph: Graph, plan: MemoryPlan
) -> int | None:
    """Return a dying input that this elementwise output may overwrite.

    Not where the instruction also reads the input through a view: other places of it, then.
    """
    for candidate in ending:
        if graph.specs[candidate] != graph.specs[value]:
            continue
        viewed_too = any(
            plan.root(other) == candidate and other != candidate
            for other in instruction.inputs
            if other != ABSENT
        )
        if not viewed_too and _may_overwrite(instruction, value, candidate):
            return candidate
    return None


def _may_overwrite(instruction: Instruction, value: int, candidate: int) -> bool:
    """Whether an elementwise instruction may write an output where it reads an input.

    Each member reads an input only at the place that it writes, but an early member of a group must
    not overwrite what a later one still reads.
    """
    members = instruction.members or (instruction,)
    if any(m.operator is None or not m.operator.is_elementwise for m in members):
        return False
    writer = next(n for n, member in enumerate(members) if value in member.outputs)
    readers = [n for n, member in enumerate(members) if candidate in member.inputs]
    return bool(readers) and max(readers) <= writer


class _Block(NamedTuple):
    """Memory that is needed from one instruction to another, both included."""

    owner: int
    size: int
    first: int
    last: int


def _place(blocks: Sequence[_Block], reuse: bool) -> dict[int, int]:
    """Return an offset for each owner: the better of two rules, where there are not too many.

    Large ones first leaves small ones to the gaps, and is mostly close to the least possible; in
    the order of their birth is fast for any number.
    """
    if not reuse:
        ends = accumulate((one.size for one in blocks), initial=0)
        return {one.owner: end for one, end in zip(blocks, ends, strict=False)}
    found = _in_order_of_birth(blocks)
    if len(blocks) <= SORTED_BELOW:
        other = _large_first(blocks)
        if _end(blocks, other) < _end(blocks, found):
            return other
    return found


def _end(blocks: Sequence[_Block], places: Mapping[int, int]) -> int:
    return max((places[one.owner] + one.size for one in blocks), default=0)


def _in_order_of_birth(blocks: Sequence[_Block]) -> dict[int, int]:
    """Take the smallest hole at the birth of each block, and give it back after its death."""
    places: dict[int, int] = {}
    free = _FreeList()
    dying: list[tuple[int, int, int]] = []  # (last, offset, size)
    for one in blocks:
        while dying and dying[0][0] < one.first:
            _, offset, size = heappop(dying)
            free.give(offset, size)
        places[one.owner] = free.take(one.size)
        heappush(dying, (one.last, places[one.owner], one.size))
    return places


def _large_first(blocks: Sequence[_Block]) -> dict[int, int]:
    """Put each at the lowest offset where no larger one is alive at the same time."""
    places: dict[int, int] = {}
    ordered = sorted(blocks, key=lambda one: (-one.size, one.first))
    first, last, size = (np.array([one[k] for one in ordered], np.int64) for k in (2, 3, 1))
    offset = np.zeros(len(ordered), np.int64)
    for n, one in enumerate(ordered):
        (beside,) = np.nonzero((first[:n] <= one.last) & (last[:n] >= one.first))
        beside = beside[np.argsort(offset[beside], kind="stable")]
        # How far everything up to each of them reaches, and whether the next leaves enough room.
        reach = np.maximum.accumulate(np.append(0, offset[beside] + size[beside]))
        (fits,) = np.nonzero(offset[beside] - reach[:-1] >= one.size)
        offset[n] = reach[fits[0]] if len(fits) else reach[-1]
        places[one.owner] = int(offset[n])
    return places


class _FreeList:
    """Byte ranges of an arena that grows at its end; the smallest fitting hole is taken."""

    def __init__(self) -> None:
        self.holes: list[tuple[int, int]] = []  # (offset, size), by offset
        self.end = 0

    def take(self, size: int) -> int:
        size = _aligned(size)
        if not size:
            return 0
        best = min(
            (hole for hole in self.holes if hole[1] >= size), key=lambda h: h[1], default=None
        )
        if best is None:
            if self.holes and sum(self.holes[-1]) == self.end:
                offset, _ = self.holes.pop()
            else:
                offset = self.end
            self.end = offset + size
            return offset
        self.holes.remove(best)
        if best[1] > size:
            self._insert(best[0] + size, best[1] - size)
        return best[0]

    def give(self, offset: int, size: int) -> None:
        size = _aligned(size)
        if size:
            self._insert(offset, size)

    def _insert(self, offset: int, size: int) -> None:
        merged = []
        for start, length in self.holes:
            if start + length == offset:
                offset, size = start, length + size
            elif offset + size == start:
                size += length
            else:
                merged.append((start, length))
        merged.append((offset, size))
        merged.sort()
        self.holes = merged


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
