"""Normalisation by mean and variance: of batches, layers, instances, groups and weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import real
from nnl_core.graph.dtypes import is_half
from nnl_core.graph.node import add_effects
from nnl_core.graph.spec import normalize_axes, normalize_axis
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import cast
from nnl_core.operators.dtypes import floating
from nnl_core.operators.moments import moments, normalize, running_statistic, standardize

__all__ = [
    "batch_normalization",
    "fused_batch_normalization",
    "group_normalization",
    "instance_normalization",
    "layer_normalization",
    "tensor_normalization",
    "weight_standardization",
]

Axes = int | Sequence[int]
Outputs = Any  # a Variable; with output_stat a tuple: also mean and variance


# What users call ---------------------------------------------------------------------------------


def _like(value: Operand | None, default: float, x: Variable) -> Variable:
    """Return a gain or shift in the dtype of ``x``."""
    if value is None:
        return Variable.constant(np.asarray(default, x.dtype))
    variable = floating(value)
    return variable if variable.dtype == x.dtype else cast(variable, x.dtype)


def _standardize(
    x: Variable, kept: tuple[int, ...], gamma: Operand | None, beta: Operand | None, eps: float
) -> tuple[Variable, Variable, Variable]:
    """Normalise over all axes that are not kept; return also mean and variance, not rounded.

    Half precision is computed in ``float32``: its squares overflow.
    """
    given = x
    if is_half(x.dtype):
        x = cast(x, np.float32)
    axes = tuple(axis for axis in range(x.ndim) if axis not in kept)
    gain, shift = _like(gamma, 1, x), _like(beta, 0, x)
    if 0 in axes:
        mean, variance = moments(x, axes=axes)
        y = normalize(x, mean, variance, gain, shift, eps=real(eps, "eps"))
    else:
        y, mean, variance = standardize(x, gain, shift, axes=axes, eps=real(eps, "eps"))
    return _as(y, given), mean, variance


def _as(y: Variable, x: Variable) -> Variable:
    return y if y.dtype == x.dtype else cast(y, x.dtype)


def _statistics_shape(x: Variable, kept: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n if axis in kept else 1 for axis, n in enumerate(x.shape))


def check_shapes(
    function: str,
    x: Variable,
    kept: tuple[int, ...],
    beta: Operand | None,
    gamma: Operand | None,
    mean: Operand | None,
    variance: Operand | None,
) -> None:
    """Raise where one does not have the shape of statistics."""
    shape = _statistics_shape(x, kept)
    given = {"beta": beta, "gamma": gamma, "mean": mean, "variance": variance}
    for name, value in given.items():
        if value is not None and np.shape(value) != shape:
            raise ShapeError(
                f"{function}: {name} has shape {np.shape(value)}, and {shape} fits the input of "
                f"shape {x.shape} with axes {kept}"
            )


def check_settable(function: str, mean: Operand | None, variance: Operand | None) -> None:
    """Raise where a running statistic is computed."""
    for name, value in (("mean", mean), ("variance", variance)):
        if isinstance(value, Variable) and value.parent is not None:
            raise OperatorError(
                f"{function}: {name} is computed by {value.parent.name!r}, so it cannot be "
                "updated; give a variable without history, or batch_stat=False"
            )


def batch_normalization(
    x: Operand,
    beta: Operand | None,
    gamma: Operand | None,
    mean: Variable | None,
    variance: Variable | None,
    axes: Axes = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-5,
    batch_stat: bool = True,
    output_stat: bool = False,
) -> Outputs:
    """Normalise over all axes but ``axes``: ``y = gamma (x - mean) / sqrt(variance + eps) + beta``.

    Ioffe and Szegedy, 2015. An empty batch leaves the running statistics alone.

    Args:
        x: any shape with these axes.
        beta: shift, in the shape of ``x`` with 1 for each axis not in ``axes``; or ``None``.
        gamma: gain, in that shape; or ``None``.
        mean: running mean, in that shape. With ``batch_stat``, each forward pass sets it to
            ``decay_rate * old + (1 - decay_rate) * new``; it may then be ``None``.
        variance: running variance, set likewise, from the unbiased one.
        axes: the axes that keep statistics of their own.
        decay_rate: share of the old running statistics.
        eps: what is added to the variance.
        batch_stat: whether to use the statistics of the batch, or ``mean`` and ``variance``.
        output_stat: whether mean and (biased) variance of the batch are returned, too.

    Raises:
        ShapeError: shapes do not fit.
        OperatorError: running statistics are missing, or are computed while they should be set.

    Gradient:
        That of the formula, through mean and variance, too where they are the batch's.

    Examples:
        >>> x = np.array([[1.0], [3.0]])
        >>> F.batch_normalization(x, None, None, None, None, eps=0.0).d
        array([[-1.],
               [ 1.]])

    Elsewhere:
        - nnabla: `batch_normalization`
        - PyTorch: `torch.nn.functional.batch_norm`, whose momentum is one minus the decay rate
        - ONNX: `BatchNormalization`
    """
    x = floating(x)
    kept = normalize_axes(axes if isinstance(axes, int) else tuple(axes), x.ndim)
    check_shapes("batch_normalization", x, kept, beta, gamma, mean, variance)
    if not batch_stat:
        return _with_running(x, beta, gamma, mean, variance, eps, output_stat)
    check_settable("batch_normalization", mean, variance)
    y, batch_mean, batch_variance = _standardize(x, kept, gamma, beta, eps)
    decay = real(decay_rate, "decay_rate")
    effects = [
        (running, running_statistic(running, value, x, decay=decay, unbiased=unbiased))
        for running, value, unbiased in (
            (mean, batch_mean, False),
            (variance, batch_variance, True),
        )
        if isinstance(running, Variable)
    ]
    if effects:
        add_effects(y, effects)
    return (y, batch_mean, batch_variance) if output_stat else y


def _with_running(
    x: Variable, beta: Operand | None, gamma: Operand | None, mean: Operand | None,
    variance: Operand | None, eps: float, output_stat: bool,
) -> Variable:  # fmt: skip
    if mean is None or variance is None:
        raise OperatorError(
            "batch_normalization: batch_stat=False needs the running mean and variance, and one "
            "is None"
        )
    if output_stat:
        raise OperatorError(
            "batch_normalization: output_stat=True returns the batch's statistics, which "
            "batch_stat=False does not compute"
        )
    given = x
    if is_half(x.dtype):
        x = cast(x, np.float32)
    y: Variable = normalize(
        x,
        _like(mean, 0, x),
        _like(variance, 1, x),
        _like(gamma, 1, x),
        _like(beta, 0, x),
        eps=real(eps, "eps"),
    )
    return _as(y, given)


def fused_batch_normalization(
    x: Operand,
    beta: Operand | None,
    gamma: Operand | None,
    mean: Variable | None,
    variance: Variable | None,
    z: Operand | None = None,
    axes: Axes = (1,),
    decay_rate: float = 0.9,
    eps: float = 1e-5,
    batch_stat: bool = True,
    nonlinearity: str = "relu",
    output_stat: bool = False,
) -> Outputs:
    """Normalise as `batch_normalization`, add ``z`` where it is given, and apply the nonlinearity.

    Args:
        x: as of `batch_normalization`.
        beta: as of `batch_normalization`.
        gamma: as of `batch_normalization`.
        mean: as of `batch_normalization`.
        variance: as of `batch_normalization`.
        z: what is added, in the shape of ``x``; or ``None``.
        axes: as of `batch_normalization`.
        decay_rate: as of `batch_normalization`.
        eps: as of `batch_normalization`.
        batch_stat: as of `batch_normalization`.
        nonlinearity: ``"relu"``.
        output_stat: as of `batch_normalization`.

    Raises:
        OperatorError: another nonlinearity.

    Gradient:
        That of its parts.

    Examples:
        >>> x = np.array([[1.0], [3.0]])
        >>> F.fused_batch_normalization(x, None, None, None, None, eps=0.0).d
        array([[0.],
               [1.]])

    Elsewhere:
        - nnabla: `fused_batch_normalization`
        - PyTorch: none, `torch.nn.functional.batch_norm`, a sum and `torch.nn.functional.relu`
        - ONNX: none, `BatchNormalization`, `Add` and `Relu`
    """
    if nonlinearity != "relu":
        raise OperatorError(
            f"fused_batch_normalization: nonlinearity {nonlinearity!r} is unknown; it can be 'relu'"
        )
    result = batch_normalization(
        x, beta, gamma, mean, variance, axes, decay_rate, eps, batch_stat, output_stat
    )
    y, *statistics = result if output_stat else (result,)
    y = F.relu(y if z is None else y + z)
    return (y, *statistics) if output_stat else y


def tensor_normalization(
    x: Operand,
    axes: Axes,
    beta: Operand | None = None,
    gamma: Operand | None = None,
    eps: float = 1e-5,
    output_stat: bool = False,
) -> Outputs:
    """Normalise over all axes but ``axes``.

    Statistics have length 1 along what they are taken over.

    Args:
        x: any shape.
        axes: the axes that keep statistics of their own: one or several.
        beta: what is added; broadcasts to ``x``, or ``None``.
        gamma: what is multiplied by; broadcasts to ``x``, or ``None``.
        eps: what is added to the variance.
        output_stat: whether mean and (biased) variance are returned, too.

    Gradient:
        That of the formula, through mean and variance, too.

    Examples:
        >>> F.tensor_normalization(np.array([[1.0, 3.0], [5.0, 5.0]]), axes=0, eps=1e-9).d.round(3)
        array([[-1.,  1.],
               [ 0.,  0.]])

    Elsewhere:
        - nnabla: `tensor_normalization`
        - PyTorch: `torch.nn.functional.layer_norm` for trailing axes
        - ONNX: none, `ReduceMean`, `Sub`, `Mul` and `Sqrt`
    """
    x = floating(x)
    kept = normalize_axes(axes if isinstance(axes, int) else tuple(axes), x.ndim)
    result = _standardize(x, kept, gamma, beta, eps)
    return result if output_stat else result[0]


def layer_normalization(
    x: Operand,
    beta: Operand | None,
    gamma: Operand | None,
    batch_axis: Axes = 0,
    eps: float = 1e-5,
    output_stat: bool = False,
) -> Outputs:
    """Normalise each example over all its axes.

    Ba et al., 2016.

    Args:
        x: any shape.
        beta: what is added; broadcasts to ``x``, or ``None``.
        gamma: what is multiplied by; broadcasts to ``x``, or ``None``.
        batch_axis: the axes that are not normalised over: one or several.
        eps: what is added to the variance.
        output_stat: whether mean and (biased) variance are returned, too.

    Gradient:
        That of the formula, through mean and variance, too.

    Examples:
        >>> F.layer_normalization(np.array([[1.0, 3.0]]), None, None, eps=0.0).d
        array([[-1.,  1.]])

    Elsewhere:
        - nnabla: `layer_normalization`
        - PyTorch: `torch.nn.functional.layer_norm`, which names the axes to normalise over
        - ONNX: `LayerNormalization`
    """
    return tensor_normalization(x, batch_axis, beta, gamma, eps, output_stat)


def _axes_of(x: Variable, channel_axis: int, batch_axis: Axes) -> tuple[int, ...]:
    listed = (batch_axis,) if isinstance(batch_axis, int) else tuple(batch_axis)
    channel = normalize_axis(channel_axis, x.ndim)
    return normalize_axes((*listed, channel), x.ndim)


def instance_normalization(
    x: Operand,
    beta: Operand | None,
    gamma: Operand | None,
    channel_axis: int = 1,
    batch_axis: Axes = 0,
    eps: float = 1e-5,
    output_stat: bool = False,
) -> Outputs:
    """Normalise each channel of each example.

    Ulyanov et al., 2016.

    Args:
        x: any shape with these axes.
        beta: what is added; broadcasts to ``x``, or ``None``.
        gamma: what is multiplied by; broadcasts to ``x``, or ``None``.
        channel_axis: the axis of the channels.
        batch_axis: one axis or several, of the examples.
        eps: what is added to the variance.
        output_stat: whether mean and (biased) variance are returned, too.

    Gradient:
        That of the formula, through mean and variance, too.

    Examples:
        >>> F.instance_normalization(np.array([[[1.0, 3.0]]]), None, None, eps=0.0).d
        array([[[-1.,  1.]]])

    Elsewhere:
        - nnabla: `instance_normalization`
        - PyTorch: `torch.nn.functional.instance_norm`
        - ONNX: `InstanceNormalization`
    """
    x = floating(x)
    kept = _axes_of(x, channel_axis, batch_axis)
    return tensor_normalization(x, kept, beta, gamma, eps, output_stat)


def group_normalization(
    x: Operand,
    beta: Operand | None,
    gamma: Operand | None,
    num_groups: int,
    channel_axis: int = 1,
    batch_axis: Axes = 0,
    eps: float = 1e-5,
    output_stat: bool = False,
) -> Outputs:
    """Normalise each group of neighbouring channels of each example.

    Wu and He, 2018. Statistics have the shape of ``x`` with the channel axis divided into (groups,
    channels of a group).

    Args:
        x: any shape with these axes.
        beta: what is added; broadcasts to ``x``, or ``None``.
        gamma: what is multiplied by; broadcasts to ``x``, or ``None``.
        num_groups: how many groups divide the channels.
        channel_axis: the axis of the channels.
        batch_axis: one axis or several, of the examples.
        eps: what is added to the variance.
        output_stat: whether mean and (biased) variance are returned, too.

    Raises:
        ShapeError: the groups do not divide the channels.

    Gradient:
        That of the formula, through mean and variance, too.

    Examples:
        >>> x = np.array([[1.0, 3.0, 10.0, 10.0]])
        >>> F.group_normalization(x, None, None, num_groups=2, eps=1e-9).d.round(3)
        array([[-1.,  1.,  0.,  0.]])

    Elsewhere:
        - nnabla: `group_normalization`
        - PyTorch: `torch.nn.functional.group_norm`
        - ONNX: `GroupNormalization`
    """
    x = floating(x)
    axis = normalize_axis(channel_axis, x.ndim)
    channels = x.shape[axis]
    if num_groups < 1 or channels % num_groups:
        raise ShapeError(
            f"group_normalization: {num_groups} groups do not divide the {channels} channels of "
            f"the input of shape {x.shape}"
        )
    # Batch axes are counted in the input; those behind the channels move one further.
    kept = [k + (k > axis) for k in _axes_of(x, axis, batch_axis)]

    def divided(value: Operand | None) -> Variable | None:
        if value is None:
            return None
        variable = floating(value)
        if variable.ndim <= x.ndim - 1 - axis:
            return variable  # it has no channel axis
        place = variable.ndim - (x.ndim - axis)
        length = variable.shape[place]
        pair = (num_groups, length // num_groups) if length != 1 else (1, 1)
        shape = (*variable.shape[:place], *pair, *variable.shape[place + 1 :])
        return F.reshape(variable, shape)

    shape = (*x.shape[:axis], num_groups, channels // num_groups, *x.shape[axis + 1 :])
    y, mean, variance = _standardize(
        F.reshape(x, shape), tuple(kept), divided(gamma), divided(beta), eps
    )
    y = F.reshape(y, x.shape)
    return (y, mean, variance) if output_stat else y


def weight_standardization(
    w: Operand, channel_axis: int = 0, eps: float = 1e-5, output_stat: bool = False
) -> Outputs:
    """Normalise each output channel of a weight.

    Qiao et al., 2019.

    Args:
        w: any shape.
        channel_axis: the axis of the output channels.
        eps: what is added to the variance.
        output_stat: whether mean and (biased) variance are returned, too.

    Gradient:
        That of the formula, through mean and variance, too.

    Examples:
        >>> F.weight_standardization(np.array([[1.0, 3.0]]), eps=0.0).d
        array([[-1.,  1.]])

    Elsewhere:
        - nnabla: `weight_standardization`
        - PyTorch: none, `torch.var_mean` of the weight
        - ONNX: none, `ReduceMean`, `Sub`, `Mul` and `Sqrt`
    """
    return tensor_normalization(w, channel_axis, None, None, eps, output_stat)
