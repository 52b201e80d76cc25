"""CUDA kernels of elementwise operators that no C expression is: several results, or failures."""

from __future__ import annotations

import numpy as np

from nnl_core.gpu.families.elementwise import strides_of
from nnl_core.gpu.kernel import (
    FLOATING,
    Call,
    Emission,
    Kernel,
    c_type,
    computing_type,
    emitter,
    failing,
    given,
    kernel,
    over,
    result,
)
from nnl_core.gpu.strides import any_type, columns_of, numbers, room_for


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


@emitter("nnl::bit_shift")
def bit_shift(call: Call) -> Emission | None:
    """A thread for each element, which looks for its two operands."""
    x, shift = call.inputs
    y = call.outputs[0]
    assert x is not None
    assert shift is not None
    places = [strides_of(one, y.shape) for one in (x, shift)]
    axes = list(zip(y.shape, *places, strict=True)) or [(1, 0, 0)]
    room = room_for(len(axes))
    message = (
        f"{call.name}: a shift is not a whole number; give from 0 to {8 * x.dtype.itemsize - 1}"
    )
    is_left = call.attributes["direction"] == "LEFT"
    text = kernel("pointwise.cu", "shift", BITS=c_type(y.dtype), RANK=room)
    where = (given(0), *any_type(given(1), shift.dtype), *failing(call, message), result())
    where += (*numbers(len(axes)), *columns_of(axes, room), *numbers(is_left))
    return Emission((over(text, y.size, where),))
