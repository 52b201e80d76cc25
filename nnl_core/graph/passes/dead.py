"""Remove instructions whose results nobody reads, and results of them."""

from __future__ import annotations

from nnl_core.graph.ir import ABSENT, Graph, Instruction


def remove_dead(graph: Graph) -> Graph:
    """Keep what the outputs depend on; of a call that has parts, the one that is read."""
    needed = set(graph.outputs)
    kept = []
    for instruction in reversed(graph.instructions):
        read = [value for value in instruction.outputs if value in needed]
        if read:
            needed.update(instruction.inputs)
            kept.append(_part(instruction, read[0]) if len(read) == 1 else instruction)
    if kept[::-1] == graph.instructions:
        return graph
    return graph.rewrite(kept[::-1])


def _part(instruction: Instruction, value: int) -> Instruction:
    """Return the call that computes one output alone, where there is one."""
    operator = instruction.operator
    part = None if operator is None else operator.parts.get(instruction.outputs.index(value))
    if part is None:
        return instruction
    absent = (ABSENT,) * (len(part.parameters.inputs) - len(instruction.inputs))
    return Instruction(
        part,
        instruction.inputs + absent,
        (value,),
        part.bind_attributes(instruction.attributes),
        instruction.source,
        instruction.epoch,
    )
