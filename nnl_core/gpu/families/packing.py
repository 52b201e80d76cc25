"""CUDA kernels of where the elements of packed sequences lie."""

from __future__ import annotations

import numpy as np

from nnl_core.gpu.kernel import (
    NULL,
    Call,
    Emission,
    emitter,
    given,
    kernel,
    over,
    result,
    scratch,
)
from nnl_core.gpu.ordering import zero
from nnl_core.gpu.strides import any_type


@emitter("nnl::packed_places")
def packed_places(call: Call) -> Emission | None:
    """Sizes of the steps and where they begin, then the places."""
    lengths = call.inputs[0]
    assert lengths is not None
    batch, steps = lengths.size, call.attributes["steps"]
    count, batch_first = call.attributes["count"], call.attributes["batch_first"]
    sizes = over(
        kernel("packing.cu", "steps"),
        steps,
        (*any_type(given(0), lengths.dtype), result(1), scratch(), np.int64(batch)),
    )
    numbers = (np.int64(batch), np.int64(steps), np.int64(count), np.int32(batch_first))
    places = over(
        kernel("packing.cu", "places"),
        steps * batch,
        (*any_type(result(1), np.dtype(np.int64)), scratch(), result(0), *numbers),
    )
    return Emission((sizes, zero(result(0), 8 * count), places), (8 * steps,))


@emitter("nnl::padded_places")
def padded_places(call: Call) -> Emission | None:
    """The lengths, and the places of each step."""
    sizes = call.inputs[0]
    assert sizes is not None
    batch, steps = call.attributes["batch"], call.attributes["steps"]
    count, batch_first = call.attributes["count"], call.attributes["batch_first"]
    lengths = over(
        kernel("packing.cu", "sequences"),
        batch,
        (*any_type(given(0), sizes.dtype), result(1), np.int64(sizes.size)),
    )
    numbers = (np.int64(batch), np.int64(steps), np.int64(count), np.int32(batch_first))
    places = over(
        kernel("packing.cu", "places"),
        sizes.size * batch,
        (*any_type(given(0), sizes.dtype), NULL, result(0), *numbers),
    )
    return Emission((lengths, zero(result(0), 8 * count), places))
