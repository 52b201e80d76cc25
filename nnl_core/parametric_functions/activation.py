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
    """Apply a relu with a trainable slope for what is negative, at first 0.25.

    Parameter ``prelu/slope``: 0-d where ``shared``, else one for each index of ``base_axis``.

    Args:
        inp: any shape.
        base_axis: the axis that slopes belong to.
        shared: whether there is one slope for all, or one for each index of ``base_axis``.
        fix_parameters: whether the parameters are left out of training.
        slope_init: an initializer or an array.
        name: a scope for the parameters; ``None`` for the current one.

    Gradient:
        That of `F.prelu`, for the input and the parameters.

    Examples:
        >>> x = Variable.from_numpy_array(np.array([[-2.0, 1.0]], np.float32))
        >>> PF.prelu(x).d
        array([[-0.5,  1. ]], dtype=float32)

    Elsewhere:
        - nnabla: `prelu`
        - PyTorch: `torch.nn.PReLU`
        - ONNX: `PRelu`
    """
    shape = () if shared else (inp.shape[base_axis],)
    if slope_init is None:
        slope_init = ConstantInitializer(0.25)
    with layer_scope("prelu", name):
        slope = get_parameter_or_create("slope", shape, slope_init, True, not fix_parameters)
        return F.prelu(inp, slope, base_axis)
