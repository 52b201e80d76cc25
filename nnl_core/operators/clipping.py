"""Values brought between bounds, or under a norm."""

from __future__ import annotations

from nnl_core import functions as F
from nnl_core.errors import OperatorError
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import is_number
from nnl_core.operators.axes import Axes

__all__ = ["clip", "clip_by_norm", "clip_by_value"]


def clip_by_value(x: Operand, min: Operand, max: Operand) -> Variable:
    """Bring ``x`` between ``min`` and ``max``; NaN stays NaN.

    Args:
        x: any shape.
        min: a number, or what broadcasts.
        max: the same.

    Gradient:
        1 between the bounds, 0 at and beyond them; variable bounds get it there.

    Examples:
        >>> F.clip_by_value(np.array([-2.0, 0.5, 3.0]), 0.0, 1.0).d
        array([0. , 0.5, 1. ])

    Elsewhere:
        - nnabla: `clip_by_value`
        - PyTorch: `torch.clamp`
        - ONNX: `Clip`
    """
    result: Variable = F.minimum2(F.maximum2(x, min), max)
    return result


def clip(x: Operand, min: Operand | None = None, max: Operand | None = None) -> Variable:
    """Bring ``x`` above ``min`` and below ``max``, as `clip_by_value`.

    Args:
        x: any shape.
        min: a number, or what broadcasts; ``None`` for no bound.
        max: the same.

    Gradient:
        1 between the bounds, 0 at and beyond them; variable bounds get it there.

    Examples:
        >>> F.clip(np.array([-2.0, 0.5]), min=0.0).d
        array([0. , 0.5])

    Elsewhere:
        - nnabla: `clip_by_value`
        - PyTorch: `torch.clamp`
        - ONNX: `Clip`
    """
    if min is None and max is None:
        raise OperatorError("clip needs min, max, or both")
    bounded = x if min is None else F.maximum2(x, min)
    result: Variable = bounded if max is None else F.minimum2(bounded, max)
    return result


def clip_by_norm(x: Operand, clip_norm: Operand, axis: Axes = None) -> Variable:
    """Scale ``x`` down to a Euclidean norm where its own is greater.

    Args:
        x: any shape.
        clip_norm: a positive number, or a variable that broadcasts.
        axis: the axes of the norm; ``None`` for all.

    Gradient:
        The derivative of ``clip_norm x / |x|`` where it is scaled, else 1.

    Examples:
        >>> F.clip_by_norm(np.array([3.0, 4.0]), 1.0).d
        array([0.6, 0.8])

    Elsewhere:
        - nnabla: `clip_by_norm`
        - PyTorch: `torch.renorm`, slice by slice
        - ONNX: none, `ReduceL2`, `Div`, `Min` and `Mul`
    """
    if is_number(clip_norm) and not clip_norm > 0:
        raise OperatorError(f"clip_by_norm: clip_norm is {clip_norm}; it must be positive")
    size = F.norm(x, axis=axis, keepdims=True)
    result: Variable = F.mul(F.div(x, F.maximum2(size, clip_norm)), clip_norm)
    return result
