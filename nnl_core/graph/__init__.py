"""The graph: variables, operators, automatic differentiation and programs."""

from __future__ import annotations

from nnl_core.graph.array import NdArray
from nnl_core.graph.autodiff import grad
from nnl_core.graph.backend import Backend, backend_scope, current_backend, set_backend
from nnl_core.graph.dtypes import is_floating, is_half
from nnl_core.graph.modes import auto_forward, mixed_precision, no_grad, recompute
from nnl_core.graph.node import Node, add_effects
from nnl_core.graph.operator import (
    Array,
    KernelSource,
    Operator,
    Sample,
    defop,
    lookup,
    registered,
)
from nnl_core.graph.spec import Spec, elementwise_spec
from nnl_core.graph.variable import Operand, Variable

__all__ = [
    "Array",
    "Backend",
    "KernelSource",
    "NdArray",
    "Node",
    "Operand",
    "Operator",
    "Sample",
    "Spec",
    "Variable",
    "add_effects",
    "auto_forward",
    "backend_scope",
    "current_backend",
    "defop",
    "elementwise_spec",
    "grad",
    "is_floating",
    "is_half",
    "lookup",
    "mixed_precision",
    "no_grad",
    "recompute",
    "registered",
    "set_backend",
]
