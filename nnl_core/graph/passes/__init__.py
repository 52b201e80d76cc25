"""What is done to a graph between lowering and a backend, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from nnl_core.graph.ir import Graph
from nnl_core.graph.passes.canonical import canonicalize
from nnl_core.graph.passes.common import merge_common
from nnl_core.graph.passes.dead import remove_dead
from nnl_core.graph.passes.fuse import fuse_elementwise
from nnl_core.graph.passes.memory import MemoryPlan, MemoryReport, plan_memory

Pass: TypeAlias = Callable[[Graph], Graph]

STAGES: dict[str, tuple[Pass, ...]] = {
    "canonicalize": (remove_dead, canonicalize, merge_common, remove_dead),
    "fuse": (fuse_elementwise,),
    "lower": (),
}
"""The core's passes by stage; plugins' passes (`nnl_graph_passes`) run after them in each."""

__all__ = [
    "STAGES",
    "MemoryPlan",
    "MemoryReport",
    "Pass",
    "canonicalize",
    "fuse_elementwise",
    "merge_common",
    "plan_memory",
    "remove_dead",
]
