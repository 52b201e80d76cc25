"""Convolution and its two adjoints, over any number of spatial axes.

Three bilinear operators are each other's gradients: `convolution` of data and weight, the gradient
of the data (transposed convolution), and the gradient of the weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.checks import whole
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec, normalize_axis
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import cast, same_dtype
from nnl_core.operators.dtypes import floating, wide
from nnl_core.operators.windows import (
    Lengths,
    Pairs,
    groups,
    lengths,
    padded,
    pairs,
    placements,
    sliding,
    span,
    trailing,
    volume,
)

__all__ = [
    "convolution",
    "deconvolution",
    "depthwise_convolution",
    "depthwise_deconvolution",
]

Pad = int | Sequence[int | Sequence[int]] | None
PerAxis = int | Sequence[int] | None


# References --------------------------------------------------------------------------------------


def _grouped_windows(
    x: Array, kernel: Sequence[int], stride: Lengths, pad: Pairs, dilation: Lengths, group: int
) -> Array:
    """Return windows as (batch, group, channels of a group, *placements, *kernel)."""
    view = sliding(padded(wide(x), pad), kernel, stride, dilation)
    batch, channels = x.shape[:2]
    return view.reshape(batch, group, channels // group, *view.shape[2:])


def _axes(count: int) -> tuple[list[int], list[int]]:
    """Return labels for `np.einsum`: of the placements and of the kernel's axes."""
    return list(range(4, 4 + count)), list(range(4 + count, 4 + 2 * count))


@defop("nnl::convolution", save=("x", "weight"), precision="half")
def convolution_operator(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    stride: Lengths,
    pad: Pairs,
    dilation: Lengths,
    group: int = 1,
) -> Array:
    """Correlate ``x (batch, channels, *spatial)`` with ``weight (maps, channels/group, *kernel)``.

    ``pad`` holds (before, after) of each spatial axis; a negative length crops.
    """
    kernel = weight.shape[2:]
    windows = _grouped_windows(x, kernel, stride, pad, dilation, group)
    weights = wide(weight).reshape(group, weight.shape[0] // group, *weight.shape[1:])
    places, taps = _axes(len(kernel))
    y = np.einsum(
        windows, [0, 1, 3, *places, *taps], weights, [1, 2, 3, *taps], [0, 1, 2, *places],
        optimize=True,
    )  # fmt: skip
    y = y.reshape(x.shape[0], weight.shape[0], *y.shape[3:])
    if bias is not None:
        y = y + wide(bias).reshape(-1, *(1,) * len(kernel))
    return np.asarray(y.astype(x.dtype, copy=False))


@defop("nnl::convolution_data_gradient", save=("dy", "weight"), outputs=("dx",), precision="half")
def convolution_data_gradient(
    dy: Array, weight: Array, *, stride: Lengths, pad: Pairs, dilation: Lengths, group: int = 1
) -> Array:
    """Transpose `convolution` in its data: spread ``dy`` through the weight.

    The result is the shortest array of which the convolution has the shape of ``dy``; ``pad`` is
    that of the convolution, and a negative length makes the result longer by zeros.
    """
    kernel = weight.shape[2:]
    batch, maps = dy.shape[:2]
    spread = np.zeros(
        (batch, maps, *((n - 1) * s + 1 for n, s in zip(dy.shape[2:], stride, strict=True))),
        wide(dy).dtype,
    )
    spread[trailing(slice(None, None, s) for s in stride)] = dy
    # A convolution with the kernel turned around, its two channel axes swapped.
    outer = tuple(
        (covered - 1 - before, covered - 1 - after)
        for covered, (before, after) in zip(span(kernel, dilation), pad, strict=True)
    )
    ones = (1,) * len(kernel)
    windows = _grouped_windows(spread, kernel, ones, outer, dilation, group)
    turned = np.flip(wide(weight), tuple(range(2, weight.ndim)))
    weights = turned.reshape(group, maps // group, *weight.shape[1:])
    places, taps = _axes(len(kernel))
    dx = np.einsum(
        windows, [0, 1, 2, *places, *taps], weights, [1, 2, 3, *taps], [0, 1, 3, *places],
        optimize=True,
    )  # fmt: skip
    dx = dx.reshape(batch, group * weight.shape[1], *dx.shape[3:])
    return np.asarray(dx.astype(dy.dtype, copy=False))


@defop("nnl::convolution_weight_gradient", save=("x", "dy"), outputs=("dw",), precision="half")
def convolution_weight_gradient(
    x: Array,
    dy: Array,
    *,
    kernel: Lengths,
    stride: Lengths,
    pad: Pairs,
    dilation: Lengths,
    group: int = 1,
) -> Array:
    """Transpose `convolution` in its weight, of spatial shape ``kernel``."""
    windows = _grouped_windows(x, kernel, stride, pad, dilation, group)
    maps = dy.shape[1]
    outer = wide(dy).reshape(dy.shape[0], group, maps // group, *dy.shape[2:])
    places, taps = _axes(len(kernel))
    dw = np.einsum(
        windows, [0, 1, 3, *places, *taps], outer, [0, 1, 2, *places], [1, 2, 3, *taps],
        optimize=True,
    )  # fmt: skip
    dw = dw.reshape(maps, x.shape[1] // group, *kernel)
    return np.asarray(dw.astype(x.dtype, copy=False))


# Shapes ------------------------------------------------------------------------------------------


def _check_axes(x: Spec, weight: Spec) -> None:
    if x.ndim != weight.ndim or x.ndim < 2:
        raise ShapeError(
            f"input has {x.ndim - 2} spatial axes, weight has {weight.ndim - 2}; both begin with "
            "two others"
        )


@convolution_operator.infer
def convolution_infer(
    x: Spec,
    weight: Spec,
    bias: Spec | None,
    *,
    stride: Lengths,
    pad: Pairs,
    dilation: Lengths,
    group: int,
) -> Spec:
    """(batch, maps, *placements)."""
    _check_axes(x, weight)
    expected = weight.shape[1] * group
    if x.shape[1] != expected:
        of_groups = f" in {group} groups" if group != 1 else ""
        raise ShapeError(f"input has {x.shape[1]} channels, weight expects {expected}{of_groups}")
    if weight.shape[0] % group:
        raise ShapeError(f"weight has {weight.shape[0]} maps, which {group} groups do not divide")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(f"bias of shape {bias.shape} does not fit {weight.shape[0]} maps")
    places = placements(x.shape[2:], span(weight.shape[2:], dilation), stride, pad)
    return x.with_shape((x.shape[0], weight.shape[0], *places))


@convolution_data_gradient.infer
def convolution_data_gradient_infer(
    dy: Spec, weight: Spec, *, stride: Lengths, pad: Pairs, dilation: Lengths, group: int
) -> Spec:
    """(batch, channels, *spatial), the shortest that fits."""
    _check_axes(dy, weight)
    if dy.shape[1] != weight.shape[0]:
        raise ShapeError(f"input has {dy.shape[1]} channels, weight expects {weight.shape[0]}")
    if weight.shape[0] % group:
        raise ShapeError(
            f"input has {weight.shape[0]} channels, which {group} groups do not divide"
        )
    spatial = tuple(
        (n - 1) * s + covered - before - after
        for n, s, covered, (before, after) in zip(
            dy.shape[2:], stride, span(weight.shape[2:], dilation), pad, strict=True
        )
    )
    if any(n < 1 for n in spatial):
        raise ShapeError(f"the result would have spatial shape {spatial}: pad {pad} is too much")
    return dy.with_shape((dy.shape[0], weight.shape[1] * group, *spatial))


@convolution_weight_gradient.infer
def convolution_weight_gradient_infer(
    x: Spec,
    dy: Spec,
    *,
    kernel: Lengths,
    stride: Lengths,
    pad: Pairs,
    dilation: Lengths,
    group: int,
) -> Spec:
    """(maps, channels/group, *kernel)."""
    _check_axes(x, dy)
    places = placements(x.shape[2:], span(kernel, dilation), stride, pad)
    if dy.shape[2:] != places or dy.shape[0] != x.shape[0]:
        raise ShapeError(
            f"the gradient should have shape ({x.shape[0]}, maps, "
            f"{', '.join(map(str, places))}), not {dy.shape}"
        )
    if x.shape[1] % group or dy.shape[1] % group:
        raise ShapeError(
            f"{group} groups do not divide {x.shape[1]} channels and {dy.shape[1]} maps"
        )
    return x.with_shape((dy.shape[1], x.shape[1] // group, *kernel))


# Gradients ---------------------------------------------------------------------------------------


def exact_pad(
    length: Sequence[int], places: Sequence[int], kernel: Sequence[int],
    stride: Sequence[int], pad: Pairs, dilation: Sequence[int],
) -> Pairs:  # fmt: skip
    """Take from the padding at the end what no window reaches."""
    return tuple(
        (before, (m - 1) * s + covered - before - n)
        for n, m, covered, s, (before, _) in zip(
            length, places, span(kernel, dilation), stride, pad, strict=True
        )
    )


@convolution_operator.vjp
def convolution_vjp(
    g: Any, y: Any, x: Any, weight: Any, bias: Any, *, stride: Lengths, pad: Pairs,
    dilation: Lengths, group: int,
) -> tuple[Any, ...]:  # fmt: skip
    """The two transposes; the bias receives sums."""
    kernel = weight.shape[2:]
    pad = exact_pad(x.shape[2:], y.shape[2:], kernel, stride, pad, dilation)
    options = {"stride": stride, "pad": pad, "dilation": dilation, "group": group}
    return (
        convolution_data_gradient(g, weight, **options),
        convolution_weight_gradient(x, g, kernel=kernel, **options),
        None if bias is None else F.sum(g, axis=(0, *range(2, len(y.shape)))),
    )


@convolution_data_gradient.vjp
def convolution_data_gradient_vjp(
    g: Any, dx: Any, dy: Any, weight: Any, **options: Any
) -> tuple[Any, ...]:
    """Convolve back; correlate for the weight."""
    return (
        convolution_operator(g, weight, **options),
        convolution_weight_gradient(g, dy, kernel=weight.shape[2:], **options),
    )


@convolution_weight_gradient.vjp
def convolution_weight_gradient_vjp(
    g: Any, dw: Any, x: Any, dy: Any, *, kernel: Lengths, stride: Lengths, pad: Pairs,
    dilation: Lengths, group: int,
) -> tuple[Any, ...]:  # fmt: skip
    """Both transposes, with the incoming gradient as weight."""
    exact = exact_pad(x.shape[2:], dy.shape[2:], kernel, stride, pad, dilation)
    return (
        convolution_data_gradient(dy, g, stride=stride, pad=exact, dilation=dilation, group=group),
        convolution_operator(x, g, stride=stride, pad=pad, dilation=dilation, group=group),
    )


# Costs and samples -------------------------------------------------------------------------------


@convolution_operator.multiply_adds
def convolution_cost(x: Spec, weight: Spec, bias: Spec | None, **options: Any) -> int:
    """One per placement, weight and example; the bias is an addition alone."""
    places = convolution_infer(x, weight, bias, **options).shape[2:]
    return x.shape[0] * math.prod(places) * weight.size


@convolution_data_gradient.multiply_adds
def convolution_data_gradient_cost(dy: Spec, weight: Spec, **options: Any) -> int:
    """As many as the convolution."""
    return dy.shape[0] * math.prod(dy.shape[2:]) * weight.size


@convolution_weight_gradient.multiply_adds
def convolution_weight_gradient_cost(x: Spec, dy: Spec, **options: Any) -> int:
    """As many as the convolution."""
    taps = volume(options["kernel"])
    return dy.size * (x.shape[1] // options["group"]) * taps


# (x, weight, stride, pad, dilation, group): 1 to 3 axes, uneven padding, strides with a
# remainder, dilation, groups, depthwise, 1 x 1, empty batch.
_CASES: list[tuple[Any, ...]] = [
    ((2, 3, 7), (4, 3, 3), (2,), ((1, 0),), (1,), 1),
    ((2, 3, 6, 5), (4, 3, 3, 2), (1, 1), ((1, 1), (0, 1)), (1, 1), 1),
    ((1, 4, 7, 8), (6, 2, 3, 3), (2, 3), ((2, 1), (1, 2)), (1, 2), 2),
    ((3, 3, 5, 6), (6, 1, 2, 3), (2, 1), ((0, 1), (1, 1)), (2, 1), 3),
    ((2, 3, 4, 5), (4, 3, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ((2, 2, 4, 3, 4), (3, 2, 2, 2, 2), (1, 2, 1), ((0, 0), (1, 1), (0, 1)), (1, 1, 1), 1),
    ((0, 3, 5, 5), (2, 3, 3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ((9, 1, 6, 6), (2, 1, 3, 3), (2, 2), ((0, 0), (0, 0)), (1, 1), 1),
]


def _geometry(case: tuple[Any, ...]) -> tuple[Lengths, Lengths, dict[str, Any]]:
    shape, weight, stride, pad, dilation, group = case
    options = {"stride": stride, "pad": pad, "dilation": dilation, "group": group}
    places = placements(shape[2:], span(weight[2:], dilation), stride, pad)
    return (shape[0], weight[0], *places), weight[2:], options


@convolution_operator.samples
def convolution_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Every case, by turns without and with bias."""
    for index, case in enumerate(_CASES):
        _, _, options = _geometry(case)
        x, weight = rng.normal(size=case[0]), rng.normal(size=case[1])
        bias = rng.normal(size=case[1][0]) if index % 2 else None
        yield Sample(x, weight, bias, **options)


@convolution_data_gradient.samples
def convolution_data_gradient_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """The same cases, and with an end that no window reaches where the stride leaves one."""
    for case in _CASES:
        outer, kernel, options = _geometry(case)
        dy, weight = rng.normal(size=outer), rng.normal(size=case[1])
        yield Sample(dy, weight, **options)
        pad = exact_pad(case[0][2:], outer[2:], kernel, case[2], case[3], case[4])
        if pad != options["pad"]:
            yield Sample(dy, weight, **{**options, "pad": pad})


@convolution_weight_gradient.samples
def convolution_weight_gradient_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """The same cases."""
    for case in _CASES:
        outer, kernel, options = _geometry(case)
        yield Sample(rng.normal(size=case[0]), rng.normal(size=outer), kernel=kernel, **options)


# What users call ---------------------------------------------------------------------------------


def _prepare(
    x: Operand, weight: Operand, base_axis: int, channel_last: bool
) -> tuple[Variable, Variable, tuple[int, ...]]:
    """Return data and weight with channels first and one batch axis, and the axes that it was."""
    x, weight = same_dtype(floating(x), floating(weight))
    axis = normalize_axis(base_axis, x.ndim)
    batch = x.shape[:axis]
    if x.ndim - axis < 1:
        raise ShapeError(f"base_axis {base_axis} leaves no channel axis in {x.shape}")
    if axis != 1:
        x = F.reshape(x, (-1, *x.shape[axis:]))
    if channel_last:
        x, weight = (F.transpose(v, (0, v.ndim - 1, *range(1, v.ndim - 1))) for v in (x, weight))
    return x, weight, batch


def _finish(y: Variable, batch: tuple[int, ...], channel_last: bool) -> Variable:
    if channel_last:
        y = F.transpose(y, (0, *range(2, y.ndim), 1))
    if len(batch) == 1:
        return y
    first = (-1,) if batch and y.size else batch[:1]  # so that the data may change its length
    result: Variable = F.reshape(y, (*first, *batch[1:], *y.shape[1:]))
    return result


def _options(count: int, pad: Pad, stride: PerAxis, dilation: PerAxis) -> dict[str, Any]:
    return {
        "stride": lengths("stride", stride, count, 1),
        "pad": pairs(pad, count),
        "dilation": lengths("dilation", dilation, count, 1),
    }


def convolution(
    x: Operand,
    weight: Operand,
    bias: Operand | None = None,
    base_axis: int = 1,
    pad: Pad = None,
    stride: PerAxis = None,
    dilation: PerAxis = None,
    group: int = 1,
    channel_last: bool = False,
) -> Variable:
    """Correlate windows of ``x`` with each map of ``weight``, over any number of spatial axes.

    ``y[n, m, i] = bias[m] + sum over c, k of weight[m, c, k] x[n, c, i stride + k dilation - pad]``

    Args:
        x: ``(*batch, channels, *spatial)``, or ``(*batch, *spatial, channels)`` with
            ``channel_last``.
        weight: ``(maps, channels/group, *kernel)``, or ``(maps, *kernel, channels/group)`` with
            ``channel_last``.
        bias: (maps,), or ``None``.
        base_axis: number of batch axes, or the negative index of the first axis after them.
        pad: zeros at both ends of each spatial axis: a number, one per axis, or (before, after)
            pairs.
        stride: steps of the window: a number, or one per axis.
        dilation: steps between the places that a window reads: a number, or one per axis.
        group: number of groups that channels and maps are divided into.
        channel_last: where the channels are.

    Raises:
        ShapeError: shapes do not fit, or the window is longer than the padded axis.

    Gradient:
        Of ``x`` a transposed convolution of ``dy`` with the weight; of ``weight`` a correlation of
        ``x`` with ``dy``; of ``bias`` the sum of ``dy``.

    Examples:
        >>> x, weight = np.arange(16.0).reshape(1, 1, 4, 4), np.ones((1, 1, 3, 3))
        >>> F.convolution(x, weight).d
        array([[[[45., 54.],
                 [81., 90.]]]])

    Elsewhere:
        - nnabla: `convolution`
        - PyTorch: `torch.nn.functional.conv2d`
        - ONNX: `Conv`
    """
    x, weight, batch = _prepare(x, weight, base_axis, channel_last)
    options = _options(x.ndim - 2, pad, stride, dilation)
    y = convolution_operator(x, weight, _cast_bias(bias, x), group=groups(group), **options)
    return _finish(y, batch, channel_last)


def _cast_bias(bias: Operand | None, x: Variable) -> Variable | None:
    if bias is None:
        return None
    variable = floating(bias)
    return variable if variable.dtype == x.dtype else cast(variable, x.dtype)


def deconvolution(
    x: Operand,
    weight: Operand,
    bias: Operand | None = None,
    base_axis: int = 1,
    pad: Pad = None,
    stride: PerAxis = None,
    dilation: PerAxis = None,
    group: int = 1,
    channel_last: bool = False,
    output_padding: PerAxis = None,
) -> Variable:
    """Transpose a convolution: do what the gradient of `convolution` does with its data.

    A spatial axis of length n becomes
    ``(n - 1) stride + dilation (kernel - 1) + 1 - before - after + output_padding``.

    Args:
        x: ``(*batch, channels, *spatial)``, or ``(*batch, *spatial, channels)`` with
            ``channel_last``.
        weight: ``(channels, maps/group, *kernel)``, or ``(channels, *kernel, maps/group)`` with
            ``channel_last``.
        bias: (maps,), or ``None``.
        base_axis: number of batch axes, or the negative index of the first axis after them.
        pad: what the convolution padded, taken off at both ends of each spatial axis.
        stride: steps of the window: a number, or one per axis.
        dilation: steps between the places that a window writes: a number, or one per axis.
        group: number of groups that channels and maps are divided into.
        channel_last: where the channels are.
        output_padding: lengthens each axis at its end; less than the stride or the dilation.

    Raises:
        ShapeError: shapes do not fit, or nothing would be left.

    Gradient:
        Of ``x`` a convolution of ``dy`` with the weight.

    Examples:
        >>> F.deconvolution(np.array([[[1.0, 2.0]]]), np.array([[[1.0, 10.0]]]), stride=(2,)).d
        array([[[ 1., 10.,  2., 20.]]])

    Elsewhere:
        - nnabla: `deconvolution`
        - PyTorch: `torch.nn.functional.conv_transpose2d`
        - ONNX: `ConvTranspose`
    """
    x, weight, batch = _prepare(x, weight, base_axis, channel_last)
    count = x.ndim - 2
    options = _options(count, pad, stride, dilation)
    longer = (0,) * count
    if output_padding is not None:
        single = isinstance(output_padding, (int, np.integer))
        longer = (output_padding,) * count if single else tuple(output_padding)  # type: ignore[arg-type]  # not an int where it is not single
    limits = [max(s, d) for s, d in zip(options["stride"], options["dilation"], strict=True)]
    if len(longer) != count or any(not 0 <= n < m for n, m in zip(longer, limits, strict=True)):
        raise ShapeError(
            f"output_padding {longer} must hold {count} lengths from 0 to below the stride or "
            f"dilation {tuple(limits)}"
        )
    options["pad"] = tuple(
        (before, after - int(n)) for (before, after), n in zip(options["pad"], longer, strict=True)
    )
    y: Variable = convolution_data_gradient(x, weight, group=groups(group), **options)
    shift = _cast_bias(bias, x)
    if shift is not None:
        if shift.shape != y.shape[1:2]:
            raise ShapeError(f"bias of shape {shift.shape} does not fit {y.shape[1]} maps")
        y = y + F.reshape(shift, (1, y.shape[1], *(1,) * count))
    return _finish(y, batch, channel_last)


def depthwise_convolution(
    x: Operand,
    weight: Operand,
    bias: Operand | None = None,
    base_axis: int = 1,
    pad: Pad = None,
    stride: PerAxis = None,
    dilation: PerAxis = None,
    multiplier: int = 1,
) -> Variable:
    """Convolve each channel alone, with ``multiplier`` maps for each.

    Args:
        x: ``(*batch, channels, *spatial)``.
        weight: ``(channels * multiplier, *kernel)``.
        bias: ``(channels * multiplier,)``, or ``None``.
        base_axis: number of batch axes, or the negative index of the first axis after them.
        pad: zeros at both ends of each spatial axis: a number, one per axis, or (before, after)
            pairs.
        stride: steps of the window: a number, or one per axis.
        dilation: steps between the places that a window reads: a number, or one per axis.
        multiplier: maps for each channel.

    Raises:
        ShapeError: shapes do not fit, or the window is longer than the padded axis.

    Gradient:
        As of `convolution`.

    Examples:
        >>> x = np.array([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]])
        >>> weight = np.array([[1.0, 1.0], [1.0, -1.0]])
        >>> F.depthwise_convolution(x, weight).d
        array([[[ 3.,  5.],
                [-1., -1.]]])

    Elsewhere:
        - nnabla: `depthwise_convolution`
        - PyTorch: `torch.nn.functional.conv2d` with `groups=channels`
        - ONNX: `Conv` with `group=channels`
    """
    weight = floating(weight)
    data = floating(x)
    channels = data.shape[normalize_axis(base_axis, data.ndim)]
    if not weight.ndim:
        raise ShapeError("depthwise convolution: the weight has no axes; give (maps, *kernel)")
    if whole(multiplier, "multiplier") < 1:
        raise ShapeError(f"depthwise convolution: multiplier {multiplier} must be at least 1")
    if weight.shape[0] != channels * multiplier:
        raise ShapeError(
            f"depthwise convolution: input has {channels} channels, weight expects "
            f"{weight.shape[0] / multiplier:g} with multiplier {multiplier}: shapes "
            f"{data.shape} and {weight.shape}"
        )
    weight = F.reshape(weight, (weight.shape[0], 1, *weight.shape[1:]))
    return convolution(data, weight, bias, base_axis, pad, stride, dilation, group=channels)


def depthwise_deconvolution(
    x: Operand,
    weight: Operand,
    bias: Operand | None = None,
    base_axis: int = 1,
    pad: Pad = None,
    stride: PerAxis = None,
    dilation: PerAxis = None,
    divisor: int = 1,
) -> Variable:
    """Transpose `depthwise_convolution`: every ``divisor`` channels are summed into one map.

    Args:
        x: ``(*batch, channels, *spatial)``.
        weight: ``(channels, *kernel)``.
        bias: (channels / divisor,), or ``None``.
        base_axis: number of batch axes, or the negative index of the first axis after them.
        pad: what the convolution padded, taken off at both ends of each spatial axis.
        stride: steps of the window: a number, or one per axis.
        dilation: steps between the places that a window writes: a number, or one per axis.
        divisor: channels for each map.

    Raises:
        ShapeError: shapes do not fit, or ``divisor`` does not divide the channels.

    Gradient:
        As of `deconvolution`.

    Examples:
        >>> F.depthwise_deconvolution(np.array([[[1.0, 2.0]]]), np.array([[1.0, 10.0]])).d
        array([[[ 1., 12., 20.]]])

    Elsewhere:
        - nnabla: `depthwise_deconvolution`
        - PyTorch: `torch.nn.functional.conv_transpose2d` with `groups=channels`
        - ONNX: `ConvTranspose` with `group=channels`
    """
    weight = floating(weight)
    data = floating(x)
    channels = data.shape[normalize_axis(base_axis, data.ndim)]
    if not weight.ndim:
        raise ShapeError(
            "depthwise deconvolution: the weight has no axes; give (channels, *kernel)"
        )
    if weight.shape[0] != channels or channels % groups(divisor):
        raise ShapeError(
            f"depthwise deconvolution: input has {channels} channels, weight expects "
            f"{weight.shape[0]}, and divisor {divisor} must divide them: shapes {data.shape} and "
            f"{weight.shape}"
        )
    weight = F.reshape(weight, (channels, 1, *weight.shape[1:]))
    return deconvolution(
        data, weight, bias, base_axis, pad, stride, dilation, group=channels // divisor
    )
