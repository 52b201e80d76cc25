"""Values brought between bounds, or under a norm."""

from __future__ import annotations

from nnl_core import functions as F
from nnl_core.errors import OperatorError
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import is_number
from nnl_core.operators.axes import Axes

__all__ = ["clip", "clip_by_norm", "clip_by_value"]


def clip_by_value(x: Operand, min: Operand, max: Operand) -> Variable:
    """Bring ``x`` between ``min`` and ``max``, each a number or what broadcasts; NaN stays NaN.

    No gradient reaches ``x`` where it is at a bound or beyond; variable bounds get it there.
    """
    result: Variable = F.minimum2(F.maximum2(x, min), max)
    return result


def clip(x: Operand, min: Operand | None = None, max: Operand | None = None) -> Variable:
    """Bring ``x`` above ``min`` and below ``max``, as `clip_by_value`; ``None`` is no bound."""
    if min is None and max is None:
        raise OperatorError("clip needs min, max, or both")
    bounded = x if min is None else F.maximum2(x, min)
    result: Variable = bounded if max is None else F.minimum2(bounded, max)
    return result


def clip_by_norm(x: Operand, clip_norm: Operand, axis: Axes = None) -> Variable:
    """Scale ``x`` down to the Euclidean norm ``clip_norm`` where its norm over ``axis`` is greater.

    ``clip_norm`` is a positive number, or a variable that broadcasts.
    """
    if is_number(clip_norm) and not clip_norm > 0:
        raise OperatorError(f"clip_by_norm: clip_norm is {clip_norm}; it must be positive")
    size = F.norm(x, axis=axis, keepdims=True)
    result: Variable = F.mul(F.div(x, F.maximum2(size, clip_norm)), clip_norm)
    return result
