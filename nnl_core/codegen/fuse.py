"""Put elementwise operators and sums that go over the same elements into one loop.

The passes of all backends fuse elementwise operators of one shape. Here repetitions
(`broadcast_to`), casts, and sums of what a group computes join them: a gradient of a batch
normalisation reads its activations once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from nnl_core.codegen.expressions import IN_PLACE_OF_EXPRESSIONS, Dialect, expressions
from nnl_core.graph.ir import ABSENT, Graph, Instruction
from nnl_core.graph.passes.fuse import group_of
from nnl_core.graph.spec import Spec

LONGEST = 48  # members of a group: registers are few
SMALL = 4096  # elements up to which groups are joined that have nothing in common
SUMS = frozenset(("nnl::sum", "nnl::sum_to", "nnl::mean"))


def is_sum(instruction: Instruction) -> bool:
    """Whether it sums, or takes a mean."""
    return instruction.operator is not None and instruction.operator.name in SUMS


def kept_axes(
    instruction: Instruction, shape: Sequence[int], result: Sequence[int]
) -> frozenset[int]:
    """Return the axes longer than 1 that a sum leaves."""
    rank = len(shape)
    assert instruction.operator is not None
    if instruction.operator.name == "nnl::sum_to":
        missing = rank - len(result)
        reduced = {
            axis for axis in range(rank) if axis < missing or result[axis - missing] != shape[axis]
        }
    else:
        reduced = {axis % rank for axis in instruction.attributes["axes"]} if rank else set()
    return frozenset(axis for axis in range(rank) if axis not in reduced and shape[axis] != 1)


class _Slot:
    """Instructions that run as one, in order."""

    def __init__(self, members: list[Instruction], shape: tuple[int, ...] | None) -> None:
        self.members = members
        self.shape = shape  # of the elements that it goes through; None: joins nothing
        self.kept: frozenset[int] | None = None  # axes that its sums leave
        self.results: set[int] = set()  # of its sums: nothing in the group may read them


def fuse(
    graph: Graph, dialect: Dialect, summed: Collection[str], *, finishes: bool = False
) -> Graph:
    """Return the graph with groups as large as can be written as one loop.

    Args:
        graph: what is fused.
        dialect: the C in which the loops will be written.
        summed: dtypes whose sums may be part of them.
        finishes: whether what is computed of a group's sums alone, element by element, may be part
            of it, at its end.
    """
    if graph.observed:
        return graph
    single = [
        member
        for instruction in graph.instructions
        for member in (instruction.members or (instruction,))
    ]
    fuser = _Fuser(graph, single, dialect, summed)
    fuser.join_producers()
    fuser.join_earlier()
    fuser.join_only_readers()
    fuser.join_sums()
    if finishes:
        fuser.join_finishes()
    fuser.join_small()
    return graph.rewrite(fuser.instructions())


class _Fuser:
    def __init__(
        self,
        graph: Graph,
        instructions: Sequence[Instruction],
        dialect: Dialect,
        summed: Collection[str],
    ) -> None:
        self.graph, self.single = graph, instructions
        self.dialect, self.summed = dialect, summed
        self.slots: list[_Slot] = []
        self.slot_of: dict[int, int] = {}
        self.readers: dict[int, set[int]] = {}
        self.asked = set(graph.outputs)

    def join_producers(self) -> None:
        """Put each instruction where the latest of what it reads is computed, if it may join."""
        for instruction in self.single:
            fresh = self._slot(instruction)
            position = max(
                (self.slot_of.get(value, -1) for value in instruction.inputs if value != ABSENT),
                default=-1,
            )
            if position >= 0 and self._may_join(self.slots[position], fresh):
                self._append(self.slots[position], fresh)
            else:
                position = len(self.slots)
                self.slots.append(fresh)
            for value in instruction.outputs:
                self.slot_of[value] = position

    def join_earlier(self) -> None:
        """Move a group to where the latest of what it reads is computed, if it may join there.

        It began with something that reads nothing of that, as a normalised value in a gradient.
        """
        for position, slot in enumerate(self.slots):
            made = {value for member in slot.members for value in member.outputs}
            read = {value for member in slot.members for value in member.inputs}
            latest = max((self.slot_of.get(value, -1) for value in read - made), default=-1)
            if latest >= 0 and self._may_join(self.slots[latest], slot):
                self._append(self.slots[latest], slot)
                self.slots[position] = _Slot([], None)
                self.slot_of |= dict.fromkeys(made, latest)
        for position, slot in enumerate(self.slots):
            for member in slot.members:
                for value in member.inputs:
                    self.readers.setdefault(value, set()).add(position)

    def join_only_readers(self) -> None:
        """Move a group into the only one that reads what it makes, which is later."""
        for position, slot in enumerate(self.slots):
            made = {value for member in slot.members for value in member.outputs}
            outside = {at for value in made for at in self.readers.get(value, ())} - {position}
            if len(outside) == 1 and not slot.results:
                (reader,) = outside
                if reader > position and self._may_join(slot, self.slots[reader]):
                    self._move(position, reader)

    def join_sums(self) -> None:
        """Move a lone sum into a group that reads the same value: it is then read once for both.

        That group may be an earlier one, or a later one, if nobody needs the sum before.
        """
        for position, slot in enumerate(self.slots):
            if not slot.members or not slot.results or len(slot.members) != 1:
                continue
            source = slot.members[0].inputs[0]
            needed = min(
                (at for value in slot.results for at in self.readers.get(value, ())),
                default=len(self.slots),
            )
            for reader in sorted(self.readers.get(source, set()) - {position}):
                other = self.slots[reader]
                is_earlier = reader < position
                first, second = (other, slot) if is_earlier else (slot, other)
                if reader < needed and self._may_join(first, second):
                    self._move(position, reader, behind=is_earlier)
                    break

    def join_finishes(self) -> None:
        """Move what goes over the results of sums behind them, if all else it reads is there."""
        made_at = {
            value: position
            for position, slot in enumerate(self.slots)
            for member in slot.members
            for value in member.outputs
        }
        for position, slot in enumerate(self.slots):
            made = {value for member in slot.members for value in member.outputs}
            read = {value for member in slot.members for value in member.inputs} - made - {ABSENT}
            latest = max((made_at.get(value, -1) for value in read), default=-1)
            if latest >= 0 and self._may_finish(self.slots[latest], slot, made | read):
                self._move(position, latest, behind=True)
                made_at |= dict.fromkeys(made, latest)

    def _may_finish(self, first: _Slot, second: _Slot, values: Collection[int]) -> bool:
        """Whether the second has only elements of the results of the first, or single ones."""
        if first.kept is None or first.shape is None or second.shape is None or second.results:
            return False
        one, other = first.members, second.members
        if one[0].epoch != other[0].epoch or len(one) + len(other) > LONGEST:
            return False
        results = math.prod(first.shape[axis] for axis in first.kept)
        if results == math.prod(first.shape) or math.prod(second.shape) != results:
            return False
        return all(self.graph.specs[value].size in (1, results) for value in values)

    def join_small(self) -> None:
        """Do what has few elements and no reader, as statistics that are kept, with its like.

        Starting a loop takes longer than going through it.
        """
        latest: dict[tuple[int, ...], int] = {}
        for position, slot in enumerate(self.slots):
            made = {value for member in slot.members for value in member.outputs}
            read = any(self.readers.get(value, set()) - {position} for value in made)
            if read or slot.shape is None or math.prod(slot.shape) > SMALL or slot.results:
                continue
            before = latest.get(slot.shape)
            if before is not None and self._may_join(self.slots[before], slot):
                self._move(before, position)
            latest[slot.shape] = position

    def _move(self, position: int, target: int, *, behind: bool = False) -> None:
        slot, other = self.slots[position], self.slots[target]
        members = slot.members
        other.members = [*other.members, *members] if behind else [*members, *other.members]
        other.results |= slot.results
        other.kept = other.kept if slot.kept is None else slot.kept
        self.slots[position] = _Slot([], None)
        for member in members:
            for value in member.inputs:
                self.readers[value] = self.readers[value] - {position} | {target}

    def _slot(self, instruction: Instruction) -> _Slot:
        operator = instruction.operator
        specs = self.graph.specs
        if operator is None or len(instruction.outputs) != 1 or instruction.members:
            return _Slot([instruction], None)
        result = specs[instruction.outputs[0]]
        if operator.name in SUMS:
            source = specs[instruction.inputs[0]]
            slot = _Slot([instruction], source.shape if self._sums(source, result) else None)
            slot.kept = kept_axes(instruction, source.shape, result.shape)
            slot.results = set(instruction.outputs)
            return slot
        if operator.is_elementwise or operator.name in IN_PLACE_OF_EXPRESSIONS:
            if result.size and self._has_text(instruction):
                return _Slot([instruction], result.shape)
        return _Slot([instruction], None)

    def _sums(self, source: Spec, result: Spec) -> bool:
        same = source.dtype == result.dtype
        return source.size > 0 and same and source.dtype.name in self.summed

    def _has_text(self, instruction: Instruction) -> bool:
        specs = self.graph.specs
        return expressions((instruction,), lambda number: specs[number], self.dialect) is not None

    def _may_join(self, first: _Slot, second: _Slot) -> bool:
        """Whether the second, none of whose members the first needs, may follow in one loop."""
        one, other = first.members, second.members
        if not one or not other or first.shape is None or first.shape != second.shape:
            return False
        if one[0].epoch != other[0].epoch or len(one) + len(other) > LONGEST:
            return False
        if None not in (first.kept, second.kept) and first.kept != second.kept:
            return False
        if first.kept is not None or second.kept is not None:
            dtypes = {self.graph.specs[value].dtype for value in (*first.results, *second.results)}
            if len(dtypes) != 1:
                return False
        read = {value for member in other for value in member.inputs}
        return first.results.isdisjoint(read)

    @staticmethod
    def _append(slot: _Slot, fresh: _Slot) -> None:
        slot.members += fresh.members
        slot.results |= fresh.results
        slot.kept = slot.kept if fresh.kept is None else fresh.kept

    def instructions(self) -> list[Instruction]:
        """Return an instruction for each group."""
        return [
            slot.members[0]
            if len(slot.members) == 1
            else group_of(slot.members, position, self.readers, self.asked)
            for position, slot in enumerate(self.slots)
            if slot.members
        ]
