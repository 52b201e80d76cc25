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

FILE = "ctc.cu"


def _kernel(entry: str, x: Spec) -> Kernel:
    return kernel(FILE, entry, T=c_type(x.dtype), C=computing_type(x.dtype))


def _numbers(call: Call, first: int) -> tuple[Argument, ...]:
    """Return targets and lengths, which begin at that input."""
    found: list[Argument] = []
    for place in range(first, first + 3):
        one = call.inputs[place]
        assert one is not None
        found += any_type(given(place), one.dtype)
    return tuple(found)


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
        *_numbers(call, first),
        *_extents(call, targets, steps, batch, classes),
    )


def _extents(
    call: Call, targets: Spec, steps: int, batch: int, classes: int
) -> tuple[Argument, ...]:
    """Return the steps there are at most, what fails where numbers cannot be, and extents."""
    width, blank, joined = targets.shape[-1], call.attributes["blank"], targets.ndim == 1
    message = (
        f"{call.name}: input_lengths must be whole numbers from 0 to {steps}, target_lengths from "
        f"0 to {width}{f' that sum to {width}' * joined}, and targets labels from 0 to "
        f"{classes - 1} without the blank, {blank}"
    )
    extents = numbers(batch, classes, width, joined, blank)
    return np.int64(steps), *failing(call, message), *extents


@emitter("nnl::ctc_loss")
def ctc_loss(call: Call) -> Emission | None:
    """Go forward through the steps."""
    x, targets = call.inputs[:2]
    assert x is not None
    assert targets is not None
    shape = _block(call, x, targets)
    if shape is None:
        return None
    threads, shared = shape
    last = (result(), np.int32(call.attributes["zero_infinity"]))
    arguments = (*_arguments(call, x, targets, 1), *last)
    run = _kernel("loss", x)
    return Emission((Launch(run, (x.shape[1], 1, 1), (threads, 1, 1), arguments, shared),))


@emitter("nnl::ctc_loss_gradient")
def ctc_loss_gradient(call: Call) -> Emission | None:
    """Go forward, then back: each class takes the sum of its states in their order."""
    x, g, targets = call.inputs[:3]
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
    run = _kernel("gradient", x)
    launch = Launch(run, (x.shape[1], 1, 1), (threads, 1, 1), arguments, shared)
    return Emission((zero(result(), x.nbytes), launch), (history,))


@emitter("nnl::ctc_states")
def ctc_states(call: Call) -> Emission | None:
    """A thread for each state."""
    targets = call.inputs[0]
    assert targets is not None
    batch = call.outputs[2].size
    extents = _extents(call, targets, call.attributes["steps"], batch, call.attributes["classes"])
    arguments = (*_numbers(call, 0), result(0), result(1), result(2), *extents)
    return Emission((over(kernel(FILE, "states"), call.outputs[0].size, arguments),))
