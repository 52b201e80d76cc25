"""Elements by position along one axis: taken, summed back, added to others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import whole
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec, normalize_axis, promote
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import unbroadcast

__all__ = [
    "embed",
    "gather",
    "gather_adjoint",
    "gather_elements",
    "scatter_add",
]


def as_positions(indices: Array, length: int, what: str, *, from_end: bool = False) -> Array:
    """Return indices, which may be whole numbers in a floating dtype, as positions.

    They must be below ``length`` and, unless ``from_end`` lets negative ones count from the end, at
    least 0. Raises `OperatorError` naming the value and the range.
    """
    if indices.dtype.kind == "f":
        whole = np.isfinite(indices) & (indices == np.rint(indices))
        if not whole.all():
            value = indices[~whole].flat[0]
            raise OperatorError(f"{what}: index {value} is not a whole number")
    positions = indices.astype(np.intp, copy=False)
    lowest = -length if from_end else 0
    if positions.size:
        if positions.min() < lowest or positions.max() >= length:
            value = positions[(positions < lowest) | (positions >= length)].flat[0]
            raise OperatorError(f"{what}: index {value} is out of range [{lowest}, {length})")
        if from_end and positions.min() < 0:
            return np.where(positions < 0, positions + length, positions)
    return positions


def flat_places(indices: Array, shape: tuple[int, ...], axis: int, what: str) -> Array:
    """Return where in the flat array of a shape each element of `scatter_add` and its kin belongs.

    NumPy's ``ufunc.at`` is ten times as fast with these as with an index for each axis.
    """
    strides = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
    places = as_positions(indices, shape[axis], f"{what} along axis {axis}") * strides[axis]
    for other, (length, stride) in enumerate(zip(indices.shape, strides, strict=True)):
        if other != axis:
            starts = np.arange(0, length * stride, stride) if stride else np.zeros(length, np.intp)
            places += starts.reshape(-1, *[1] * (len(shape) - 1 - other))
    return places.reshape(-1)


def to_variable(value: Operand) -> Variable:
    return value if isinstance(value, Variable) else Variable.constant(value)


@defop("nnl::gather", save=("indices",))
def gather_operator(x: Array, indices: Array, *, axis: int = 0, batch_dims: int = 0) -> Array:
    """Take elements along ``axis`` at the given positions.

    The first ``batch_dims`` axes of ``x`` and of ``indices`` run together. The result has
    ``indices.shape[batch_dims:]`` in place of the axis.
    """
    at = normalize_axis(axis, x.ndim)
    positions = as_positions(indices, x.shape[at], f"gather along axis {at}")
    batch = x.shape[:batch_dims]
    outer, inner = x.shape[batch_dims:at], x.shape[at + 1 :]
    folded = x.reshape(math.prod(batch), math.prod(outer), x.shape[at], math.prod(inner))
    rows = positions.reshape(math.prod(batch), 1, math.prod(indices.shape[batch_dims:]), 1)
    taken = np.take_along_axis(folded, rows, axis=2)
    return taken.reshape((*batch, *outer, *indices.shape[batch_dims:], *inner))


@gather_operator.infer
def gather_infer(x: Spec, indices: Spec, *, axis: int, batch_dims: int) -> Spec:
    """The shape of ``indices`` in place of the axis."""
    at = normalize_axis(axis, x.ndim)
    if not 0 <= batch_dims <= min(at, indices.ndim):
        raise ShapeError(
            f"batch_dims {batch_dims} must be between 0 and the smaller of axis {at} and the "
            f"{indices.ndim} axes of the indices"
        )
    if x.shape[:batch_dims] != indices.shape[:batch_dims]:
        raise ShapeError(f"the first {batch_dims} axes of x and indices differ")
    return x.with_shape((*x.shape[:at], *indices.shape[batch_dims:], *x.shape[at + 1 :]))


@gather_operator.vjp
def gather_vjp(
    g: Any, y: Any, x: Any, indices: Any, *, axis: int, batch_dims: int
) -> tuple[Any, ...]:
    """Sum the gradients of each position."""
    at = normalize_axis(axis, x.ndim)
    return gather_adjoint(g, indices, size=x.shape[at], axis=at, batch_dims=batch_dims), None


@gather_operator.samples
def gather_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Each axis, repeated positions, a 0-d position, whole floats, batches, nothing taken."""
    x = rng.normal(size=(3, 4, 2))
    for axis in (0, 1, -1):
        yield Sample(x, rng.integers(0, x.shape[axis], size=(2, 5)), axis=axis)
    yield Sample(x, np.asarray(2), axis=1)
    yield Sample(x[0, :, 0], np.asarray(2), axis=0)
    yield Sample(x, np.array([3.0, 0.0, 3.0]), axis=1)
    yield Sample(x, rng.integers(0, 4, size=(3, 5)), axis=1, batch_dims=1)
    yield Sample(x, rng.integers(0, 2, size=(3, 2)), axis=2, batch_dims=1)
    yield Sample(x, rng.integers(0, 2, size=(3, 4)), axis=2, batch_dims=2)
    yield Sample(x, np.zeros((0,), np.int64), axis=0)
    yield Sample(x[:0], np.zeros((0, 2), np.int64), axis=1, batch_dims=1)
    yield Sample(np.zeros((0, 3)), np.array([1, 1]), axis=1)


@defop("nnl::gather_adjoint", save=("indices",))
def gather_adjoint(g: Array, indices: Array, *, size: int, axis: int, batch_dims: int) -> Array:
    """Add slices, which `gather` would take, to zeros at their positions.

    Args:
        g: the slices, with the axes of ``indices`` in place of ``axis``.
        indices: whole numbers from 0 on.
        size: the length of the result along ``axis``.
        axis: where to put them; not negative.
        batch_dims: how many first axes of both run together.

    Gradient:
        Of ``g`` what is at its positions.

    Examples:
        >>> g, indices = np.array([1.0, 10.0, 20.0]), np.array([0, 2, 2])
        >>> F.gather_adjoint(g, indices, size=3, axis=0, batch_dims=0).d
        array([ 1.,  0., 30.])

    Elsewhere:
        - nnabla: none, internal to its gradients
        - PyTorch: `torch.index_add`
        - ONNX: `ScatterElements` with `reduction="add"`
    """
    positions = as_positions(indices, size, f"gather along axis {axis}")
    batch, outer = g.shape[:batch_dims], g.shape[batch_dims:axis]
    taken = indices.shape[batch_dims:]
    inner = g.shape[axis + len(taken) :]
    sums = np.zeros(
        (math.prod(batch), size, math.prod(outer), math.prod(inner)),
        np.float32 if g.dtype == np.float16 else g.dtype,
    )
    folded = g.reshape(math.prod(batch), math.prod(outer), math.prod(taken), math.prod(inner))
    at = np.arange(math.prod(batch))[:, None], positions.reshape(math.prod(batch), math.prod(taken))
    np.add.at(sums, at, folded.swapaxes(1, 2))
    return sums.swapaxes(1, 2).reshape(*batch, *outer, size, *inner).astype(g.dtype)


@gather_adjoint.infer
def gather_adjoint_infer(g: Spec, indices: Spec, *, size: int, axis: int, batch_dims: int) -> Spec:
    """``size`` in place of the axes of ``indices``."""
    taken = indices.shape[batch_dims:]
    if g.shape[axis : axis + len(taken)] != taken:
        raise ShapeError(f"g must have the axes {taken} of the indices from axis {axis} on")
    return g.with_shape((*g.shape[:axis], size, *g.shape[axis + len(taken) :]))


@gather_adjoint.vjp
def gather_adjoint_vjp(
    g: Any, y: Any, x: Any, indices: Any, *, size: int, axis: int, batch_dims: int
) -> tuple[Any, ...]:
    """Take the gradient at the positions."""
    return gather_operator(g, indices, axis=axis, batch_dims=batch_dims), None


@gather_adjoint.samples
def gather_adjoint_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Rows and numbers, few and many repetitions, inner axes, batches, empty."""
    yield Sample(
        rng.normal(size=(6, 3)), np.array([1, 0, 1, 4, 1, 0]), size=5, axis=0, batch_dims=0
    )
    yield Sample(rng.normal(size=(2, 9)), rng.integers(0, 2, 9), size=2, axis=1, batch_dims=0)
    yield Sample(
        rng.normal(size=(40, 3)), rng.integers(0, 2, size=40), size=3, axis=0, batch_dims=0
    )
    yield Sample(
        rng.normal(size=(2, 3, 2, 2)), rng.integers(0, 4, (2, 2)), size=4, axis=2, batch_dims=0
    )
    yield Sample(
        rng.normal(size=(2, 3, 5)), rng.integers(0, 4, (2, 5)), size=4, axis=2, batch_dims=1
    )
    yield Sample(rng.normal(size=(3,)), np.asarray(1), size=2, axis=0, batch_dims=0)
    yield Sample(np.zeros((0, 3)), np.zeros((0,), np.int64), size=2, axis=0, batch_dims=0)
    yield Sample(np.zeros((0, 3)), np.zeros((0, 3), np.int64), size=2, axis=1, batch_dims=1)


def gather(
    x: Operand, Indices: Operand, axis: int | None = None, batch_dims: int | None = None
) -> Variable:
    """Take slices along an axis: with ``axis`` 1, ``y[:, i, j] = x[:, Indices[i, j]]``.

    Args:
        x: any shape but 0-d.
        Indices: whole numbers from 0 on, of any dtype; they may repeat.
        axis: where to take from; 0 by default.
        batch_dims: how many first axes of both run together.

    Raises:
        OperatorError: when run, a position is negative or too large.

    Gradient:
        Added up where positions repeat; none for ``Indices``.

    Examples:
        >>> F.gather(np.array([[1.0, 2.0, 3.0]]), np.array([2, 0]), axis=1).d
        array([[3., 1.]])

    Elsewhere:
        - nnabla: `gather`
        - PyTorch: `torch.index_select`
        - ONNX: `Gather`
    """
    return gather_operator(x, to_variable(Indices), axis=axis or 0, batch_dims=batch_dims or 0)


def embed(x0: Operand, w: Operand) -> Variable:
    """Return rows of a table: ``y = w[x0]``.

    Args:
        x0: whole numbers from 0 on, of any dtype and shape.
        w: ``(rows, *features)``.

    Returns:
        ``x0.shape + w.shape[1:]``.

    Raises:
        OperatorError: when run, a number is negative or too large.

    Gradient:
        Added up for rows that were taken several times; none for ``x0``.

    Examples:
        >>> F.embed(np.array([1, 1, 0]), np.array([[1.0, 2.0], [3.0, 4.0]])).d
        array([[3., 4.],
               [3., 4.],
               [1., 2.]])

    Elsewhere:
        - nnabla: `embed`
        - PyTorch: `torch.nn.functional.embedding`
        - ONNX: `Gather`
    """
    return gather_operator(w, to_variable(x0))


@defop("nnl::gather_elements", save=("indices",))
def gather_elements_operator(x: Array, indices: Array, *, axis: int) -> Array:
    """Take single elements: ``y[i, j] = x[indices[i, j], j]`` with ``axis`` 0.

    ``indices`` may be shorter than ``x`` along the other axes.
    """
    at = normalize_axis(axis, x.ndim)
    positions = as_positions(indices, x.shape[at], f"gather_elements along axis {at}")
    region = tuple(
        slice(None) if at == place else slice(n) for place, n in enumerate(indices.shape)
    )
    return np.take_along_axis(x[region], positions, at)


@gather_elements_operator.infer
def gather_elements_infer(x: Spec, indices: Spec, *, axis: int) -> Spec:
    """The shape of ``indices``."""
    _check_region(indices, x, axis)
    return x.with_shape(indices.shape)


@gather_elements_operator.vjp
def gather_elements_vjp(g: Any, y: Any, x: Any, indices: Any, *, axis: int) -> tuple[Any, ...]:
    """Sum the gradients of each element."""
    zeros = Variable.constant(np.zeros((), x.dtype))
    return scatter_add(F.broadcast(zeros, x.shape), indices, g, axis), None


@gather_elements_operator.samples
def gather_elements_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Each axis, a smaller region, repetitions, empty."""
    yield Sample(rng.normal(size=(3, 4)), rng.integers(0, 3, size=(5, 4)), axis=0)
    yield Sample(rng.normal(size=(3, 4)), rng.integers(0, 4, size=(2, 6)), axis=-1)
    yield Sample(rng.normal(size=(3, 4)), np.zeros((0, 4), np.int64), axis=0)


def gather_elements(x: Operand, indices: Operand, axis: int = 0) -> Variable:
    """Take single elements along an axis: ``y[i, j] = x[indices[i, j], j]`` with ``axis`` 0.

    The positions are whole numbers from 0 on, of any dtype; they may repeat.

    Args:
        x: any shape but ``()``.
        indices: as many axes as ``x``; it may be shorter along those other than ``axis``.
        axis: where to take from.

    Returns:
        The shape of ``indices``, the dtype of ``x``.

    Raises:
        ShapeError: ``indices`` is longer than ``x`` along another axis, or has other axes.
        OperatorError: when run, a position is negative, too large, or no whole number.

    Gradient:
        Added up where positions repeat, 0 where nothing was taken; ``indices`` have none.

    Examples:
        >>> F.gather_elements(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1, 0]])).d
        array([[3., 2.]])

    Elsewhere:
        - nnabla: none, `gather_nd` with positions along all axes
        - PyTorch: `torch.gather`
        - ONNX: `GatherElements`, where negative positions count from the end
    """
    return gather_elements_operator(x, to_variable(indices), axis=whole(axis, "axis"))


@defop("nnl::scatter_add", save=("indices",))
def scatter_add_operator(x0: Array, indices: Array, x1: Array, *, axis: int = 0) -> Array:
    """Add single elements: ``y = x0; y[indices[i, j], j] += x1[i, j]`` with ``axis`` 0.

    ``indices`` may be shorter than ``x0`` along the other axes, and than ``x1`` along all.
    """
    at = normalize_axis(axis, x0.ndim)
    places = flat_places(indices, x0.shape, at, "scatter_add")
    values = x1[tuple(slice(length) for length in indices.shape)]
    dtype = promote(x0.dtype, x1.dtype)
    sums = x0.astype(np.float32 if dtype == np.float16 else dtype, order="C")
    np.add.at(sums.reshape(-1), places, values.reshape(-1))
    return sums.astype(dtype)


@scatter_add_operator.infer
def scatter_add_infer(x0: Spec, indices: Spec, x1: Spec, *, axis: int) -> Spec:
    """The shape of ``x0``."""
    _check_region(indices, x0, axis)
    if x1.ndim != indices.ndim or any(n > m for n, m in zip(indices.shape, x1.shape, strict=True)):
        raise ShapeError("the indices must not be longer than x1 along any axis")
    return x0.with_dtype(promote(x0.dtype, x1.dtype))


@scatter_add_operator.vjp
def scatter_add_vjp(
    g: Any, y: Any, x0: Any, indices: Any, x1: Any, *, axis: int
) -> tuple[Any, ...]:
    """The gradient itself, and its elements at the positions."""
    taken = gather_elements_operator(g, indices, axis=axis)
    missing = [m - n for n, m in zip(taken.shape, x1.shape, strict=True)]
    if any(missing):
        taken = F.pad(taken, [width for length in missing for width in (0, length)])
    return unbroadcast(g, x0), None, unbroadcast(taken, x1)


@scatter_add_operator.samples
def scatter_add_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Each axis, repetitions, regions of both, empty."""
    yield Sample(rng.normal(size=(3, 4)), rng.integers(0, 3, (5, 4)), rng.normal(size=(5, 4)))
    yield Sample(
        rng.normal(size=(3, 4)), rng.integers(0, 4, (2, 2)), rng.normal(size=(3, 5)), axis=-1
    )
    yield Sample(rng.normal(size=(2, 3)), np.zeros((0, 3), np.int64), np.zeros((0, 3)))


def scatter_add(x0: Operand, indices: Operand, x1: Operand, axis: int | None = None) -> Variable:
    """Return ``x0`` with elements of ``x1`` added: ``y[indices[i, j], j] += x1[i, j]`` at axis 0.

    Args:
        x0: any shape but 0-d.
        indices: whole numbers of any dtype; may be shorter than ``x0`` along the other axes, and
            than ``x1`` along all.
        x1: what is added.
        axis: the axis that positions are in; 0 by default.

    Raises:
        OperatorError: when run, a position is out of range or no whole number.

    Gradient:
        Of ``x0`` ``dy``; of ``x1`` what is at its positions.

    Examples:
        >>> F.scatter_add(np.zeros(3), np.array([0, 2, 2]), np.array([1.0, 10.0, 20.0])).d
        array([ 1.,  0., 30.])

    Elsewhere:
        - nnabla: `scatter_add`
        - PyTorch: `torch.scatter_add`
        - ONNX: `ScatterElements` with `reduction="add"`
    """
    return scatter_add_operator(x0, to_variable(indices), x1, axis=axis or 0)


def _check_region(indices: Spec, x: Spec, axis: int) -> None:
    at = normalize_axis(axis, x.ndim)
    if indices.ndim != x.ndim or any(
        n > m
        for place, (n, m) in enumerate(zip(indices.shape, x.shape, strict=True))
        if place != at
    ):
        raise ShapeError(f"the indices must not be longer than the array, but along axis {at}")
