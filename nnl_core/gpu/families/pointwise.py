"""CUDA kernels of elementwise operators that have several results."""

from __future__ import annotations

import numpy as np

from nnl_core.gpu.kernel import (
    FLOATING,
    Call,
    Emission,
    Kernel,
    c_type,
    computing_type,
    emitter,
    given,
    kernel,
    over,
    result,
)


def _kernel(call: Call, entry: str) -> Kernel | None:
    dtypes = {one.dtype for one in (*call.inputs, *call.outputs) if one is not None}
    if not call.has_only(*FLOATING) or len(dtypes) > 1:
        return None
    dtype = call.outputs[0].dtype
    return kernel("pointwise.cu", entry, T=c_type(dtype), C=computing_type(dtype))


@emitter("nnl::quantization_range")
def quantization_range(call: Call) -> Emission | None:
    """A range moved so that 0 is one of its levels."""
    run = _kernel(call, "range")
    if run is None:
        return None
    addresses = (*(given(place) for place in range(4)), *(result(place) for place in range(4)))
    number = np.float64(call.attributes["eps"])
    return Emission((over(run, call.outputs[0].size, (*addresses, number)),))


@emitter("nnl::vat_gradient")
def vat_gradient(call: Call) -> Emission | None:
    """A multiple of the gradient, and nothing."""
    run = _kernel(call, "kept")
    if run is None:
        return None
    number = np.float64(call.attributes["eps"])
    arguments = (given(0), result(0), result(1), number)
    return Emission((over(run, call.outputs[0].size, arguments),))
