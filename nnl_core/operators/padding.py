"""Arrays with borders: padded outwards, or shifted against them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.checks import wholes
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.dtypes import holding

__all__ = ["pad", "shift"]

PAD_MODES = ("constant", "reflect", "repeat")
BORDER_MODES = ("nearest", "reflect")


@defop("nnl::pad")
def pad_operator(
    x: Array, *, pad_width: tuple[int, ...], mode: str = "constant", constant_value: float = 0.0
) -> Array:
    """Add elements before and after: a pair of widths for each of the last axes.

    They are ``constant_value``, or the array reflected at its outermost elements, or these again.
    """
    if not any(pad_width):
        return x.copy()  # NumPy does not pad an array of no axes, even by nothing
    widths = pairs(pad_width, x.ndim)
    if mode == "constant":
        return np.pad(x, widths, constant_values=np.asarray(constant_value).astype(x.dtype))
    return np.pad(x, widths, "reflect" if mode == "reflect" else "edge")


@pad_operator.infer
def pad_infer(x: Spec, *, pad_width: tuple[int, ...], mode: str, constant_value: float) -> Spec:
    """Lengths plus widths."""
    if mode not in PAD_MODES:
        raise ShapeError(f"mode {mode!r} is not one of {', '.join(PAD_MODES)}")
    if len(pad_width) % 2 or len(pad_width) > 2 * x.ndim:
        raise ShapeError(
            f"pad_width {pad_width} must hold a pair of widths for each axis to pad, of {x.ndim}"
        )
    if any(width < 0 for width in pad_width):
        raise ShapeError(f"pad_width {pad_width} must not be negative; slice to cut elements off")
    widths = pairs(pad_width, x.ndim)
    for axis, (length, pair) in enumerate(zip(x.shape, widths, strict=True)):
        if mode != "constant" and not length and any(pair):
            raise ShapeError(f"axis {axis} has length 0: there is nothing to {mode}")
    return x.with_shape(tuple(n + sum(pair) for n, pair in zip(x.shape, widths, strict=True)))


@pad_operator.vjp
def pad_vjp(
    g: Any, y: Any, x: Any, *, pad_width: tuple[int, ...], mode: str, constant_value: float
) -> tuple[Any, ...]:
    """Cut the borders off, and where they were copies, add them to what they are copies of."""
    widths = pairs(pad_width, x.ndim)
    if mode == "constant":
        inner = tuple(slice(n, n + m) for (n, _), m in zip(widths, x.shape, strict=True))
        return (F.getitem(g, inner),)
    return (pad_adjoint(g, pad_width=pad_width, mode=mode, shape=x.shape),)


@pad_operator.samples
def pad_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Each mode on some axes, on all, wider than the array; nothing to add; empty."""
    for mode in PAD_MODES:
        yield Sample(rng.normal(size=(3, 4)), pad_width=(1, 2), mode=mode)
        yield Sample(rng.normal(size=(3, 2)), pad_width=(1, 0, 4, 5), mode=mode)
        yield Sample(rng.normal(size=(1, 2)), pad_width=(2, 1, 0, 0), mode=mode)
        yield Sample(rng.normal(size=(2,)), pad_width=(), mode=mode)
        yield Sample(rng.normal(size=()), pad_width=(), mode=mode)
        yield Sample(rng.normal(size=(0, 2)), pad_width=(1, 1), mode=mode)
    yield Sample(rng.normal(size=(2,)), pad_width=(1, 1), constant_value=0.5)
    yield Sample(rng.normal(size=(0, 2)), pad_width=(1, 1, 0, 1), constant_value=-1.0)


@defop("nnl::pad_adjoint")
def pad_adjoint(
    g: Array, *, pad_width: tuple[int, ...], mode: str, shape: tuple[int, ...]
) -> Array:
    """Add the copies in the borders of a padded array to what they are copies of."""
    for axis, (length, pair) in enumerate(zip(shape, pairs(pad_width, len(shape)), strict=True)):
        if any(pair):
            padded = np.moveaxis(g, axis, 0)
            sums = np.zeros((length, *padded.shape[1:]), g.dtype)
            np.add.at(sums, pad_sources(length, pair, mode), padded)
            g = np.moveaxis(sums, 0, axis)
    return np.array(g)


@pad_adjoint.infer
def pad_adjoint_infer(
    g: Spec, *, pad_width: tuple[int, ...], mode: str, shape: tuple[int, ...]
) -> Spec:
    """The shape before it was padded."""
    given = g.with_shape(shape)
    if pad_infer(given, pad_width=pad_width, mode=mode, constant_value=0.0).shape != g.shape:
        raise ShapeError(f"shape {shape} with widths {pad_width} does not give {g.shape}")
    return given


@pad_adjoint.vjp
def pad_adjoint_vjp(
    h: Any, y: Any, g: Any, *, pad_width: tuple[int, ...], mode: str, shape: tuple[int, ...]
) -> tuple[Any, ...]:
    """Pad the gradient."""
    return (pad_operator(h, pad_width=pad_width, mode=mode),)


@pad_adjoint.samples
def pad_adjoint_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Narrow and wide borders, several axes, one element, no axes, nothing to add."""
    for mode in PAD_MODES[1:]:
        for shape, widths in (
            ((3, 4), (1, 2)),
            ((2, 3, 2), (1, 0, 4, 5)),
            ((1, 2), (2, 1, 0, 0)),
            ((2, 3), (70, 1)),
            ((), ()),
            ((0, 2), (1, 1)),
        ):
            ends = zip(shape, pairs(widths, len(shape)), strict=True)
            padded = rng.normal(size=[n + sum(pair) for n, pair in ends])
            yield Sample(padded, pad_width=widths, mode=mode, shape=shape)


def pad(
    x: Operand,
    pad_width: Sequence[int],
    mode: str = "constant",
    constant_value: float = 0,
) -> Variable:
    """Add elements before and after, along the last axes.

    Args:
        x: any shape.
        pad_width: a pair of widths (before, after) for each axis, the last pair for the last axis.
        mode: ``"constant"``; ``"reflect"``, at the outermost elements, which are not doubled; or
            ``"repeat"``, the outermost elements.
        constant_value: what a constant border holds.

    Raises:
        ShapeError: there are more pairs than axes, less to reflect than asked for, or a width is
            negative (slice to take elements away).

    Gradient:
        The part of ``dy`` inside; what was reflected or repeated is added to where it came from.

    Examples:
        >>> F.pad(np.array([1.0, 2.0, 3.0]), (2, 1), mode="reflect").d
        array([3., 2., 1., 2., 3., 2.])

    Elsewhere:
        - nnabla: `pad`
        - PyTorch: `torch.nn.functional.pad`, whose first pair is of the last axis
        - ONNX: `Pad`
    """
    widths = wholes(pad_width, "pad_width")
    if mode == "constant":
        x = holding(x, constant_value)
    result: Variable = pad_operator(
        x, pad_width=widths, mode=mode, constant_value=float(constant_value)
    )
    return result


@defop("nnl::shift")
def shift_operator(x: Array, *, shifts: tuple[int, ...], border_mode: str = "nearest") -> Array:
    """Move the elements along the last axes, towards larger positions for positive shifts.

    What moves in is the outermost element, or the array reflected (outermost element doubled).
    """
    first = x.ndim - len(shifts)
    for axis, by in enumerate(shifts, first):
        x = np.take(x, shift_sources(x.shape[axis], by, border_mode), axis)
    return x.copy()


@shift_operator.infer
def shift_infer(x: Spec, *, shifts: tuple[int, ...], border_mode: str) -> Spec:
    """The input's shape."""
    if border_mode not in BORDER_MODES:
        raise ShapeError(f"border_mode {border_mode!r} is not one of {', '.join(BORDER_MODES)}")
    if len(shifts) > x.ndim:
        raise ShapeError(f"shifts {shifts} are more than the {x.ndim} axes")
    return x


@shift_operator.vjp
def shift_vjp(
    g: Any, y: Any, x: Any, *, shifts: tuple[int, ...], border_mode: str
) -> tuple[Any, ...]:
    """Add each element to what it is a copy of."""
    sources: list[Array | None] = [None] * (x.ndim - len(shifts))
    for length, by in zip(x.shape[len(sources) :], shifts, strict=True):
        sources.append(shift_sources(length, by, border_mode) if by else None)
    return (_sum_to_sources(g, x.shape, sources),)


@shift_operator.samples
def shift_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Both modes, both directions, further than the array is long, fewer axes, empty."""
    for mode in BORDER_MODES:
        yield Sample(rng.normal(size=(2, 3, 4)), shifts=(1, 0, -2), border_mode=mode)
        yield Sample(rng.normal(size=(3, 4)), shifts=(-9,), border_mode=mode)
        yield Sample(rng.normal(size=(3, 1)), shifts=(7, 2), border_mode=mode)
        yield Sample(rng.normal(size=(0, 3)), shifts=(1, 1), border_mode=mode)


def shift(
    x: Operand, shifts: Sequence[int] | None = None, border_mode: str = "nearest"
) -> Variable:
    """Move the elements along the last axes, towards larger positions if positive.

    Args:
        x: any shape.
        shifts: how far, for each of the last axes; ``None`` for not at all.
        border_mode: what moves in: the ``"nearest"`` element of the array, or the array
            ``"reflect"``-ed at its border.

    Gradient:
        ``dy`` moved back; what moved in is added to where it came from.

    Examples:
        >>> F.shift(np.array([1.0, 2.0, 3.0]), (1,)).d
        array([1., 1., 2.])

    Elsewhere:
        - nnabla: `shift`
        - PyTorch: none, `torch.nn.functional.pad` and a slice
        - ONNX: none, `Pad` and `Slice`
    """
    listed = () if shifts is None else wholes(shifts, "shifts")
    return shift_operator(x, shifts=listed, border_mode=border_mode)


def pairs(pad_width: tuple[int, ...], ndim: int) -> list[tuple[int, int]]:
    """Return the widths for all axes, the first ones not padded."""
    pairs = list(zip(pad_width[::2], pad_width[1::2], strict=True))
    return [(0, 0)] * (ndim - len(pairs)) + pairs


def pad_sources(length: int, widths: tuple[int, int], mode: str) -> Array:
    """Return which position along an axis each padded position is a copy of."""
    positions = np.arange(-widths[0], length + widths[1])
    if mode == "repeat":
        return positions.clip(0, length - 1)
    last = length - 1
    period = positions % (2 * last) if last else np.zeros_like(positions)
    return np.where(period > last, 2 * last - period, period)


def shift_sources(length: int, by: int, border_mode: str) -> Array:
    """Return which position along an axis each position takes its element from."""
    positions = np.arange(length) - by
    if not length or border_mode == "nearest":
        return positions.clip(0, max(length - 1, 0))
    period = positions % (2 * length)
    return np.where(period >= length, 2 * length - 1 - period, period)


def _sum_to_sources(
    g: Variable, shape: tuple[int, ...], sources: Sequence[Array | None]
) -> Variable:
    """Sum, along each axis that has sources, the elements that come from one place."""
    for axis, positions in enumerate(sources):
        if positions is not None:
            g = F.gather_adjoint(g, positions, size=shape[axis], axis=axis, batch_dims=0)
    return g
