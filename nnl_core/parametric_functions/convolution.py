"""Convolution layers."""

from __future__ import annotations

from collections.abc import Sequence

from nnl_core import functions as F
from nnl_core.graph.variable import Variable
from nnl_core.initializers import RandomSource
from nnl_core.operators.windows import window_shape
from nnl_core.parameters import Initial
from nnl_core.parametric_functions.common import Applied, bias, layer_scope, weight


def convolution(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    pad: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    group: int = 1,
    channel_last: bool = False,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    apply_w: Applied | None = None,
    apply_b: Applied | None = None,
    name: str | None = None,
) -> Variable:
    """Convolve to ``outmaps`` channels; arguments as those of ``F.convolution``.

    Parameters ``conv/W`` of shape (outmaps, channels / group, *kernel), with the channels last
    under ``channel_last``, and ``conv/b`` of shape (outmaps,).
    """
    kernel = window_shape(kernel)
    channels = inp.shape[-1 if channel_last else base_axis]
    inner = channels // group
    shape = (outmaps, *kernel, inner) if channel_last else (outmaps, inner, *kernel)
    with layer_scope("conv", name):
        w = weight(shape, w_init, (channels, outmaps, kernel), fix_parameters, rng, apply_w)
        b = bias((outmaps,), b_init, with_bias, fix_parameters, apply_b)
        return F.convolution(
            inp, w, b, base_axis, pad, stride, dilation, group, channel_last=channel_last
        )


def depthwise_convolution(
    inp: Variable,
    kernel: Sequence[int],
    pad: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    multiplier: int = 1,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Convolve each channel by itself, to ``multiplier`` output channels each.

    Parameters ``depthwise_conv/W`` of shape (channels x multiplier, *kernel) and
    ``depthwise_conv/b`` of shape (channels x multiplier,).
    """
    kernel = window_shape(kernel)
    channels = inp.shape[base_axis]
    outmaps = channels * multiplier
    with layer_scope("depthwise_conv", name):
        fans = (outmaps, channels, kernel)
        w = weight((outmaps, *kernel), w_init, fans, fix_parameters, rng)
        b = bias((outmaps,), b_init, with_bias, fix_parameters)
        return F.depthwise_convolution(inp, w, b, base_axis, pad, stride, dilation, multiplier)


def deconvolution(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    pad: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    group: int = 1,
    channel_last: bool = False,
    output_padding: Sequence[int] | None = None,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    apply_w: Applied | None = None,
    apply_b: Applied | None = None,
    name: str | None = None,
) -> Variable:
    """Apply a transposed convolution; arguments as those of ``F.deconvolution``.

    Parameters ``deconv/W`` of shape (channels, outmaps / group, *kernel), with the output
    channels last under ``channel_last``, and ``deconv/b`` of shape (outmaps,).
    """
    kernel = window_shape(kernel)
    channels = inp.shape[-1 if channel_last else base_axis]
    inner = outmaps // group
    shape = (channels, *kernel, inner) if channel_last else (channels, inner, *kernel)
    with layer_scope("deconv", name):
        w = weight(shape, w_init, (outmaps, channels, kernel), fix_parameters, rng, apply_w)
        b = bias((outmaps,), b_init, with_bias, fix_parameters, apply_b)
        return F.deconvolution(
            inp,
            w,
            b,
            base_axis,
            pad,
            stride,
            dilation,
            group,
            channel_last=channel_last,
            output_padding=output_padding,
        )


def depthwise_deconvolution(
    inp: Variable,
    kernel: Sequence[int],
    pad: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    divisor: int = 1,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Apply a transposed convolution to each channel, summing ``divisor`` channels to one.

    Parameters ``depthwise_deconv/W`` of shape (channels, *kernel) and ``depthwise_deconv/b`` of
    shape (channels / divisor,).
    """
    kernel = window_shape(kernel)
    channels = inp.shape[base_axis]
    with layer_scope("depthwise_deconv", name):
        fans = (channels, channels, kernel)
        w = weight((channels, *kernel), w_init, fans, fix_parameters, rng)
        b = bias((channels // divisor,), b_init, with_bias, fix_parameters)
        return F.depthwise_deconvolution(inp, w, b, base_axis, pad, stride, dilation, divisor)
