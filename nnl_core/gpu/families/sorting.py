"""CUDA kernels that sort along an axis, and of what follows from an order."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nnl_core.gpu.families.reduction import power_of_two
from nnl_core.gpu.families.softmax import split
from nnl_core.gpu.kernel import (
    FLOATING,
    NULL,
    Address,
    Argument,
    Call,
    Emission,
    Invocation,
    Kernel,
    Launch,
    Step,
    blocks,
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
from nnl_core.graph.dtypes import wide_dtype
from nnl_core.operators.quantization import prune_position

TILE = 2048  # elements that one block sorts
LONGEST = 65535 * TILE  # elements of a line: a grid has as many tiles


class Order(NamedTuple):
    """Lines to be sorted: (outer, n, inner) elements, of which the first ``kept`` are wanted."""

    dtype: np.dtype
    extents: tuple[int, int, int]
    kept: int
    reverse: bool = False
    by_size: bool = False

    def kernel(self, entry: str) -> Kernel:
        """Return a kernel of `sorting.cu`."""
        return kernel(
            "sorting.cu",
            entry,
            T=c_type(self.dtype),
            C=computing_type(self.dtype),
            REVERSE=int(self.reverse),
            SIZES=int(self.by_size),
        )

    def steps(
        self, y: Address, index: Address, piece: int = 0, source: Address | None = None
    ) -> tuple[tuple[Step, ...], tuple[int, ...]]:
        """Return what sorts the first input, and the scratch memory from ``piece`` on.

        Or another source. Elements go to ``y``, their places, ``int64``, to ``index``, unless
        these are null.
        """
        outer, n, inner = self.extents
        lines = outer * inner
        size = min(TILE, power_of_two(n))
        runs, span, held = blocks(n, size), size, min(size, self.kept)
        threads = max(32, size // 2)
        whole = (np.int32(n), np.int64(inner), np.int64(self.kept))
        now, then = (scratch(piece), scratch(piece + 1)), (scratch(piece + 2), scratch(piece + 3))
        start = given(0) if source is None else source
        first = (start, y, index, *(now if runs > 1 else (NULL, NULL)), *whole)
        steps: list[Step] = [
            Launch(
                self.kernel("sort_tiles"),
                (lines, runs, 1),
                (threads, 1, 1),
                (*first, np.int32(size), np.int64(held)),
            )
        ]
        most = runs * held if runs > 1 else 0
        while runs > 1:
            following = min(2 * span, self.kept)
            to = then if runs > 2 else (NULL, NULL)
            numbers = (np.int64(one) for one in (runs, span, held, following))
            arguments: tuple[Argument, ...] = (*now, *to, y, index, *whole, *numbers)
            steps.append(over(self.kernel("merge"), lines * runs * held, arguments))
            now, then = then, now
            runs, span, held = blocks(runs, 2), 2 * span, following
            most = max(most, runs * held if runs > 1 else 0)
        if not most:
            return tuple(steps), ()
        keys = max(4, self.dtype.itemsize) if self.dtype.name in FLOATING else self.dtype.itemsize
        return tuple(steps), (lines * most * keys, lines * most * 4) * 2


@emitter("nnl::sort", "nnl::topk")
def sort(call: Call) -> Emission | None:
    """Elements by rank, and where they were."""
    x, y = call.inputs[0], call.outputs[0]
    assert x is not None
    extents = split(x.shape, call.attributes["axis"])
    if extents[1] > LONGEST:
        return None
    if not y.size:
        return Emission(())
    is_sort = call.name == "nnl::sort"
    kept = extents[1] if is_sort else call.attributes["k"]
    reverse = call.attributes["reverse" if is_sort else "largest"]
    return Emission(*Order(x.dtype, extents, kept, reverse).steps(result(0), result(1)))


@emitter("nnl::prune")
def prune(call: Call) -> Emission | None:
    """The threshold by sorting sizes, then a comparison with it."""
    x = call.inputs[0]
    assert x is not None
    rate = call.attributes["rate"]
    if x.dtype.name not in FLOATING or x.size > LONGEST:
        return None
    if not x.size:
        return Emission(())
    if rate == 1:
        return Emission((zero(result(), x.nbytes),))
    at = prune_position(x.size, rate)
    order = Order(x.dtype, (1, x.size, 1), at + 1, by_size=True)
    steps, rooms = order.steps(scratch(), NULL, piece=1)
    threshold = scratch(0, at * x.dtype.itemsize)
    last = over(order.kernel("prune"), x.size, (given(0), threshold, result()))
    return Emission((*steps, last), ((at + 1) * x.dtype.itemsize, *rooms))


@emitter("nnl::keep_elements")
def keep_elements(call: Call) -> Emission | None:
    """Zeros, and the elements at the positions; those that repeat are written twice, the same."""
    x, index = call.inputs
    if x is None or index is None or x.shape[:-1] != index.shape[:-1]:
        return None
    run = kernel("sorting.cu", "keep", T=c_type(x.dtype), KEEPS=1)
    numbers = (np.int64(x.shape[-1]), np.int64(index.shape[-1]))
    where = any_type(given(1), index.dtype)
    write = over(run, index.size, (given(0), *where, result(), *numbers))
    return Emission((zero(result(), x.nbytes), write))


@emitter("nnl::top_k_grad")
def top_k_grad(call: Call) -> Emission | None:
    """A copy: what the operator does, it does to the gradient."""
    size = call.outputs[0].nbytes
    return Emission(
        (Invocation(lambda device, y, x: device.copy(y, x, size), (result(), given(0))),)
    )


@emitter("nnl::searchsorted")
def searchsorted(call: Call) -> Emission | None:
    """A binary search for each value."""
    sequence, values = call.inputs
    assert sequence is not None
    assert values is not None
    common = np.result_type(wide_dtype(sequence.dtype), wide_dtype(values.dtype))
    run = kernel(
        "sorting.cu",
        "search",
        T=c_type(values.dtype),
        SEQUENCE=c_type(sequence.dtype),
        C=computing_type(common),
    )
    numbers = (np.int64(sequence.shape[-1]), np.int64(max(1, values.shape[-1])))
    right = np.int32(call.attributes["right"])
    arguments = (given(0), given(1), result(), *numbers, right)
    return Emission((over(run, math.prod(values.shape), arguments),))
