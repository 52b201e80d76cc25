"""Operators that resample axes: weighted sums of a few elements, found by tables."""

from __future__ import annotations

import math

import numpy as np

from nnl_core.gpu.kernel import (
    NULL,
    Address,
    Argument,
    Call,
    Emission,
    c_type,
    computing_type,
    emitter,
    given,
    kernel,
    over,
    result,
)
from nnl_core.gpu.ordering import Plan
from nnl_core.gpu.strides import Axis, merge, numbers, over_rows, strides_of
from nnl_core.graph.spec import Spec
from nnl_core.operators.resampling import ROUNDINGS, Resized, Rule

FILE = "resampling.cu"
MODES = {"nearest": 0, "linear": 1, "cubic": 2, "area": 3}
TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
COORDINATES = (
    "half_pixel",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "align_corners",
    "tf_crop_and_resize",
    "pytorch_half_pixel",
)


@emitter("nnl::resize")
def resize(call: Call) -> Emission | None:
    """Let each result read its elements, along all axes at once."""
    return _resampled(call, adjoint=False)


@emitter("nnl::resize_adjoint")
def resize_adjoint(call: Call) -> Emission | None:
    """Let each element read the results that are made of it."""
    return _resampled(call, adjoint=True)


def _taps(axis: Resized, rule: Rule) -> int:
    """Return how many elements a result is made of, at most."""
    if rule.mode != "area":
        return TAPS[rule.mode]
    _, length, size, *_ = axis
    return max(-(-(i + 1) * length // size) - i * length // size for i in range(size))


def _table(plan: Plan, axis: Resized, rule: Rule, dtype: str, adjoint: bool) -> tuple[Address, ...]:
    """Find the taps of an axis; return where places, weights and starts are."""
    taps, weighs = _taps(axis, rule), rule.mode != "nearest"
    count = taps * axis.size
    at = plan.room(4 * count)
    weights = plan.room(8 * count) if weighs else NULL
    text = kernel(FILE, "table", P=dtype, TABLE=MODES[rule.mode])
    scale = 0.0 if axis.scale is None else axis.scale
    fractions = map(np.float64, (scale, *axis.crop, rule.cubic_a))
    options = (
        COORDINATES.index(rule.coordinates),
        list(ROUNDINGS).index(rule.nearest),
        rule.exclude_outside,
    )
    where = (at, weights, *fractions, *numbers(axis.length, axis.size, *options, taps))
    plan.steps.append(over(text, count, where))
    starts = NULL
    if adjoint:
        starts = plan.room(4 * taps * (axis.length + 1))
        text = kernel(FILE, "starts", P=dtype, TABLE=MODES[rule.mode])
        where = (at, starts, *numbers(axis.length, axis.size, _falls(axis, rule)))
        plan.steps.append(over(text, taps * (axis.length + 1), where))
    return at, weights, starts


def _falls(axis: Resized, rule: Rule) -> bool:
    """Whether results go backwards through the elements."""
    return rule.coordinates == "tf_crop_and_resize" and axis.crop[1] < axis.crop[0]


def _resampled(call: Call, *, adjoint: bool) -> Emission | None:
    x, y = call.inputs[0], call.outputs[0]
    assert x is not None
    rule: Rule = call.attributes["rule"]
    axes: dict[int, Resized] = {axis.axis: axis for axis in call.attributes["axes"]}
    if len(axes) < len(call.attributes["axes"]):
        return None
    plan = Plan()
    if not y.size:
        return plan.emission()
    dtype = computing_type(y.dtype)
    addresses: list[tuple[Address, ...]] = []
    columns: list[tuple[int, ...]] = []
    mask = 0
    for place, (axis, plain) in enumerate(_pieces(x, y, axes)):
        if axis is None:
            addresses.append((NULL, NULL, NULL))
            columns.append((plain.length, plain.source, plain.length, 1, 0))
            continue
        mask |= 1 << place
        addresses.append(_table(plan, axis, rule, dtype, adjoint))
        length = axis.length if adjoint else axis.size
        columns.append((length, plain.source, axis.size, _taps(axis, rule), _falls(axis, rule)))
    types = {"T": c_type(y.dtype), "P": dtype}
    text = kernel(FILE, "resampled", RANK=len(columns), MASK=mask, ADJOINT=int(adjoint), **types)
    where: list[Argument] = [one for kind in zip(*addresses, strict=True) for one in kind]
    where += numbers(*(number for column in zip(*columns, strict=True) for number in column))
    rows = math.prod(column[0] for column in columns[:-1])
    plan.steps.append(over_rows(text, rows, columns[-1][0], (given(0), result(), *where)))
    return plan.emission()


def _pieces(x: Spec, y: Spec, axes: dict[int, Resized]) -> list[tuple[Resized | None, Axis]]:
    """Return the axes, with strides of the source; those that stay are merged."""
    found: list[tuple[Resized | None, Axis]] = []
    waiting: list[Axis] = []

    def flush() -> None:
        if math.prod(axis.length for axis in waiting) > 1:
            found.extend((None, axis) for axis in merge(waiting))
        waiting.clear()

    strides = strides_of(x.shape), strides_of(y.shape)
    for place, (length, source, target) in enumerate(zip(y.shape, *strides, strict=True)):
        if place in axes:
            flush()
            found.append((axes[place], Axis(length, source, target)))
        else:
            waiting.append(Axis(length, source, target))
    flush()
    return found
