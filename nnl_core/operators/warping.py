"""Pictures read between their pixels, at points that are data: grids, affine maps, flow fields."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import wholes
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec, promote
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.dtypes import floating, wide_dtype
from nnl_core.operators.taps import (
    as_pictures,
    as_rows,
    degree,
    derivative,
    evaluate,
    half_away_from_zero,
    kernel,
    read_rows,
    write_rows,
)

__all__ = ["affine_grid", "grid_sample", "warp_by_flow", "warp_by_grid"]

METHODS = ("linear", "nearest", "nearest_even", "cubic")
PADDINGS = ("zero", "repeat", "reflect")


def _axis_taps(
    p: Array, length: int, method: str, padding: str, cells: bool, order: int
) -> list[tuple[Array, Array]]:
    """Return the elements that points along one axis are read from, and their weights.

    ``order`` says which derivative of the weights. Elements outside have weight 0, or are those
    inside that ``padding`` says: ``reflect`` is at the outermost elements, or at their outer
    borders if they are ``cells``.
    """
    span = length if cells else length - 1
    if padding == "reflect":
        low = -0.5 if cells else 0.0
        with np.errstate(invalid="ignore"):  # an infinite point is nowhere
            p = low + np.mod(p - low, 2 * span) if span else 0 * p
        if method.startswith("nearest"):
            p = np.minimum(p, 2 * (low + span) - p)
    else:
        p = np.clip(p, -4, length + 3)
    if method.startswith("nearest"):
        nearest = np.rint(p) if method == "nearest_even" else half_away_from_zero(p)
        fraction, base = 0 * p, nearest
    else:
        base = np.floor(p)
        fraction = p - base
    polynomials = kernel(method)
    first = np.where(np.isnan(p), 0, base).astype(np.intp) + 1 - (len(polynomials) + 1) // 2
    taps = []
    for step, polynomial in enumerate(polynomials):
        at, weight = first + step, evaluate(derivative(polynomial, order), fraction)
        inside = (at >= 0) & (at < length)
        if padding == "zero":
            weight = np.where(inside, weight, 0)
        elif padding == "reflect" and span:
            at = np.mod(at, 2 * span)
            at = np.minimum(at, 2 * span - cells - at)
        taps.append((at.clip(0, length - 1), weight))
    return taps


def find_taps(
    points: Array,
    shape: tuple[int, ...],
    method: str,
    padding: str,
    cells: bool,
    orders: tuple[int, ...],
    dtype: np.dtype,
) -> Iterator[tuple[Array, Array]]:
    """Yield rows of a batch of pictures, as a matrix of a row for each pixel, and weights."""
    axes = len(shape)
    flat = points.reshape(len(points), math.prod(points.shape[1:-1]), axes).astype(dtype)
    along = [
        _axis_taps(flat[..., axes - 1 - axis], length, method, padding, cells, order)
        for axis, (length, order) in enumerate(zip(shape, reversed(orders), strict=True))
    ]
    batch = np.arange(len(flat))[:, None]
    for chosen in itertools.product(*along):
        row, weight = batch, np.ones((), dtype)
        for length, (at, factor) in zip(shape, chosen, strict=True):
            row, weight = row * length + at, weight * factor
        yield row.reshape(-1), weight.reshape(-1)


@defop("nnl::sample_points", save=("x", "points"))
def sample_points(
    x: Array,
    points: Array,
    *,
    method: str,
    padding: str,
    cells: bool,
    orders: tuple[int, ...],
) -> Array:
    """Read pictures ``(batch, channels, *lengths)`` at points ``(batch, *places, axes)``.

    A point counts in pixels, the last axis first: ``(x, y)`` or ``(x, y, z)``. ``orders`` says how
    often the value is differentiated by each coordinate. The result is
    ``(batch, channels, *places)``; NaN at a point that is NaN.
    """
    dtype = promote(x.dtype, points.dtype)
    taps = find_taps(points, x.shape[2:], method, padding, cells, orders, dtype)
    rows = read_rows(as_rows(x), taps, dtype)
    return as_pictures(rows, len(points), points.shape[1:-1], x.dtype)


@sample_points.infer
def sample_points_infer(
    x: Spec,
    points: Spec,
    *,
    method: str,
    padding: str,
    cells: bool,
    orders: tuple[int, ...],
) -> Spec:
    """The places in place of the lengths."""
    axes = x.ndim - 2
    if axes < 1 or points.ndim < 2 or points.shape[-1] != axes or points.shape[0] != x.shape[0]:
        raise ShapeError(
            "points must be (batch, *places, axes) for x of (batch, channels, *lengths), with the "
            f"batch of x and {max(axes, 1)} coordinates"
        )
    if 0 in x.shape[2:]:
        raise ShapeError("a picture without pixels cannot be read")
    return x.with_shape((*x.shape[:2], *points.shape[1:-1]))


@sample_points.vjp
def sample_points_vjp(
    g: Any, y: Any, x: Any, points: Any, *, orders: tuple[int, ...], **options: Any
) -> tuple[Any, ...]:
    """Add the gradient to the pixels that were read; and what moves with the points."""
    dx = sample_points_adjoint(g, points, shape=x.shape[2:], orders=orders, **options)
    return dx, _points_gradient(g, x, points, orders, **options)


def _points_gradient(
    g: Variable, x: Variable, points: Variable, orders: tuple[int, ...], **options: Any
) -> Variable | None:
    """Return the sum over channels of ``g`` times the slope along each coordinate."""
    dtype = promote(x.dtype, points.dtype)
    parts: list[Variable | None] = []
    for axis, order in enumerate(orders):
        if order == degree(options["method"]):
            parts.append(None)
            continue
        raised = (*orders[:axis], order + 1, *orders[axis + 1 :])
        slope = sample_points(x, points, orders=raised, **options)
        product = F.chain_rule(F.cast(g, dtype), F.cast(slope, dtype))
        parts.append(F.sum(product, axis=1))
    known = [part for part in parts if part is not None]
    if not known:
        return None
    zeros = F.zeros_like(known[0])
    joined = F.stack(*(zeros if part is None else part for part in parts), axis=points.ndim - 1)
    return F.cast(joined, points.dtype)


@sample_points.multiply_adds
def sample_points_multiply_adds(x: Spec, points: Spec, *, method: str, **options: object) -> int:
    """One per tap and channel."""
    places = math.prod(points.shape[:-1])
    return int(places * x.shape[1] * len(kernel(method)) ** points.shape[-1])


@defop("nnl::sample_points_adjoint", save=("g", "points"))
def sample_points_adjoint(
    g: Array,
    points: Array,
    *,
    shape: tuple[int, ...],
    method: str,
    padding: str,
    cells: bool,
    orders: tuple[int, ...],
) -> Array:
    """Add ``g``, weighted, to the pixels that `sample_points` reads, of pictures of ``shape``."""
    dtype = promote(g.dtype, points.dtype)
    taps = find_taps(points, shape, method, padding, cells, orders, dtype)
    rows = write_rows(as_rows(g), taps, g.shape[0] * math.prod(shape))
    return as_pictures(rows, g.shape[0], shape, g.dtype)


@sample_points_adjoint.infer
def sample_points_adjoint_infer(
    g: Spec, points: Spec, *, shape: tuple[int, ...], **options: object
) -> Spec:
    """The lengths of the pictures in place of the places."""
    if g.shape[2:] != points.shape[1:-1] or g.shape[0] != points.shape[0]:
        raise ShapeError("g must be (batch, channels, *places) for points (batch, *places, axes)")
    return g.with_shape((*g.shape[:2], *shape))


@sample_points_adjoint.vjp
def sample_points_adjoint_vjp(
    h: Any,
    y: Any,
    g: Any,
    points: Any,
    *,
    shape: tuple[int, ...],
    orders: tuple[int, ...],
    **options: Any,
) -> tuple[Any, ...]:
    """Read the gradient at the points; and what moves with them."""
    dg = sample_points(h, points, orders=orders, **options)
    return dg, _points_gradient(g, h, points, orders, **options)


@sample_points_adjoint.multiply_adds
def sample_points_adjoint_multiply_adds(
    g: Spec, points: Spec, *, method: str, **options: object
) -> int:
    """One per tap and channel."""
    return sample_points_multiply_adds(g, points, method=method)


def _points(rng: np.random.Generator, *shape: int) -> Array:
    """Draw points inside and outside, none near where elements, cells or reflections meet."""
    return np.asarray(rng.integers(-2, 5, size=shape) + rng.choice([0.25, 0.625, 0.8], size=shape))


def _options() -> Iterator[dict[str, Any]]:
    for method, padding, cells in itertools.product(METHODS, PADDINGS, (False, True)):
        yield {"method": method, "padding": padding, "cells": cells}


@sample_points.samples
def sample_points_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Every method with every padding; one to three axes, an axis of length 1, no batch."""
    for options in _options():
        x, points = rng.normal(size=(2, 1, 2, 3)), _points(rng, 2, 1, 3, 2)
        yield Sample(x, points, orders=(0, 0), **options)
    for method, padding in zip(METHODS, itertools.cycle(PADDINGS), strict=False):
        x, points = rng.normal(size=(1, 2, 4)), _points(rng, 1, 3, 1)
        yield Sample(x, points, orders=(0,), method=method, padding=padding, cells=True)
    for padding in PADDINGS:
        plain = {"method": "linear", "padding": padding, "cells": False}
        x, points = rng.normal(size=(1, 1, 3, 2, 2)), _points(rng, 1, 3, 3)
        yield Sample(x, points, orders=(0, 1, 0), **plain)
        yield Sample(rng.normal(size=(2, 1, 1, 3)), _points(rng, 2, 2, 2), orders=(0, 0), **plain)
        x, points = rng.normal(size=(1, 1, 3, 4)), _points(rng, 1, 3, 2)
        for orders in ((2, 0), (1, 3)):
            yield Sample(x, points, orders=orders, **{**plain, "method": "cubic"})
    yield Sample(np.zeros((0, 1, 2, 3)), np.zeros((0, 4, 2)), orders=(0, 0), **plain)


@sample_points_adjoint.samples
def sample_points_adjoint_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Every method and padding, derivatives, three axes, no batch."""
    for options in _options():
        g, points = rng.normal(size=(2, 2, 1, 3)), _points(rng, 2, 1, 3, 2)
        yield Sample(g, points, shape=(2, 3), orders=(0, 0), **options)
    plain = {"method": "linear", "padding": "zero", "cells": True}
    g, points = rng.normal(size=(1, 2, 3)), _points(rng, 1, 3, 3)
    yield Sample(g, points, shape=(3, 4, 1), orders=(1, 0, 1), **plain)
    yield Sample(np.zeros((0, 1, 4)), np.zeros((0, 4, 2)), shape=(2, 3), orders=(0, 0), **plain)


# What users call ---------------------------------------------------------------------------------


def affine_grid(theta: Operand, size: Sequence[int], align_corners: bool = False) -> Variable:
    """Return the points of a picture's pixels, moved by an affine map: ``theta @ (x, y, 1)``.

    Coordinates go from -1 to 1, for `warp_by_grid`. The pixel ``i`` of ``n`` along an axis lies at

        align_corners    2 i / (n - 1) - 1      (0 for n = 1)
        otherwise        (2 i + 1) / n - 1

    M. Jaderberg and others, Spatial transformer networks, 2015.

    Args:
        theta: ``(batch, 2, 3)``, or ``(batch, 3, 4)`` for volumes.
        size: ``(height, width)``, or ``(depth, height, width)``.
        align_corners: whether -1 and 1 are the centres of the outermost pixels, not their borders.

    Returns:
        ``(batch, height, width, 2)`` or ``(batch, depth, height, width, 3)``; the last axis holds
        ``(x, y)`` or ``(x, y, z)``.

    Raises:
        ShapeError: ``theta`` does not fit the number of lengths in ``size``.

    Gradient:
        Linear in ``theta``.

    Examples:
        >>> F.affine_grid(np.array([[[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]]), (1, 2)).d
        array([[[[0., 0.], [1., 0.]]]])

    Elsewhere:
        - nnabla: `affine_grid`, which gives NaN along an axis of length 1
        - PyTorch: `torch.nn.functional.affine_grid`, whose ``size`` has batch and channels before
        - ONNX: `AffineGrid`
    """
    theta = floating(theta)
    lengths = wholes(size, "size")
    axes = len(lengths)
    if axes not in (2, 3) or theta.ndim != 3 or theta.shape[1:] != (axes, axes + 1):
        raise ShapeError(
            f"affine_grid: theta of shape {theta.shape} and size {lengths}: theta must be "
            "(batch, 2, 3) for (height, width), or (batch, 3, 4) for (depth, height, width)"
        )
    if min(lengths) < 1:
        raise ShapeError(f"affine_grid: size {lengths}: lengths must be at least 1")
    at = [(2 * np.arange(n) - (n - 1)) / (max(1, n - 1) if align_corners else n) for n in lengths]
    mesh = np.meshgrid(*at, indexing="ij")
    base = np.stack([*reversed(mesh), np.ones(lengths)], axis=-1).reshape(-1, axes + 1)
    points = Variable.constant(base.astype(theta.dtype))
    grid = F.matmul(points, F.transpose(theta, (0, 2, 1)))
    return F.reshape(grid, (theta.shape[0], *lengths, axes))


def warp_by_grid(
    x: Operand,
    grid: Operand,
    mode: str = "linear",
    padding_mode: str = "zero",
    align_corners: bool = False,
    channel_last: bool = False,
) -> Variable:
    """Read pictures or volumes at the points of a grid: ``y[b, c, i, j] = x[b, c, grid[b, i, j]]``.

    Coordinates go from -1 to 1 along each axis, whatever its length ``n``: ``u`` is the pixel
    ``(u + 1) (n - 1) / 2`` with ``align_corners``, else ``((u + 1) n - 1) / 2``. A NaN there gives
    NaN; so does an infinity with ``"reflect"``.

    Args:
        x: ``(batch, channels, height, width)`` or ``(batch, channels, depth, height, width)``.
        grid: ``(batch, height', width', 2)`` of ``(x, y)``, or
            ``(batch, depth', height', width', 3)`` of ``(x, y, z)``.
        mode: ``"linear"`` between the nearest pixels along each axis, or ``"nearest"``, halves
            being rounded away from zero.
        padding_mode: what is outside: ``"zero"``; ``"repeat"``, the outermost pixels; or
            ``"reflect"``, the picture reflected at their centres with ``align_corners``, else at
            their outer borders.
        align_corners: whether -1 and 1 are the centres of the outermost pixels, not their borders.
        channel_last: whether channels are the last axis of ``x`` and of the result.

    Returns:
        ``(batch, channels, height', width')``, or with ``depth'``; dtype of ``x``.

    Raises:
        OperatorError: an unknown mode.
        ShapeError: ``x`` and ``grid`` do not fit.

    Gradient:
        In ``x``, and in ``grid`` the slope between the pixels around, at a pixel that to the next;
        both any number of times. ``"nearest"`` has none in ``grid``.

    Examples:
        >>> x = np.array([[[[1.0, 3.0]]]])
        >>> F.warp_by_grid(x, np.array([[[[0.0, 0.0], [1.0, 0.0]]]]), align_corners=True).d
        array([[[[2., 3.]]]])

    Elsewhere:
        - nnabla: `warp_by_grid`, with ``channel_last`` on GPUs alone
        - PyTorch: `torch.nn.functional.grid_sample`, which `grid_sample` is here
        - ONNX: `GridSample`
    """
    if mode not in ("linear", "nearest"):
        raise OperatorError(f"warp_by_grid: mode {mode!r} is not one of linear, nearest")
    if padding_mode not in PADDINGS:
        raise OperatorError(
            f"warp_by_grid: padding_mode {padding_mode!r} is not one of {', '.join(PADDINGS)}"
        )
    pictures = floating(x)
    if channel_last:
        pictures = F.transpose(pictures, (0, pictures.ndim - 1, *range(1, pictures.ndim - 1)))
    y = _warped("warp_by_grid", pictures, grid, mode, padding_mode, align_corners)
    return F.transpose(y, (0, *range(2, y.ndim), 1)) if channel_last else y


def grid_sample(
    input: Operand,
    grid: Operand,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Variable:
    """Read pictures, or volumes, at the points of a grid, with PyTorch's arguments.

    It is `warp_by_grid` with other words, ``"bicubic"`` reading (Keys, 1981, with ``a = -0.75``,
    padding each of the pixels that it reads), and ``"nearest"`` rounding halves to even.

    Args:
        input: ``(batch, channels, height, width)`` or ``(batch, channels, depth, height, width)``.
        grid: ``(batch, height', width', 2)`` of ``(x, y)``, or
            ``(batch, depth', height', width', 3)`` of ``(x, y, z)``, from -1 to 1.
        mode: ``"bilinear"``, ``"nearest"`` or ``"bicubic"``, of volumes, too.
        padding_mode: ``"zeros"``, ``"border"`` or ``"reflection"``.
        align_corners: whether -1 and 1 are the centres of the outermost pixels; ``None`` is
            ``False``.

    Returns:
        ``(batch, channels, height', width')``, or with ``depth'``; dtype of ``input``.

    Raises:
        OperatorError: an unknown mode.
        ShapeError: ``input`` and ``grid`` do not fit.

    Gradient:
        As of `warp_by_grid`.

    Examples:
        >>> x = np.array([[[[1.0, 3.0]]]])
        >>> F.grid_sample(x, np.array([[[[0.0, 0.0], [9.0, 0.0]]]]), padding_mode="border").d
        array([[[[2., 3.]]]])

    Elsewhere:
        - nnabla: `warp_by_grid`
        - PyTorch: `torch.nn.functional.grid_sample`
        - ONNX: `GridSample`
    """
    methods = {"bilinear": "linear", "nearest": "nearest_even", "bicubic": "cubic"}
    paddings = {"zeros": "zero", "border": "repeat", "reflection": "reflect"}
    for what, value, known in (("mode", mode, methods), ("padding_mode", padding_mode, paddings)):
        if value not in known:
            raise OperatorError(f"grid_sample: {what} {value!r} is not one of {', '.join(known)}")
    return _warped(
        "grid_sample",
        floating(input),
        grid,
        methods[mode],
        paddings[padding_mode],
        bool(align_corners),
    )


def warp_by_flow(data: Operand, flow: Operand) -> Variable:
    """Move pixels by a flow field: ``y[b, c, i, j] = data[b, c, i + flow_y, j + flow_x]``.

    ``flow_x = flow[b, 0, i, j]`` and ``flow_y = flow[b, 1, i, j]`` count in pixels. Values between
    pixels are bilinear; outside, the outermost pixels are repeated.

    Args:
        data: ``(batch, channels, height, width)``.
        flow: ``(batch, 2, height, width)``.

    Raises:
        ShapeError: the two do not fit.

    Gradient:
        In both, any number of times; in ``flow`` the slope between the pixels around, at a pixel
        that to the next.

    Examples:
        >>> flow = np.zeros((1, 2, 1, 3))
        >>> flow[0, 0] = 0.5
        >>> F.warp_by_flow(np.array([[[[1.0, 2.0, 4.0]]]]), flow).d
        array([[[[1.5, 3. , 4. ]]]])

    Elsewhere:
        - nnabla: `warp_by_flow`
        - PyTorch: none, `torch.nn.functional.grid_sample` of the flow brought to -1 to 1
        - ONNX: none, `GridSample` of the flow brought to -1 to 1
    """
    pictures, moves = floating(data), _coordinates(flow)
    if pictures.ndim != 4 or moves.shape != (pictures.shape[0], 2, *pictures.shape[2:]):
        raise ShapeError(
            f"warp_by_flow: data of shape {pictures.shape} and flow of shape {moves.shape}: they "
            "must be (batch, channels, height, width) and (batch, 2, height, width)"
        )
    y, x = np.indices(pictures.shape[2:])
    start = Variable.constant(np.stack([x, y], axis=-1).astype(moves.dtype))
    points = F.add(F.transpose(moves, (0, 2, 3, 1)), start)
    result: Variable = sample_points(
        pictures, points, method="linear", padding="repeat", cells=False, orders=(0, 0)
    )
    return result


def _coordinates(points: Operand) -> Variable:
    """Return points in a dtype that tells pixels of large pictures from each other."""
    variable = floating(points)
    dtype = wide_dtype(variable.dtype)
    return variable if variable.dtype == dtype else F.cast(variable, dtype)


def _warped(
    name: str, x: Variable, grid: Operand, method: str, padding: str, align_corners: bool
) -> Variable:
    """Read at points that go from -1 to 1."""
    points = _coordinates(grid)
    axes = x.ndim - 2
    if axes not in (2, 3) or points.ndim != x.ndim or points.shape[-1] != axes:
        raise ShapeError(
            f"{name}: pictures of shape {x.shape} and a grid of shape {points.shape}: the grid "
            "must be (batch, height, width, 2) for pictures, (batch, depth, height, width, 3) for "
            "volumes"
        )
    lengths = np.array(x.shape[:1:-1], points.dtype)
    half = (lengths - 1 if align_corners else lengths) / 2
    middle = (lengths - 1) / 2
    points = F.add(F.mul(points, Variable.constant(half)), Variable.constant(middle))
    result: Variable = sample_points(
        x,
        points,
        method=method,
        padding=padding,
        cells=not align_corners,
        orders=(0,) * axes,
    )
    return result
