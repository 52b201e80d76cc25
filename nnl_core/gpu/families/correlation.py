"""Operators that multiply windows: correlation of patches, kernels of each place."""

from __future__ import annotations

import math

from nnl_core.gpu.kernel import (
    FLOATING,
    Call,
    Emission,
    c_type,
    emitter,
    given,
    kernel,
    result,
)
from nnl_core.gpu.strides import numbers, over_rows
from nnl_core.graph.spec import Spec

FILE = "correlation.cu"


def _inputs(call: Call) -> list[Spec]:
    return [x for x in call.inputs if x is not None]


def _emission(call: Call, entry: str, family: str, *form: int) -> Emission | None:
    """Launch a thread for each element of the result."""
    y = call.outputs[0]
    if not call.has_only(*FLOATING) or len({one.dtype for one in (*_inputs(call), y)}) > 1:
        return None
    text = kernel(FILE, entry, T=c_type(y.dtype), **{family: 1})
    addresses = [given(position) for position in range(len(call.inputs))]
    rows = math.prod(y.shape[:-1])
    where = (*addresses, result(), *numbers(*form))
    return Emission((over_rows(text, rows, y.shape[-1], where),))


# Patches -----------------------------------------------------------------------------------------


def _patches(call: Call, x1: Spec, x2: Spec, y: Spec) -> Emission | None:
    options = (call.attributes[name] for name in ("patch", "step", "shifts", "shift_step"))
    lengths = (n for option in options for n in option)
    sizes = (*y.shape[3:], *x1.shape[2:], *x2.shape[2:])
    entry = call.name.partition("::")[2]
    return _emission(call, entry, "PATCHES", x1.shape[1], *lengths, *sizes)


@emitter("nnl::patch_correlation")
def patch_correlation(call: Call) -> Emission | None:
    """Compare patches."""
    x1, x2 = _inputs(call)
    return _patches(call, x1, x2, call.outputs[0])


@emitter("nnl::patch_correlation_first")
def patch_correlation_first(call: Call) -> Emission | None:
    """Let each pixel of the first image look for its patches."""
    x2, y = _inputs(call)
    return _patches(call, call.outputs[0], x2, y)


@emitter("nnl::patch_correlation_second")
def patch_correlation_second(call: Call) -> Emission | None:
    """Let each pixel of the second image look for its patches."""
    x1, y = _inputs(call)
    return _patches(call, x1, call.outputs[0], y)


# Kernels of each place ---------------------------------------------------------------------------


def _separable(
    call: Call, entry: str, sizes: tuple[Spec, int, int, Spec], *more: int
) -> Emission | None:
    """Emit a form of ``x``, the numbers of taps, and ``y``."""
    x, down, across, y = sizes
    lengths = (*x.shape[1:], down, across, *y.shape[2:])
    return _emission(call, entry, "SEPARABLE", *lengths, *more)


@emitter("nnl::adaptive_separable_convolution")
def separable(call: Call) -> Emission | None:
    """Weigh a window with the kernels of its place."""
    x, v, h = _inputs(call)
    return _separable(call, "separable", (x, v.shape[1], h.shape[1], call.outputs[0]))


@emitter("nnl::adaptive_separable_vertical")
def separable_vertical(call: Call) -> Emission | None:
    """Find the gradient of the vertical kernels."""
    x, h, y = _inputs(call)
    taps = call.outputs[0].shape[1], h.shape[1]
    return _separable(call, "separable_taps", (x, *taps, y), 1)


@emitter("nnl::adaptive_separable_horizontal")
def separable_horizontal(call: Call) -> Emission | None:
    """Find the gradient of the horizontal kernels."""
    x, v, y = _inputs(call)
    taps = v.shape[1], call.outputs[0].shape[1]
    return _separable(call, "separable_taps", (x, *taps, y), 0)


@emitter("nnl::adaptive_separable_data")
def separable_data(call: Call) -> Emission | None:
    """Find the gradient of the pixels."""
    v, h, y = _inputs(call)
    return _separable(call, "separable_data", (call.outputs[0], v.shape[1], h.shape[1], y))
