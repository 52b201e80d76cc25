"""Arrays of other lengths: interpolation along some of the axes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.dtypes import floating
from nnl_core.operators.taps import CUBIC_A, evaluate, kernel

__all__ = ["interpolate", "onnx_resize"]

MODES = ("nearest", "linear", "cubic", "area")
COORDINATES = (
    "half_pixel",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


class Rule(NamedTuple):
    """Where along an axis the results lie, and what is made of the elements around."""

    mode: str
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic_a: float = CUBIC_A
    exclude_outside: bool = False


class Resized(NamedTuple):
    """An axis and its new length; ``scale`` is the ratio of both unless it is given."""

    axis: int
    length: int
    size: int
    scale: float | None = None
    crop: tuple[float, float] = (0.0, 1.0)

    @property
    def ratio(self) -> float:
        """How much longer the axis becomes."""
        return self.size / self.length


class Table(NamedTuple):
    """What results along an axis are made of: ``y[i] = sum over t of weights[t, i] x[at[t, i]]``.

    ``weights`` are ``None`` where there is one tap of weight 1. ``empty`` are the results without
    any tap.
    """

    at: Array
    weights: Array | None
    empty: Array


def positions(resized: Resized, rule: Rule) -> Array:
    """Return where in the old axis the elements of the new one lie (ONNX `Resize`)."""
    _, length, size, scale, (start, end) = resized
    i, last = np.arange(size), length - 1

    def back(at: Array) -> Array:
        # i * length / size, not i / (size / length): whole numbers come out whole.
        return at * length / size if scale is None else at / scale

    match rule.coordinates:
        case "asymmetric":
            return back(i)
        case "tf_half_pixel_for_nn":
            return back(i + 0.5)
        case "tf_crop_and_resize":
            if size == 1:
                return np.array([0.5 * (start + end) * last])
            return start * last + i * ((end - start) * last) / (size - 1)
        case "align_corners":
            return i * last / max(1, size - 1)
        case "pytorch_half_pixel" if size == 1:
            return np.zeros(1)
    return back(i + 0.5) - 0.5


@functools.lru_cache(maxsize=512)
def table(resized: Resized, rule: Rule) -> Table:
    """Return what the elements of the new axis are made of."""
    last = resized.length - 1
    none = np.zeros(0, np.intp)
    if rule.mode == "area":
        return _windows(resized)
    x = positions(resized, rule)
    if rule.mode == "nearest":
        at = ROUNDINGS[rule.nearest](x).clip(0, last).astype(np.intp)
        return Table(at[None], None, none)
    low = np.floor(x)
    polynomials = kernel(rule.mode, rule.cubic_a)
    weights = np.stack([evaluate(polynomial, x - low) for polynomial in polynomials])
    first = 1 - len(polynomials) // 2
    at = low + np.arange(first, first + len(polynomials))[:, None]
    if rule.exclude_outside:
        weights = np.where((at >= 0) & (at <= last), weights, 0)
        total = weights.sum(axis=0)
        weights /= np.where(total == 0, 1, total)
    return Table(at.clip(0, last).astype(np.intp), weights, none)


def _windows(resized: Resized) -> Table:
    """Return windows that cover the axis, from the first to the last element that each touches."""
    _, length, size, *_ = resized
    i = np.arange(size)
    first = i * length // size
    count = -(-(i + 1) * length // size) - first
    step = np.arange(count.max())[:, None]
    weights = np.where(step < count, 1 / count, 0.0)
    return Table(first + np.minimum(step, count - 1), weights, np.zeros(0, np.intp))


@functools.lru_cache(maxsize=512)
def adjoint_table(resized: Resized, rule: Rule) -> Table:
    """Return what the gradient of the old axis is made of: the transposed table."""
    at, weights, _ = table(resized, rule)
    used = np.ones(at.shape) if weights is None else weights
    tap, result = np.nonzero(used)
    source = at[tap, result]
    order = np.argsort(source, kind="stable")
    source, result, factor = source[order], result[order], used[tap, result][order]
    counts = np.bincount(source, minlength=resized.length)
    starts = np.cumsum(counts) - counts
    slot = np.arange(source.size) - starts[source]
    # Places without a tap repeat the first one with weight 0.
    turned = np.zeros((counts.max(), resized.length), np.intp)
    filled = counts > 0
    turned[:, filled] = result[starts[filled]]
    turned[slot, source] = result
    factors = np.zeros(turned.shape)
    factors[slot, source] = factor
    return Table(turned, factors, np.flatnonzero(~filled))


def _apply(x: Array, axis: int, taps: Table) -> Array:
    """Combine elements along one axis."""
    y = np.take(x, taps.at[0], axis)
    if taps.weights is None:
        return y
    trailing = (1,) * (x.ndim - axis - 1)
    weights = taps.weights.astype(x.dtype).reshape(*taps.weights.shape, *trailing)
    y *= weights[0]
    for at, weight in zip(taps.at[1:], weights[1:], strict=True):
        term = np.take(x, at, axis)
        term *= weight
        y += term
    if taps.empty.size:
        y[(slice(None),) * axis + (taps.empty,)] = 0
    return y


@defop("nnl::resize")
def resize_operator(x: Array, *, axes: tuple[Resized, ...], rule: Rule) -> Array:
    """Resample at least one axis, one after the other: a linear map along each."""
    for resized in axes:
        x = _apply(x, resized.axis, table(resized, rule))
    return x


@resize_operator.infer
def resize_infer(x: Spec, *, axes: tuple[Resized, ...], rule: Rule) -> Spec:
    """The new lengths."""
    return _with_lengths(x, [(axis, length, size) for axis, length, size, *_ in axes])


@resize_operator.vjp
def resize_vjp(g: Any, y: Any, x: Any, *, axes: tuple[Resized, ...], rule: Rule) -> tuple[Any, ...]:
    """Give each element the gradients of what was made of it, weighted."""
    return (resize_adjoint(g, axes=axes, rule=rule),)


@resize_operator.multiply_adds
def resize_multiply_adds(x: Spec, *, axes: tuple[Resized, ...], rule: Rule) -> int:
    """One per tap and element."""
    size, total = x.size, 0
    for resized in axes:
        size = size // resized.length * resized.size
        total += size * len(table(resized, rule).at)
    return total


@defop("nnl::resize_adjoint")
def resize_adjoint(g: Array, *, axes: tuple[Resized, ...], rule: Rule) -> Array:
    """Add each element of ``g``, weighted, to those that `resize` makes it of."""
    for resized in reversed(axes):
        g = _apply(g, resized.axis, adjoint_table(resized, rule))
    return g


@resize_adjoint.infer
def resize_adjoint_infer(g: Spec, *, axes: tuple[Resized, ...], rule: Rule) -> Spec:
    """The old lengths."""
    return _with_lengths(g, [(axis, size, length) for axis, length, size, *_ in axes])


@resize_adjoint.vjp
def resize_adjoint_vjp(
    g: Any, y: Any, x: Any, *, axes: tuple[Resized, ...], rule: Rule
) -> tuple[Any, ...]:
    """Resample the gradient."""
    return (resize_operator(g, axes=axes, rule=rule),)


@resize_adjoint.multiply_adds
def resize_adjoint_multiply_adds(g: Spec, *, axes: tuple[Resized, ...], rule: Rule) -> int:
    """As many as `resize` takes."""
    return resize_multiply_adds(resize_adjoint_infer(g, axes=axes, rule=rule), axes=axes, rule=rule)


def _with_lengths(x: Spec, changes: Sequence[tuple[int, int, int]]) -> Spec:
    shape = list(x.shape)
    for axis, old, new in changes:
        if not 0 <= axis < x.ndim or shape[axis] != old:
            raise ShapeError(f"axis {axis} must have length {old}")
        shape[axis] = new
    return x.with_shape(tuple(shape))


def _some_rules() -> Iterator[Rule]:
    for coordinates in COORDINATES:
        yield Rule("linear", coordinates)
        yield Rule("nearest", coordinates, "floor")
    for nearest in ROUNDINGS:
        yield Rule("nearest", "half_pixel", nearest)
    yield Rule("cubic")
    yield Rule("cubic", "align_corners", cubic_a=-0.5)
    yield Rule("cubic", "asymmetric", exclude_outside=True)
    yield Rule("area")


def _resize_samples(adjoint: bool) -> Callable[[np.random.Generator], Iterator[Sample]]:
    """Longer, shorter, to 1, from 1, with a scale, a part of the axis; several axes; no batch."""

    def rule_of(rng: np.random.Generator) -> Iterator[Sample]:
        for rule in _some_rules():
            for axis in (Resized(1, 5, 7), Resized(1, 5, 3, 0.7), Resized(1, 5, 1)):
                shape = (2, axis.size if adjoint else 5, 3)
                yield Sample(rng.normal(size=shape), axes=(axis,), rule=rule)
        axes = (Resized(3, 4, 2, None, (0.2, 1.3)), Resized(1, 1, 3), Resized(2, 3, 5))
        for batch in (2, 0):
            for rule in (Rule("linear", "tf_crop_and_resize"), Rule("cubic")):
                lengths = (3, 5, 2) if adjoint else (1, 3, 4)
                yield Sample(rng.normal(size=(batch, *lengths)), axes=axes, rule=rule)

    return rule_of


resize_operator.samples(_resize_samples(adjoint=False))
resize_adjoint.samples(_resize_samples(adjoint=True))


# What users call ---------------------------------------------------------------------------------


def interpolate(
    x: Operand,
    scale: Sequence[float] | None = None,
    output_size: Sequence[int] | None = None,
    mode: str = "linear",
    align_corners: bool = False,
    half_pixel: bool = False,
    half_pixel_for_nn: bool = False,
    channel_last: bool = False,
) -> Variable:
    """Resize the last axes, with values between the elements made of those around.

    Element ``i`` of an axis of new length ``size`` is read at position ``p`` of the old one, of
    ``length`` elements:

        align_corners        p = i (length - 1) / (size - 1)
        half_pixel           p = (i + 1/2) length / size - 1/2
        neither              p = i length / size
        half_pixel_for_nn    p = (i + 1/2) length / size      (of "nearest" alone)

    Positions outside the array read its outermost elements. For ``size == 1``, ``p = 0``, except
    that ``"cubic"`` keeps to ``half_pixel``. Several axes are resized one after the other, the
    result being that of the product of their weights.

    Args:
        x: any leading axes, then the resized ones (one to three, or more), then the channels where
            ``channel_last``. Integers become ``float32``, except with ``"nearest"``.
        scale: one factor for each of the last axes: ``size = floor(scale * length)``.
        output_size: one new length for each of the last axes; ``scale`` is ignored if it is given.
        mode: ``"linear"`` between two elements along each axis; ``"nearest"``, that at
            ``floor(p)``; ``"cubic"``, of four (Keys, 1981, with ``a = -0.75``); or ``"area"``, the
            mean of those from ``floor(i length / size)`` to before
            ``ceil((i + 1) length / size)``, which takes no alignment.
        align_corners: whether the outermost elements stay where they are.
        half_pixel: whether elements are cells, whose outer borders coincide.
        half_pixel_for_nn: the alignment that ``"nearest"`` had in nnabla up to 1.8; it goes before
            the others.
        channel_last: whether the last axis is left as it is.

    Raises:
        OperatorError: an unknown mode, two alignments at once, or neither of scale and output_size.
        ShapeError: fewer axes than sizes, or a length of 0.

    Gradient:
        The transposed weights: exact, and differentiable again.

    Examples:
        >>> F.interpolate(np.array([0.0, 2.0, 4.0]), output_size=(5,), align_corners=True).d
        array([0., 1., 2., 3., 4.])
        >>> F.interpolate(np.array([[1.0, 2.0]]), scale=(2, 2), mode="nearest").d
        array([[1., 1., 2., 2.], [1., 1., 2., 2.]])

    Elsewhere:
        - nnabla: `interpolate`, without ``"cubic"`` and ``"area"``, and with ``channel_last`` on
          GPUs alone
        - PyTorch: `torch.nn.functional.interpolate`, whose ``align_corners=False`` is
          ``half_pixel`` here, and whose ``"nearest"`` is neither alignment
        - ONNX: `Resize`
    """
    variable = x if isinstance(x, Variable) else Variable.constant(x)
    given = scale if output_size is None else output_size
    if given is None:
        raise OperatorError("interpolate needs either scale or output_size")
    if mode not in MODES:
        raise OperatorError(f"interpolate: mode {mode!r} is not one of {', '.join(MODES)}")
    rule = _alignment(mode, align_corners, half_pixel, half_pixel_for_nn)
    first = variable.ndim - len(given) - bool(channel_last)
    if first < 0:
        raise ShapeError(
            f"interpolate: {len(given)} axes are to be resized, and x has shape {variable.shape}"
        )
    lengths = variable.shape[first : first + len(given)]
    if output_size is None:
        sizes = [math.floor(factor * n) for factor, n in zip(given, lengths, strict=True)]
    else:
        sizes = [int(size) for size in output_size]
    axes = [
        Resized(first + i, n, size) for i, (n, size) in enumerate(zip(lengths, sizes, strict=True))
    ]
    return _resized("interpolate", variable, axes, rule)


def onnx_resize(
    x: Operand,
    roi: Sequence[float] = (),
    scales: Sequence[float] = (),
    sizes: Sequence[int] = (),
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float | None = None,
    exclude_outside: bool | None = None,
    extrapolation_value: float | None = None,
    nearest_mode: str = "round_prefer_floor",
) -> Variable:
    """Resize any axes as the ONNX operator `Resize` (opset 11 to 13) does.

    Element ``i`` of an axis of new length ``size`` is read at position ``p`` of the old one, of
    ``length`` elements, where ``scale`` is that given, or ``size / length``:

        half_pixel             p = (i + 1/2) / scale - 1/2
        pytorch_half_pixel     the same; 0 for size 1
        align_corners          p = i (length - 1) / (size - 1); 0 for size 1
        asymmetric             p = i / scale
        tf_half_pixel_for_nn   p = (i + 1/2) / scale
        tf_crop_and_resize     p from start (length - 1) to end (length - 1); the middle for size 1

    Positions outside the array read its outermost elements. An axis that keeps its length, and is
    not cropped, stays as it is.

    Args:
        x: any shape. Integers become ``float32``, except with ``"nearest"``.
        roi: for ``tf_crop_and_resize``: the start of every axis, then the end of every axis, as
            parts of its length from 0 to 1 (further means outside).
        scales: one factor for each axis: ``size = floor(length * scale)``, with cropping
            ``floor(length * (end - start) * scale)``.
        sizes: one new length for each axis, in place of ``scales``.
        mode: ``"nearest"``, ``"linear"`` or ``"cubic"``.
        coordinate_transformation_mode: one of the six above.
        cubic_coeff_a: coefficient of the cubic kernel (Keys, 1981); -0.75 if ``None``.
        exclude_outside: whether elements outside get weight 0, and the others' weights are brought
            to the sum 1, in place of repeating the outermost element.
        extrapolation_value: what ``tf_crop_and_resize`` gives outside the array; 0 if ``None``.
        nearest_mode: how ``"nearest"`` rounds ``p``: ``"round_prefer_floor"`` (halves down),
            ``"round_prefer_ceil"`` (halves up), ``"floor"`` or ``"ceil"``.

    Raises:
        OperatorError: an unknown mode, or both or neither of scales and sizes.
        ShapeError: not one value for each axis (of ``roi``, two), or a length of 0.

    Gradient:
        The transposed weights: exact, and differentiable again; 0 where extrapolated.

    Examples:
        >>> F.onnx_resize(np.array([1.0, 2.0, 3.0, 4.0]), scales=(0.5,), mode="linear").d
        array([1.5, 3.5])

    Elsewhere:
        - nnabla: `onnx_resize`
        - PyTorch: `torch.nn.functional.interpolate`, with fewer alignments
        - ONNX: `Resize`
    """
    variable = x if isinstance(x, Variable) else Variable.constant(x)
    for what, value, known in (
        ("mode", mode, MODES[:3]),
        ("coordinate_transformation_mode", coordinate_transformation_mode, COORDINATES),
        ("nearest_mode", nearest_mode, ROUNDINGS),
    ):
        if value not in known:
            raise OperatorError(f"onnx_resize: {what} {value!r} is not one of {', '.join(known)}")
    if bool(len(scales)) == bool(len(sizes)):
        raise OperatorError("onnx_resize needs either scales or sizes, one value for each axis")
    rule = Rule(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        CUBIC_A if cubic_coeff_a is None else float(cubic_coeff_a),
        bool(exclude_outside),
    )
    axes = _onnx_axes(variable.shape, roi, scales, sizes, rule)
    y = _resized("onnx_resize", variable, axes, rule)
    outside = np.zeros((1,) * variable.ndim, bool)
    if rule.coordinates == "tf_crop_and_resize":
        for axis in axes:
            at = positions(axis, rule)
            beyond = (at < 0) | (at > axis.length - 1)
            outside = outside | beyond.reshape(-1, *(1,) * (variable.ndim - axis.axis - 1))
    if not outside.any():
        return y
    return F.where(np.broadcast_to(outside, y.shape), float(extrapolation_value or 0), y)


def _alignment(mode: str, align_corners: bool, half_pixel: bool, half_pixel_for_nn: bool) -> Rule:
    """Return the rule in ONNX's words."""
    if align_corners and half_pixel:
        raise OperatorError("interpolate: choose one of align_corners and half_pixel")
    if mode == "area":
        if align_corners or half_pixel:
            raise OperatorError("interpolate: mode 'area' takes no alignment")
        return Rule("area")
    if mode == "nearest" and half_pixel_for_nn:
        return Rule(mode, "tf_half_pixel_for_nn", "floor")
    if align_corners:
        return Rule(mode, "align_corners", "floor")
    if half_pixel:
        return Rule(mode, "half_pixel" if mode == "cubic" else "pytorch_half_pixel", "floor")
    return Rule(mode, "asymmetric", "floor")


def _onnx_axes(
    shape: tuple[int, ...],
    roi: Sequence[float],
    scales: Sequence[float],
    sizes: Sequence[int],
    rule: Rule,
) -> list[Resized]:
    """Return all axes, as the arguments say."""
    given = len(scales) or len(sizes)
    if given != len(shape):
        raise ShapeError(f"onnx_resize: {given} scales or sizes for x of shape {shape}")
    crops = [(0.0, 1.0)] * len(shape)
    if rule.coordinates == "tf_crop_and_resize":
        if len(roi) != 2 * len(shape):
            raise ShapeError(
                f"onnx_resize: roi must hold {2 * len(shape)} numbers, the start of each axis and "
                f"then the end of each, and holds {len(roi)}"
            )
        crops = [(float(roi[i]), float(roi[i + len(shape)])) for i in range(len(shape))]
    axes = []
    for i, (length, crop) in enumerate(zip(shape, crops, strict=True)):
        if len(sizes):
            axes.append(Resized(i, length, int(sizes[i]), None, crop))
        else:
            # In float32, as the attribute is kept: 10 * 0.7 is 7 there.
            size = np.float32(length) * np.float32(crop[1] - crop[0]) * np.float32(scales[i])
            axes.append(Resized(i, length, int(np.floor(size)), float(scales[i]), crop))
    return axes


def _resized(name: str, x: Variable, axes: Sequence[Resized], rule: Rule) -> Variable:
    """Resize the axes that change, those that shrink first, so that there is less to do."""
    changed = [
        axis
        for axis in axes
        if axis.size != axis.length or axis.crop != (0, 1) or axis.scale not in (None, 1)
    ]
    for axis in changed:
        if axis.size < 1 or axis.length < 1:
            raise ShapeError(
                f"{name}: axis {axis.axis} cannot be resized from {axis.length} to {axis.size}: "
                f"both must be at least 1; input shape {x.shape}"
            )
    if rule.mode != "nearest":
        x = floating(x)
    if not changed:
        return F.identity(x)
    changed.sort(key=lambda axis: axis.ratio)
    result: Variable = resize_operator(x, axes=tuple(changed), rule=rule)
    return result
