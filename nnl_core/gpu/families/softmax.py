"""CUDA kernels of softmax, its logarithm, their gradients, and of rows brought to a length."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnl_core.gpu.families.reduction import SHORT, block_of, power_of_two
from nnl_core.gpu.kernel import (
    FLOATING,
    NULL,
    Address,
    Argument,
    Call,
    Emission,
    Launch,
    blocks,
    c_type,
    computing_type,
    emitter,
    given,
    kernel,
    result,
    with_files,
)
from nnl_core.graph.spec import normalize_axis

REGISTERS = 32  # 32-bit words of a row that a thread may hold
MOST_HELD = 8  # chunks of a row that a thread holds
BLOCK = 512  # threads of a block that has one row, at most


def split(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    """Return a shape as (outer, n, inner) about an axis."""
    at = normalize_axis(axis, len(shape))
    return math.prod(shape[:at]), shape[at], math.prod(shape[at + 1 :])


def column_block(n: int, inner: int) -> tuple[int, int]:
    """Return the threads of a block along ``inner`` and along the axis."""
    across = min(32, power_of_two(inner))
    down = min(256 // across, power_of_two(blocks(n, 4)))
    return min(power_of_two(inner), max(across, 128 // down)), down


def along(
    call: Call,
    operation: str,
    extents: tuple[int, int, int],
    *,
    other: Address = NULL,
    number: float = 0.0,
) -> Emission | None:
    """Emit one operation on (outer, n, inner)."""
    if not call.has_only(*FLOATING) or len({one.dtype for one in call.inputs if one}) > 1:
        return None
    outer, n, inner = extents
    y = call.outputs[0]
    if not y.size:
        return Emission(())
    computed = computing_type(y.dtype)
    words = 4 if computed == "double" else 1  # and as many for the exponential
    vector = math.gcd(n, 16 // y.dtype.itemsize) if inner == 1 and n >= SHORT else 1
    chunks = n // vector
    pairs = 1 if other == NULL else 2
    held = min(MOST_HELD, REGISTERS // (vector * words * pairs))
    team = min(BLOCK, power_of_two(blocks(chunks, held)))
    if inner > 1 or team * held < chunks:
        held, team = 0, BLOCK
    defines = {"T": c_type(y.dtype), "C": computed, "OPERATION": operation}
    arguments: tuple[Argument, ...] = (given(0), other, result())
    entry = "rows" if inner == 1 else "columns"
    function = kernel("softmax.cu", entry, VECTOR=vector, HELD=held, **defines)
    run = with_files(function, "falling.cuh")
    if inner == 1:
        threads = block_of(team)
        rest: tuple[Argument, ...] = (np.int64(outer), np.int32(chunks), np.float64(number))
        grid = (blocks(outer, threads // team), 1, 1)
        launch = Launch(run, grid, (threads, 1, 1), (*arguments, *rest, np.int32(team)))
    else:
        across, down = column_block(n, inner)
        grid = (outer * blocks(inner, across), 1, 1)
        rest = (np.int32(n), np.int64(inner), np.float64(number))
        launch = Launch(run, grid, (across, down, 1), (*arguments, *rest))
    return Emission((launch,))


OF_ONE = {
    "nnl::softmax": "Softmax",
    "nnl::masked_softmax": "MaskedSoftmax",
    "nnl::log_softmax": "LogSoftmax",
}
OF_TWO = {
    "nnl::softmax_gradient": "SoftmaxGradient",
    "nnl::log_softmax_gradient": "LogSoftmaxGradient",
}


@emitter(*OF_ONE)
def softmax(call: Call) -> Emission | None:
    """Softmax and its logarithm."""
    extents = split(call.outputs[0].shape, call.attributes["axis"])
    return along(call, OF_ONE[call.name], extents)


@emitter(*OF_TWO)
def softmax_gradient(call: Call) -> Emission | None:
    """Their gradients, of the gradient and the result."""
    extents = split(call.outputs[0].shape, call.attributes["axis"])
    return along(call, OF_TWO[call.name], extents, other=given(1))


@emitter("nnl::vat_noise")
def vat_noise(call: Call) -> Emission | None:
    """Rows brought to a length."""
    shape = call.outputs[0].shape
    axis = normalize_axis(call.attributes["base_axis"], len(shape))
    extents = (math.prod(shape[:axis]), math.prod(shape[axis:]), 1)
    return along(call, "ToLength", extents, number=float(call.attributes["eps"]))
