"""Activations with parameters."""

from __future__ import annotations

from nnl_core import functions as F
from nnl_core.graph.variable import Variable
from nnl_core.initializers import ConstantInitializer
from nnl_core.parameters import Initial, get_parameter_or_create
from nnl_core.parametric_functions.common import layer_scope


def prelu(
    inp: Variable,
    base_axis: int = 1,
    shared: bool = True,
    fix_parameters: bool = False,
    slope_init: Initial | None = None,
    name: str | None = None,
) -> Variable:
    """Apply ``max(0, x) + slope min(0, x)`` with a trainable slope, at first 0.25.

    Parameter ``prelu/slope``: 0-d where ``shared``, else one for each index of ``base_axis``.
    """
    shape = () if shared else (inp.shape[base_axis],)
    if slope_init is None:
        slope_init = ConstantInitializer(0.25)
    with layer_scope("prelu", name):
        slope = get_parameter_or_create("slope", shape, slope_init, True, not fix_parameters)
        return F.prelu(inp, slope, base_axis)
