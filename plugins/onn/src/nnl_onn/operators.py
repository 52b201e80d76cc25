"""Operators ``onn::``: operational neurons, and the gradients of them in data and weight.

All three come from one form, linear in each of ``g``, ``a`` and ``b``, of which each of them is the
derivative by one::

    L = sum over n, o, c, p, k of  g[n, o, p] a[n, c, p + k] b[o, c, k] psi'(x, w)

where ``psi'`` is the nodal operator or a derivative of it (``derivative`` holds the letters of what
it is derived by) at ``x[n, c, p + k]`` and ``w[o, c, k]``, and of a pool that selects one tap ``k``
the others are left out. `operate` is the derivative by ``g``, `operate_data` that by ``a``,
`operate_weight` that by ``b``; factors that are not given are 1. So each gradient of them, of any
order, is made of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nnl_core import defop
from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.dtypes import is_floating
from nnl_core.graph.operator import Array
from nnl_core.graph.spec import Spec
from nnl_onn import kernels_c, kernels_cuda
from nnl_onn.connections import Connections, Lengths, only, places
from nnl_onn.expressions import in_order
from nnl_onn.nodal import find_nodal
from nnl_onn.pools import find_pool
from nnl_onn.powers import power_sum as power_sum  # of the same namespace
from nnl_onn.powers import powers as powers
from nnl_onn.samples import (
    operate_data_samples,
    operate_gradients_samples,
    operate_samples,
    operate_weight_samples,
)

# References --------------------------------------------------------------------------------------


@defop("onn::operate", save=("x", "w", "a", "b"), precision="full")
def operate(
    x: Array,
    w: Array,
    a: Array | None = None,
    b: Array | None = None,
    *,
    nodal: str,
    pool: str,
    stride: Lengths,
    dilation: Lengths,
    groups: int = 1,
    derivative: str = "",
) -> Array:
    """Sum over input maps of the pool over taps of ``nodal(x, w)``: ``(batch, maps, *places)``.

    ``x (batch, channels, *spatial)`` is taken as it is, without a border; ``w`` is ``(maps,
    channels / groups, *kernel)``.
    """
    c = Connections(x, w, stride, dilation, groups, nodal=nodal, pool=pool, derivative=derivative)
    y = np.zeros((x.shape[0], w.shape[0], *c.places))
    for block in c.blocks():
        values, chosen = c.values(block)
        if a is not None:
            values = values * c.windows(a, block)
        if b is not None:
            values = values * c.weights(b, block)
        if chosen is not None:
            values = np.take_along_axis(values, chosen, -1)
        y[c.rows_of(block)] += values.sum(axis=(2, -1))
    return y.astype(x.dtype)


@defop("onn::operate_data", save=("g", "x", "w", "b"), outputs=("dx",), precision="full")
def operate_data(
    g: Array,
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    nodal: str,
    pool: str,
    stride: Lengths,
    dilation: Lengths,
    groups: int = 1,
    derivative: str = "x",
) -> Array:
    """Gradient of `operate` by ``x``, where ``g`` is that of its output."""
    c = Connections(x, w, stride, dilation, groups, nodal=nodal, pool=pool, derivative=derivative)
    dx = np.zeros(x.shape)
    for block in c.blocks():
        values, chosen = c.values(block)
        values = values * c.spread(g, block)
        if b is not None:
            values = values * c.weights(b, block)
        parts = only(values, chosen).sum(axis=1)
        for position, tap in enumerate(c.taps):
            at = (block.samples, block.channels, *c.reached(tap, block))
            dx[at] += parts[..., position]
    return dx.astype(x.dtype)


@defop("onn::operate_weight", save=("g", "x", "w", "a"), outputs=("dw",), precision="full")
def operate_weight(
    g: Array,
    x: Array,
    w: Array,
    a: Array | None = None,
    *,
    nodal: str,
    pool: str,
    stride: Lengths,
    dilation: Lengths,
    groups: int = 1,
    derivative: str = "w",
) -> Array:
    """Gradient of `operate` by ``w``, where ``g`` is that of its output."""
    c = Connections(x, w, stride, dilation, groups, nodal=nodal, pool=pool, derivative=derivative)
    dw = np.zeros((*w.shape[:2], len(c.taps)))
    for block in c.blocks():
        values, chosen = c.values(block)
        values = values * c.spread(g, block)
        if a is not None:
            values = values * c.windows(a, block)
        values = only(values, chosen)
        dw[block.maps, block.inner] += values.sum(axis=(0, *range(3, values.ndim - 1)))
    return dw.reshape(w.shape).astype(w.dtype)


@defop("onn::operate_gradients", save=("g", "x", "w"), outputs=("dx", "dw"), precision="full")
def operate_gradients(
    g: Array,
    x: Array,
    w: Array,
    *,
    nodal: str,
    pool: str,
    stride: Lengths,
    dilation: Lengths,
    groups: int = 1,
) -> tuple[Array, Array]:
    """Both gradients of `operate` at once: a kernel finds in one what it needs in the other."""
    options = {"stride": stride, "dilation": dilation, "groups": groups}
    return (
        operate_data.reference(g, x, w, nodal=nodal, pool=pool, **options),
        operate_weight.reference(g, x, w, nodal=nodal, pool=pool, **options),
    )


# Shapes ------------------------------------------------------------------------------------------


def _check(x: Spec, w: Spec, options: dict[str, Any]) -> Lengths:
    """Check what all three operators take; return the shape of the outputs."""
    find_nodal(options["nodal"]).form(options["derivative"])
    find_pool(options["pool"])
    groups = options["groups"]
    if x.ndim != w.ndim or x.ndim < 3:
        raise ShapeError(
            f"input has {x.ndim - 2} spatial axes, weight has {w.ndim - 2}; both need the same "
            "number, one at least"
        )
    if groups < 1 or w.shape[0] % groups or x.shape[1] != w.shape[1] * groups:
        raise ShapeError(
            f"{groups} groups of {w.shape[1]} input maps each do not fit {x.shape[1]} channels and "
            f"{w.shape[0]} output maps"
        )
    if x.dtype != w.dtype or not is_floating(x.dtype):
        raise ShapeError(f"input is {x.dtype} and weight {w.dtype}; both need one floating dtype")
    found = places(x.shape[2:], w.shape[2:], options["stride"], options["dilation"])
    return (x.shape[0], w.shape[0], *found)


def _same(name: str, given: Spec | None, shape: Lengths) -> None:
    if given is not None and given.shape != shape:
        raise ShapeError(f"{name} has shape {given.shape}, not {shape}")


@operate.infer
def operate_infer(x: Spec, w: Spec, a: Spec | None, b: Spec | None, **options: Any) -> Spec:
    """(batch, maps, *places)."""
    shape = _check(x, w, options)
    _same("a", a, x.shape)
    _same("b", b, w.shape)
    return x.with_shape(shape)


@operate_data.infer
def operate_data_infer(g: Spec, x: Spec, w: Spec, b: Spec | None, **options: Any) -> Spec:
    """As the data."""
    _same("g", g, _check(x, w, options))
    _same("b", b, w.shape)
    return x


@operate_weight.infer
def operate_weight_infer(g: Spec, x: Spec, w: Spec, a: Spec | None, **options: Any) -> Spec:
    """As the weight."""
    _same("g", g, _check(x, w, options))
    _same("a", a, x.shape)
    return w


operate_gradients.part("dx", operate_data)
operate_gradients.part("dw", operate_weight)


@operate_gradients.infer
def operate_gradients_infer(g: Spec, x: Spec, w: Spec, **options: Any) -> tuple[Spec, Spec]:
    """As data and weight."""
    for path in "xw":
        _same("g", g, _check(x, w, {**options, "derivative": path}))
    return x, w


# Gradients ---------------------------------------------------------------------------------------


def _by(options: dict[str, Any], letter: str) -> dict[str, Any]:
    """Return the options of one more derivative."""
    path = options["derivative"] + letter
    if not find_nodal(options["nodal"]).is_surrogate:
        path = in_order(path)
    return {**options, "derivative": path}


def _times(y: Any, factor: Any) -> Any:
    return y if factor is None else F.mul(y, factor)


def _is_surrogate(*, nodal: str, **options: Any) -> bool:
    """Whether the gradient is the author's of a nodal operator."""
    return find_nodal(nodal).is_surrogate


@operate.vjp(surrogate=_is_surrogate)
def operate_vjp(h: Any, y: Any, x: Any, w: Any, a: Any, b: Any, **options: Any) -> tuple[Any, ...]:
    """L(h, a, b) by x, w, a and b."""
    if a is None and b is None and not options["derivative"]:
        del options["derivative"]
        return (*operate_gradients(h, x, w, **options), None, None)
    return (
        _times(operate_data(h, x, w, b, **_by(options, "x")), a),
        _times(operate_weight(h, x, w, a, **_by(options, "w")), b),
        None if a is None else operate_data(h, x, w, b, **options),
        None if b is None else operate_weight(h, x, w, a, **options),
    )


@operate_gradients.vjp(surrogate=_is_surrogate)
def operate_gradients_vjp(
    h: Any, y: Any, g: Any, x: Any, w: Any, **options: Any
) -> tuple[Any, ...]:
    """The sum of those of its two outputs."""
    found = []
    if h[0] is not None:
        found.append(operate_data_vjp(h[0], y[0], g, x, w, None, **options, derivative="x"))
    if h[1] is not None:
        found.append(operate_weight_vjp(h[1], y[1], g, x, w, None, **options, derivative="w"))
    if len(found) == 1:
        return found[0][:3]
    return tuple(F.add(left, right) for left, right in zip(*found, strict=True) if left is not None)


@operate_data.vjp(surrogate=_is_surrogate)
def operate_data_vjp(
    h: Any, dx: Any, g: Any, x: Any, w: Any, b: Any, **options: Any
) -> tuple[Any, ...]:
    """L(g, h, b) by g, x, w and b."""
    return (
        operate(x, w, h, b, **options),
        F.mul(operate_data(g, x, w, b, **_by(options, "x")), h),
        _times(operate_weight(g, x, w, h, **_by(options, "w")), b),
        None if b is None else operate_weight(g, x, w, h, **options),
    )


@operate_weight.vjp(surrogate=_is_surrogate)
def operate_weight_vjp(
    h: Any, dw: Any, g: Any, x: Any, w: Any, a: Any, **options: Any
) -> tuple[Any, ...]:
    """L(g, a, h) by g, x, w and a."""
    return (
        operate(x, w, a, h, **options),
        _times(operate_data(g, x, w, h, **_by(options, "x")), a),
        F.mul(operate_weight(g, x, w, a, **_by(options, "w")), h),
        None if a is None else operate_data(g, x, w, h, **options),
    )


# Costs and samples -------------------------------------------------------------------------------


def _cost(x: Spec, w: Spec, options: dict[str, Any]) -> int:
    batch, _, *counts = _check(x, w, options)
    return batch * math.prod(counts) * w.size


@operate.multiply_adds
def operate_cost(
    x: Spec, w: Spec, a: Spec | None = None, b: Spec | None = None, **options: Any
) -> int:
    """One for each connection, tap and placement, whatever the nodal operator takes."""
    return _cost(x, w, options)


@operate_data.multiply_adds
def operate_data_cost(g: Spec, x: Spec, w: Spec, b: Spec | None = None, **options: Any) -> int:
    """As many as `operate`."""
    return _cost(x, w, options)


@operate_weight.multiply_adds
def operate_weight_cost(g: Spec, x: Spec, w: Spec, a: Spec | None = None, **options: Any) -> int:
    """As many as `operate`."""
    return _cost(x, w, options)


@operate_gradients.multiply_adds
def operate_gradients_cost(g: Spec, x: Spec, w: Spec, **options: Any) -> int:
    """Twice as many as `operate`."""
    return 2 * _cost(x, w, {**options, "derivative": "x"})


operate.samples(operate_samples)
operate_data.samples(operate_data_samples)
operate_weight.samples(operate_weight_samples)
operate_gradients.samples(operate_gradients_samples)

kernels_c.attach(operate, operate_data, operate_weight, operate_gradients)
kernels_cuda.attach(operate, operate_data, operate_weight, operate_gradients)
