"""What square brackets do: elements by integers, slices, arrays of positions and masks."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import whole
from nnl_core.graph.dtypes import is_floating
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import cast
from nnl_core.operators.gathering import as_positions, to_variable

__all__ = ["getitem", "slice"]

Slice: TypeAlias = tuple[int | None, int | None, int | None]  # start, stop, step
Item: TypeAlias = int | Slice | None
builtin_slice = slice
WHOLE: Slice = (None, None, None)


# Integers, slices and new axes -------------------------------------------------------------------


def as_key(key: tuple[Item, ...]) -> Any:
    """Return what an encoded key looks like between NumPy's brackets."""
    # The ellipsis keeps NumPy from returning a scalar where a key picks one element.
    return (*(builtin_slice(*item) if isinstance(item, tuple) else item for item in key), ...)


@defop("nnl::getitem", view=True)
def getitem_operator(x: Array, *, key: tuple[Item, ...]) -> Array:
    """Return ``x[key]``, where a key holds integers, ``(start, stop, step)`` and ``None``."""
    return np.array(x[as_key(key)], order="C")


@getitem_operator.infer
def getitem_infer(x: Spec, *, key: tuple[Item, ...]) -> Spec:
    """The shape that NumPy gives."""
    try:
        return x.with_shape(np.broadcast_to(np.False_, x.shape)[as_key(key)].shape)
    except (IndexError, ValueError) as error:
        raise ShapeError(f"{error}") from None


@getitem_operator.vjp
def getitem_vjp(g: Any, y: Any, x: Any, *, key: tuple[Item, ...]) -> tuple[Any, ...]:
    """Put the gradient into zeros."""
    return (getitem_adjoint(g, key=key, shape=x.shape),)


@getitem_operator.samples
def getitem_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Each kind of item, alone and mixed; steps both ways; to 0-d; from 0-d; nothing left."""
    x = rng.normal(size=(3, 4, 5))
    yield Sample(x, key=((1, None, None), (None, None, -1), (-1, 0, -2)))
    yield Sample(x, key=(1, (0, 4, 2), None, -1))
    yield Sample(x, key=(None, (None, 2, None)))
    yield Sample(x, key=(2, 1, -5))
    yield Sample(x, key=((3, None, None),))
    yield Sample(rng.normal(size=()), key=(None, None))
    yield Sample(rng.normal(size=()), key=())


@defop("nnl::getitem_adjoint")
def getitem_adjoint(g: Array, *, key: tuple[Item, ...], shape: tuple[int, ...]) -> Array:
    """Return zeros of a shape with ``g`` in place of what the key takes."""
    result = np.zeros(shape, g.dtype)
    result[as_key(key)] = g
    return result


@getitem_adjoint.infer
def getitem_adjoint_infer(g: Spec, *, key: tuple[Item, ...], shape: tuple[int, ...]) -> Spec:
    """The given shape."""
    return g.with_shape(shape)


@getitem_adjoint.vjp
def getitem_adjoint_vjp(
    g: Any, y: Any, x: Any, *, key: tuple[Item, ...], shape: tuple[int, ...]
) -> tuple[Any, ...]:
    """Take the same part of the gradient."""
    return (getitem_operator(g, key=key),)


@getitem_adjoint.samples
def getitem_adjoint_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Steps both ways, an integer, a new axis, nothing to put."""
    yield Sample(rng.normal(size=(2, 4)), key=((1, None, None), (None, None, -1)), shape=(3, 4))
    yield Sample(rng.normal(size=(2, 1)), key=(1, (0, 4, 2), None), shape=(3, 4))
    yield Sample(np.zeros((0, 2)), key=((3, None, None),), shape=(3, 2))


def slice(
    x: Operand,
    start: Sequence[int | None] | None = None,
    stop: Sequence[int | None] | None = None,
    step: Sequence[int | None] | None = None,
) -> Variable:
    """Take every ``step``-th element from ``start`` to before ``stop`` along each axis.

    As in Python, negative positions count from the end. Lists shorter than ``x`` has axes are for
    its last axes.

    Args:
        x: any shape.
        start: of each axis; ``None`` for the beginning.
        stop: of each axis; ``None`` for the end.
        step: of each axis; negative ones go backwards; ``None`` for 1.

    Gradient:
        ``dy`` at the elements taken, 0 elsewhere.

    Examples:
        >>> F.slice(np.arange(6.0).reshape(2, 3), (0, 1), (2, 3), (1, 1)).d
        array([[1., 2.],
               [4., 5.]])

    Elsewhere:
        - nnabla: `slice`
        - PyTorch: none, `x[start:stop:step]`
        - ONNX: `Slice`
    """
    variable = to_variable(x)
    lengths = {len(given) for given in (start, stop, step) if given is not None}
    if len(lengths) > 1:
        raise ShapeError(f"slice: start {start}, stop {stop} and step {step} differ in length")
    count = lengths.pop() if lengths else 0
    if count > variable.ndim:
        raise ShapeError(f"slice: {count} positions for the axes of shape {variable.shape}")
    parts = zip(*(_optional(given, count) for given in (start, stop, step)), strict=True)
    key = ((WHOLE,) * (variable.ndim - count)) + tuple(parts)
    return getitem_operator(variable, key=key)


def _optional(given: Sequence[int | None] | None, count: int) -> list[int | None]:
    if given is None:
        return [None] * count
    return [None if value is None else whole(value, "start, stop or step") for value in given]


# Everything --------------------------------------------------------------------------------------


def getitem(x: Operand, key: Any) -> Variable:
    """Return ``x[key]`` as NumPy means it; `Variable` has it between its brackets.

    Args:
        x: any shape.
        key: integers, slices, ``None``, an ellipsis; arrays, lists or variables of positions
            (negative ones count from the end); masks, whose elements must be known now, as they
            decide the shape.

    Raises:
        ShapeError: the key does not fit the shape.

    Gradient:
        Added up where positions repeat, 0 where nothing was taken.

    Examples:
        >>> x = Variable.from_numpy_array(np.array([[1.0, 2.0], [3.0, 4.0]]))
        >>> F.getitem(x, ([1, 1], 0)).d, x[0, ::-1].d
        (array([3., 3.]), array([2., 1.]))

    Elsewhere:
        - nnabla: none, `x[key]`
        - PyTorch: none, `x[key]`
        - ONNX: none, `Slice`, `Gather` and `GatherND`
    """
    variable = to_variable(x)
    items = [_parse(item) for item in (key if isinstance(key, tuple) else (key,))]
    items, gaps = _without_ellipsis(items, variable.ndim)
    if not any(isinstance(item, (np.ndarray, Variable)) for item in items):
        return getitem_operator(variable, key=tuple(items))
    return _getitem_advanced(variable, items, gaps)


def _parse(item: Any) -> Any:
    """Return an encoded item, an ellipsis, an array or a variable."""
    if item is None or item is Ellipsis:
        return item
    if isinstance(item, builtin_slice):
        try:
            return tuple(
                None if part is None else operator.index(part)
                for part in (item.start, item.stop, item.step)
            )
        except TypeError:
            raise OperatorError(f"{item} is no slice: its parts must be integers") from None
    if isinstance(item, Variable):
        if item.dtype.kind != "b":
            return item
        if not item.is_constant:
            raise OperatorError(
                "a variable cannot be a mask between brackets, as the shape of the result would "
                "not be known; give an array, or use where, bool_gather or bool_fill"
            )
        return item.d
    if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
        return int(item)
    array = np.asarray(item)
    if array.dtype.kind in "iu" or array.dtype.kind == "b":
        return array
    if isinstance(item, (list, tuple)) and not array.size:
        return array.astype(np.intp)
    raise OperatorError(
        f"{item!r} is no index; give integers, slices, None, ..., arrays of integers or masks"
    )


def _axes_of(item: Any) -> int:
    """Return how many axes of the array an item takes."""
    if item is None:
        return 0
    return item.ndim if isinstance(item, np.ndarray) and item.dtype.kind == "b" else 1


def _without_ellipsis(items: list[Any], ndim: int) -> tuple[list[Any], list[int]]:
    """Write all axes out; return also where an ellipsis was (it keeps its neighbours apart)."""
    places = [place for place, item in enumerate(items) if item is Ellipsis]
    if len(places) > 1:
        raise OperatorError("an index may hold one ellipsis, and this one holds several")
    missing = ndim - sum(_axes_of(item) for item in items if item is not Ellipsis)
    if missing < 0:
        raise ShapeError(f"too many indices: {ndim - missing} for an array of {ndim} axes")
    place = places[0] if places else len(items)
    return [*items[:place], *(WHOLE,) * missing, *items[place + 1 :]], places


def _getitem_advanced(x: Variable, items: list[Any], gaps: list[int]) -> Variable:
    """Take slices first, then bring the axes that arrays index to the front and gather.

    Beside arrays, integers count as arrays. The arrays' common shape takes the place of their axes
    where these are neighbours, else it comes first.
    """
    basic: list[Item] = []
    positions: list[Array | Variable] = []
    indexed: list[int] = []  # axes of the array after the basic key
    advanced: list[bool] = []  # for each item, and for an ellipsis
    axis = 0
    for place, item in enumerate(items):
        if place in gaps:
            advanced.append(False)
        advanced.append(item is not None and not isinstance(item, tuple))
        if not advanced[-1]:
            axis += _axes_of(item)
            basic.append(item)
            continue
        for single in _positions_of(item, x.shape, axis):
            indexed.append(len(basic))
            positions.append(single)
            basic.append(None if _axes_of(item) == 0 else WHOLE)
        axis += _axes_of(item)
    if any(item != WHOLE for item in basic):
        x = getitem_operator(x, key=tuple(basic))
    others = [place for place in range(x.ndim) if place not in indexed]
    if indexed != list(range(len(indexed))):
        x = F.transpose(x, [*indexed, *others])
    table = _table(positions)
    result: Variable = F.gather_nd(x, table)
    neighbours = sum(flag for flag, _ in groupby(advanced)) == 1
    before = sum(place < indexed[0] for place in others)
    if neighbours and before and table.ndim > 1:
        count = table.ndim - 1
        order = list(range(result.ndim))
        result = F.transpose(
            result, [*order[count : count + before], *order[:count], *order[count + before :]]
        )
    return result


def _positions_of(item: Any, shape: tuple[int, ...], axis: int) -> list[Array | Variable]:
    """Return the positions along each axis that an item takes (a 0-d mask takes a new one)."""
    if isinstance(item, Variable):
        return [item]
    array = np.asarray(item)
    if array.dtype.kind == "b":
        if array.ndim == 0:
            return [np.zeros(int(array), np.intp)]
        found = shape[axis : axis + array.ndim]
        if array.shape != found:
            raise ShapeError(f"a mask of shape {array.shape} does not fit axes of lengths {found}")
        return list(array.nonzero())
    return [as_positions(array, shape[axis], f"index of axis {axis}", from_end=True)]


def _table(positions: list[Array | Variable]) -> Variable:
    """Put positions of all axes side by side, broadcast to one shape."""
    try:
        shape = np.broadcast_shapes(*(one.shape for one in positions))
    except ValueError:
        shapes = ", ".join(str(one.shape) for one in positions)
        raise ShapeError(f"arrays of positions do not broadcast: shapes {shapes}") from None
    known = [np.broadcast_to(one, shape) for one in positions if isinstance(one, np.ndarray)]
    if len(known) == len(positions):
        return Variable.constant(np.stack(known))
    # What is no whole number stays one, so that gathering can say so.
    dtype = np.float64 if any(is_floating(one.dtype) for one in positions) else np.int64
    return F.stack(
        *(F.broadcast(cast(to_variable(one), dtype), shape) for one in positions), axis=0
    )
