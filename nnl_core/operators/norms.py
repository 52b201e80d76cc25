"""Normalisation by a norm, of vectors and weights; and by a running mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import real
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


def _widened(x: Variable) -> Variable:
    """Return what squares and a small eps are computed of: half precision holds neither."""
    return cast(x, np.float32) if is_half(x.dtype) else x


def _rounded(y: Variable, x: Variable) -> Variable:
    """Return the result in the input's dtype."""
    return y if y.dtype == x.dtype else cast(y, x.dtype)


def norm_normalization(
    x: Operand, p: float | None = None, axes: Axes | None = None, eps: float = 1e-12
) -> Variable:
    """Divide by a norm: ``y = x / (sum |x| ** p + eps) ** (1 / p)``.

    Args:
        x: any shape.
        p: positive; 2 by default.
        axes: the axes of the sum: one, several, or ``None`` for all.
        eps: what is added to the sum.

    Gradient:
        That of the formula; where all is zero, the norm has none.

    Examples:
        >>> F.norm_normalization(np.array([3.0, 4.0]), eps=0.0).d
        array([0.6, 0.8])

    Elsewhere:
        - nnabla: `norm_normalization`
        - PyTorch: `torch.nn.functional.normalize`, whose eps is the least norm
        - ONNX: `LpNormalization`, without eps
    """
    x = floating(x)
    order = 2.0 if p is None else real(p, "p")
    if not 0 < order < float("inf"):
        raise OperatorError(f"norm_normalization: p is {order}; it must be positive and finite")
    over = normalize_axes(axes if axes is None or isinstance(axes, int) else tuple(axes), x.ndim)
    values = _widened(x)
    powers = values * values if order == 2 else F.abs(values) ** order
    norm = (F.sum(powers, axis=over, keepdims=True) + real(eps, "eps")) ** (1 / order)
    return _rounded(values / norm, x)


def weight_normalization(w: Operand, g: Operand, dim: int = 0, eps: float = 1e-12) -> Variable:
    """Give each slice of a weight a norm: ``y = g w / sqrt(sum w ** 2 + eps)``.

    Salimans and Kingma, 2016.

    Args:
        w: a weight.
        g: one number per slice along ``dim``.
        dim: the axis of the slices.
        eps: what is added under the root.

    Gradient:
        That of the formula.

    Examples:
        >>> F.weight_normalization(np.array([[3.0, 4.0]]), np.array([10.0])).d
        array([[6., 8.]])

    Elsewhere:
        - nnabla: `weight_normalization`
        - PyTorch: `torch.nn.utils.parametrizations.weight_norm`
        - ONNX: none, part of training; its result is a constant
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
    values, factors = _widened(w), _widened(g)
    norm = (F.sum(values * values, axis=others, keepdims=True) + real(eps, "eps")) ** 0.5
    scale = F.reshape(factors, tuple(length if other == axis else 1 for other in range(w.ndim)))
    return _rounded(values * (scale / norm), w)


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

    Miyato et al., 2018.

    Args:
        w: a weight, seen as a matrix whose rows run along ``dim``.
        u: one number per row: where the iteration begins; each forward pass sets it to what it
            found.
        dim: the axis of the rows.
        itr: how many iterations.
        eps: what is added to norms.
        test: whether ``u`` stays as it is.
        output_u: whether what ``u`` was before is returned, too.

    Gradient:
        That of ``w / sigma`` with ``sigma = u^T w v``; none through the iteration.

    Examples:
        >>> u = Variable.from_numpy_array(np.array([1.0, 1.0]))
        >>> F.spectral_norm(np.array([[4.0, 0.0], [0.0, 1.0]]), u, itr=20).d.round(3)
        array([[1.  , 0.  ],
               [0.  , 0.25]])

    Elsewhere:
        - nnabla: `spectral_norm`
        - PyTorch: `torch.nn.utils.parametrizations.spectral_norm`
        - ONNX: none, part of training; its result is a constant
    """
    w = floating(w)
    axis = normalize_axis(dim, w.ndim)
    if not isinstance(u, Variable):
        raise OperatorError("spectral_norm: u must be a variable, as it is written to")
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
    """Divide by the root of the mean square: ``y = gamma x / sqrt(mean(x ** 2) + eps)``.

    Zhang and Sennrich, 2019. Half precision is computed in ``float32``: its squares overflow.

    Args:
        x: any shape.
        gamma: broadcasts to ``x``; or ``None``.
        axes: the axes of the mean: one or several.
        eps: what is added to the mean.

    Gradient:
        That of the formula.

    Examples:
        >>> F.rms_norm(np.array([3.0, 3.0, 0.0, 0.0]), eps=0.0).d.round(3)
        array([1.414, 1.414, 0.   , 0.   ])

    Elsewhere:
        - nnabla: none, `norm_normalization`, but for the mean
        - PyTorch: `torch.nn.functional.rms_norm`
        - ONNX: `RMSNormalization`
    """
    x = floating(x)
    over = normalize_axes(axes if isinstance(axes, int) else tuple(axes), x.ndim)
    values = _widened(x)
    y = _rounded(
        values * (F.mean(values * values, axis=over, keepdims=True) + real(eps, "eps")) ** -0.5, x
    )
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

    Args:
        x: any shape.
        mean: the running mean, in the shape of the axes from ``base_axis`` on.
        t: the number of batches seen; may be ``None`` without an update. ``float32`` or integers
            hold it: ``float16`` counts no further than 2048, ``bfloat16`` than 256.
        base_axis: the first axis of a sample.
        update_running_mean: whether each forward pass first sets ``mean`` to ``mean + (batch mean -
            mean) / (t + 1)`` and then adds one to ``t``; an empty batch sets neither.

    Gradient:
        ``dx = dy``, less its part through the mean.

    Examples:
        >>> mean, t = Variable((1,)), Variable((1,))
        >>> F.mean_subtraction(np.array([[1.0], [3.0]]), mean, t).d
        array([[-1.],
               [ 1.]])

    Elsewhere:
        - nnabla: `mean_subtraction`, whose gradient leaves the mean out
        - PyTorch: none, a buffer and a subtraction
        - ONNX: none, `Sub` of a constant
    """
    x = floating(x)
    axis = normalize_axis(base_axis, x.ndim)
    if not isinstance(mean, Variable) or not isinstance(t, Variable | None):
        raise OperatorError(
            "mean_subtraction: mean and t must be variables, as they are written to"
        )
    if mean.shape != x.shape[axis:]:
        raise ShapeError(
            f"mean_subtraction: mean has shape {mean.shape}, and {x.shape[axis:]} fits the input "
            f"of shape {x.shape} with base_axis {base_axis}"
        )
    values = _widened(x)
    running = mean if mean.dtype == values.dtype else cast(mean, values.dtype)
    if not update_running_mean:
        return _rounded(values - running, x)
    if t is None or t.size != 1 or t.parent is not None or mean.parent is not None:
        raise OperatorError(
            "mean_subtraction: updating needs variables without history: the mean, and t, which "
            "holds one number"
        )
    if not x.size:
        return _rounded(values - running, x)
    count = F.reshape(cast(t, values.dtype), ())
    batch = F.mean(values, axis=tuple(range(axis))) if axis else values
    updated = running + (batch - running) / (count + 1)
    y = _rounded(values - updated, x)
    add_effects(y, [(mean, cast(updated, mean.dtype)), (t, t + 1)])
    return y
