"""Convolution whose window has learned offsets, and reads between the elements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.modes import no_grad
from nnl_core.graph.operator import Array
from nnl_core.graph.spec import normalize_axis
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import cast, same_dtype
from nnl_core.operators.dtypes import floating, wide_dtype
from nnl_core.operators.windows import Lengths, Pairs, lengths, pairs, placements, span, taps

__all__ = ["deformable_convolution"]

Pad = int | Sequence[int | Sequence[int]] | None
PerAxis = int | Sequence[int] | None


def deformable_convolution(
    x: Operand,
    weight: Operand,
    offset: Operand,
    mask: Operand | None = None,
    bias: Operand | None = None,
    base_axis: int = 1,
    pad: Pad = None,
    stride: PerAxis = None,
    dilation: PerAxis = None,
    group: int = 1,
    deformable_group: int = 1,
    channel_last: bool = False,
) -> Variable:
    """Convolve with windows whose taps are moved by ``offset`` and weighted by ``mask``.

    At placement ``p``, ``y[m, p] = sum_{c, k} weight[m, c, k] mask[k, p] x(c, p stride +
    k dilation - pad + offset[k, :, p])``, where ``x`` between elements is interpolated linearly
    along each axis, and 0 outside. (Dai et al., arXiv:1703.06211; with a mask Zhu et al.,
    arXiv:1811.11168.) Channels are divided into ``deformable_group`` runs with offsets of their
    own. ``float16`` is computed in ``float32``.

    Args:
        x: ``(*batch, channels, *spatial)``, any number of spatial axes.
        weight: ``(maps, channels / group, *kernel)``.
        offset: ``(*batch, deformable_group K N, *places)``, where ``K = prod(kernel)`` and ``N``
            is the number of spatial axes, which change fastest: for images (y, x) of the first
            tap, then of the second. The places are those of the result; or those of ``x``,
            of which every ``stride``-th counts.
        mask: ``(*batch, deformable_group K, *places)``; ``None`` for ones.
        bias: ``(maps,)``.
        base_axis: number of batch axes, or the negative index of the first axis after them.
        pad: zeros at both ends of each spatial axis: a number, one per axis, or (before, after)
            pairs.
        stride: steps from window to window; 1 by default.
        dilation: steps from tap to tap; 1 by default.
        group: number of groups that channels and maps are divided into.
        deformable_group: number of groups that channels are divided into for offsets and mask.
        channel_last: whether channels are the last axis of data, weight, offset and mask.

    Returns:
        ``(*batch, maps, *places)`` of the dtype of ``x`` and ``weight``.

    Raises:
        ShapeError: shapes do not fit; the message says which was expected.

    Gradient:
        To data, weight, mask and bias as of a sum of products; to the offset the slope of the
        interpolation, which at whole positions is that to their right.

    Examples:
        >>> x = np.array([[[[1.0, 2.0, 3.0]]]])
        >>> half = np.zeros((1, 2, 1, 3)) + [[[0.0]], [[0.5]]]
        >>> F.deformable_convolution(x, np.ones((1, 1, 1, 1)), half).d
        array([[[[1.5, 2.5, 1.5]]]])

    Elsewhere:
        - nnabla: `deformable_convolution`, of images with one batch axis, channels first on CPU
        - PyTorch: `torchvision.ops.deform_conv2d`, offsets at the places of the result
        - ONNX: `DeformConv`, offsets at the places of the result
    """
    x, weight = same_dtype(floating(x), floating(weight))
    dtype = x.dtype
    x, weight, offset = (_as_dtype(v, wide_dtype(dtype)) for v in (x, weight, offset))
    axis = normalize_axis(base_axis, x.ndim)
    batch = x.shape[:axis]
    x, offset = _channels_first(x, axis, channel_last), _channels_first(offset, axis, channel_last)
    if channel_last:
        weight = F.transpose(weight, (0, weight.ndim - 1, *range(1, weight.ndim - 1)))
    spatial, kernel = x.shape[2:], weight.shape[2:]
    count = len(spatial)
    if not count or weight.ndim != x.ndim:
        raise ShapeError(
            f"deformable_convolution: input {x.shape} has {count} spatial axes, weight "
            f"{weight.shape} has {len(kernel)}; both need the same number, at least 1"
        )
    if deformable_group < 1 or x.shape[1] % deformable_group:
        raise ShapeError(
            f"deformable_convolution: deformable_group {deformable_group} does not divide the "
            f"{x.shape[1]} channels of the input"
        )
    strides = lengths("stride", stride, count, 1)
    steps = lengths("dilation", dilation, count, 1)
    margins = pairs(pad, count)
    places = placements(spatial, span(kernel, steps), strides, margins)
    size = math.prod(kernel)
    moved = _at_places(
        offset, "offset", (x.shape[0], deformable_group * size * count), spatial, places, strides
    )
    moved = _folded(moved, (deformable_group, size, count, math.prod(places)))
    columns = _interpolated(
        _folded(x, (x.shape[1] // deformable_group, math.prod(spatial)), deformable_group),
        [
            F.getitem(moved, (slice(None), slice(None), slice(None), n))
            + _taken_places(n, kernel, places, strides, steps, margins).astype(moved.dtype)
            for n in range(count)
        ],
        spatial,
    )
    if mask is not None:
        weights = _channels_first(_as_dtype(mask, x.dtype), axis, channel_last)
        weights = _at_places(
            weights, "mask", (x.shape[0], deformable_group * size), spatial, places, strides
        )
        columns = columns * _folded(weights, (1, size * math.prod(places)), deformable_group)
    # One place after the other, taps along the first axis: a convolution that is a product.
    columns = _folded(columns, (x.shape[1], size, math.prod(places)))
    flat = F.reshape(weight, (*weight.shape[:2], size, 1))
    y = F.convolution(columns, flat, bias, group=group)
    return _as_dtype(_finished(y, batch, places, channel_last), dtype)


def _as_dtype(x: Operand, dtype: np.dtype) -> Variable:
    variable = floating(x)
    return variable if variable.dtype == dtype else cast(variable, dtype)


def _channels_first(v: Variable, axis: int, channel_last: bool) -> Variable:
    """Return (batch, channels, *spatial) with one batch axis."""
    if not 0 <= axis < v.ndim:
        raise ShapeError(f"deformable_convolution: {axis} batch axes leave no channels: {v.shape}")
    if axis != 1:
        first = -1 if v.size else math.prod(v.shape[:axis])
        v = F.reshape(v, (first, *v.shape[axis:]))
    return F.transpose(v, (0, v.ndim - 1, *range(1, v.ndim - 1))) if channel_last else v


def _folded(v: Variable, shape: tuple[int, ...], times: int = 1) -> Variable:
    """Give a batch, ``times`` as long, elements of another shape; its length may change later."""
    result: Variable = F.reshape(v, (-1 if v.size else v.shape[0] * times, *shape))
    return result


def _finished(y: Variable, batch: tuple[int, ...], places: Lengths, channel_last: bool) -> Variable:
    shape = (*batch, y.shape[1], *places)
    if y.size and batch:
        shape = (-1, *shape[1:])
    y = F.reshape(y, shape)
    if channel_last:
        last = len(batch)
        y = F.transpose(y, (*range(last), *range(last + 1, y.ndim), last))
    return y


def _at_places(
    v: Variable,
    name: str,
    first: tuple[int, int],
    spatial: Lengths,
    places: Lengths,
    strides: Lengths,
) -> Variable:
    """Return offset or mask at the places of the result."""
    if v.shape == (*first, *places):
        return v
    reached = all((m - 1) * s < n for n, m, s in zip(spatial, places, strides, strict=True))
    if v.shape != (*first, *spatial) or not reached:
        or_input = f" or {(*first, *spatial)}" if reached else ""
        raise ShapeError(
            f"deformable_convolution: {name} must have shape {(*first, *places)}{or_input} "
            f"(batch and channels first), not {v.shape}"
        )
    taken = (slice(0, (m - 1) * s + 1, s) for m, s in zip(places, strides, strict=True))
    result: Variable = F.getitem(v, (slice(None), slice(None), *taken))
    return result


def _taken_places(
    n: int, kernel: Lengths, places: Lengths, strides: Lengths, steps: Lengths, margins: Pairs
) -> Array:
    """Return where along axis ``n`` each tap lies at each place: (taps, places)."""
    at_tap = np.array(taps(kernel)).reshape(-1, len(kernel))[:, n] * steps[n]
    at_place = np.indices(places)[n].reshape(-1) * strides[n] - margins[n][0]
    return np.add.outer(at_tap, at_place)


def _interpolated(x: Variable, positions: list[Variable], spatial: Lengths) -> Variable:
    """Read ``x (rows, channels, volume)`` at positions along each axis, of any whole shape a row.

    The result is (rows, channels, positions). What is outside is 0.
    """
    choices = [
        _corners(position, length) for position, length in zip(positions, spatial, strict=True)
    ]
    total: Variable | None = None
    for corner in itertools.product(*choices):
        index, part = corner[0]
        for (inner, weight), length in zip(corner[1:], spatial[1:], strict=True):
            index, part = index * length + inner, part * weight
        shape = (-1 if index.size else x.shape[0], math.prod(index.shape[2:]))
        read = F.gather(x, F.reshape(index, shape), axis=2, batch_dims=1)
        term = read * F.reshape(part, (shape[0], 1, shape[1]))
        total = term if total is None else total + term
    assert total is not None
    return total


def _corners(position: Variable, length: int) -> list[tuple[Variable, Variable]]:
    """Return both neighbours along an axis: where they are (inside), and their weights."""
    with no_grad():
        below = F.floor(position)
    fraction = position - below
    found = []
    for corner, weight in ((below, 1 - fraction), (below + 1, fraction)):
        outside = F.logical_or(corner < 0, corner > length - 1)
        # NaN is not outside, and stays in the weight.
        inside = F.minimum_scalar(F.maximum_scalar(cast(corner, np.int64), 0), length - 1)
        found.append((inside, F.where(outside, 0.0, weight)))
    return found
