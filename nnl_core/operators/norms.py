"""Normalisation by a norm, of vectors and weights; and by a running mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.dtypes import is_half
from nnl_core.graph.modes import no_grad
from nnl_core.graph.node import add_effects
from nnl_core.graph.spec import normalize_axes, normalize_axis
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import cast, same_dtype
from nnl_core.operators.dtypes import floating

__all__ = [
    "mean_subtraction",
    "norm_normalization",
    "rms_norm",
    "spectral_norm",
    "weight_normalization",
]

Axes = int | Sequence[int]


def norm_normalization(
    x: Operand, p: float | None = None, axes: Axes | None = None, eps: float = 1e-12
) -> Variable:
    """``x / (sum |x|^p + eps)^(1/p)``, summed over ``axes``.

    ``p`` is by default 2, ``axes`` all. Where all is zero, so is the gradient's pull on the norm.
    """
    x = floating(x)
    order = 2.0 if p is None else float(p)
    if not 0 < order < float("inf"):
        raise OperatorError(f"norm_normalization: p is {order}; it must be positive and finite")
    over = normalize_axes(axes if axes is None or isinstance(axes, int) else tuple(axes), x.ndim)
    powers = x * x if order == 2 else F.abs(x) ** order
    norm = (F.sum(powers, axis=over, keepdims=True) + eps) ** (1 / order)
    result: Variable = x / norm
    return result


def weight_normalization(w: Operand, g: Operand, dim: int = 0, eps: float = 1e-12) -> Variable:
    """``g w / |w|``: the norm, plus ``eps`` under its root, is that of each slice along ``dim``.

    ``g`` holds one number per slice.
    """
    w, g = same_dtype(floating(w), floating(g))
    axis = normalize_axis(dim, w.ndim)
    length = w.shape[axis]
    if g.size != length:
        raise ShapeError(
            f"weight_normalization: g of shape {g.shape} does not hold one number for each of the "
            f"{length} slices of the weight of shape {w.shape} along axis {axis}"
        )
    others = tuple(other for other in range(w.ndim) if other != axis)
    norm = (F.sum(w * w, axis=others, keepdims=True) + eps) ** 0.5
    scale = F.reshape(g, tuple(length if other == axis else 1 for other in range(w.ndim)))
    result: Variable = w * (scale / norm)
    return result


def spectral_norm(
    w: Operand,
    u: Variable,
    dim: int = 0,
    itr: int = 1,
    eps: float = 1e-12,
    test: bool = False,
    output_u: bool = False,
) -> Variable | tuple[Variable, Variable]:
    """Divide a weight by its largest singular value, as power iteration estimates it.

    The weight is seen as a matrix whose rows run along ``dim``; ``u`` holds one number per row.
    Each forward pass iterates ``itr`` times from ``u``, which it sets to what it found, unless
    ``test``. No gradient flows through the iteration (Miyato et al. 2018). ``output_u`` returns
    what ``u`` was before, too.
    """
    w = floating(w)
    axis = normalize_axis(dim, w.ndim)
    rows = w.shape[axis]
    if u.shape != (rows,) or itr < 1:
        raise ShapeError(
            f"spectral_norm: u of shape {u.shape} must hold one number for each of the {rows} rows "
            f"of the weight of shape {w.shape} along axis {axis}, and itr ({itr}) be at least 1"
        )
    others = tuple(other for other in range(w.ndim) if other != axis)
    matrix = F.reshape(F.transpose(w, (axis, *others)), (rows, w.size // max(1, rows)))
    with no_grad():
        left = F.reshape(u if u.dtype == w.dtype else cast(u, w.dtype), (rows, 1))
        for _ in range(itr):
            right = norm_normalization(F.matmul(F.transpose(matrix, (1, 0)), left), eps=eps)
            left = norm_normalization(F.matmul(matrix, right), eps=eps)
        found = cast(F.reshape(left, (rows,)), u.dtype)
    largest = F.reshape(F.sum(left * F.matmul(matrix, right)), (1,) * w.ndim)
    y: Variable = w / largest
    before: Variable = F.identity(u)
    if not test:
        if u.parent is not None:
            raise OperatorError("spectral_norm: u is computed, so it cannot be set; pass test=True")
        add_effects(y, [(u, found)])
    return (y, before) if output_u else y


def rms_norm(
    x: Operand, gamma: Operand | None = None, axes: Axes = -1, eps: float = 1e-6
) -> Variable:
    """``x / sqrt(mean(x^2) + eps) * gamma``, the mean taken over ``axes`` (Zhang, Sennrich 2019).

    ``gamma`` broadcasts to ``x``. Half precision is computed in ``float32``: its squares overflow.
    """
    x = floating(x)
    over = normalize_axes(axes if isinstance(axes, int) else tuple(axes), x.ndim)
    values = cast(x, np.float32) if is_half(x.dtype) else x
    y = values * (F.mean(values * values, axis=over, keepdims=True) + eps) ** -0.5
    y = y if y.dtype == x.dtype else cast(y, x.dtype)
    result: Variable = y if gamma is None else y * gamma
    return result


def mean_subtraction(
    x: Operand,
    mean: Variable,
    t: Variable | None,
    base_axis: int = 1,
    update_running_mean: bool = True,
) -> Variable:
    """Subtract a running mean from the input.

    With ``update_running_mean``, each forward pass first sets ``mean`` to
    ``mean + (batch mean - mean) / (t + 1)`` and then adds one to ``t``, the number of batches
    seen; an empty batch sets neither. ``mean`` has the shape of the axes from ``base_axis`` on.
    """
    x = floating(x)
    axis = normalize_axis(base_axis, x.ndim)
    if mean.shape != x.shape[axis:]:
        raise ShapeError(
            f"mean_subtraction: mean has shape {mean.shape}, and {x.shape[axis:]} fits the input "
            f"of shape {x.shape} with base_axis {base_axis}"
        )
    running = mean if mean.dtype == x.dtype else cast(mean, x.dtype)
    if not update_running_mean:
        return x - running
    if t is None or t.size != 1 or t.parent is not None or mean.parent is not None:
        raise OperatorError(
            "mean_subtraction: updating needs variables without history: the mean, and t, which "
            "holds one number"
        )
    if not x.size:
        return x - running
    count = F.reshape(cast(t, x.dtype), ())
    batch = F.mean(x, axis=tuple(range(axis))) if axis else x
    updated = running + (batch - running) / (count + 1)
    y: Variable = x - updated
    add_effects(y, [(mean, cast(updated, mean.dtype)), (t, t + 1)])
    return y
