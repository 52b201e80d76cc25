"""Put elementwise instructions of one shape into groups that run as one loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from nnl_core.graph.ir import ABSENT, Graph, Instruction

LONGEST_GROUP = 64


def fuse_elementwise(graph: Graph) -> Graph:
    """Group elementwise instructions of one shape and epoch.

    First, an instruction joins the group that makes the last of its inputs: everything else that
    it reads is older than that group, so the group may run where it stands. Then a group that
    only one other reads joins that one, which is later. Both keep the order valid.
    """
    slots: list[list[Instruction]] = []
    slot_of: dict[int, int] = {}  # value -> slot that makes it
    for instruction in graph.instructions:
        position = max(
            (slot_of.get(value, -1) for value in instruction.inputs if value != ABSENT),
            default=-1,
        )
        if position < 0 or not _joinable(slots[position], [instruction], graph):
            position = len(slots)
            slots.append([])
        slots[position].append(instruction)
        for value in instruction.outputs:
            slot_of[value] = position
    asked = set(graph.outputs)
    readers: dict[int, set[int]] = {}
    for position, members in enumerate(slots):
        for member in members:
            for value in member.inputs:
                readers.setdefault(value, set()).add(position)
    for position, members in enumerate(slots):
        made = {value for member in members for value in member.outputs}
        outside = {at for value in made for at in readers.get(value, ())} - {position}
        if len(outside) == 1 and asked.isdisjoint(made):
            (reader,) = outside
            if _joinable(members, slots[reader], graph):
                slots[reader] = members + slots[reader]
                slots[position] = []
                for member in members:
                    for value in member.inputs:
                        readers[value] = readers[value] - {position} | {reader}
    if sum(map(bool, slots)) == len(graph.instructions):
        return graph
    return graph.rewrite(
        [
            members[0] if len(members) == 1 else group_of(members, position, readers, asked)
            for position, members in enumerate(slots)
            if members
        ]
    )


def _joinable(first: list[Instruction], second: list[Instruction], graph: Graph) -> bool:
    one, other = first[0], second[0]
    return (
        _fusible(one)
        and _fusible(other)
        and one.epoch == other.epoch
        and len(first) + len(second) <= LONGEST_GROUP
        and graph.specs[one.outputs[0]].shape == graph.specs[other.outputs[0]].shape
    )


def _fusible(instruction: Instruction) -> bool:
    operator = instruction.operator
    return operator is not None and operator.is_elementwise and len(instruction.outputs) == 1


def group_of(
    members: Sequence[Instruction], position: int, readers: Mapping[int, set[int]], asked: Set[int]
) -> Instruction:
    """Return the members as one instruction; what is asked for, or read elsewhere, comes out.

    ``readers`` tells for each value the positions of what reads it; the group is at ``position``.
    """
    made = {value for member in members for value in member.outputs}
    inputs = dict.fromkeys(
        value
        for member in members
        for value in member.inputs
        if value != ABSENT and value not in made
    )
    outputs = tuple(
        value
        for member in members
        for value in member.outputs
        if value in asked or readers.get(value, set()) - {position}
    )
    return Instruction(
        None, tuple(inputs), outputs, {}, members[0].source, members[0].epoch, tuple(members)
    )
