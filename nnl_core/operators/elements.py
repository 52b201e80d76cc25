"""Single elements put into an array, by their positions along one axis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.dtypes import is_floating
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec, normalize_axis
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import cast, same_dtype
from nnl_core.operators.dtypes import wide
from nnl_core.operators.gathering import as_positions, flat_places, to_variable

__all__ = ["scatter_elements"]

REDUCTIONS = ("none", "add", "mean", "mul", "max", "min")


def _check(x: Spec, indices: Spec, axis: int) -> None:
    at = normalize_axis(axis, x.ndim)
    lengths = list(x.shape)
    if indices.ndim == x.ndim:
        lengths[at] = indices.shape[at]
    if indices.ndim != x.ndim or any(n > m for n, m in zip(indices.shape, lengths, strict=True)):
        raise ShapeError(f"the indices must not be longer than the array, but along axis {at}")


# The last one ------------------------------------------------------------------------------------


@defop("nnl::last_writer")
def last_writer(indices: Array, *, shape: tuple[int, ...], axis: int) -> Array:
    """For each place of an array of that shape, the last index that names it, or -1.

    Indices are numbered in row-major order.
    """
    result = np.full(shape, -1, np.int64)
    places = flat_places(indices, shape, axis, "scatter_elements")
    np.maximum.at(result.reshape(-1), places, np.arange(indices.size))
    return result


@last_writer.infer
def last_writer_infer(indices: Spec, *, shape: tuple[int, ...], axis: int) -> Spec:
    """The given shape."""
    _check(Spec(shape), indices, axis)
    return Spec(shape, np.dtype(np.int64))


@last_writer.vjp
def last_writer_vjp(g: Any, y: Any, indices: Any, **attributes: Any) -> tuple[Any, ...]:
    """Positions have no gradient."""
    return (None,)


@last_writer.samples
def last_writer_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Each axis, repetitions, a region, whole floats, none."""
    yield Sample(rng.integers(0, 3, (5, 4)), shape=(3, 4), axis=0)
    yield Sample(rng.integers(0, 4, (2, 2)), shape=(3, 4), axis=1)
    yield Sample(np.array([2.0, 0.0, 2.0]), shape=(3,), axis=0)
    yield Sample(np.zeros((0, 3), np.int64), shape=(2, 3), axis=0)


# Products ----------------------------------------------------------------------------------------


@defop(
    "nnl::scatter_recurrence",
    save=("indices", "a", "seen"),
    outputs=("y", "seen"),
    precision="full",
)
def scatter_recurrence(
    x: Array, indices: Array, a: Array, b: Array, *, axis: int, reverse: bool = False
) -> tuple[Array, Array]:
    """Update elements one after the other along an axis: ``y = x; y[i] = a[k] y[i] + b[k]``.

    ``i`` are the positions ``indices[k]``; ``seen[k]`` is ``y[i]`` before the update. ``reverse``:
    from the end.
    """
    state = np.array(wide(x))
    seen = np.zeros(indices.shape, x.dtype)
    positions = as_positions(indices, x.shape[axis], f"scatter_elements along axis {axis}")
    target, places, before, factors, terms = (
        np.moveaxis(one, axis, 0) for one in (state, positions, seen, a, b)
    )
    others = np.indices(places.shape[1:], sparse=True)
    order = range(len(places))
    for k in reversed(order) if reverse else order:
        at = (places[k], *others)
        found = target[at]
        before[k] = found
        target[at] = found * factors[k] + terms[k]
    return state.astype(x.dtype, copy=False), seen


@scatter_recurrence.infer
def scatter_recurrence_infer(
    x: Spec, indices: Spec, a: Spec, b: Spec, *, axis: int, reverse: bool
) -> tuple[Spec, Spec]:
    """The shapes of ``x`` and ``indices``."""
    _check(x, indices, axis)
    if not a.shape == b.shape == indices.shape:
        raise ShapeError("factors and terms must have the shape of the indices")
    return x, x.with_shape(indices.shape)


@scatter_recurrence.vjp
def scatter_recurrence_vjp(
    g: Any, y: Any, x: Any, indices: Any, a: Any, b: Any, *, axis: int, reverse: bool
) -> tuple[Any, ...]:
    """The recurrence of the gradients from the other end; it sees ``db``, and ``da = db seen``."""
    last = F.broadcast(Variable.constant(np.zeros((), x.dtype)), x.shape) if g[0] is None else g[0]
    each = F.zeros_like(a) if g[1] is None else g[1]
    dx, db = scatter_recurrence(last, indices, a, each, axis=axis, reverse=not reverse)
    return dx, None, db * y[1], db


@scatter_recurrence.samples
def scatter_recurrence_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Each axis, both directions, zeros among the factors, a region, none."""
    for reverse in (False, True):
        for axis, shape in ((0, (5, 4)), (1, (2, 6))):
            a = rng.normal(size=shape) * rng.integers(0, 2, size=shape)
            yield Sample(
                rng.normal(size=(3, 4)),
                rng.integers(0, 3, shape),
                a,
                rng.normal(size=shape),
                axis=axis,
                reverse=reverse,
            )
    none = np.zeros((0, 3))
    yield Sample(rng.normal(size=(2, 3)), none.astype(np.int64), none, none, axis=0)


# Extremes ----------------------------------------------------------------------------------------


@defop("nnl::scatter_extreme", save=("x", "indices", "updates", "y"))
def scatter_extreme(
    x: Array, indices: Array, updates: Array, *, axis: int, smallest: bool = False
) -> Array:
    """The largest of each element and the updates of its position, or the smallest; NaN wins."""
    result = np.array(x, order="C")
    places = flat_places(indices, x.shape, axis, "scatter_elements")
    ufunc = np.minimum if smallest else np.maximum
    ufunc.at(result.reshape(-1), places, updates.reshape(-1))
    return result


@scatter_extreme.infer
def scatter_extreme_infer(
    x: Spec, indices: Spec, updates: Spec, *, axis: int, smallest: bool
) -> Spec:
    """The shape of ``x``."""
    _check(x, indices, axis)
    if updates.shape != indices.shape:
        raise ShapeError("the updates must have the shape of the indices")
    return x


@scatter_extreme.vjp
def scatter_extreme_vjp(
    g: Any, y: Any, x: Any, indices: Any, updates: Any, *, axis: int, smallest: bool
) -> tuple[Any, ...]:
    """Equal shares for all that are the extreme."""
    stays = cast(x == y, x.dtype)
    rises = cast(updates == F.gather_elements(y, indices, axis), x.dtype)
    share = F.chain_rule(g, 1 / F.scatter_add(stays, indices, rises, axis))
    return share * stays, None, F.gather_elements(share, indices, axis) * rises


@scatter_extreme.samples
def scatter_extreme_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Each axis, both ends, repetitions, a region, none."""
    for smallest in (False, True):
        for axis, shape in ((0, (5, 4)), (1, (2, 6))):
            values = rng.permutation(12 + 24) / 4
            x, updates = values[:12].reshape(3, 4), np.resize(values[12:], shape)
            indices = rng.integers(0, 3, shape)
            yield Sample(x, indices, updates, axis=axis, smallest=smallest)
    yield Sample(rng.normal(size=(2, 3)), np.zeros((0, 3), np.int64), np.zeros((0, 3)), axis=0)


# What users call ---------------------------------------------------------------------------------


def scatter_elements(
    x: Operand,
    indices: Operand,
    updates: Operand,
    axis: int = 0,
    reduction: str = "none",
    include_self: bool = True,
) -> Variable:
    """Put single elements into an array: ``y = x; y[indices[i, j], j] = updates[i, j]`` at axis 0.

    Or join them with what is there. The positions are whole numbers from 0 on, of any dtype. Where
    they repeat, ``"none"`` keeps the last update in row-major order. NaN wins over all extremes.
    The mean of integers is ``float32``.

    Args:
        x: any shape but ``()``.
        indices: as many axes as ``x``; it may be shorter along those other than ``axis``.
        updates: the shape of ``indices``, or longer: what is beyond is not read.
        axis: where the positions lie.
        reduction: ``"none"``, ``"add"``, ``"mean"``, ``"mul"``, ``"max"`` or ``"min"``.
        include_self: whether the element of ``x`` takes part in the reduction; elements that no
            position names stay in any case. It says nothing with ``"none"``.

    Returns:
        The shape of ``x``; the dtype in which ``x`` and ``updates`` are computed together.

    Raises:
        ShapeError: ``indices`` does not fit ``x`` or ``updates``.
        OperatorError: the reduction is none of these; or when run, a position is negative, too
            large, or no whole number.

    Gradient:
        Goes to what the result is made of; equal extremes share it evenly, and products are right
        where factors are 0. ``indices`` have none.

    Examples:
        >>> x, places = np.array([1.0, 2.0, 3.0]), np.array([2, 0, 2])
        >>> F.scatter_elements(x, places, np.array([5.0, 6.0, 7.0])).d
        array([6., 2., 7.])
        >>> F.scatter_elements(x, places, np.array([5.0, 6.0, 7.0]), reduction="max").d
        array([6., 2., 7.])

    Elsewhere:
        - nnabla: `scatter_add`, for `"add"`; the others none
        - PyTorch: `torch.scatter`, and `torch.scatter_reduce` with `"sum"`, `"mean"`, `"prod"`,
          `"amax"`, `"amin"`
        - ONNX: `ScatterElements`, without `"mean"`; negative positions count from the end
    """
    if reduction not in REDUCTIONS:
        raise OperatorError(f"scatter_elements: reduction {reduction!r} is not one of {REDUCTIONS}")
    base, new = same_dtype(x, updates)
    places = to_variable(indices)
    at = normalize_axis(axis, base.ndim)
    if new.shape != places.shape:
        if new.ndim != places.ndim or any(
            n > m for n, m in zip(places.shape, new.shape, strict=True)
        ):
            raise ShapeError(
                f"scatter_elements: updates of shape {new.shape} are too short for indices of "
                f"shape {places.shape}"
            )
        new = F.getitem(new, tuple(slice(length) for length in places.shape))
    if reduction == "none":
        return _replaced(base, places, new, at)
    named = None if include_self else last_writer(places, shape=base.shape, axis=at) >= 0
    if reduction == "mean":
        return _mean(base, places, new, at, named)
    if named is not None:
        base = F.where(named, Variable.constant(_neutral(reduction, base.dtype)), base)
    if reduction == "add":
        return F.scatter_add(base, places, new, at)
    if reduction == "mul":
        y, _ = scatter_recurrence(base, places, new, F.zeros_like(new), axis=at)
        return y
    return scatter_extreme(base, places, new, axis=at, smallest=reduction == "min")


def _replaced(x: Variable, indices: Variable, updates: Variable, axis: int) -> Variable:
    if not updates.size:
        return F.identity(x)
    last = last_writer(indices, shape=x.shape, axis=axis)
    taken = F.gather(F.reshape(updates, (updates.size,)), F.maximum_scalar(last, 0))
    return F.where(last >= 0, taken, x)


def _mean(
    x: Variable, indices: Variable, updates: Variable, axis: int, named: Variable | None
) -> Variable:
    ones = F.ones_like(x)
    if named is not None:
        x, kept = F.where(named, F.zeros_like(x), x), x
        ones = F.where(named, F.zeros_like(ones), ones)
    sums = F.scatter_add(x, indices, updates, axis)
    mean: Variable = sums / F.scatter_add(ones, indices, F.ones_like(updates), axis)
    return mean if named is None else F.where(named, mean, kept)


def _neutral(reduction: str, dtype: np.dtype) -> Array:
    """What changes nothing when it is joined with a value."""
    if reduction in ("add", "mul"):
        return np.asarray(reduction == "mul", dtype)
    smallest = reduction == "min"
    if is_floating(dtype):
        return np.asarray(np.inf if smallest else -np.inf, dtype)
    if dtype.kind == "b":
        return np.asarray(smallest)
    bounds = np.iinfo(dtype)
    return np.asarray(bounds.max if smallest else bounds.min, dtype)
