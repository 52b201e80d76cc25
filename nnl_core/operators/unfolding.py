"""Windows as columns, and columns summed back into an array: each is the other's gradient."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nnl_core.errors import ShapeError
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.dtypes import floating, wide
from nnl_core.operators.windows import (
    Lengths,
    Pairs,
    lengths,
    padded,
    pairs,
    placements,
    sliding,
    span,
    taps,
    trailing,
    volume,
)

__all__ = ["fold", "unfold"]

Pad = int | Sequence[int | Sequence[int]] | None
PerAxis = int | Sequence[int] | None


# Operators ---------------------------------------------------------------------------------------


def columns(x: Array, kernel: Lengths, stride: Lengths, pad: Pairs, dilation: Lengths) -> Array:
    """Return a view of all windows as (batch, channels, *kernel, *placements)."""
    view = sliding(padded(x, pad), kernel, stride, dilation)
    count = len(kernel)
    places, inner = range(2, 2 + count), range(2 + count, 2 + 2 * count)
    return view.transpose(0, 1, *inner, *places)


@defop("nnl::unfold")
def unfold_operator(
    x: Array, *, kernel: Lengths, stride: Lengths, pad: Pairs, dilation: Lengths
) -> Array:
    """Put the windows of ``x (batch, channels, *spatial)`` side by side as columns.

    The result is (batch, channels x taps, placements).
    """
    view = columns(x, kernel, stride, pad, dilation)
    places = view.shape[2 + len(kernel) :]
    shape = (x.shape[0], x.shape[1] * volume(kernel), math.prod(places))
    return np.array(view, order="C").reshape(shape)


@unfold_operator.infer
def unfold_infer(
    x: Spec, *, kernel: Lengths, stride: Lengths, pad: Pairs, dilation: Lengths
) -> Spec:
    """(batch, channels x taps, placements)."""
    if x.ndim != 2 + len(kernel):
        raise ShapeError(
            f"a kernel of {len(kernel)} axes takes (batch, channels, *spatial) with as many spatial"
        )
    places = placements(x.shape[2:], span(kernel, dilation), stride, pad)
    return x.with_shape((x.shape[0], x.shape[1] * volume(kernel), math.prod(places)))


@unfold_operator.vjp
def unfold_vjp(g: Any, y: Any, x: Any, **options: Any) -> tuple[Any, ...]:
    """Sum the columns back."""
    return (fold_operator(g, size=x.shape[2:], **options),)


@defop("nnl::fold")
def fold_operator(
    x: Array, *, size: Lengths, kernel: Lengths, stride: Lengths, pad: Pairs, dilation: Lengths
) -> Array:
    """Add columns ``x (batch, channels x taps, placements)`` to zeros, where their windows are.

    The result is (batch, channels, *size).
    """
    places = placements(size, span(kernel, dilation), stride, pad)
    batch, channels = x.shape[0], x.shape[1] // volume(kernel)
    windows = wide(x).reshape(batch, channels, *kernel, *places)
    outer = tuple(n + before + after for n, (before, after) in zip(size, pad, strict=True))
    total = np.zeros((batch, channels, *outer), windows.dtype)
    for tap in taps(kernel):
        first = [k * d for k, d in zip(tap, dilation, strict=True)]
        where = trailing(
            slice(start, start + (m - 1) * s + 1, s)
            for start, m, s in zip(first, places, stride, strict=True)
        )
        at: Any = (slice(None), slice(None), *tap)
        total[where] += windows[at]
    inside = trailing(slice(before, before + n) for n, (before, _) in zip(size, pad, strict=True))
    return np.array(total[inside], x.dtype, order="C")


@fold_operator.infer
def fold_infer(
    x: Spec, *, size: Lengths, kernel: Lengths, stride: Lengths, pad: Pairs, dilation: Lengths
) -> Spec:
    """(batch, channels, *size)."""
    places = math.prod(placements(size, span(kernel, dilation), stride, pad))
    if x.ndim != 3 or x.shape[1] % volume(kernel) or x.shape[2] != places:
        raise ShapeError(
            f"columns of kernel {kernel} in size {size} must have shape (batch, a multiple of "
            f"{volume(kernel)}, {places})"
        )
    return x.with_shape((x.shape[0], x.shape[1] // volume(kernel), *size))


@fold_operator.vjp
def fold_vjp(g: Any, y: Any, x: Any, *, size: Lengths, **options: Any) -> tuple[Any, ...]:
    """Take the columns again."""
    return (unfold_operator(g, **options),)


fold_operator.multiply_adds(lambda x, **options: x.size)


# (shape, kernel, stride, pad, dilation): 1 to 3 axes, overlaps, gaps, uneven padding, dilation, a
# remainder that no window reaches, empty batch.
_CASES: list[tuple[Any, ...]] = [
    ((2, 3, 7), (3,), (2,), ((1, 0),), (1,)),
    ((2, 3, 4, 5), (2, 3), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    ((1, 2, 6, 7), (2, 2), (3, 2), ((1, 0), (2, 1)), (2, 1)),
    ((2, 1, 3, 4, 3), (2, 1, 2), (1, 2, 1), ((0, 0), (1, 1), (0, 0)), (1, 1, 2)),
    ((0, 2, 3, 3), (2, 2), (1, 1), ((0, 0), (0, 0)), (1, 1)),
]


def _options(case: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("kernel", "stride", "pad", "dilation"), case[1:], strict=True))


@unfold_operator.samples
def unfold_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Every case."""
    for case in _CASES:
        yield Sample(rng.normal(size=case[0]), **_options(case))


@fold_operator.samples
def fold_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Every case."""
    for case in _CASES:
        shape = unfold_infer(Spec(case[0]), **_options(case)).shape
        yield Sample(rng.normal(size=shape), size=case[0][2:], **_options(case))


# What users call ---------------------------------------------------------------------------------


def _geometry(
    kernel: int | Sequence[int], pad: Pad, stride: PerAxis, dilation: PerAxis, count: int
) -> dict[str, Any]:
    return {
        "kernel": lengths("kernel", kernel, count, 1),
        "stride": lengths("stride", stride, count, 1),
        "pad": pairs(pad, count),
        "dilation": lengths("dilation", dilation, count, 1),
    }


def unfold(
    x: Operand,
    kernel: int | Sequence[int],
    pad: Pad = None,
    stride: PerAxis = None,
    dilation: PerAxis = None,
) -> Variable:
    """Put the windows that a convolution reads side by side, as columns (im2col).

    Column ``p`` holds the window at placement ``p``, row ``c K + k`` its tap ``k`` in channel
    ``c``, where ``K = prod(kernel)``; placements and taps count in row-major order. So a
    convolution is a matrix product: ``W.reshape(maps, channels K) @ unfold(x)``.

    Args:
        x: ``(batch, channels, *spatial)``, floating; integers become ``float32``.
        kernel: lengths of the window, one for each spatial axis, or one for all.
        pad: zeros at both ends of each spatial axis: a number, one per axis, or (before, after)
            pairs.
        stride: steps from window to window; 1 by default.
        dilation: steps from tap to tap; 1 by default.

    Returns:
        ``(batch, channels K, placements)`` of the dtype of ``x``.

    Raises:
        ShapeError: a window does not fit in the padded axis.

    Gradient:
        `fold`: an element's gradients in all of its windows are summed.

    Examples:
        >>> F.unfold(np.array([[[1.0, 2.0, 3.0]]]), 2).d
        array([[[1., 2.],
                [2., 3.]]])

    Elsewhere:
        - nnabla: none, it is inside `convolution`
        - PyTorch: `torch.nn.functional.unfold`, with ``kernel_size`` and ``padding``, of images
        - ONNX: none, a `Conv` whose weight is an identity matrix
    """
    x = floating(x)
    if x.ndim < 3:
        raise ShapeError(
            f"unfold: input of shape {x.shape} has no spatial axes; it takes "
            "(batch, channels, *spatial)"
        )
    return unfold_operator(x, **_geometry(kernel, pad, stride, dilation, x.ndim - 2))


def fold(
    x: Operand,
    size: Sequence[int],
    kernel: int | Sequence[int],
    pad: Pad = None,
    stride: PerAxis = None,
    dilation: PerAxis = None,
) -> Variable:
    """Sum columns into an array, each where `unfold` would take its window from (col2im).

    It is the transpose of `unfold` with the same arguments, not its inverse: an element that
    ``n`` windows hold comes back ``n`` times as large.

    Args:
        x: ``(batch, channels K, placements)`` with ``K = prod(kernel)``, floating; integers
            become ``float32``.
        size: spatial shape of the result.
        kernel: lengths of the window, one for each spatial axis, or one for all.
        pad: zeros that `unfold` would put at both ends of each axis; what falls on them is lost.
        stride: steps from window to window; 1 by default.
        dilation: steps from tap to tap; 1 by default.

    Returns:
        ``(batch, channels, *size)`` of the dtype of ``x``.

    Raises:
        ShapeError: there are not as many columns as placements, or rows are no multiple of ``K``.

    Gradient:
        `unfold`.

    Examples:
        >>> F.fold(np.array([[[1.0, 2.0], [2.0, 3.0]]]), (3,), 2).d
        array([[[1., 4., 3.]]])

    Elsewhere:
        - nnabla: none, it is inside `deconvolution`
        - PyTorch: `torch.nn.functional.fold`, with ``output_size``, ``kernel_size``, ``padding``
        - ONNX: `Col2Im`, with ``image_shape``, ``block_shape``
    """
    spatial = lengths("size", size, len(size), 1)
    return fold_operator(
        floating(x), size=spatial, **_geometry(kernel, pad, stride, dilation, len(spatial))
    )
