"""Elements of populations that are chosen by weight, with replacement."""

from __future__ import annotations

import math

import numpy as np

from nnl_core.gpu.kernel import (
    C_TYPES,
    Call,
    Emission,
    Kernel,
    Launch,
    c_type,
    emitter,
    failing,
    given,
    kernel,
    over,
    result,
    scratch,
)
from nnl_core.gpu.strides import CARRIERS, numbers


@emitter("nnl::random_choice")
def random_choice(call: Call) -> Emission | None:
    """Running totals of the weights, and a search for each draw.

    Without replacement, where each draw waits for those before it, NumPy chooses.
    """
    x, w = call.inputs[:2]
    y = call.outputs[0]
    assert x is not None
    assert w is not None
    if not call.attributes["replace"] or w.dtype.name not in C_TYPES:
        return None
    length, populations = x.shape[-1], math.prod(x.shape[:-1])
    draws = math.prod(call.attributes["shape"])

    def text(entry: str) -> Kernel:
        words = kernel("stochastic.cu", entry, UNIFORM=1)
        own = kernel("choosing.cu", entry, T=CARRIERS[x.dtype.itemsize], W=c_type(w.dtype))
        return own._replace(text=words.text + own.text)

    message = (
        f"{call.name}: weights must be numbers of at least 0, and their sum over a population "
        "positive and finite"
    )
    where = (given(1), scratch(), *failing(call, message), np.int64(length))
    totals = Launch(text("run_totals"), (populations, 1, 1), (256, 1, 1), where)
    operands = (given(0), given(2), scratch(), result(0), result(1), *numbers(length, draws))
    return Emission((totals, over(text("choose"), y.size, operands)), (8 * x.size,))
