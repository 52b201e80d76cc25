"""Operators ``onn::powers`` and ``onn::power_sum``: powers of all elements, and sums of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nnl_core import KernelSource, Sample, defop
from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.operator import Array
from nnl_core.graph.spec import Spec


@defop("onn::powers", save=("x",), precision="full")
def powers(x: Array, *, order: int, axis: int, derivative: int = 0) -> Array:
    """Stack ``x, x^2, ..., x^order``, or a derivative of each by ``x``, along a new ``axis``.

    Each is the one before it times ``x``.
    """
    rows = []
    power = np.ones_like(x)
    for q in range(1, order + 1):
        if q > derivative:
            power = power * x
        rows.append(power * x.dtype.type(math.perm(q, derivative)))
    return np.stack(rows, axis)


@defop("onn::power_sum", save=("g", "x"), precision="full")
def power_sum(g: Array, x: Array, *, axis: int, derivative: int = 0) -> Array:
    """Return the sum along ``axis`` of ``g[q] x^(q + 1)``, or a derivative of it by ``x``.

    It is the transpose of `powers` as a map of ``g``, by the scheme of Horner.
    """
    rows = np.moveaxis(g, axis, 0)
    result = np.zeros_like(x)
    for q in range(len(rows), max(derivative, 1) - 1, -1):
        result = result * x + rows[q - 1] * x.dtype.type(math.perm(q, derivative))
    return result if derivative else result * x


@powers.infer
def powers_infer(x: Spec, *, order: int, axis: int, derivative: int) -> Spec:
    """One axis more, of length ``order``."""
    if order < 1 or derivative < 0 or not 0 <= axis <= x.ndim or x.dtype.kind not in "fV":
        raise ShapeError(
            f"order {order} must be at least 1, derivative {derivative} at least 0, axis {axis} "
            f"one of 0 to {x.ndim}, and the dtype floating, not {x.dtype}"
        )
    return x.with_shape((*x.shape[:axis], order, *x.shape[axis:]))


@power_sum.infer
def power_sum_infer(g: Spec, x: Spec, *, axis: int, derivative: int) -> Spec:
    """As ``x``."""
    order = g.shape[axis] if 0 <= axis < g.ndim else 0
    expected = powers_infer(x, order=order, axis=axis, derivative=derivative)
    if g != expected:
        raise ShapeError(f"g is {g}, not {expected}, as powers of {x} along axis {axis} are")
    return x


@powers.vjp
def powers_vjp(
    g: Any, y: Any, x: Any, *, order: int, axis: int, derivative: int
) -> tuple[Any, ...]:
    """One derivative more."""
    return (power_sum(g, x, axis=axis, derivative=derivative + 1),)


@power_sum.vjp
def power_sum_vjp(h: Any, y: Any, g: Any, x: Any, *, axis: int, derivative: int) -> tuple[Any, ...]:
    """Linear in ``g``; one derivative more in ``x``."""
    rows = powers(x, order=g.shape[axis], axis=axis, derivative=derivative)
    return (
        F.mul(F.reshape(h, (*x.shape[:axis], 1, *x.shape[axis:])), rows),
        F.mul(h, power_sum(g, x, axis=axis, derivative=derivative + 1)),
    )


# (shape, order, axis, derivative): each end and the middle, no axes, more derivatives than powers,
# rows longer than a block of the kernels, no elements.
_CASES: tuple[tuple[tuple[int, ...], int, int, int], ...] = (
    ((2, 3, 4), 3, 2, 0),
    ((2, 3), 5, 0, 0),
    ((3, 2), 2, 2, 0),
    ((), 3, 0, 0),
    ((2, 2, 3), 1, 1, 0),
    ((2, 3), 4, 1, 1),
    ((2, 3), 3, 1, 2),
    ((3,), 1, 0, 2),
    ((2, 1100), 2, 1, 0),
    ((0, 2), 3, 1, 0),
    ((2, 0), 3, 1, 1),
)


@powers.samples
def powers_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """All of `_CASES`."""
    for shape, order, axis, derivative in _CASES:
        x = rng.uniform(-1, 1, shape)
        yield Sample(x, order=order, axis=axis, derivative=derivative)


@power_sum.samples
def power_sum_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """All of `_CASES`."""
    for shape, order, axis, derivative in _CASES:
        g = rng.normal(size=(*shape[:axis], order, *shape[axis:]))
        yield Sample(g, rng.uniform(-1, 1, shape), axis=axis, derivative=derivative)


# Kernels -----------------------------------------------------------------------------------------

_DTYPES = ("float32", "float64")
_BLOCK, _THREADS = 1024, 256  # elements of a unit in C, threads of a block in CUDA

# A unit is up to a block of elements behind the axis, so that a power is read while it is still in
# the cache. From q to q + 1, perm(q, d) grows by (q + 1) / (q + 1 - d).
_C_POWERS = """
int powers(
    const struct nnl_array *inputs, struct nnl_array *outputs, int64_t begin, int64_t end
) {
    const int64_t order = ATTRIBUTE_order, d = ATTRIBUTE_derivative;
    int64_t inner = 1;
    for (int64_t k = ATTRIBUTE_axis; k < inputs[0].rank; k++) inner *= inputs[0].shape[k];
    const int64_t blocks = (inner + BLOCK - 1) / BLOCK;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t row = unit / blocks, start = unit % blocks * BLOCK;
        const int64_t count = inner - start < BLOCK ? inner - start : BLOCK;
        const TYPE_x *restrict x = (const TYPE_x *)inputs[0].data + row * inner + start;
        TYPE_y *y = (TYPE_y *)outputs[0].data + row * order * inner + start;
        TYPE_y factorial = 1;
        for (int64_t q = 1; q <= order; q++, y += inner) {
            if (q <= d) {
                factorial *= q;
                for (int64_t i = 0; i < count; i++) y[i] = q < d ? 0 : factorial;
            } else if (q == 1) {
                for (int64_t i = 0; i < count; i++) y[i] = x[i];
            } else {
                const TYPE_y growth = (TYPE_y)q / (TYPE_y)(q - d);
                const TYPE_y *before = y - inner;
                for (int64_t i = 0; i < count; i++) y[i] = before[i] * x[i] * growth;
            }
        }
    }
    return 0;
}
"""

_C_POWER_SUM = """
int power_sum(
    const struct nnl_array *inputs, struct nnl_array *outputs, int64_t begin, int64_t end
) {
    const int64_t order = inputs[0].shape[ATTRIBUTE_axis], d = ATTRIBUTE_derivative;
    int64_t inner = 1;
    for (int64_t k = ATTRIBUTE_axis; k < inputs[1].rank; k++) inner *= inputs[1].shape[k];
    const int64_t blocks = (inner + BLOCK - 1) / BLOCK;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t row = unit / blocks, start = unit % blocks * BLOCK;
        const int64_t count = inner - start < BLOCK ? inner - start : BLOCK;
        const TYPE_x *restrict x = (const TYPE_x *)inputs[1].data + row * inner + start;
        TYPE_y *restrict y = (TYPE_y *)outputs[0].data + row * inner + start;
        const TYPE_g *restrict g = (const TYPE_g *)inputs[0].data + row * order * inner + start;
        for (int64_t i = 0; i < count; i++) y[i] = 0;
        for (int64_t q = order; q >= (d > 1 ? d : 1); q--) {
            TYPE_y factor = 1;
            for (int64_t k = 0; k < d; k++) factor *= q - k;
            const TYPE_g *restrict term = g + (q - 1) * inner;
            for (int64_t i = 0; i < count; i++) y[i] = y[i] * x[i] + term[i] * factor;
        }
        if (d == 0)
            for (int64_t i = 0; i < count; i++) y[i] *= x[i];
    }
    return 0;
}
"""

_CUDA_POWERS = """
__device__ void powers(nnl_array<TYPE_y> y, nnl_array<const TYPE_x> x) {
    const int64_t order = ATTRIBUTE_order, d = ATTRIBUTE_derivative;
    int64_t inner = 1;
    for (int64_t k = ATTRIBUTE_axis; k < x.rank; k++) inner *= x.shape[k];
    FOR_EACH(at, x.size) {
        const TYPE_x value = x.data[at];
        TYPE_y *place = y.data + at / inner * order * inner + at % inner;
        TYPE_y power = 1;
        for (int64_t q = 1; q <= order; q++, place += inner) {
            if (q <= d) power *= q;
            else power = q == 1 ? value : power * value * ((TYPE_y)q / (TYPE_y)(q - d));
            *place = q < d ? (TYPE_y)0 : power;
        }
    }
}
"""

_CUDA_POWER_SUM = """
__device__ void power_sum(
    nnl_array<TYPE_y> y, nnl_array<const TYPE_g> g, nnl_array<const TYPE_x> x
) {
    const int64_t order = g.shape[ATTRIBUTE_axis], d = ATTRIBUTE_derivative;
    int64_t inner = 1;
    for (int64_t k = ATTRIBUTE_axis; k < x.rank; k++) inner *= x.shape[k];
    FOR_EACH(at, x.size) {
        const TYPE_x value = x.data[at];
        const TYPE_g *place = g.data + at / inner * order * inner + at % inner;
        TYPE_y sum = 0;
        for (int64_t q = order; q >= (d > 1 ? d : 1); q--) {
            TYPE_y factor = 1;
            for (int64_t k = 0; k < d; k++) factor *= q - k;
            sum = sum * value + place[(q - 1) * inner] * factor;
        }
        y.data[at] = d == 0 ? sum * value : sum;
    }
}
"""


def _c_kernel(
    inputs: Sequence[Spec],
    outputs: Sequence[Spec],
    attributes: Mapping[str, int],
    *,
    entry: str,
    text: str,
) -> KernelSource:
    """Share blocks of rows among threads."""
    shape, axis = inputs[-1].shape, attributes["axis"]
    units = math.prod(shape[:axis]) * -(-math.prod(shape[axis:]) // _BLOCK)
    options: dict[str, object] = {"dtypes": _DTYPES, "units": units}
    return KernelSource(f"#define BLOCK {_BLOCK}\n{text}", entry, options)


def _cuda_kernel(
    inputs: Sequence[Spec],
    outputs: Sequence[Spec],
    attributes: Mapping[str, int],
    *,
    entry: str,
    text: str,
) -> KernelSource:
    """Give each element of ``x`` a thread."""
    grid = max(1, -(-inputs[-1].size // _THREADS))
    options: dict[str, object] = {"dtypes": _DTYPES, "block": _THREADS, "grid": grid}
    return KernelSource(text, entry, options)


powers.kernel("c", functools.partial(_c_kernel, entry="powers", text=_C_POWERS))
power_sum.kernel("c", functools.partial(_c_kernel, entry="power_sum", text=_C_POWER_SUM))
powers.kernel("cuda", functools.partial(_cuda_kernel, entry="powers", text=_CUDA_POWERS))
power_sum.kernel("cuda", functools.partial(_cuda_kernel, entry="power_sum", text=_CUDA_POWER_SUM))
