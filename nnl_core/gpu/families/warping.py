"""Operators that read pictures at given points, and the sums back to the pixels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnl_core.gpu.kernel import (
    HALF_TYPES,
    Argument,
    Call,
    Emission,
    Kernel,
    c_type,
    emitter,
    given,
    kernel,
    result,
)
from nnl_core.gpu.ordering import MOST_SLOTS, Layout, Plan, Values, combine, zero
from nnl_core.gpu.strides import BUSY, numbers, over_rows
from nnl_core.graph.spec import Spec, promote
from nnl_core.operators.taps import derivative
from nnl_core.operators.taps import kernel as polynomials_of

FILE = "warping.cu"
MOST_AXES = 3
METHODS = {"nearest": 0, "nearest_even": 1}
PADDINGS = {"zero": 0, "repeat": 1, "reflect": 2}


def _text(
    entry: str,
    values: Spec,
    points: Spec,
    lengths: Sequence[int],
    attributes: Mapping[str, Any],
    **defines: int,
) -> tuple[Kernel, tuple[Argument, ...], int, np.dtype]:
    """Return a kernel, its ``Picture``, the number of corners of a point, and weights' dtype."""
    dtype = promote(values.dtype, points.dtype)
    if dtype.name in HALF_TYPES:
        dtype = np.dtype(np.float32)
    polynomials = polynomials_of(attributes["method"])
    terms = len(polynomials[0])
    coefficients: list[float] = []
    for order in reversed(attributes["orders"]):
        for one in polynomials:
            known = derivative(one, order)
            coefficients += [*known, *[0.0] * (terms - len(known))]
    text = kernel(
        FILE,
        entry,
        T=c_type(values.dtype),
        Q=c_type(points.dtype),
        P=c_type(dtype),
        AXES=len(lengths),
        TAPS=len(polynomials),
        TERMS=terms,
        **defines,
    )
    method = METHODS.get(attributes["method"], 2)
    options = (method, PADDINGS[attributes["padding"]], attributes["cells"])
    picture = (*numbers(*lengths, *options), *map(np.float64, coefficients))
    return text, picture, len(polynomials) ** len(lengths), dtype


@emitter("nnl::sample_points")
def sample_points(call: Call) -> Emission | None:
    """Read all channels at a point that one thread has found the pixels of."""
    x, points = call.inputs
    assert x is not None
    assert points is not None
    if x.ndim - 2 > MOST_AXES:
        return None
    batch, channels, *lengths = x.shape
    text, picture, _, _ = _text("sample_points", x, points, lengths, call.attributes, READING=1)
    columns = math.prod(points.shape[1:-1])
    each = 1
    while each < channels and batch * channels * columns > 2 * each * BUSY:
        each *= 2
    groups = -(-channels // each)
    where = (*picture, *numbers(channels, groups, each, math.prod(lengths)))
    step = over_rows(text, batch * groups, columns, (given(0), given(1), result(), *where))
    return Emission((step,))


@emitter("nnl::sample_points_adjoint")
def sample_points_adjoint(call: Call) -> Emission | None:
    """Sort what points give to pixels, and add it up."""
    g, points = call.inputs
    y = call.outputs[0]
    assert g is not None
    assert points is not None
    lengths = y.shape[2:]
    if len(lengths) > MOST_AXES:
        return None
    text, picture, corners, dtype = _text("sample_keys", g, points, lengths, call.attributes)
    batch, channels = y.shape[:2]
    pixels, columns = math.prod(lengths), math.prod(points.shape[1:-1])
    entries, slots = batch * columns * corners, batch * pixels
    if max(entries, slots) > MOST_SLOTS:
        return None
    plan = Plan()
    plan.steps.append(zero(result(), y.nbytes))
    if entries and y.size:
        keys, weights = plan.room(4 * entries), plan.room(dtype.itemsize * entries)
        where = (given(1), keys, weights, *picture, *numbers(pixels, slots))
        plan.steps.append(over_rows(text, batch, columns, where))
        layout = Layout(columns, channels)
        values = Values(given(0), g.dtype, layout, corners, weights, c_type(dtype))
        target = (result(), y.dtype, Layout(pixels, channels))
        combine(plan, keys, entries, slots, values, target)
    return plan.emission()
