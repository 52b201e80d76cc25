"""Compute once what is written twice (common subexpressions)."""

from __future__ import annotations

from nnl_core.graph.ir import Graph, Instruction


def merge_common(graph: Graph) -> Graph:
    """Replace an instruction by an earlier one with equal operator, inputs and attributes.

    Random operators read a counter and a seed of their own, so two of them never look alike.
    Instructions of different epochs stay apart: recomputation repeats on purpose.
    """
    constants: dict[tuple[object, ...], int] = {}
    replaced: dict[int, int] = {}
    for value, array in graph.constants.items():
        first = constants.setdefault((array.dtype, array.shape, array.tobytes()), value)
        if first != value:
            replaced[value] = first
    seen: dict[tuple[object, ...], tuple[int, ...]] = {}
    kept: list[Instruction] = []
    for old in graph.instructions:
        inputs = tuple(replaced.get(value, value) for value in old.inputs)
        key = (old.operator, inputs, old.identity, old.epoch)
        first_outputs = seen.get(key)
        if first_outputs is None:
            seen[key] = old.outputs
            kept.append(
                old
                if inputs == old.inputs
                else Instruction(
                    old.operator, inputs, old.outputs, old.attributes, old.source, old.epoch
                )
            )
        else:
            replaced.update(zip(old.outputs, first_outputs, strict=True))
    if not replaced:
        return graph
    return graph.rewrite(kept, replaced)
