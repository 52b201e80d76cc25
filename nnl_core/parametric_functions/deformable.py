"""Convolution layers whose window has learned offsets."""

from __future__ import annotations

from collections.abc import Sequence

from nnl_core import functions as F
from nnl_core.graph.variable import Operand, Variable
from nnl_core.initializers import RandomSource
from nnl_core.operators.windows import window_shape
from nnl_core.parameters import Initial
from nnl_core.parametric_functions.common import Applied, bias, layer_scope, weight


def deformable_convolution(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    offset: Operand,
    mask: Operand | None = None,
    pad: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    group: int = 1,
    deformable_group: int = 1,
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
    """Convolve with windows whose taps are moved by ``offset`` and weighted by ``mask``.

    Both are computed by other layers, most often a convolution that begins at 0. Parameters
    ``deformable_conv/W`` of shape ``(outmaps, channels / group, *kernel)``, with the channels last
    under ``channel_last``, and ``deformable_conv/b`` of shape ``(outmaps,)``. See
    `F.deformable_convolution`.

    Args:
        inp: ``(batch..., channels, *spatial)``.
        outmaps: number of output maps.
        kernel: lengths of the window along the spatial axes.
        offset: ``(batch..., deformable_group K N, *places)`` for ``K`` taps and ``N`` spatial
            axes, which change fastest.
        mask: ``(batch..., deformable_group K, *places)``; ``None`` for ones.
        pad: zeros at both ends of each spatial axis.
        stride: steps from window to window.
        dilation: steps from tap to tap.
        group: number of groups that channels and maps are divided into.
        deformable_group: number of groups that channels are divided into for offsets and mask.
        channel_last: whether channels are the last axis of data, weight, offset and mask.
        w_init: first value of ``W``; default Glorot-uniform.
        b_init: first value of ``b``; default 0.
        base_axis: number of batch axes, or the negative index of the first axis after them.
        fix_parameters: whether no gradient flows to the parameters.
        rng: where default first values are drawn from.
        with_bias: whether to add ``b``.
        apply_w: what is applied to ``W`` before it is used.
        apply_b: what is applied to ``b`` before it is used.
        name: scope around the parameters.

    Returns:
        ``(batch..., outmaps, *places)``.

    Raises:
        ShapeError: shapes do not fit; the message says which was expected.

    Gradient:
        To the input, offset, mask and parameters, as of `F.deformable_convolution`.

    Examples:
        >>> x, offset = Variable((8, 4, 9, 9)), Variable((8, 18, 9, 9))
        >>> PF.deformable_convolution(x, 16, (3, 3), offset, pad=(1, 1)).shape
        (8, 16, 9, 9)

    Elsewhere:
        - nnabla: `deformable_convolution`, of images with one batch axis
        - PyTorch: `torchvision.ops.DeformConv2d`
        - ONNX: `DeformConv`
    """
    window = window_shape(kernel)
    channels = inp.shape[-1 if channel_last else base_axis]
    inner = channels // group
    shape = (outmaps, *window, inner) if channel_last else (outmaps, inner, *window)
    with layer_scope("deformable_conv", name):
        w = weight(shape, w_init, (channels, outmaps, window), fix_parameters, rng, apply_w)
        b = bias((outmaps,), b_init, with_bias, fix_parameters, apply_b)
        return F.deformable_convolution(
            inp, w, offset, mask, b, base_axis, pad, stride, dilation, group, deformable_group,
            channel_last,
        )  # fmt: skip
