"""What is fused before kernels are chosen: groups of elementwise operators and sums."""

from __future__ import annotations

from nnl_core.codegen import fuse as groups
from nnl_core.gpu.families.elementwise import DIALECT
from nnl_core.gpu.kernel import FLOATING
from nnl_core.graph.ir import Graph, Instruction
from nnl_core.graph.operator import lookup

STATISTIC = "nnl::running_statistic"


def fuse(graph: Graph) -> Graph:
    """Return the graph with groups, each of which is one kernel, or two."""
    if graph.observed:
        return graph
    return groups.fuse(_mixed(graph), DIALECT, FLOATING, finishes=True)


def _mixed(graph: Graph) -> Graph:
    """Return the graph with running statistics made of elementwise operators.

    As such they are written where they are kept, many in one kernel.
    """
    mixed = graph.rewrite(())
    mixed.specs = list(graph.specs)
    mixed.instructions = [
        part for one in graph.instructions for part in _statistic(mixed, one) or (one,)
    ]
    return mixed


def _statistic(graph: Graph, one: Instruction) -> tuple[Instruction, ...] | None:
    """Return ``decay * running + share * value``, where that is what an instruction computes."""
    if one.operator is None or one.operator.name != STATISTIC:
        return None
    running, value, x = (graph.specs[number] for number in one.inputs)
    count = x.size // max(1, value.size)
    if not count or running != value or running.dtype.name not in ("float32", "float64"):
        return None
    decay, unbiased = float(one.attributes["decay"]), one.attributes["unbiased"]
    share = (1 - decay) * (count / (count - 1) if unbiased and count > 1 else 1.0)
    scale, add = lookup("nnl::mul_scalar"), lookup("nnl::add")
    old, new = graph.new_value(running), graph.new_value(running)
    first, second, _ = one.inputs
    at = (one.source, one.epoch)
    return (
        Instruction(scale, (first,), (old,), scale.bind_attributes({"val": decay}), *at),
        Instruction(scale, (second,), (new,), scale.bind_attributes({"val": share}), *at),
        Instruction(add, (old, new), one.outputs, add.bind_attributes({}), *at),
    )
