"""Put elementwise instructions of one shape into groups that run as one loop."""

from __future__ import annotations

from nnl_core.graph.ir import ABSENT, Graph, Instruction

LONGEST_GROUP = 64


def fuse_elementwise(graph: Graph) -> Graph:
    """Group elementwise instructions.

    An instruction joins the group that makes the last of its inputs, where the shapes are equal:
    everything else that it reads is older than that group, so the group may run where it
    stands and the order stays valid.
    """
    specs = graph.specs
    slots: list[list[Instruction]] = []
    slot_of: dict[int, int] = {}  # value -> slot that makes it
    for instruction in graph.instructions:
        position = max(
            (slot_of.get(value, -1) for value in instruction.inputs if value != ABSENT),
            default=-1,
        )
        if not (
            position >= 0
            and _fusible(instruction)
            and _fusible(slots[position][0])
            and slots[position][0].epoch == instruction.epoch
            and len(slots[position]) < LONGEST_GROUP
            and specs[slots[position][0].outputs[0]].shape == specs[instruction.outputs[0]].shape
        ):
            position = len(slots)
            slots.append([])
        slots[position].append(instruction)
        for value in instruction.outputs:
            slot_of[value] = position
    if len(slots) == len(graph.instructions):
        return graph
    readers: dict[int, set[int]] = {}
    for position, members in enumerate(slots):
        for member in members:
            for value in member.inputs:
                readers.setdefault(value, set()).add(position)
    asked = set(graph.outputs)
    fused = [
        members[0] if len(members) == 1 else _group(members, position, readers, asked)
        for position, members in enumerate(slots)
    ]
    return graph.rewrite(fused)


def _fusible(instruction: Instruction) -> bool:
    operator = instruction.operator
    return operator is not None and operator.is_elementwise and len(instruction.outputs) == 1


def _group(
    members: list[Instruction], position: int, readers: dict[int, set[int]], asked: set[int]
) -> Instruction:
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
