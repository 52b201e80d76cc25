"""Pooling, its gradients, and unpooling."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from nnl_core.gpu.families.products import Plan, divisor, moved, structure, width_of
from nnl_core.gpu.kernel import (
    C_TYPES,
    FLOATING,
    Address,
    Argument,
    Call,
    Emission,
    Kernel,
    emitter,
    given,
    kernel,
    over,
    result,
    with_files,
)

AXES = 3
LARGEST = (1 << 31) - 1  # elements of a launch, which kernels count in 32 bits

Lengths = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Pool:
    """Windows over three axes, of data (rows, axes, inner)."""

    rows: int
    inner: int
    length: Lengths
    places: Lengths
    kernel: Lengths
    stride: Lengths
    pad: Pairs

    @property
    def size(self) -> int:
        """Elements of a row of the data."""
        return math.prod(self.length) * self.inner

    @property
    def windows(self) -> int:
        """Elements of a row of the result."""
        return math.prod(self.places) * self.inner

    def packed(self) -> np.generic:
        """Return what kernels know as ``Pool``."""
        divisors = {
            f"by_{name}": _divisors(getattr(self, name)) for name in ("length", "places", "stride")
        }
        return structure(
            length=self.length,
            places=self.places,
            kernel=self.kernel,
            stride=self.stride,
            before=[before for before, _ in self.pad],
            after=[after for _, after in self.pad],
            **divisors,
            by_inner=divisor(self.inner),
        )


def _divisors(lengths: Lengths) -> np.ndarray:
    each = [divisor(length) for length in lengths]
    return np.array(each, each[0].dtype)


def find_pool(
    shape: Lengths, places: Lengths, kernel: Lengths, stride: Lengths, pad: Pairs
) -> Pool | None:
    """Return the windows of data of a shape, without axes at either end that have none.

    ``None`` where more than three axes are left.
    """
    first = len(shape) - len(kernel)
    rows, inner = math.prod(shape[:first]), 1
    axes = list(zip(shape[first:], places[first:], kernel, stride, pad, strict=True))

    def is_left(axis: tuple[int, int, int, int, tuple[int, int]]) -> bool:
        return axis[2:] == (1, 1, (0, 0))

    while axes and is_left(axes[-1]):
        inner *= axes.pop()[0]
    while axes and is_left(axes[0]):
        rows *= axes.pop(0)[0]
    if len(axes) > AXES:
        return None
    axes = [(1, 1, 1, 1, (0, 0))] * (AXES - len(axes)) + axes
    lengths, counts, kernels, strides, pads = zip(*axes, strict=True)
    return Pool(rows, inner, lengths, counts, kernels, strides, pads)


def _pool(call: Call, shape: Lengths, places: Lengths) -> Pool | None:
    attributes = call.attributes
    return find_pool(shape, places, attributes["kernel"], attributes["stride"], attributes["pad"])


def _kernel(call: Call, entry: str, pool: Pool) -> Kernel:
    winner = _winner(pool)
    element = C_TYPES[call.outputs[0].dtype.name]
    return with_files(kernel("pooling.cu", entry, T=element, WINNER=winner), "divisor.cuh")


def _winner(pool: Pool) -> str:
    return "uint8_t" if math.prod(pool.kernel) < 256 else "int32_t"


def _add(
    plan: Plan,
    function: Kernel,
    pool: Pool,
    each: int,
    operands: tuple[tuple[Address, int], ...],
    *arguments: Argument,
) -> None:
    """Add launches over all rows, as many of them at once as 32 bits count.

    ``each`` are elements of a row that have a thread; an operand comes with the bytes of a row.
    """
    if not pool.rows or not each:
        return
    at_once = LARGEST // max(pool.size, pool.windows)
    packed = pool.packed()
    for row in range(0, pool.rows, max(at_once, 1)):
        rows = min(at_once, pool.rows - row)
        starts = tuple(moved(address, row * size) for address, size in operands)
        plan.add(over(function, rows * each, (*starts, packed, *arguments)))


def _possible(call: Call, pool: Pool | None) -> bool:
    return (
        pool is not None
        and call.has_only(call.outputs[0].dtype.name)
        and call.outputs[0].dtype.name in FLOATING
        and max(pool.size, pool.windows) <= LARGEST
    )


def _forward(call: Call, entry: str, *arguments: np.bool_) -> Emission | None:
    x, y = call.inputs[0], call.outputs[0]
    assert x is not None
    pool = _pool(call, x.shape, y.shape)
    if pool is None or not _possible(call, pool):
        return None
    plan = Plan()
    width = width_of(y.dtype.name)
    operands = ((given(0), pool.size * width), (result(), pool.windows * width))
    _add(plan, _kernel(call, entry, pool), pool, pool.windows, operands, *arguments)
    return plan.emission()


@emitter("nnl::max_pooling")
def max_pooling(call: Call) -> Emission | None:
    """Take the largest of each window."""
    return _forward(call, "largest")


@emitter("nnl::sum_pooling")
def sum_pooling(call: Call) -> Emission | None:
    """Sum each window."""
    return _forward(call, "total", np.bool_(False), np.bool_(False))


@emitter("nnl::average_pooling")
def average_pooling(call: Call) -> Emission | None:
    """Sum each window and divide by its size."""
    including = np.bool_(call.attributes["including_pad"])
    return _forward(call, "total", np.bool_(True), including)


@emitter("nnl::max_pooling_gradient")
def max_pooling_gradient(call: Call) -> Emission | None:
    """Find the winner of each window; then each element sums over the windows that it wins."""
    dy, x = call.inputs[0], call.inputs[1]
    assert dy is not None and x is not None
    pool = _pool(call, x.shape, dy.shape)
    if pool is None or not _possible(call, pool):
        return None
    plan = Plan()
    width = width_of(x.dtype.name)
    kept = 1 if _winner(pool) == "uint8_t" else 4
    winners = plan.scratch(pool.rows * pool.windows * kept)
    row_of = {"data": pool.size * width, "windows": pool.windows * width}
    places = (winners, pool.windows * kept)
    find, gather = (_kernel(call, entry, pool) for entry in ("winners", "from_winners"))
    _add(plan, find, pool, pool.windows, ((given(1), row_of["data"]), places))
    operands = ((given(0), row_of["windows"]), places, (result(), row_of["data"]))
    _add(plan, gather, pool, pool.size, operands)
    return plan.emission()


@emitter("nnl::max_pooling_gather")
def max_pooling_gather(call: Call) -> Emission | None:
    """Take from another array what stands where the winners are."""
    x, z = call.inputs[1], call.outputs[0]
    assert x is not None
    pool = _pool(call, x.shape, z.shape)
    if pool is None or not _possible(call, pool):
        return None
    plan = Plan()
    width = width_of(z.dtype.name)
    data, windows = pool.size * width, pool.windows * width
    operands = ((given(0), data), (given(1), data), (result(), windows))
    _add(plan, _kernel(call, "take_winners", pool), pool, pool.windows, operands)
    return plan.emission()


@emitter("nnl::sum_pooling_gradient")
def sum_pooling_gradient(call: Call) -> Emission | None:
    """Sum over the windows that each element is in."""
    dy, dx = call.inputs[0], call.outputs[0]
    assert dy is not None
    pool = _pool(call, dx.shape, dy.shape)
    if pool is None or not _possible(call, pool):
        return None
    plan = Plan()
    width = width_of(dx.dtype.name)
    operands = ((given(0), pool.windows * width), (result(), pool.size * width))
    _add(plan, _kernel(call, "from_windows", pool), pool, pool.size, operands)
    return plan.emission()


@emitter("nnl::unpooling")
def unpooling(call: Call) -> Emission | None:
    """Read each element of the result from where it is repeated from."""
    x, y = call.inputs[0], call.outputs[0]
    times = call.attributes["kernel"]
    if x is None:
        return None
    pool = find_pool(y.shape, x.shape, times, times, ((0, 0),) * len(times))
    if pool is None or pool.size > LARGEST:
        return None
    plan = Plan()
    width = y.dtype.itemsize
    found = kernel("pooling.cu", "repeated", BITS=f"uint{8 * width}_t")
    operands = ((given(0), pool.windows * width), (result(), pool.size * width))
    _add(plan, with_files(found, "divisor.cuh"), pool, pool.size, operands)
    return plan.emission()
