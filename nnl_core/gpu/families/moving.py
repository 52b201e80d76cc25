"""Operators that take parts of examples by lists of positions, and put them back."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnl_core.gpu.families.movement import copy_all
from nnl_core.gpu.kernel import (
    Address,
    Call,
    Emission,
    Step,
    c_type,
    emitter,
    given,
    kernel,
    result,
)
from nnl_core.gpu.ordering import Plan, zero
from nnl_core.gpu.strides import any_type, bits_of, numbers, one_of, over_rows, strides_of
from nnl_core.graph.spec import Spec

FILE = "moving.cu"


def starts(lengths: Sequence[int]) -> list[int]:
    """Return where the list of each axis begins."""
    return [sum(lengths[:axis]) for axis in range(len(lengths))]


def pick_steps(
    x: Spec, lists: tuple[Address, Spec], y: Spec, base: int, fill: float = 0
) -> list[Step]:
    """Return what takes the parts of the first input that lists of positions name.

    Where a list says that there is nothing, the result is ``fill``.
    """
    if not y.ndim:
        return [copy_all(y)]
    address, spec = lists
    text = kernel(FILE, "pick", T=bits_of(x.dtype), RANK=y.ndim, BASE=base, PICKED=1)
    axes = numbers(*y.shape, *starts(y.shape), *x.shape, *strides_of(x.shape), sum(y.shape))
    where = (given(0), *any_type(address, spec.dtype), result(), *axes, one_of(x.dtype, fill))
    columns = y.shape[-1]
    return [over_rows(text, y.size // columns if columns else 0, columns, where)]


@emitter("nnl::pick")
def pick(call: Call) -> Emission:
    """Look for each result's element."""
    x, rows = call.inputs
    assert x is not None
    assert rows is not None
    steps = pick_steps(x, (given(1), rows), call.outputs[0], call.attributes["base"])
    return Emission(tuple(steps))


@emitter("nnl::put")
def put(call: Call) -> Emission:
    """Let each element collect what was taken from it."""
    g, rows = call.inputs
    y = call.outputs[0]
    assert g is not None
    assert rows is not None
    if not y.ndim:
        return Emission((copy_all(y),))
    base = call.attributes["base"]
    plan = Plan()
    if not g.size or not y.size:
        plan.steps.append(zero(result(), y.nbytes))
        return plan.emission()
    count, width = rows.shape
    lists = any_type(given(1), rows.dtype)
    places = sum(y.shape)
    spans = plan.room(8 * count * places)
    element = c_type(y.dtype)
    ends = zip(starts(g.shape), g.shape, starts(y.shape), y.shape, strict=True)
    for axis, (start, length, place, columns) in enumerate(ends):
        text = kernel(FILE, "spans", RANK=y.ndim, BASE=base, T=element)
        where = (*lists, spans, *numbers(start, length, width, place, places))
        plan.steps.append(over_rows(text, 1 if axis < base else count, columns, where))
    text = kernel(FILE, "put", RANK=y.ndim, BASE=base, T=element)
    axes = (*y.shape, *starts(y.shape), *starts(g.shape), *g.shape)
    where = (given(0), *lists, spans, result(), *numbers(*axes, width, places))
    plan.steps.append(over_rows(text, math.prod(y.shape[:-1]), y.shape[-1], where))
    return plan.emission()
