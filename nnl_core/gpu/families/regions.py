"""Operators that pool boxes of pictures: weights of bins first, then sums over pixels."""

from __future__ import annotations

import math

import numpy as np

from nnl_core.gpu.kernel import (
    FLOATING,
    Call,
    Emission,
    c_type,
    emitter,
    failing,
    given,
    kernel,
    over,
    result,
)
from nnl_core.gpu.ordering import Plan
from nnl_core.gpu.strides import numbers, over_rows
from nnl_core.graph.spec import Spec
from nnl_core.operators.regions import MOST_POINTS

FILE = "regions.cu"


@emitter("nnl::roi_align")
def roi_align(call: Call) -> Emission | None:
    """Let each bin read its pixels."""
    x = call.inputs[0]
    assert x is not None
    return _pooled(call, x.shape, adjoint=False)


@emitter("nnl::roi_align_adjoint")
def roi_align_adjoint(call: Call) -> Emission | None:
    """Let each pixel look for its bins: no two threads add to one place."""
    return _pooled(call, call.outputs[0].shape, adjoint=True)


def _pooled(call: Call, pictures: tuple[int, ...], *, adjoint: bool) -> Emission | None:
    values, boxes = call.inputs
    y = call.outputs[0]
    assert values is not None
    assert boxes is not None
    options = call.attributes
    if values.dtype.name not in FLOATING:
        return None
    batch, channels, *lengths = pictures
    count, bins = boxes.shape[0], options["output_size"]
    plan = Plan()
    dtype, at = boxes, given(1)
    if boxes.dtype.name not in FLOATING:
        dtype, at = Spec(boxes.shape, np.dtype(np.float32)), plan.room(4 * boxes.size)
        text = kernel("movement.cu", "converted", S=c_type(boxes.dtype), T="float")
        where = (given(1), at, *numbers(boxes.size, 0))
        plan.steps.append(over_rows(text, 1, boxes.size, where))
    sizes = numbers(count, *bins, *lengths, channels, batch)
    bad = failing(
        call, f"{call.name}: a box is not finite, or has too many points; check the boxes and "
        "spatial_scale, or give a sampling_ratio",
    )  # fmt: skip
    tables, spans = [], []
    element = c_type(dtype.dtype)
    for axis in range(2):
        items = count * bins[axis]
        tables.append(plan.room(8 * items * lengths[axis]))
        spans.append(plan.room(8 * items))
        text = kernel(FILE, "box_weights", B=element, TABLES=1)
        scale = np.float64(options["spatial_scale"][axis])
        where = (at, tables[-1], spans[-1], *bad, *sizes, scale)
        where += numbers(axis, options["sampling_ratio"], MOST_POINTS)
        plan.steps.append(over(text, items, where))
    missing = failing(call, f"{call.name}: a box is of a picture that is not among the {batch}")
    numbered, hulls = plan.room(4 * count), plan.room(16 * count)
    text = kernel(FILE, "box_hulls", B=element, TABLES=1)
    plan.steps.append(over(text, count, (at, *spans, numbered, hulls, *missing, *sizes)))
    text = kernel(FILE, call.name.partition("::")[2], B=element, T=c_type(y.dtype))
    more = (hulls,) if adjoint else ()
    where = (given(0), result(), *tables, *spans, numbered, *more, *sizes)
    plan.steps.append(over_rows(text, math.prod(y.shape[:-1]), y.shape[-1], where))
    return plan.emission()
