"""Remove instructions whose results nobody reads."""

from __future__ import annotations

from nnl_core.graph.ir import Graph


def remove_dead(graph: Graph) -> Graph:
    """Keep what the outputs depend on."""
    needed = set(graph.outputs)
    kept = []
    for instruction in reversed(graph.instructions):
        if not needed.isdisjoint(instruction.outputs):
            needed.update(instruction.inputs)
            kept.append(instruction)
    if len(kept) == len(graph.instructions):
        return graph
    return graph.rewrite(kept[::-1])
