"""CUDA kernels of where the elements of packed sequences lie."""

from __future__ import annotations

import numpy as np

from nnl_core.gpu.kernel import (
    NULL,
    THREADS,
    Call,
    Emission,
    Launch,
    emitter,
    failing,
    given,
    kernel,
    over,
    result,
    scratch,
)
from nnl_core.gpu.ordering import zero
from nnl_core.gpu.strides import any_type, numbers
from nnl_core.graph.spec import Spec


def _check(call: Call, sizes: Spec, first: int, most: int, count: int, message: str) -> Launch:
    """Let the call fail where sizes increase, are out of range, or do not sum to ``count``.

    The first is ``first``, or any up to ``most`` where that is negative.
    """
    extents = numbers(sizes.size, first, most, count)
    arguments = (*any_type(given(0), sizes.dtype), *failing(call, message), *extents)
    return Launch(kernel("packing.cu", "check"), (1, 1, 1), (THREADS, 1, 1), arguments)


@emitter("nnl::packed_places")
def packed_places(call: Call) -> Emission | None:
    """Sizes of the steps and where they begin, then the places."""
    lengths = call.inputs[0]
    assert lengths is not None
    batch, steps = lengths.size, call.attributes["steps"]
    count, batch_first = call.attributes["count"], call.attributes["batch_first"]
    message = (
        f"pack_padded_sequence: lengths must be whole numbers from 0 to {steps}, the longest "
        f"first, and sum to {count} as when the graph was built; build the graph again for "
        "another sum"
    )
    check = _check(call, lengths, -1, steps, count, message)
    sizes = over(
        kernel("packing.cu", "steps"),
        steps,
        (*any_type(given(0), lengths.dtype), result(1), scratch(), np.int64(batch)),
    )
    extents = (np.int64(batch), np.int64(steps), np.int64(count), np.int32(batch_first))
    places = over(
        kernel("packing.cu", "places"),
        steps * batch,
        (*any_type(result(1), np.dtype(np.int64)), scratch(), result(0), *extents),
    )
    return Emission((check, sizes, zero(result(0), 8 * count), places), (8 * steps,))


@emitter("nnl::padded_places")
def padded_places(call: Call) -> Emission | None:
    """The lengths, and the places of each step."""
    sizes = call.inputs[0]
    assert sizes is not None
    batch, steps = call.attributes["batch"], call.attributes["steps"]
    count, batch_first = call.attributes["count"], call.attributes["batch_first"]
    message = (
        "pad_packed_sequence: batch_sizes must be whole numbers that do not increase and sum to "
        f"the {count} packed elements, and the first {batch}, as when the graph was built; build "
        "the graph again for another batch"
    )
    check = _check(call, sizes, batch, count, count, message)
    lengths = over(
        kernel("packing.cu", "sequences"),
        batch,
        (*any_type(given(0), sizes.dtype), result(1), np.int64(sizes.size)),
    )
    extents = (np.int64(batch), np.int64(steps), np.int64(count), np.int32(batch_first))
    places = over(
        kernel("packing.cu", "places"),
        sizes.size * batch,
        (*any_type(given(0), sizes.dtype), NULL, result(0), *extents),
    )
    return Emission((check, lengths, zero(result(0), 8 * count), places))
