"""CUDA kernels of connectionist temporal classification."""

from __future__ import annotations

import numpy as np

from nnl_core.gpu.kernel import (
    FLOATING,
    Argument,
    Call,
    Emission,
    Kernel,
    Launch,
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
from nnl_core.graph.spec import Spec

FILE = "ctc.cu"


def _kernel(entry: str, x: Spec | None, *whole: Spec | None) -> Kernel:
    types = {
        name: c_type(one.dtype)
        for name, one in zip(("TARGET", "STEPS", "LABELS"), whole, strict=True)
        if one is not None
    }
    if x is not None:
        types |= {"T": c_type(x.dtype), "C": computing_type(x.dtype)}
    return kernel(FILE, entry, **types)


def _block(call: Call, x: Spec, targets: Spec) -> tuple[int, int] | None:
    """Return threads and bytes of shared memory, or ``None`` where there are too many states."""
    states = 2 * targets.shape[-1] + 2
    size = 8 if computing_type(x.dtype) == "double" else 4
    shared = states * (3 * size + 8)
    if x.dtype.name not in FLOATING or shared > call.device.shared_memory - 1024:
        return None
    return min(256, 32 * -(-states // 32)), shared


def _arguments(call: Call, x: Spec, targets: Spec, first: int) -> tuple[Argument, ...]:
    """Return log probabilities, targets and lengths, which begin at that input, and extents."""
    steps, batch, classes = x.shape
    return (
        given(0),
        *(given(first + place) for place in range(3)),
        np.int64(steps),
        np.int64(batch),
        np.int64(classes),
        np.int64(targets.shape[-1]),
        np.int32(targets.ndim == 1),
        np.int64(call.attributes["blank"]),
    )


@emitter("nnl::ctc_loss")
def ctc_loss(call: Call) -> Emission | None:
    """Go forward through the steps."""
    x, targets, steps, labels = call.inputs
    assert x is not None
    assert targets is not None
    shape = _block(call, x, targets)
    if shape is None:
        return None
    threads, shared = shape
    last = (result(), np.int32(call.attributes["zero_infinity"]))
    arguments = (*_arguments(call, x, targets, 1), *last)
    run = _kernel("loss", x, targets, steps, labels)
    return Emission((Launch(run, (x.shape[1], 1, 1), (threads, 1, 1), arguments, shared),))


@emitter("nnl::ctc_loss_gradient")
def ctc_loss_gradient(call: Call) -> Emission | None:
    """Go forward, then back: each class takes the sum of its states in their order."""
    x, g, targets, steps, labels = call.inputs
    assert x is not None
    assert g is not None
    assert targets is not None
    shape = _block(call, x, targets)
    if shape is None or g.dtype != x.dtype:
        return None
    threads, shared = shape
    arguments = (*_arguments(call, x, targets, 2), given(1), result(), scratch())
    size = 8 if computing_type(x.dtype) == "double" else 4
    history = x.shape[0] * x.shape[1] * (2 * targets.shape[-1] + 2) * size
    run = _kernel("gradient", x, targets, steps, labels)
    launch = Launch(run, (x.shape[1], 1, 1), (threads, 1, 1), arguments, shared)
    return Emission((zero(result(), x.nbytes), launch), (history,))


@emitter("nnl::ctc_states")
def ctc_states(call: Call) -> Emission | None:
    """A thread for each state."""
    targets, steps, labels = call.inputs
    assert targets is not None
    numbers = (
        np.int64(call.attributes["steps"]),
        np.int64(call.attributes["classes"]),
        np.int64(targets.shape[-1]),
        np.int32(targets.ndim == 1),
        np.int64(call.attributes["blank"]),
    )
    addresses = (*(given(place) for place in range(3)), *(result(place) for place in range(3)))
    run = _kernel("states", None, targets, steps, labels)
    return Emission((over(run, call.outputs[0].size, (*addresses, *numbers)),))
