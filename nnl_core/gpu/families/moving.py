"""Operators that take parts of examples by lists of positions, and put them back."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnl_core.gpu.families.movement import copy_all
from nnl_core.gpu.kernel import Call, Emission, c_type, emitter, given, kernel, result
from nnl_core.gpu.ordering import Plan, zero
from nnl_core.gpu.strides import CARRIERS, any_type, numbers, over_rows, strides_of

FILE = "moving.cu"


def _starts(lengths: Sequence[int]) -> list[int]:
    return [sum(lengths[:axis]) for axis in range(len(lengths))]


@emitter("nnl::pick")
def pick(call: Call) -> Emission:
    """Look for each result's element."""
    x, rows = call.inputs
    y = call.outputs[0]
    assert x is not None
    assert rows is not None
    lengths, base = call.attributes["lengths"], call.attributes["base"]
    if not lengths:
        return Emission((copy_all(y),))
    carried = CARRIERS[x.dtype.itemsize]
    text = kernel(FILE, "pick", T=carried, RANK=len(lengths), BASE=base, PICKED=1)
    axes = numbers(*lengths, *_starts(lengths), *x.shape, *strides_of(x.shape), sum(lengths))
    where = (given(0), *any_type(given(1), rows.dtype), result(), *axes)
    columns = lengths[-1]
    return Emission((over_rows(text, y.size // columns if columns else 0, columns, where),))


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
    ends = zip(_starts(g.shape), g.shape, _starts(y.shape), y.shape, strict=True)
    for axis, (start, length, place, columns) in enumerate(ends):
        text = kernel(FILE, "spans", RANK=y.ndim, BASE=base, T=element)
        where = (*lists, spans, *numbers(start, length, width, place, places))
        plan.steps.append(over_rows(text, 1 if axis < base else count, columns, where))
    text = kernel(FILE, "put", RANK=y.ndim, BASE=base, T=element)
    axes = (*y.shape, *_starts(y.shape), *_starts(g.shape), *g.shape)
    where = (given(0), *lists, spans, result(), *numbers(*axes, width, places))
    plan.steps.append(over_rows(text, math.prod(y.shape[:-1]), y.shape[-1], where))
    return plan.emission()
