"""Pooling: the maximum, sum or average of windows over the last axes; and unpooling."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nnl_core import functions as F
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
    sliding,
    volume,
    window_shape,
)

__all__ = [
    "average_pooling",
    "global_average_pooling",
    "max_pooling",
    "max_pooling_backward",
    "sum_pooling",
    "unpooling",
]

Pad = int | Sequence[int | Sequence[int]] | None
PerAxis = int | Sequence[int] | None


# Where windows are -------------------------------------------------------------------------------

# Which windows there are: those wholly inside the padded axis ("ignore"); also those that begin in
# it and run over its end, as few as cover it ("ceil", of ONNX), or all that begin inside the axis
# or the padding before it ("every", of nnabla). None begins in the padding at the end.
BORDERS = ("ignore", "ceil", "every")


def pooled(
    spatial: Sequence[int], kernel: Lengths, stride: Lengths, pad: Pairs, border: str
) -> Lengths:
    """Return the number of windows along each of the last axes."""
    if border not in BORDERS:
        raise ShapeError(f"border {border!r} is none of {', '.join(BORDERS)}")
    counts = []
    for n, k, s, (before, after) in zip(spatial, kernel, stride, pad, strict=True):
        if max(before, after) >= k:
            raise ShapeError(
                f"pad ({before}, {after}) is not smaller than the kernel {k}: a window would "
                "hold padding alone"
            )
        room = n + before + after - k
        if border == "every":
            count = -(-(n + before) // s)
        elif border == "ceil":
            count = -(-room // s) + 1
            count -= (count - 1) * s >= n + before
        else:
            count = room // s + 1
        if count < 1:
            raise ShapeError(
                f"kernel {k} does not fit in an axis of length {n} padded by ({before}, {after})"
            )
        counts.append(int(count))
    return tuple(counts)


def _windows(
    x: Array, kernel: Lengths, stride: Lengths, pad: Pairs, border: str, value: float
) -> Array:
    """Return all windows as (*leading, *placements, positions in the window)."""
    spatial = x.shape[x.ndim - len(kernel) :]
    places = pooled(spatial, kernel, stride, pad, border)
    reached = tuple(
        (before, (m - 1) * s + k - before - n)
        for n, m, k, s, (before, _) in zip(spatial, places, kernel, stride, pad, strict=True)
    )
    view = sliding(padded(x, reached, value), kernel, stride)
    return view.reshape(*view.shape[: x.ndim], volume(kernel))


def window_sizes(
    spatial: Sequence[int], kernel: Lengths, stride: Lengths, pad: Pairs, border: str,
    including_pad: bool,
) -> Array:  # fmt: skip
    """Return how many positions of each window count in its average, shaped as the placements."""
    sizes = []
    places = pooled(spatial, kernel, stride, pad, border)
    for n, m, k, s, both in zip(spatial, places, kernel, stride, pad, strict=True):
        before, after = both if including_pad else (0, 0)
        first = np.arange(m) * s - both[0]
        sizes.append(np.minimum(first + k, n + after) - np.maximum(first, -before))
    return np.asarray(functools.reduce(np.multiply.outer, sizes))


def _pooled_spec(x: Spec, kernel: Lengths, **where: Any) -> Spec:
    count = len(kernel)
    if not 0 < count <= x.ndim:
        raise ShapeError(f"a kernel of {count} axes does not fit an input of {x.ndim}")
    split = x.ndim - count
    return x.with_shape((*x.shape[:split], *pooled(x.shape[split:], kernel, **where)))


# Maximum -----------------------------------------------------------------------------------------


@defop("nnl::max_pooling", save=("x", "y"))
def max_pooling_operator(
    x: Array, *, kernel: Lengths, stride: Lengths, pad: Pairs, border: str = "ignore"
) -> Array:
    """Largest element of each window of the last axes; padding never wins, ``NaN`` always."""
    return np.asarray(_windows(x, kernel, stride, pad, border, -np.inf).max(axis=-1))


@max_pooling_operator.infer
def max_pooling_infer(x: Spec, **options: Any) -> Spec:
    """One element a window."""
    return _pooled_spec(x, **options)


def _winners(x: Array, **options: Any) -> Array:
    """Return which position of each window holds its maximum: the first; the first ``NaN``."""
    values = _windows(x, **options, value=-np.inf)
    inside = _windows(np.ones(x.shape, bool), **options, value=0)
    top = values.max(axis=-1, keepdims=True)
    return np.asarray((inside & ((values == top) | (values != values))).argmax(axis=-1))


@defop("nnl::max_pooling_gradient", save=("x", "y"), outputs=("dx",))
def max_pooling_gradient(
    dy: Array, x: Array, y: Array, *, kernel: Lengths, stride: Lengths, pad: Pairs,
    border: str = "ignore",
) -> Array:  # fmt: skip
    """Put ``dy`` where the maxima ``y`` of ``x`` are: of equal ones, at the first."""
    options: dict[str, Any] = {
        "kernel": kernel, "stride": stride, "pad": pad, "border": border,
    }  # fmt: skip
    split = x.ndim - len(kernel)
    spatial = math.prod(x.shape[split:])
    positions = _windows(
        np.arange(spatial).reshape(x.shape[split:]), **options, value=-1
    )  # of each window in the flat spatial axes
    winners = _winners(x, **options)
    spread = np.broadcast_to(positions, (*winners.shape, positions.shape[-1]))
    chosen = np.take_along_axis(spread, winners[..., None], -1)
    rows = math.prod(x.shape[:split])
    dx = np.zeros((rows, spatial), wide(dy).dtype)
    np.add.at(
        dx,
        (np.arange(rows)[:, None], chosen.reshape(rows, math.prod(y.shape[split:]))),
        dy.reshape(rows, math.prod(y.shape[split:])),
    )
    return np.asarray(dx.reshape(x.shape).astype(dy.dtype, copy=False))


@max_pooling_gradient.infer
def max_pooling_gradient_infer(dy: Spec, x: Spec, y: Spec, **options: Any) -> Spec:
    """The shape of the data."""
    expected = _pooled_spec(x, **options).shape
    if dy.shape != expected or y.shape != expected:
        raise ShapeError(f"the gradient and the maxima must have shape {expected}")
    return dy.with_shape(x.shape)


@defop("nnl::max_pooling_gather", save=("x", "y"), outputs=("z",))
def max_pooling_gather(
    h: Array, x: Array, y: Array, *, kernel: Lengths, stride: Lengths, pad: Pairs,
    border: str = "ignore",
) -> Array:  # fmt: skip
    """Take from ``h`` what stands where the maxima ``y`` of ``x`` are."""
    options: dict[str, Any] = {
        "kernel": kernel, "stride": stride, "pad": pad, "border": border,
    }  # fmt: skip
    winners = _winners(x, **options)
    values = _windows(h, **options, value=0)
    return np.asarray(np.take_along_axis(values, winners[..., None], -1)[..., 0])


@max_pooling_gather.infer
def max_pooling_gather_infer(h: Spec, x: Spec, y: Spec, **options: Any) -> Spec:
    """One element a window."""
    if h.shape != x.shape:
        raise ShapeError(f"what is gathered from must have shape {x.shape}, not {h.shape}")
    return _pooled_spec(h, **options)


@max_pooling_operator.vjp
def max_pooling_vjp(g: Any, y: Any, x: Any, **options: Any) -> tuple[Any, ...]:
    """To the first maximum of each window."""
    return (max_pooling_gradient(g, x, y, **options),)


@max_pooling_gradient.vjp
def max_pooling_gradient_vjp(
    g: Any, dx: Any, dy: Any, x: Any, y: Any, **options: Any
) -> tuple[Any, ...]:
    """Gather at the same places, which are constant almost everywhere."""
    return max_pooling_gather(g, x, y, **options), None, None


@max_pooling_gather.vjp
def max_pooling_gather_vjp(
    g: Any, z: Any, h: Any, x: Any, y: Any, **options: Any
) -> tuple[Any, ...]:
    """Put back to the same places."""
    return max_pooling_gradient(g, x, y, **options), None, None


# Sum and average ---------------------------------------------------------------------------------


@defop("nnl::sum_pooling")
def sum_pooling_operator(
    x: Array, *, kernel: Lengths, stride: Lengths, pad: Pairs, border: str = "ignore"
) -> Array:
    """Sum of each window of the last axes."""
    total = _windows(wide(x), kernel, stride, pad, border, 0).sum(axis=-1)
    return np.asarray(total.astype(x.dtype, copy=False))


@defop("nnl::sum_pooling_gradient", outputs=("dx",))
def sum_pooling_gradient(
    dy: Array, *, size: Lengths, kernel: Lengths, stride: Lengths, pad: Pairs,
    border: str = "ignore",
) -> Array:  # fmt: skip
    """Transpose `sum_pooling`: give ``dy`` to all positions of its window, in axes of ``size``."""
    split = dy.ndim - len(size)
    spatial = math.prod(size)
    positions = _windows(np.arange(spatial).reshape(size), kernel, stride, pad, border, spatial)
    rows = math.prod(dy.shape[:split])
    dx = np.zeros((rows, spatial + 1), wide(dy).dtype)  # the last takes what falls on padding
    np.add.at(
        dx,
        (np.arange(rows)[:, None], positions.reshape(1, positions.size)),
        np.repeat(dy.reshape(rows, math.prod(dy.shape[split:])), volume(kernel), axis=-1),
    )
    dx = dx[:, :spatial].reshape(*dy.shape[:split], *size)
    return np.asarray(dx.astype(dy.dtype, copy=False))


@defop("nnl::average_pooling")
def average_pooling_operator(
    x: Array, *, kernel: Lengths, stride: Lengths, pad: Pairs, border: str = "ignore",
    including_pad: bool = True,
) -> Array:  # fmt: skip
    """Average of each window of the last axes, of which padding is a part or not."""
    total = _windows(wide(x), kernel, stride, pad, border, 0).sum(axis=-1)
    if not x.size:
        return total.astype(x.dtype, copy=False)
    spatial = x.shape[x.ndim - len(kernel) :]
    sizes = window_sizes(spatial, kernel, stride, pad, border, including_pad)
    return np.asarray((total / sizes.astype(total.dtype)).astype(x.dtype, copy=False))


@sum_pooling_operator.infer
def sum_pooling_infer(x: Spec, **options: Any) -> Spec:
    """One element a window."""
    return _pooled_spec(x, **options)


@average_pooling_operator.infer
def average_pooling_infer(x: Spec, *, including_pad: bool, **options: Any) -> Spec:
    """One element a window."""
    return _pooled_spec(x, **options)


@sum_pooling_gradient.infer
def sum_pooling_gradient_infer(dy: Spec, *, size: Lengths, **options: Any) -> Spec:
    """The leading axes, then ``size``."""
    split = dy.ndim - len(size)
    expected = pooled(size, **options)
    if dy.shape[split:] != expected:
        raise ShapeError(f"the last axes of the gradient must be {expected}")
    return dy.with_shape((*dy.shape[:split], *size))


@sum_pooling_operator.vjp
def sum_pooling_vjp(g: Any, y: Any, x: Any, **options: Any) -> tuple[Any, ...]:
    """To all positions of the window."""
    size = x.shape[len(x.shape) - len(options["kernel"]) :]
    return (sum_pooling_gradient(g, size=size, **options),)


@sum_pooling_gradient.vjp
def sum_pooling_gradient_vjp(
    g: Any, dx: Any, dy: Any, *, size: Lengths, **options: Any
) -> tuple[Any, ...]:
    """Sum again."""
    return (sum_pooling_operator(g, **options),)


@average_pooling_operator.vjp
def average_pooling_vjp(
    g: Any, y: Any, x: Any, *, including_pad: bool, **options: Any
) -> tuple[Any, ...]:
    """As of the sum, of ``g`` over the window sizes."""
    size = x.shape[len(x.shape) - len(options["kernel"]) :]
    if x.size:
        sizes = window_sizes(size, including_pad=including_pad, **options)
        uniform = sizes.min() == sizes.max()
        g = g * (1 / float(sizes.flat[0])) if uniform else g * (1 / sizes).astype(g.dtype)
    return (sum_pooling_gradient(g, size=size, **options),)


# Unpooling ---------------------------------------------------------------------------------------


@defop("nnl::unpooling")
def unpooling_operator(x: Array, *, kernel: Lengths) -> Array:
    """Repeat each element over a block of shape ``kernel`` in the last axes."""
    y = x
    for axis, times in enumerate(kernel, start=x.ndim - len(kernel)):
        y = np.repeat(y, times, axis=axis)
    return y


@unpooling_operator.infer
def unpooling_infer(x: Spec, *, kernel: Lengths) -> Spec:
    """The last axes times the kernel."""
    split = x.ndim - len(kernel)
    if split < 0 or not kernel:
        raise ShapeError(f"a kernel of {len(kernel)} axes does not fit an input of {x.ndim}")
    longer = (n * k for n, k in zip(x.shape[split:], kernel, strict=True))
    return x.with_shape((*x.shape[:split], *longer))


@unpooling_operator.vjp
def unpooling_vjp(g: Any, y: Any, x: Any, *, kernel: Lengths) -> tuple[Any, ...]:
    """Sum each block."""
    none = ((0, 0),) * len(kernel)
    return (sum_pooling_operator(g, kernel=kernel, stride=kernel, pad=none),)


@unpooling_operator.samples
def unpooling_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """One to three axes, 1 among them, empty."""
    yield Sample(rng.normal(size=(2, 3, 4)), kernel=(2, 3))
    yield Sample(rng.normal(size=(2, 3, 2)), kernel=(2, 1, 3))
    yield Sample(rng.normal(size=(5,)), kernel=(2,))
    yield Sample(rng.normal(size=(0, 2, 3)), kernel=(1, 2))


# Costs and samples -------------------------------------------------------------------------------


def _cost(x: Spec, *rest: Any, **options: Any) -> int:
    options.pop("including_pad", None)
    return _pooled_spec(x, **options).size * volume(options["kernel"])


for _operator in (max_pooling_operator, sum_pooling_operator, average_pooling_operator):
    _operator.multiply_adds(_cost)
max_pooling_gather.multiply_adds(_cost)
max_pooling_gradient.multiply_adds(lambda dy, x, y, **options: _cost(x, **options))
sum_pooling_gradient.multiply_adds(lambda dy, *, kernel, **rest: dy.size * volume(kernel))


# (shape, kernel, stride, pad, border): blocks, overlaps, gaps, uneven padding, windows over the
# end, one to three axes, empty batch.
_CASES: list[tuple[Any, ...]] = [
    ((2, 3, 4, 6), (2, 2), (2, 2), ((0, 0), (0, 0)), "ignore"),
    ((3, 5, 7), (2, 3), (2, 1), ((1, 0), (0, 2)), "ignore"),
    ((2, 5, 6), (2, 2), (2, 1), ((1, 1), (0, 0)), "every"),
    ((2, 5, 6), (3, 2), (2, 3), ((1, 2), (1, 0)), "every"),
    ((2, 6, 7), (3, 2), (2, 2), ((0, 1), (0, 0)), "ceil"),
    ((7,), (2,), (3,), ((1, 1),), "ceil"),
    ((2, 4, 3, 5), (2, 1, 3), (1, 2, 2), ((0, 0), (0, 0), (1, 1)), "ignore"),
    ((0, 4, 4), (2, 2), (2, 2), ((0, 0), (0, 0)), "ignore"),
]


def _cases(
    rng: np.random.Generator,
) -> Iterator[tuple[Array, tuple[int, ...], dict[str, Any]]]:
    """Yield data without ties, the shape of the result, and the options."""
    for shape, kernel, stride, pad, border in _CASES:
        options = {"kernel": kernel, "stride": stride, "pad": pad, "border": border}
        x = rng.permutation(math.prod(shape)).reshape(shape) / 8 - 5
        yield x, _pooled_spec(Spec(shape), **options).shape, options


@max_pooling_operator.samples
def max_pooling_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Every case."""
    for x, _, options in _cases(rng):
        yield Sample(x, **options)


@max_pooling_gradient.samples
def max_pooling_gradient_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Every case."""
    for x, shape, options in _cases(rng):
        y = max_pooling_operator.reference(x, **options)
        yield Sample(rng.normal(size=shape), x, y, **options)


@max_pooling_gather.samples
def max_pooling_gather_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Every case."""
    for x, _, options in _cases(rng):
        y = max_pooling_operator.reference(x, **options)
        yield Sample(rng.normal(size=x.shape), x, y, **options)


@sum_pooling_operator.samples
def sum_pooling_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Every case."""
    for x, _, options in _cases(rng):
        yield Sample(x, **options)


@average_pooling_operator.samples
def average_pooling_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Every case, with padding counted and not."""
    for x, _, options in _cases(rng):
        yield Sample(x, including_pad=True, **options)
        yield Sample(x, including_pad=False, **options)


@sum_pooling_gradient.samples
def sum_pooling_gradient_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Every case."""
    for x, shape, options in _cases(rng):
        size = x.shape[x.ndim - len(options["kernel"]) :]
        yield Sample(rng.normal(size=shape), size=size, **options)


# What users call ---------------------------------------------------------------------------------


def _options(
    x: Variable, kernel: Sequence[int], stride: PerAxis, ignore_border: bool, pad: Pad,
    channel_last: bool,
) -> dict[str, Any]:  # fmt: skip
    sizes = window_shape(kernel)
    count = len(sizes)
    steps = sizes if stride is None else lengths("stride", stride, count, 1)
    margins = pairs(pad, count)
    if channel_last:  # the channels are one more axis, of which every window takes one place
        sizes, steps, margins = (*sizes, 1), (*steps, 1), (*margins, (0, 0))
    border = "ignore" if ignore_border else "every"
    return {"kernel": sizes, "stride": steps, "pad": margins, "border": border}


def max_pooling(
    x: Operand,
    kernel: Sequence[int],
    stride: PerAxis = None,
    ignore_border: bool = True,
    pad: Pad = None,
    channel_last: bool = False,
) -> Variable:
    """Take the largest element of each window; NaN wins.

    Args:
        x: ``(*leading, *spatial)``, as many spatial axes as the kernel has; with ``channel_last``
            ``(*leading, *spatial, channels)``.
        kernel: shape of the window, a length for each spatial axis.
        stride: steps of the window, by default its shape.
        ignore_border: whether only windows inside the padded input count, or all that begin inside
            the input or the padding before it.
        pad: at both ends of each spatial axis: a number, one per axis, or (before, after) pairs,
            less than the kernel. Padding is never the largest.
        channel_last: where the channels are.

    Raises:
        ShapeError: no window fits.

    Gradient:
        Goes to the first of equal maxima of each window; an element in several windows sums.

    Examples:
        >>> F.max_pooling(np.arange(16.0).reshape(1, 4, 4), (2, 2)).d
        array([[[ 5.,  7.],
                [13., 15.]]])

    Elsewhere:
        - nnabla: `max_pooling`
        - PyTorch: `torch.nn.functional.max_pool2d`, `ceil_mode` is the opposite of `ignore_border`
        - ONNX: `MaxPool`
    """
    x = floating(x)
    options = _options(x, kernel, stride, ignore_border, pad, channel_last)
    return max_pooling_operator(x, **options)


def max_pooling_backward(
    dy: Operand,
    x: Operand,
    kernel: Sequence[int],
    stride: PerAxis = None,
    ignore_border: bool = True,
    pad: Pad = None,
    channel_last: bool = False,
) -> Variable:
    """Compute the gradient of `max_pooling` with respect to its input.

    Args:
        dy: the gradient of the pooled result.
        x: the input of the pooling.
        kernel: shape of the window.
        stride: steps of the window, by default its shape.
        ignore_border: as in `max_pooling`.
        pad: as in `max_pooling`.
        channel_last: as in `max_pooling`.

    Gradient:
        Linear in ``dy``: it gets the gradient at the places of the maxima. None for ``x``.

    Examples:
        >>> x = np.array([[[1.0, 4.0], [2.0, 3.0]]])
        >>> F.max_pooling_backward(np.array([[[7.0]]]), x, (2, 2)).d
        array([[[0., 7.],
                [0., 0.]]])

    Elsewhere:
        - nnabla: `max_pooling_backward`
        - PyTorch: `torch.nn.functional.max_unpool2d`, with the indices of the maxima
        - ONNX: `MaxUnpool`, with the indices of the maxima
    """
    x = floating(x)
    options = _options(x, kernel, stride, ignore_border, pad, channel_last)
    y = max_pooling_operator(x, **options)
    return max_pooling_gradient(dy, x, y, **options)


def sum_pooling(
    x: Operand,
    kernel: Sequence[int],
    stride: PerAxis = None,
    ignore_border: bool = True,
    pad: Pad = None,
    channel_last: bool = False,
) -> Variable:
    """Sum each window.

    Args:
        x: ``(*leading, *spatial)``, as many spatial axes as the kernel has; with ``channel_last``
            ``(*leading, *spatial, channels)``.
        kernel: shape of the window, a length for each spatial axis.
        stride: steps of the window, by default its shape.
        ignore_border: whether only windows inside the padded input count, or all that begin inside
            the input or the padding before it.
        pad: zeros at both ends of each spatial axis: a number, one per axis, or (before, after)
            pairs, less than the kernel.
        channel_last: where the channels are.

    Raises:
        ShapeError: no window fits.

    Gradient:
        Each ``dy`` goes to all elements of its window.

    Examples:
        >>> F.sum_pooling(np.arange(16.0).reshape(1, 4, 4), (2, 2)).d
        array([[[10., 18.],
                [42., 50.]]])

    Elsewhere:
        - nnabla: `sum_pooling`
        - PyTorch: `torch.nn.functional.avg_pool2d` with `divisor_override=1`
        - ONNX: none, `AveragePool` times the size of the window
    """
    x = floating(x)
    options = _options(x, kernel, stride, ignore_border, pad, channel_last)
    return sum_pooling_operator(x, **options)


def average_pooling(
    x: Operand,
    kernel: Sequence[int],
    stride: PerAxis = None,
    ignore_border: bool = True,
    pad: Pad = None,
    channel_last: bool = False,
    including_pad: bool = True,
) -> Variable:
    """Average each window.

    What a window reaches beyond the padding never counts.

    Args:
        x: ``(*leading, *spatial)``, as many spatial axes as the kernel has; with ``channel_last``
            ``(*leading, *spatial, channels)``.
        kernel: shape of the window, a length for each spatial axis.
        stride: steps of the window, by default its shape.
        ignore_border: whether only windows inside the padded input count, or all that begin inside
            the input or the padding before it.
        pad: zeros at both ends of each spatial axis: a number, one per axis, or (before, after)
            pairs, less than the kernel.
        channel_last: where the channels are.
        including_pad: whether padding counts in the size of a window.

    Raises:
        ShapeError: no window fits.

    Gradient:
        Each ``dy`` is divided evenly among the elements of its window.

    Examples:
        >>> F.average_pooling(np.arange(16.0).reshape(1, 4, 4), (2, 2)).d
        array([[[ 2.5,  4.5],
                [10.5, 12.5]]])

    Elsewhere:
        - nnabla: `average_pooling`
        - PyTorch: `torch.nn.functional.avg_pool2d`, `ceil_mode` is the opposite of `ignore_border`
        - ONNX: `AveragePool`
    """
    x = floating(x)
    options = _options(x, kernel, stride, ignore_border, pad, channel_last)
    return average_pooling_operator(x, including_pad=including_pad, **options)


def global_average_pooling(x: Operand) -> Variable:
    """Average over all axes after the channels.

    Args:
        x: ``(batch, channels, *spatial)``.

    Returns:
        (batch, channels, 1, ..., 1).

    Gradient:
        ``dx = dy / n``, with ``n`` spatial positions.

    Examples:
        >>> F.global_average_pooling(np.arange(8.0).reshape(1, 2, 2, 2)).d.ravel()
        array([1.5, 5.5])

    Elsewhere:
        - nnabla: `global_average_pooling`
        - PyTorch: `torch.nn.functional.adaptive_avg_pool2d` to size 1
        - ONNX: `GlobalAveragePool`
    """
    x = floating(x)
    if x.ndim < 3:
        raise ShapeError(
            f"global_average_pooling: input of shape {x.shape} has no spatial axes; it takes "
            "(batch, channels, *spatial)"
        )
    result: Variable = F.mean(x, axis=tuple(range(2, x.ndim)), keepdims=True)
    return result


def unpooling(x: Operand, kernel: Sequence[int], channel_last: bool = False) -> Variable:
    """Repeat each element over a block in the spatial axes.

    Args:
        x: ``(*leading, *spatial)``, as many spatial axes as the kernel has; with ``channel_last``
            ``(*leading, *spatial, channels)``.
        kernel: shape of the block, a length for each spatial axis.
        channel_last: where the channels are.

    Gradient:
        The sum over each block.

    Examples:
        >>> F.unpooling(np.array([[1.0, 2.0]]), (1, 2)).d
        array([[1., 1., 2., 2.]])

    Elsewhere:
        - nnabla: `unpooling`
        - PyTorch: `torch.nn.functional.interpolate` with `mode="nearest"`
        - ONNX: `Resize` with `mode="nearest"`
    """
    sizes = window_shape(kernel)
    if channel_last:
        sizes = (*sizes, 1)
    return unpooling_operator(x, kernel=sizes)
