"""CUDA kernels of weights that are fixed to powers of two in steps."""

from __future__ import annotations

import numpy as np

from nnl_core.gpu.families.sorting import LONGEST, Order
from nnl_core.gpu.kernel import (
    FLOATING,
    NULL,
    Address,
    Argument,
    Call,
    Emission,
    Kernel,
    Step,
    c_type,
    computing_type,
    emitter,
    given,
    kernel,
    over,
    result,
    scratch,
)
from nnl_core.gpu.ordering import zero
from nnl_core.gpu.strides import any_type

MOST_SPAN = 2**20  # exponents below the largest, beyond which all are 0


@emitter("nnl::inq")
def inq(call: Call) -> Emission | None:
    """The largest size, the order of sizes where half is chosen by it, then the weights."""
    weight, marks, held, step, key = call.inputs
    assert weight is not None
    assert marks is not None
    assert held is not None
    assert step is not None
    if held.dtype != weight.dtype or weight.dtype.name not in FLOATING or weight.size > LONGEST:
        return None
    if not weight.size:
        return Emission(())
    computed = computing_type(weight.dtype)
    size = 8 if computed == "double" else 4
    iterations = call.attributes["iterations"]
    types: dict[str, str | int] = {
        "T": c_type(weight.dtype),
        "C": computed,
        "BITS": f"uint{8 * size}_t",
        "MARK": c_type(marks.dtype),
        "ITERATIONS": ", ".join(str(int(one)) for one in (*iterations, 0)),
    }

    by_size = key is None
    if not by_size:
        types["BY_CHANCE"] = 1

    def run(entry: str) -> Kernel:
        function = kernel("quantized.cu", entry, **types)
        if by_size:
            return function
        draws = kernel("stochastic.cu", "rand", UNIFORM=1)  # what draws words from a key
        return function._replace(text=f"{draws.text}\n{function.text}")

    found, sizes, order, chosen = (scratch(place) for place in range(4))
    rooms: tuple[int, ...] = (16,)
    arguments = (given(0), given(1), given(2), sizes if by_size else NULL, found)
    steps: list[Step] = [zero(found, 16), over(run("sizes"), weight.size, arguments)]
    if by_size:
        dtype = np.dtype(np.float64 if size == 8 else np.float32)
        ranks = Order(dtype, (1, weight.size, 1), weight.size, reverse=True)
        sorting, more = ranks.steps(NULL, order, piece=4, source=sizes)
        steps += sorting
        steps.append(over(run("choose"), weight.size, (order, chosen, found)))
        rooms = (16, size * weight.size, 8 * weight.size, weight.size, *more)
    chance: Address = NULL if by_size else given(4)
    choice = (chance, chosen if by_size else NULL, found)
    results = (result(0), result(1), result(2))
    span = np.int32(min(MOST_SPAN, 2 ** (call.attributes["num_bits"] - 2)))
    last: tuple[Argument, ...] = (
        given(0),
        given(1),
        given(2),
        *any_type(given(3), step.dtype),
        *choice,
        *results,
        span,
    )
    steps.append(over(run("fix"), weight.size, last))
    return Emission(tuple(steps), rooms)
