"""Slices by position over several axes: taken, put, summed where positions repeat."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec, promote
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import unbroadcast
from nnl_core.operators.gathering import as_positions, to_variable

__all__ = [
    "gather_nd",
    "one_hot",
    "scatter_nd",
]


@defop("nnl::gather_nd", save=("indices",))
def gather_nd_operator(data: Array, indices: Array) -> Array:
    """Take slices: ``y[i] = data[indices[0, i], indices[1, i], ...]``; -1 is the last."""
    return data[_all_positions(indices, data.shape, "gather_nd")].copy()


@gather_nd_operator.infer
def gather_nd_infer(data: Spec, indices: Spec) -> Spec:
    """The axes of ``indices`` but the first, then those of ``data`` that are not indexed."""
    depth = _depth(indices, data.shape)
    return data.with_shape((*indices.shape[1:], *data.shape[depth:]))


@gather_nd_operator.vjp
def gather_nd_vjp(g: Any, y: Any, data: Any, indices: Any) -> tuple[Any, ...]:
    """Sum the gradients of each slice."""
    return scatter_nd_operator(g, indices, shape=data.shape, add=True), None


@gather_nd_operator.samples
def gather_nd_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """One axis, all axes, negative and repeated positions, 2-d positions, a 0-d one, none."""
    x = rng.normal(size=(3, 4, 2))
    yield Sample(x, np.array([[0, 2, 0, -1]]))
    yield Sample(x, np.array([[0, 2, -3], [1, -1, 1]]))
    yield Sample(x, rng.integers(0, 2, size=(3, 2, 5)))
    yield Sample(x, np.array([1, 3]))
    yield Sample(x, np.zeros((2, 0), np.int64))


@defop("nnl::scatter_nd", save=("indices",))
def scatter_nd_operator(
    data: Array, indices: Array, base: Array | None = None, *, shape: tuple[int, ...], add: bool
) -> Array:
    """Put slices into zeros, or into ``base``: ``y[indices[0, i], indices[1, i], ...] = data[i]``.

    Where positions repeat, the slices are summed with ``add``, else the last one stays.
    """
    # One index after the other, in row-major order: else which one is last would be NumPy's choice.
    at = tuple(
        np.ascontiguousarray(positions).reshape(-1)
        for positions in _all_positions(indices, shape, "scatter_nd")
    )
    slices = np.ascontiguousarray(data).reshape(math.prod(indices.shape[1:]), *shape[len(at) :])
    dtype = data.dtype if base is None else promote(data.dtype, base.dtype)
    wide = np.dtype(np.float32) if dtype == np.float16 else dtype
    result = np.zeros(shape, wide) if base is None else base.astype(wide)
    if add:
        np.add.at(result, at, slices)
    else:
        result[at] = slices
    return result.astype(dtype)


@scatter_nd_operator.infer
def scatter_nd_infer(
    data: Spec, indices: Spec, base: Spec | None, *, shape: tuple[int, ...], add: bool
) -> Spec:
    """The given shape."""
    depth = _depth(indices, shape)
    if data.shape != (*indices.shape[1:], *shape[depth:]):
        raise ShapeError(
            f"data must have shape {(*indices.shape[1:], *shape[depth:])}: the axes of the indices "
            f"but the first, then those of {shape} that are not indexed"
        )
    if base is not None and base.shape != shape:
        raise ShapeError(f"out must have shape {shape}")
    return Spec(shape, data.dtype if base is None else promote(data.dtype, base.dtype))


@scatter_nd_operator.vjp
def scatter_nd_vjp(
    g: Any, y: Any, data: Any, indices: Any, base: Any, *, shape: tuple[int, ...], add: bool
) -> tuple[Any, ...]:
    """The gradient at the positions; without ``add``, only of slices that stayed."""
    taken = gather_nd_operator(g, indices)
    if not add:
        depth = indices.shape[0]
        places = indices.shape[1:]
        order = np.arange(math.prod(places)).reshape(places)
        stayed = scatter_nd_operator(order, indices, shape=shape[:depth], add=False)
        last = F.equal(gather_nd_operator(stayed, indices), Variable.constant(order))
        last = F.reshape(last, (*places, *(1,) * (len(shape) - depth)))
        taken = F.where(F.broadcast(last, taken.shape), taken, F.zeros_like(taken))
    kept = None
    if base is not None:
        kept = (
            g
            if add
            else scatter_nd_operator(F.zeros_like(taken), indices, g, shape=shape, add=False)
        )
        kept = unbroadcast(kept, base)
    return unbroadcast(taken, data), None, kept


@scatter_nd_operator.samples
def scatter_nd_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Summed and replaced, repeated and negative positions, onto a base, 2-d positions, none."""
    at = np.array([[0, 2, 0, -1], [1, 0, 1, 3]])
    for add in (False, True):
        yield Sample(rng.normal(size=(4, 2)), at, None, shape=(3, 4, 2), add=add)
        yield Sample(
            rng.normal(size=(4, 2)), at, rng.normal(size=(3, 4, 2)), shape=(3, 4, 2), add=add
        )
        yield Sample(
            rng.normal(size=(2, 3)), np.array([[[0, 1, 0], [3, 1, 2]]]), None, shape=(4,), add=add
        )
        yield Sample(np.zeros((0, 2)), np.zeros((1, 0), np.int64), None, shape=(3, 2), add=add)


def gather_nd(data: Operand, indices: Operand) -> Variable:
    """Take slices of ``data``: ``y[i] = data[indices[0, i], indices[1, i], ...]``.

    Args:
        data: any shape but 0-d.
        indices: whole numbers of any dtype; axis 0 is as long as the axes that they index; negative
            ones count from the end.

    Raises:
        OperatorError: when run, a position is out of range or no whole number.

    Gradient:
        Added up where slices were taken twice.

    Examples:
        >>> F.gather_nd(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0, 1], [1, 1]])).d
        array([2., 4.])

    Elsewhere:
        - nnabla: `gather_nd`
        - PyTorch: none, `data[tuple(indices)]`
        - ONNX: `GatherND`, whose last axis of indices is the first here
    """
    return gather_nd_operator(data, to_variable(indices))


def scatter_nd(
    data: Operand,
    indices: Operand,
    shape: Sequence[int] | None = None,
    out: Operand | None = None,
    add: bool = False,
) -> Variable:
    """Put slices in an array: ``y[indices[0, i], indices[1, i], ...] = data[i]``.

    Args:
        data: the slices.
        indices: whole numbers of any dtype; axis 0 is as long as the axes that they index.
        shape: the shape of the result, which is zero where nothing is put; or ``None`` with
            ``out``.
        out: what is there before, and stays as it is.
        add: whether slices are added; else the last at a position stays.

    Raises:
        OperatorError: when run, a position is out of range or no whole number.

    Gradient:
        Of ``data`` what is at its positions, 0 where another slice stayed; of ``out`` ``dy`` where
        nothing was put.

    Examples:
        >>> F.scatter_nd(np.array([5.0, 6.0]), np.array([[0, 2]]), shape=(3,)).d
        array([5., 0., 6.])

    Elsewhere:
        - nnabla: `scatter_nd`
        - PyTorch: `torch.Tensor.index_put`
        - ONNX: `ScatterND`
    """
    if (shape is None) == (out is None):
        raise OperatorError("scatter_nd needs either shape or out")
    base = None if out is None else to_variable(out)
    lengths = shape if base is None else base.shape
    result: Variable = scatter_nd_operator(
        data, to_variable(indices), base, shape=tuple(int(n) for n in lengths or ()), add=bool(add)
    )
    return result


def _depth(indices: Spec, shape: tuple[int, ...]) -> int:
    if not indices.ndim or not 1 <= indices.shape[0] <= len(shape):
        raise ShapeError(f"axis 0 of the indices must be between 1 and {len(shape)} long")
    return indices.shape[0]


def _all_positions(indices: Array, shape: tuple[int, ...], what: str) -> tuple[Array, ...]:
    return tuple(
        as_positions(row, shape[axis], f"{what}, axis {axis}", from_end=True)
        for axis, row in enumerate(indices)
    )


@defop("nnl::one_hot")
def one_hot_operator(x: Array, *, shape: tuple[int, ...]) -> Array:
    """Put a one at the position that the last axis of ``x`` names, in zeros; -1 is the last."""
    at = [
        as_positions(x[..., axis], length, f"one_hot, axis {axis}", from_end=True)
        for axis, length in enumerate(shape)
    ]
    result = np.zeros((*x.shape[:-1], *shape), np.float32)
    result[(*np.indices(x.shape[:-1], sparse=True), *at)] = 1
    return result


@one_hot_operator.infer
def one_hot_infer(x: Spec, *, shape: tuple[int, ...]) -> Spec:
    """The axes of ``x`` but the last, then the given ones."""
    if not x.ndim or x.shape[-1] != len(shape):
        raise ShapeError(f"the last axis of x must be {len(shape)} long, one position per axis")
    return Spec((*x.shape[:-1], *shape))


@one_hot_operator.vjp
def one_hot_vjp(g: Any, y: Any, x: Any, *, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Positions have no gradient."""
    return (None,)


@one_hot_operator.samples
def one_hot_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """One axis, two, negative positions, a single position, none."""
    yield Sample(rng.integers(0, 5, size=(4, 1)), shape=(5,))
    yield Sample(rng.integers(-3, 3, size=(2, 2, 2)), shape=(3, 4))
    yield Sample(np.array([2]), shape=(3,))
    yield Sample(np.zeros((0, 1), np.int64), shape=(3,))


def one_hot(x: Operand, shape: Sequence[int]) -> Variable:
    """Return zeros with a one at each position: ``y[i, x[i, 0], x[i, 1], ...] = 1``.

    Args:
        x: whole numbers of any dtype; the last axis is as long as ``shape``; negative ones count
            from the end.
        shape: the lengths that positions are in.

    Raises:
        OperatorError: when run, a position is out of range or no whole number.

    Gradient:
        None: positions have no slope.

    Examples:
        >>> F.one_hot(np.array([[2], [0]]), (3,)).d
        array([[0., 0., 1.],
               [1., 0., 0.]], dtype=float32)

    Elsewhere:
        - nnabla: `one_hot`
        - PyTorch: `torch.nn.functional.one_hot`, of a single axis
        - ONNX: `OneHot`, of a single axis
    """
    lengths = tuple(int(length) for length in np.reshape(shape, -1))
    return one_hot_operator(to_variable(x), shape=lengths)
