"""Convolution layers."""

from __future__ import annotations

from collections.abc import Sequence

from nnl_core import functions as F
from nnl_core.graph.variable import Variable
from nnl_core.initializers import RandomSource
from nnl_core.operators.windows import groups, window_shape
from nnl_core.parameters import Initial
from nnl_core.parametric_functions.common import Applied, bias, layer_scope, weight
from nnl_core.parametric_functions.shapes import channels_of


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
    """Convolve to ``outmaps`` channels.

    Parameters ``conv/W`` of shape (outmaps, channels / group, *kernel), with the channels last
    under ``channel_last``, and ``conv/b`` of shape (outmaps,).

    Args:
        inp: ``(*batch, channels, *spatial)``, or the channels last with ``channel_last``.
        outmaps: how many output channels.
        kernel: shape of the window.
        pad: zeros at both ends of each spatial axis; one number per axis.
        stride: steps of the window; one per axis.
        dilation: steps between the places that a window reads; one per axis.
        group: number of groups that channels and maps are divided into.
        channel_last: where the channels are.
        w_init: an initializer or an array; by default uniform (Glorot and Bengio, 2010).
        b_init: an initializer or an array; by default 0.
        base_axis: number of batch axes.
        fix_parameters: whether the parameters are left out of training.
        rng: where the initial values come from; by default that of the library.
        with_bias: whether there is a bias.
        apply_w: a function of the weight, whose result is used in its place.
        apply_b: the same of the bias.
        name: a scope for the parameters; ``None`` for the current one.

    Gradient:
        That of `F.convolution`, for the input and the parameters.

    Examples:
        >>> PF.convolution(Variable((8, 3, 32, 32)), 16, (3, 3), pad=(1, 1)).shape
        (8, 16, 32, 32)

    Elsewhere:
        - nnabla: `convolution`
        - PyTorch: `torch.nn.Conv2d`
        - ONNX: `Conv`
    """
    kernel = window_shape(kernel)
    channels = channels_of(inp, base_axis, channel_last)
    inner = channels // groups(group)
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

    Args:
        inp: ``(*batch, channels, *spatial)``.
        kernel: shape of the window.
        pad: zeros at both ends of each spatial axis; one number per axis.
        stride: steps of the window; one per axis.
        dilation: steps between the places that a window reads; one per axis.
        multiplier: output channels of each channel.
        w_init: an initializer or an array; by default uniform (Glorot and Bengio, 2010).
        b_init: an initializer or an array; by default 0.
        base_axis: number of batch axes.
        fix_parameters: whether the parameters are left out of training.
        rng: where the initial values come from; by default that of the library.
        with_bias: whether there is a bias.
        name: a scope for the parameters; ``None`` for the current one.

    Gradient:
        That of `F.depthwise_convolution`, for the input and the parameters.

    Examples:
        >>> PF.depthwise_convolution(Variable((8, 3, 32, 32)), (3, 3), multiplier=2).shape
        (8, 6, 30, 30)

    Elsewhere:
        - nnabla: `depthwise_convolution`
        - PyTorch: `torch.nn.Conv2d` with `groups=channels`
        - ONNX: `Conv` with `group=channels`
    """
    kernel = window_shape(kernel)
    channels = channels_of(inp, base_axis)
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
    """Apply a transposed convolution to ``outmaps`` channels.

    Parameters ``deconv/W`` of shape (channels, outmaps / group, *kernel), with the output channels
    last under ``channel_last``, and ``deconv/b`` of shape (outmaps,).

    Args:
        inp: ``(*batch, channels, *spatial)``, or the channels last with ``channel_last``.
        outmaps: how many output channels.
        kernel: shape of the window.
        pad: what is taken off at both ends of each spatial axis; one number per axis.
        stride: steps of the window; one per axis.
        dilation: steps between the places that a window reads; one per axis.
        group: number of groups that channels and maps are divided into.
        channel_last: where the channels are.
        output_padding: lengthens each axis at its end; one number per axis.
        w_init: an initializer or an array; by default uniform (Glorot and Bengio, 2010).
        b_init: an initializer or an array; by default 0.
        base_axis: number of batch axes.
        fix_parameters: whether the parameters are left out of training.
        rng: where the initial values come from; by default that of the library.
        with_bias: whether there is a bias.
        apply_w: a function of the weight, whose result is used in its place.
        apply_b: the same of the bias.
        name: a scope for the parameters; ``None`` for the current one.

    Gradient:
        That of `F.deconvolution`, for the input and the parameters.

    Examples:
        >>> PF.deconvolution(Variable((8, 3, 16, 16)), 4, (2, 2), stride=(2, 2)).shape
        (8, 4, 32, 32)

    Elsewhere:
        - nnabla: `deconvolution`
        - PyTorch: `torch.nn.ConvTranspose2d`
        - ONNX: `ConvTranspose`
    """
    kernel = window_shape(kernel)
    channels = channels_of(inp, base_axis, channel_last)
    inner = outmaps // groups(group)
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

    Args:
        inp: ``(*batch, channels, *spatial)``.
        kernel: shape of the window.
        pad: what is taken off at both ends of each spatial axis; one number per axis.
        stride: steps of the window; one per axis.
        dilation: steps between the places that a window reads; one per axis.
        divisor: channels of each output channel.
        w_init: an initializer or an array; by default uniform (Glorot and Bengio, 2010).
        b_init: an initializer or an array; by default 0.
        base_axis: number of batch axes.
        fix_parameters: whether the parameters are left out of training.
        rng: where the initial values come from; by default that of the library.
        with_bias: whether there is a bias.
        name: a scope for the parameters; ``None`` for the current one.

    Gradient:
        That of `F.depthwise_deconvolution`, for the input and the parameters.

    Examples:
        >>> PF.depthwise_deconvolution(Variable((8, 4, 8, 8)), (3, 3), divisor=2).shape
        (8, 2, 10, 10)

    Elsewhere:
        - nnabla: `depthwise_deconvolution`
        - PyTorch: `torch.nn.ConvTranspose2d` with `groups=channels`
        - ONNX: `ConvTranspose` with `group=channels`
    """
    kernel = window_shape(kernel)
    channels = channels_of(inp, base_axis)
    with layer_scope("depthwise_deconv", name):
        fans = (channels, channels, kernel)
        w = weight((channels, *kernel), w_init, fans, fix_parameters, rng)
        b = bias((channels // divisor,), b_init, with_bias, fix_parameters)
        return F.depthwise_deconvolution(inp, w, b, base_axis, pad, stride, dilation, divisor)
