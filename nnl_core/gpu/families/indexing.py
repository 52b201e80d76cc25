"""Operators that take or put elements by position. What adds up does so in a fixed order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnl_core.gpu.families.movement import copy_all, copy_strided
from nnl_core.gpu.kernel import (
    HALF_TYPES,
    NULL,
    Address,
    Argument,
    Call,
    Emission,
    Launch,
    c_type,
    emitter,
    failing,
    given,
    kernel,
    over,
    result,
)
from nnl_core.gpu.ordering import (
    MOST_SLOTS,
    Layout,
    Plan,
    Values,
    combine,
    filled,
    list_chosen,
    zero,
)
from nnl_core.gpu.strides import (
    CARRIERS,
    any_type,
    carrier,
    columns_of,
    numbers,
    over_rows,
    room_for,
    strides_of,
)
from nnl_core.graph.spec import Spec, normalize_axis

FILE = "indexing.cu"


def _inputs(call: Call) -> list[Spec]:
    """Return the inputs, all of which are there."""
    return [x for x in call.inputs if x is not None]


def _positions(call: Call, number: int) -> tuple[Argument, ...]:
    """Return what a kernel sees as ``Numbers`` and ``Failure``."""
    indices = call.inputs[number]
    assert indices is not None
    message = (
        f"{call.name}: an index is out of range, or not a whole number: input shapes "
        f"{', '.join(str(x.shape) for x in _inputs(call))}"
    )
    return *any_type(given(number), indices.dtype), *failing(call, message)


def _other_count(call: Call, what: str, count: int) -> str:
    return (
        f"{call.name}: {what} another number of places than the {count} that were expected; build "
        "the graph again for data with another number of them"
    )


def _wide(dtype: np.dtype, columns: int) -> tuple[str, int]:
    """Return the type that a row of columns is moved in, and how many of it a row has."""
    unit = carrier(columns * dtype.itemsize)
    return CARRIERS[unit], columns * dtype.itemsize // unit


def _converted(plan: Plan, source: Address, given_: Spec, target: Address, spec: Spec) -> None:
    """Copy everything, to another dtype if it has another."""
    if given_.dtype == spec.dtype:
        plan.steps.append(copy_all(spec, source, target))
        return
    text = kernel("movement.cu", "converted", S=c_type(given_.dtype), T=c_type(spec.dtype))
    plan.steps.append(over_rows(text, 1, spec.size, (source, target, *numbers(spec.size, 0))))


# Slices along one axis ---------------------------------------------------------------------------


@emitter("nnl::gather")
def gather(call: Call) -> Emission:
    """Take slices."""
    x, indices = _inputs(call)
    axis, first = normalize_axis(call.attributes["axis"], x.ndim), call.attributes["batch_dims"]
    batch, outer = math.prod(x.shape[:first]), math.prod(x.shape[first:axis])
    positions = math.prod(indices.shape[first:])
    carried, columns = _wide(x.dtype, math.prod(x.shape[axis + 1 :]))
    text = kernel(FILE, "gather", T=carried, GATHER=1)
    where = (given(0), *_positions(call, 1), result())
    where += numbers(outer, x.shape[axis], positions)
    return Emission((over_rows(text, batch * outer * positions, columns, where),))


@emitter("nnl::gather_adjoint")
def gather_adjoint(call: Call) -> Emission | None:
    """Sort the positions, and add up the slices of each."""
    g, indices = _inputs(call)
    y = call.outputs[0]
    size, axis, first = (call.attributes[name] for name in ("size", "axis", "batch_dims"))
    batch, outer = math.prod(g.shape[:first]), math.prod(g.shape[first:axis])
    positions = math.prod(indices.shape[first:])
    inner = math.prod(y.shape[axis + 1 :])
    slots, entries = batch * size, batch * positions
    if max(slots, entries) > MOST_SLOTS:
        return None
    plan = Plan()
    plan.steps.append(zero(result(), y.nbytes))
    if y.size:
        keys = plan.room(4 * entries)
        text = kernel(FILE, "row_keys", T="int", GATHER=1)
        where = (*_positions(call, 1), keys, *numbers(size, slots))
        plan.steps.append(over_rows(text, batch, positions, where))
        values = Values(given(0), g.dtype, Layout(positions, outer, inner))
        combine(plan, keys, entries, slots, values, (result(), y.dtype, Layout(size, outer, inner)))
    return plan.emission()


# Single elements ---------------------------------------------------------------------------------


def _elements(x: Spec, indices: Spec, axis: int) -> tuple[int, tuple[Argument, ...], int, int]:
    """Return the room for outer axes, what says where elements are, and rows and columns."""
    at = normalize_axis(axis, x.ndim)
    strides = strides_of(x.shape)
    outer = [0 if place == at else stride for place, stride in enumerate(strides[:-1])] or [0]
    lengths = indices.shape[:-1] or (1,)
    step = 0 if at == x.ndim - 1 else 1
    room = room_for(len(outer))
    axes = columns_of(list(zip(lengths, outer, strict=True)), room)
    where = (*numbers(len(outer)), *axes, *numbers(strides[at], x.shape[at], step))
    return room, where, math.prod(lengths), indices.shape[-1]


@emitter("nnl::gather_elements")
def gather_elements(call: Call) -> Emission:
    """Take elements."""
    x, indices = _inputs(call)
    count, where, rows, columns = _elements(x, indices, call.attributes["axis"])
    text = kernel(FILE, "gather_elements", ELEMENTS=count, T=CARRIERS[x.dtype.itemsize])
    where = (given(0), *_positions(call, 1), result(), *where)
    return Emission((over_rows(text, rows, columns, where),))


def _element_keys(plan: Plan, call: Call) -> Address:
    """Return where the places of elements are, to sort by."""
    x, indices, _ = _inputs(call)
    count, where, rows, columns = _elements(x, indices, call.attributes["axis"])
    keys = plan.room(4 * indices.size)
    text = kernel(FILE, "element_keys", T="int", ELEMENTS=count)
    where = (*_positions(call, 1), keys, *where, *numbers(x.size))
    plan.steps.append(over_rows(text, rows, columns, where))
    return keys


@emitter("nnl::scatter_add")
def scatter_add(call: Call) -> Emission | None:
    """Sort the places, and add up what meets there."""
    x0, indices, x1 = _inputs(call)
    if max(x0.size, indices.size) > MOST_SLOTS:
        return None
    plan = Plan()
    _converted(plan, given(0), x0, result(), call.outputs[0])
    source = given(2)
    if indices.size and x1.shape != indices.shape:
        source = plan.room(indices.size * x1.dtype.itemsize)
        strides = strides_of(x1.shape)
        part = copy_strided(x1.dtype.itemsize, indices.shape, strides, 0, given(2), source)
        plan.steps.append(part)
    return _combined(plan, call, Values(source, x1.dtype, Layout()), "Add")


@emitter("nnl::scatter_extreme")
def scatter_extreme(call: Call) -> Emission | None:
    """Sort the places, and find the extreme of what meets there."""
    x, indices, updates = _inputs(call)
    if max(x.size, indices.size) > MOST_SLOTS:
        return None
    plan = Plan()
    _converted(plan, given(0), x, result(), call.outputs[0])
    operation = "Smaller" if call.attributes["smallest"] else "Larger"
    return _combined(plan, call, Values(given(2), updates.dtype, Layout()), operation)


def _combined(plan: Plan, call: Call, values: Values, operation: str) -> Emission:
    """Combine single elements with what the output holds."""
    x, indices, _ = _inputs(call)
    if indices.size and x.size:
        keys = _element_keys(plan, call)
        target = (result(), call.outputs[0].dtype, Layout())
        combine(plan, keys, indices.size, x.size, values, target, operation)
    return plan.emission()


@emitter("nnl::last_writer")
def last_writer(call: Call) -> Emission:
    """Let the largest number stay: whole numbers, so that no order matters."""
    (indices,) = _inputs(call)
    y = call.outputs[0]
    count, where, rows, columns = _elements(y, indices, call.attributes["axis"])
    text = kernel(FILE, "last_writers", T="int", ELEMENTS=count)
    where = (*_positions(call, 0), result(), *where)
    step = over_rows(text, rows, columns, where)
    return Emission((filled(result(), y.size, -1), step))


@emitter("nnl::scatter_recurrence")
def scatter_recurrence(call: Call) -> Emission:
    """Go through the positions in order, a thread for each place of the other axes."""
    x, indices, a, b = _inputs(call)
    y = call.outputs[0]
    axis = normalize_axis(call.attributes["axis"], x.ndim)
    strides = strides_of(x.shape)
    others = [place for place in range(x.ndim) if place != axis]
    lengths = [indices.shape[place] for place in others] or [1]
    outer = [strides[place] for place in others] or [0]
    plan = Plan()
    state, wide = result(), Spec(x.shape, np.dtype(np.float32))
    if x.dtype.name in HALF_TYPES:
        state = plan.room(wide.nbytes)
        _converted(plan, given(0), x, state, wide)
    else:
        plan.steps.append(copy_all(y))
    types = {"T": x, "A": a, "B": b}
    names = {name: c_type(spec.dtype) for name, spec in types.items()}
    room = room_for(len(outer))
    text = kernel(FILE, "recurrence", ELEMENTS=room, RECURRENCE=1, **names)
    inner = math.prod(indices.shape[axis + 1 :])
    axes = columns_of(list(zip(lengths, outer, strict=True)), room)
    steps = indices.shape[axis], inner, call.attributes["reverse"]
    where = (*_positions(call, 1), given(2), given(3), state, result(1))
    where += (*numbers(len(outer)), *axes, *numbers(strides[axis], x.shape[axis], *steps))
    plan.steps.append(over(text, math.prod(lengths), where))
    if x.dtype.name in HALF_TYPES:
        _converted(plan, state, wide, result(), y)
    return plan.emission()


# Positions along several axes --------------------------------------------------------------------


def _places(shape: Sequence[int], apart: int, step: int) -> tuple[Argument, ...]:
    axes = list(zip(shape, strides_of(shape), strict=True))
    return *numbers(len(axes)), *columns_of(axes, room_for(len(axes))), *numbers(apart, step)


@emitter("nnl::gather_nd")
def gather_nd(call: Call) -> Emission:
    """Take slices by positions along the first axes."""
    x, indices = _inputs(call)
    depth, rows = indices.shape[0], math.prod(indices.shape[1:])
    carried, columns = _wide(x.dtype, math.prod(x.shape[depth:]))
    text = kernel(FILE, "gather_nd", T=carried, DEPTH=room_for(depth))
    where = (given(0), *_positions(call, 1), result())
    where += _places(x.shape[:depth], rows, 1)
    return Emission((over_rows(text, rows, columns, where),))


@emitter("nnl::scatter_nd")
def scatter_nd(call: Call) -> Emission | None:
    """Add up what meets at a place, in order; or take the last of it."""
    data, indices = _inputs(call)[:2]
    base, y = call.inputs[2], call.outputs[0]
    depth, entries = indices.shape[0], math.prod(indices.shape[1:])
    slots, columns = math.prod(y.shape[:depth]), math.prod(y.shape[depth:])
    if max(slots, entries) > MOST_SLOTS:
        return None
    plan = Plan()
    places = _places(y.shape[:depth], entries, 1)
    at = _positions(call, 1)
    if not call.attributes["add"]:
        last = plan.room(8 * slots)
        plan.steps.append(filled(last, slots, -1))
        text = kernel(FILE, "last_entries", DEPTH=room_for(depth), T="int")
        plan.steps.append(over(text, entries, (*at, last, *places)))
        plan.steps.append(_chosen_rows(data, base, last, y, slots, columns, given(2)))
        return plan.emission()
    if base is None:
        plan.steps.append(zero(result(), y.nbytes))
    else:
        _converted(plan, given(2), base, result(), y)
    if y.size and entries:
        keys = plan.room(4 * entries)
        text = kernel(FILE, "slot_keys", DEPTH=room_for(depth), T="int")
        plan.steps.append(over(text, entries, (*at, keys, *places, *numbers(slots))))
        layout = Layout(inner=columns)
        values = Values(given(0), data.dtype, layout)
        combine(plan, keys, entries, slots, values, (result(), y.dtype, layout))
    return plan.emission()


def _chosen_rows(
    data: Spec, base: Spec | None, last: Address, y: Spec, rows: int, columns: int, at: Address
) -> Launch:
    types = {"S": c_type(data.dtype), "T": c_type(y.dtype)}
    known = y if base is None else base
    text = kernel(FILE, "chosen_rows", BASE=c_type(known.dtype), **types)
    where = (given(0), NULL if base is None else at, last, result())
    return over_rows(text, rows, columns, where)


@emitter("nnl::one_hot")
def one_hot(call: Call) -> Emission:
    """Compare each place with the position."""
    (x,) = _inputs(call)
    shape = call.attributes["shape"]
    y, depth = call.outputs[0], len(shape)
    rows = math.prod(x.shape[:-1])
    text = kernel(FILE, "one_hot", T=c_type(y.dtype), DEPTH=room_for(depth), NUMBERS=1)
    where = (*_positions(call, 0), result(), *_places(shape, 1, depth))
    return Emission((over_rows(text, rows, math.prod(shape), where),))


# Masks -------------------------------------------------------------------------------------------


CHOOSES = "the mask chooses"


@emitter("nnl::bool_gather")
def bool_gather(call: Call) -> Emission:
    """List the places that a mask chooses, and take the slices there."""
    x, mask = _inputs(call)
    count = call.attributes["count"]
    plan = Plan()
    if mask.size:
        message = _other_count(call, CHOOSES, count)
        places = list_chosen(plan, call, (given(1), mask), count, message)
        carried, columns = _wide(x.dtype, math.prod(x.shape[mask.ndim :]))
        text = kernel(FILE, "listed_rows", T=carried, LISTED=1)
        plan.steps.append(over_rows(text, count, columns, (given(0), places, result())))
    return plan.emission()


@emitter("nnl::bool_scatter")
def bool_scatter(call: Call) -> Emission:
    """List the places that a mask chooses, and look for each place's number among them."""
    x, mask = _inputs(call)[:2]
    base, y = call.inputs[2], call.outputs[0]
    plan = Plan()
    rows, columns, count = mask.size, math.prod(x.shape[1:]), x.shape[0]
    numbered = plan.room(8 * rows)
    plan.steps.append(filled(numbered, rows, -1))
    if rows:
        message = _other_count(call, CHOOSES, count)
        places = list_chosen(plan, call, (given(1), mask), count, message)
        text = kernel(FILE, "numbered", T="int", LISTED=1)
        plan.steps.append(over(text, count, (places, numbered)))
    plan.steps.append(_chosen_rows(x, base, numbered, y, rows, columns, given(2)))
    return plan.emission()


@emitter("nnl::nonzero")
def nonzero(call: Call) -> Emission:
    """List the places that are not 0, and find the positions of each."""
    (x,) = _inputs(call)
    count = call.attributes["count"]
    plan = Plan()
    if x.size:
        message = _other_count(call, "the array is not 0 at", count)
        places = list_chosen(plan, call, (given(0), x), count, message)
        room = room_for(x.ndim)
        text = kernel(FILE, "unraveled", T="int", LISTED=room)
        axes = columns_of([(n,) for n in x.shape], room) if x.ndim else numbers(*[0] * room)
        where = (places, result(), *numbers(x.ndim), *axes)
        plan.steps.append(over(text, count, where))
    return plan.emission()
