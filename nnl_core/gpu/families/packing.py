"""CUDA kernels of where the elements of packed sequences lie."""

from __future__ import annotations

import numpy as np

from nnl_core.gpu.kernel import (
    Call,
    Emission,
    c_type,
    emitter,
    given,
    kernel,
    over,
    result,
    scratch,
)
from nnl_core.gpu.ordering import zero


@emitter("nnl::packed_places")
def packed_places(call: Call) -> Emission | None:
    """Sizes of the steps and where they begin, then the places."""
    lengths = call.inputs[0]
    assert lengths is not None
    batch, steps = lengths.size, call.attributes["steps"]
    count, batch_first = call.attributes["count"], call.attributes["batch_first"]
    types = {"LENGTH": c_type(lengths.dtype)}
    sizes = over(
        kernel("packing.cu", "steps", **types),
        steps,
        (given(0), result(1), scratch(), np.int64(batch)),
    )
    numbers = (np.int64(batch), np.int64(steps), np.int64(count), np.int32(batch_first))
    places = over(
        kernel("packing.cu", "packed", **types),
        steps * batch,
        (result(1), scratch(), result(0), *numbers),
    )
    return Emission((sizes, zero(result(0), 8 * count), places), (8 * steps,))


@emitter("nnl::padded_places")
def padded_places(call: Call) -> Emission | None:
    """The lengths, and the places of each step."""
    sizes = call.inputs[0]
    assert sizes is not None
    batch, steps = call.attributes["batch"], call.attributes["steps"]
    count, batch_first = call.attributes["count"], call.attributes["batch_first"]
    types = {"LENGTH": c_type(sizes.dtype)}
    lengths = over(
        kernel("packing.cu", "sequences", **types),
        batch,
        (given(0), result(1), np.int64(sizes.size)),
    )
    numbers = (np.int64(batch), np.int64(steps), np.int64(count), np.int32(batch_first))
    places = over(
        kernel("packing.cu", "padded", **types),
        sizes.size * batch,
        (given(0), result(0), *numbers),
    )
    return Emission((lengths, zero(result(0), 8 * count), places))
