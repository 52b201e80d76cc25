"""Regions of feature maps: boxes pooled to one size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import wholes
from nnl_core.graph.dtypes import is_floating
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.dtypes import floating
from nnl_core.operators.gathering import as_positions
from nnl_core.operators.taps import as_pictures, as_rows, read_rows, write_rows

__all__ = ["roi_align"]

MOST_POINTS = 1 << 26
"""How many points along an axis all boxes may have together: more are taken for a mistake."""


def _axis_weights(start: Array, end: Array, bins: int, length: int, ratio: int) -> Array:
    """Return what each bin of each box is made of along one axis: ``(boxes, bins, length)``.

    A bin is the mean of points in the middles of equal parts: ``ratio`` of them, or as many as make
    parts no longer than a pixel. A point is read between two pixels; up to one pixel outside, it
    reads the outermost, and further outside nothing.
    """
    width = (end - start) / bins
    needed = np.full(start.shape, ratio) if ratio > 0 else np.ceil(width).clip(1, 2**31)
    counts = needed.astype(np.int64)
    if start.size * bins * int(counts.max(initial=1)) > MOST_POINTS:
        raise OperatorError(
            f"roi_align: a bin of {width.max():.4g} pixels has {counts.max()} points; check the "
            "boxes and spatial_scale, or give a sampling_ratio"
        )
    part = np.arange(counts.max(initial=1))
    share = (part + 0.5) / counts[:, None]
    at = start[:, None, None] + (np.arange(bins)[:, None] + share[:, None]) * width[:, None, None]
    at -= 0.5
    valid = (part < counts[:, None])[:, None] & (at >= -1) & (at <= length)
    at = at.clip(0, length - 1)
    low = np.floor(at)
    weight = valid / counts[:, None, None]
    bin_ = np.arange(start.size * bins).reshape(start.size, bins, 1)
    row = bin_ * (length + 1) + low.astype(np.intp)
    size = start.size * bins * (length + 1)
    below = np.bincount(row.reshape(-1), (weight * (1 - (at - low))).reshape(-1), size)
    above = np.bincount(row.reshape(-1) + 1, (weight * (at - low)).reshape(-1), size + 1)[:size]
    return (below + above).reshape(start.size, bins, length + 1)[..., :length]


def _bands(weights: Array) -> tuple[Array, Array]:
    """Return, for each row of weights, the places from its first to its last, and their weights.

    Both have the places as their first axis; rows with fewer are filled with weight 0.
    """
    used = weights != 0
    first = used.argmax(axis=-1)
    last = weights.shape[-1] - 1 - used[..., ::-1].argmax(axis=-1)
    longest = int(np.where(used.any(axis=-1), last - first + 1, 1).max(initial=1))
    at = first + np.arange(longest).reshape(-1, *(1,) * first.ndim)
    inside = at <= last
    at = np.minimum(at, last)
    taken = np.take_along_axis(weights, np.moveaxis(at, 0, -1), axis=-1)
    return at, np.where(inside, np.moveaxis(taken, -1, 0), 0)


def _taps(
    boxes: Array,
    shape: tuple[int, int, int],
    output_size: tuple[int, int],
    spatial_scale: tuple[float, float],
    sampling_ratio: int,
    dtype: np.dtype,
) -> Iterator[tuple[Array, Array]]:
    """Yield pixels, numbered through all pictures of ``(batch, height, width)``, and weights."""
    batch, height, width = shape
    picture = as_positions(boxes[:, 0], batch, "roi_align, number of the picture of a box")
    # Boxes in float32 are scaled in it: a length that is whole in it must not become longer.
    kind = boxes.dtype if is_floating(boxes.dtype) else np.dtype(np.float32)
    scale = np.array([spatial_scale[1], spatial_scale[0]] * 2, kind)
    with np.errstate(over="ignore"):
        scaled = boxes[:, 1:].astype(kind) * scale
    for box in np.flatnonzero(~np.isfinite(scaled).all(axis=1)):
        raise OperatorError(f"roi_align: box {box} is not finite: {boxes[box].tolist()}")
    x1, y1, x2, y2 = scaled.T
    rows = _bands(_axis_weights(y1, y2, output_size[0], height, sampling_ratio))
    columns = _bands(_axis_weights(x1, x2, output_size[1], width, sampling_ratio))
    for y, row_weight in zip(*rows, strict=True):
        for x, column_weight in zip(*columns, strict=True):
            at = (picture[:, None] * height + y)[:, :, None] * width + x[:, None, :]
            weight = row_weight[:, :, None] * column_weight[:, None, :]
            yield at.reshape(-1), weight.reshape(-1).astype(dtype)


@defop("nnl::roi_align", save=("boxes",))
def roi_align_operator(
    x: Array,
    boxes: Array,
    *,
    output_size: tuple[int, int],
    spatial_scale: tuple[float, float],
    sampling_ratio: int,
) -> Array:
    """Pool boxes of ``(batch, channels, height, width)`` to ``(boxes, channels, *output_size)``."""
    batch, _, height, width = x.shape
    shape = (batch, height, width)
    taps = _taps(boxes, shape, output_size, spatial_scale, sampling_ratio, x.dtype)
    rows = read_rows(as_rows(x), taps, x.dtype)
    return as_pictures(rows, len(boxes), output_size, x.dtype)


@roi_align_operator.infer
def roi_align_infer(
    x: Spec, boxes: Spec, *, output_size: tuple[int, int], **options: object
) -> Spec:
    """The boxes in place of the batch, with the given lengths."""
    if x.ndim != 4 or boxes.ndim != 2 or boxes.shape[1] != 5:
        raise ShapeError("input must be (batch, channels, height, width), and boxes (boxes, 5)")
    if len(output_size) != 2 or min(output_size) < 1:
        raise ShapeError(f"output_size {output_size} must hold two lengths of at least 1")
    if 0 in x.shape[2:]:
        raise ShapeError("a picture without pixels has no regions")
    return x.with_shape((boxes.shape[0], x.shape[1], *output_size))


@roi_align_operator.vjp
def roi_align_vjp(g: Any, y: Any, x: Any, boxes: Any, **options: Any) -> tuple[Any, ...]:
    """Add the gradient to the pixels that were read."""
    return roi_align_adjoint(g, boxes, shape=x.shape, **options), None


@defop("nnl::roi_align_adjoint", save=("boxes",))
def roi_align_adjoint(
    g: Array,
    boxes: Array,
    *,
    shape: tuple[int, int, int, int],
    output_size: tuple[int, int],
    spatial_scale: tuple[float, float],
    sampling_ratio: int,
) -> Array:
    """Add ``g``, weighted, to the pixels that `roi_align` reads, of pictures of ``shape``."""
    batch, _, height, width = shape
    pixels = (batch, height, width)
    taps = _taps(boxes, pixels, output_size, spatial_scale, sampling_ratio, g.dtype)
    rows = write_rows(as_rows(g), taps, batch * height * width)
    return as_pictures(rows, batch, (height, width), g.dtype)


@roi_align_adjoint.infer
def roi_align_adjoint_infer(
    g: Spec, boxes: Spec, *, shape: tuple[int, int, int, int], **options: Any
) -> Spec:
    """The pictures' shape."""
    if g != roi_align_infer(g.with_shape(shape), boxes, **options):
        raise ShapeError("g must have the shape of the pooled boxes")
    return g.with_shape(shape)


@roi_align_adjoint.vjp
def roi_align_adjoint_vjp(
    h: Any, y: Any, g: Any, boxes: Any, *, shape: tuple[int, ...], **options: Any
) -> tuple[Any, ...]:
    """Pool the gradient."""
    return roi_align_operator(h, boxes, **options), None


def _boxes() -> Array:
    """Inside, over each border, far outside, without area, upside down, the same again."""
    corners = [
        (0, 0.3, 0.6, 3.4, 4.1),
        (1, -1.7, 0.2, 2.3, 5.2),
        (0, 2.2, 3.3, 9.7, 8.1),
        (1, 20.3, 1.1, 25.8, 3.2),
        (0, 2.1, 2.3, 2.1, 2.3),
        (1, 3.2, 4.3, 1.4, 1.9),
        (0, 0.3, 0.6, 3.4, 4.1),
    ]
    return np.array(corners)


def _options() -> Iterator[dict[str, Any]]:
    yield {"output_size": (2, 3), "spatial_scale": (1.0, 1.0), "sampling_ratio": 0}
    yield {"output_size": (1, 1), "spatial_scale": (0.75, 1.5), "sampling_ratio": 0}
    yield {"output_size": (3, 2), "spatial_scale": (1.5, 0.75), "sampling_ratio": 2}


@roi_align_operator.samples
def roi_align_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Boxes of all kinds, none, fixed and adapted numbers of points, whole numbers as boxes."""
    for options in _options():
        yield Sample(rng.normal(size=(2, 3, 5, 4)), _boxes(), **options)
    yield Sample(rng.normal(size=(2, 1, 1, 3)), _boxes().astype(np.int64), **options)
    yield Sample(rng.normal(size=(2, 3, 5, 4)), np.zeros((0, 5)), **options)


@roi_align_adjoint.samples
def roi_align_adjoint_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Boxes of all kinds, none."""
    for options in _options():
        g = rng.normal(size=(7, 3, *options["output_size"]))
        yield Sample(g, _boxes(), shape=(2, 3, 5, 4), **options)
    yield Sample(np.zeros((0, 3, 3, 2)), np.zeros((0, 5)), shape=(2, 3, 5, 4), **options)


def roi_align(
    input: Operand,
    boxes: Operand,
    output_size: Sequence[int],
    spatial_scale: Sequence[float] = (1.0, 1.0),
    sampling_ratio: int | None = None,
    channel_last: bool | None = None,
) -> Variable:
    """Pool boxes of feature maps to one size, reading between pixels.

    A box is cut into ``output_size`` bins; a bin is the mean of a grid of points in it, each
    bilinear between the four pixels around. Pixels are cells: the centre of the first lies at 0.5.
    Up to one pixel outside, the outermost pixels are repeated; further outside is 0.

    K. He and others, Mask R-CNN, 2017.

    Args:
        input: ``(batch, channels, height, width)``, or channels last.
        boxes: ``(boxes, 5)`` of ``(b, x1, y1, x2, y2)``, ``b`` being the number of the picture.
        output_size: height and width of the result.
        spatial_scale: factors that bring the boxes' coordinates to pixels: first that of ``y``,
            then that of ``x``.
        sampling_ratio: points in a bin along each axis; ``None`` or less than 1: one for each pixel
            of the bin's length, rounded up, at least one.
        channel_last: whether channels are the last axis of ``input`` and of the result.

    Returns:
        ``(boxes, channels, *output_size)``, or channels last; dtype of ``input``.

    Raises:
        OperatorError: a box that is not finite, or of a picture that is not there.
        ShapeError: shapes other than these.

    Gradient:
        In ``input``: linear. None in ``boxes``.

    Examples:
        >>> x = np.array([[[[1.0, 2.0], [3.0, 4.0]]]])
        >>> F.roi_align(x, np.array([[0.0, 0, 0, 2, 2], [0, 0, 0, 1, 1]]), (1, 1)).d.ravel()
        array([2.5, 1. ])

    Elsewhere:
        - nnabla: `roi_align`, which gives NaN for boxes without area or upside down where the
          number of points is adapted
        - PyTorch: `torchvision.ops.roi_align`, with ``aligned=True`` and one scale for both axes
        - ONNX: `RoiAlign`, with mode ``avg`` and ``half_pixel``
    """
    pictures = floating(input)
    if channel_last and pictures.ndim == 4:
        pictures = F.transpose(pictures, (0, 3, 1, 2))
    scales = tuple(float(factor) for factor in spatial_scale)
    if len(scales) != 2:
        raise ShapeError(f"roi_align: spatial_scale {scales} must hold two factors, (y, x)")
    y = roi_align_operator(
        pictures,
        boxes if isinstance(boxes, Variable) else Variable.constant(boxes),
        output_size=wholes(output_size, "output_size"),
        spatial_scale=scales,
        sampling_ratio=max(0, int(sampling_ratio or 0)),
    )
    result: Variable = F.transpose(y, (0, 2, 3, 1)) if channel_last else y
    return result
