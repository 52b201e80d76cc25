"""Convolution with padding, normalisation, a residual and an activation around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError
from nnl_core.graph.spec import normalize_axis
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.dtypes import floating
from nnl_core.operators.windows import pairs

__all__ = ["fused_convolution"]

ACTIVATIONS = ("identity", "relu", "sigmoid", "tanh", "leaky_relu", "elu", "relu6")


def fused_convolution(
    x: Operand,
    weight: Operand,
    bias: Operand | None = None,
    beta: Operand | None = None,
    gamma: Operand | None = None,
    mean: Variable | None = None,
    variance: Variable | None = None,
    z: Operand | None = None,
    base_axis: int = 1,
    pad: int | Sequence[Any] | None = None,
    stride: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] | None = None,
    group: int = 1,
    channel_last: bool = False,
    decay_rate: float = 0.9,
    eps: float = 1e-5,
    batch_stat: bool = True,
    nonlinearity: str = "relu",
    nonlinearity_args: Sequence[float] = (),
    pad_mode: str = "constant",
    constant_value: float = 0,
) -> Variable:
    """Pad, convolve, normalise the batch, add ``z``, and apply a nonlinearity.

    Normalisation is left out where its four arrays are ``None``, and so is ``z``.

    Args:
        x: ``(*batch, channels, *spatial)``, or ``(*batch, *spatial, channels)`` with
            ``channel_last``.
        weight: as that of `convolution`.
        bias: (maps,), or ``None``.
        beta: as that of `batch_normalization`.
        gamma: as that of `batch_normalization`.
        mean: the running mean.
        variance: the running variance.
        z: what is added, of the shape of the result.
        base_axis: number of batch axes.
        pad: that of `convolution`, or the flat ``pad_width`` of `pad`.
        stride: that of `convolution`.
        dilation: that of `convolution`.
        group: that of `convolution`.
        channel_last: where the channels are.
        decay_rate: that of `batch_normalization`.
        eps: that of `batch_normalization`.
        batch_stat: whether the statistics of the batch normalise, or the running ones.
        nonlinearity: identity (or empty), relu, sigmoid, tanh, relu6, leaky_relu or elu.
        nonlinearity_args: the slope of leaky_relu or elu.
        pad_mode: the ``mode`` of `pad`.
        constant_value: that of `pad`.

    Raises:
        OperatorError: another nonlinearity, or arguments that it does not take.

    Gradient:
        That of the parts.

    Examples:
        >>> F.fused_convolution(np.array([[[1.0, -2.0]]]), np.array([[[3.0]]])).d
        array([[[3., 0.]]])

    Elsewhere:
        - nnabla: `fused_convolution`
        - PyTorch: none, `conv2d`, `batch_norm` and the nonlinearity one after the other
        - ONNX: none, `Pad`, `Conv`, `BatchNormalization`, `Add` and the nonlinearity
    """
    x = floating(x)
    axis = normalize_axis(base_axis, x.ndim)
    count = x.ndim - axis - 1
    name = nonlinearity or "identity"
    if name not in ACTIVATIONS:
        raise OperatorError(
            f"fused_convolution: nonlinearity {nonlinearity!r} is none of {', '.join(ACTIVATIONS)}"
        )
    is_flat = pad is not None and not isinstance(pad, (int, np.integer)) and len(pad) > count
    if is_flat or pad_mode != "constant" or constant_value != 0:
        width = tuple(pad) if is_flat else tuple(n for pair in pairs(pad, count) for n in pair)  # type: ignore[arg-type]  # flat ones hold lengths
        if channel_last and not is_flat:
            width += (0, 0)
        x, pad = F.pad(x, width, pad_mode, constant_value), None
    y = F.convolution(x, weight, bias, axis, pad, stride, dilation, group, channel_last)
    if any(value is not None for value in (beta, gamma, mean, variance)):
        channels = y.ndim - 1 if channel_last else axis
        y = F.batch_normalization(
            y, beta, gamma, mean, variance, (channels,), decay_rate, eps, batch_stat
        )
    if z is not None:
        y = y + z
    if name == "identity":
        return y
    arguments = tuple(nonlinearity_args)
    if len(arguments) > (name in ("leaky_relu", "elu")):
        raise OperatorError(f"fused_convolution: {name} does not take arguments {arguments}")
    result: Variable = getattr(F, name)(y, *arguments)
    return result
