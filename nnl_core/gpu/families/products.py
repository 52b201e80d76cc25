"""Products of matrices for whoever needs them: by cuBLAS where it is, else by tiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from nnl_core.gpu import blas
from nnl_core.gpu.device import Device
from nnl_core.gpu.kernel import (
    C_TYPES,
    HALF_TYPES,
    NULL,
    Address,
    Argument,
    Emission,
    Invocation,
    Launch,
    Step,
    kernel,
    over,
    scratch,
    with_files,
)

SEPARATE = 16  # calls of the library for one stack, at most
AXES = 3  # of a stack, after those that can be merged are
SMALL = 1 << 18  # multiplications, up to which a launch more weighs more than a slower product
LEAST_SLICE = 256  # of k, which a block of its own is worth
STAGES = 4  # tiles of both operands of a product, that are on their way
INTEGERS = {"b": "int64", "i": "int64", "u": "uint64"}


class Plan:
    """Collects the steps of a call and its scratch memory."""

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._scratch: list[int] = []
        self._shared: int | None = None

    def add(self, *steps: Step) -> None:
        """Append steps."""
        self._steps += steps

    def scratch(self, size: int) -> Address:
        """Return new memory of that many bytes."""
        self._scratch.append(max(size, 1))
        return scratch(len(self._scratch) - 1)

    def passing(self, size: int) -> Address:
        """Return memory of that many bytes, the same for all that ask for it.

        What is there is gone when another step of the plan asks for it.
        """
        if self._shared is None:
            self._shared = self.scratch(0).position
        self._scratch[self._shared] = max(self._scratch[self._shared], size)
        return scratch(self._shared)

    def emission(self) -> Emission:
        """Return all of it."""
        return Emission(tuple(self._steps), tuple(self._scratch))


def structure(**fields: int | Sequence[int] | np.ndarray | np.generic) -> np.generic:
    """Return numbers that a kernel takes as one structure, as C++ lays it out.

    Python's numbers are ``int``; a sequence is an array.
    """
    values = {
        name: value if isinstance(value, (np.ndarray, np.generic)) else np.array(value, np.int32)
        for name, value in fields.items()
    }
    kinds = [(name, value.dtype, value.shape) for name, value in values.items()]
    made = np.zeros(1, np.dtype(kinds, align=True))
    for name, value in values.items():
        made[name] = value
    filled: np.generic = made[0]
    return filled


def divisor(by: int) -> np.generic:
    """Return what divides numbers below ``2**31`` by another: `divisor.cuh`."""
    shift = (by - 1).bit_length()
    factor = -(-(1 << 31 + shift) // by)
    return structure(by=np.uint32(by), factor=np.uint32(factor), shift=31 + shift)


def moved(address: Address, offset: int) -> Address:
    """Return the address that many bytes further."""
    return address._replace(offset=address.offset + offset)


# How a product is divided ------------------------------------------------------------------------


class Frame(NamedTuple):
    """What of `product.cuh` computes, and the memory that it needs."""

    text: str
    side: int
    depth: int
    threads: int
    shared: int


def on_tensors(device: Device, dtype: str) -> bool:
    """Whether elements are multiplied on tensor cores, by instructions that the device has."""
    if int(device.architecture[3:].rstrip("af")) < 80:
        return False
    return dtype in HALF_TYPES or (dtype == "float32" and device.allow_tf32)


def frame_of(
    device: Device, dtype: str, rows: int, columns: int, others: int, stages: int = 2
) -> Frame:
    """Choose a frame: the larger one where its blocks keep the device busy.

    ``stages`` are the tiles that are in shared memory at once where both operands are copied there.
    """
    tiles = -(-rows // 128) * -(-columns // 128) * others
    large = tiles >= device.multiprocessors
    if on_tensors(device, dtype):
        side = 128 if large else 64
        if dtype == "float32":
            return Frame(f"Rounded<{side}>", side, 16, 2 * side, 4 * side * 20 * 4)
        size = 2 * stages * side * 40 * 2
        return Frame(f"Tensors<T, {side}, {stages}>", side, 32, 2 * side, size)
    computing = computing_dtype(dtype)
    each = 8 if large and computing == "float32" else 4
    side, depth = 16 * each, 64 // each
    size = 4 * depth * (side + 4) * np.dtype(computing).itemsize
    return Frame(f"Cores<{C_TYPES[computing]}, {each}>", side, depth, 256, size)


def computing_dtype(dtype: str) -> str:
    """Return in what products are summed."""
    if dtype in HALF_TYPES:
        return "float32"
    return dtype if dtype.startswith("float") else INTEGERS[np.dtype(dtype).kind]


def loader(
    device: Device, dtype: str, along: bool, steps: Sequence[int], source: str = "Straight<T>"
) -> str:
    """Name what loads an operand: runs of elements where all steps are multiples of them."""
    itemsize = width_of(dtype)
    is_copied = dtype in HALF_TYPES and on_tensors(device, dtype)
    run = 16 if is_copied else min(16, 4 * itemsize)
    if any(step * itemsize % run for step in steps):
        return f"{'Along' if along else 'Across'}Elements<Frame, T, {source}>"
    return f"Runs<Frame, T, {source}, {'true' if along else 'false'}>"


def slices_of(device: Device, frame: Frame, blocks: int, inner: int) -> tuple[int, int]:
    """Return into how many slices k is divided, and how long they are."""
    wanted = max(1, min(2 * device.multiprocessors // max(blocks, 1), inner // LEAST_SLICE))
    length = max(1, -(-inner // wanted))
    length = -(-length // frame.depth) * frame.depth
    return max(1, -(-inner // length)), length


# Products ----------------------------------------------------------------------------------------


class Matrices(NamedTuple):
    """An operand: row-major matrices, each without gaps, that may lie transposed in memory."""

    address: Address
    transposed: bool = False
    strides: tuple[int, ...] = ()
    """From member to member along each axis of the stack, in elements"""


@dataclass(frozen=True)
class Multiplication:
    """``C = A B``, and ``+ bias`` in every row; C lies without gaps."""

    dtype: str
    rows: int
    columns: int
    inner: int
    a: Matrices
    b: Matrices
    c: Address
    stack: tuple[int, ...] = ()
    bias: Address | None = None
    result_dtype: str | None = None

    @property
    def result(self) -> str:
        """Dtype of C."""
        return self.result_dtype or self.dtype

    @property
    def count(self) -> int:
        """Elements of C."""
        return math.prod(self.stack) * self.rows * self.columns


def multiply(device: Device, plan: Plan, product: Multiplication) -> bool:
    """Add the steps of a product to a plan; ``False`` where its stack is too manifold."""
    if not product.count:
        return True
    product = _merged(product)
    # Of a small product the bias, which tiles add by themselves, would take as long again.
    is_one_launch = product.bias is not None and product.count * product.inner <= SMALL
    has_library = product.dtype in blas.TYPES and blas.find(device) is not None
    if product.inner and has_library and not is_one_launch:
        *outer, members = product.stack or (1,)
        if math.prod(outer) <= SEPARATE:
            _by_library(plan, product, tuple(outer), members)
            return True
    if len(product.stack) > AXES:
        return False
    _by_tiles(device, plan, product)
    return True


def _merged(product: Multiplication) -> Multiplication:
    """Join axes of the stack that are one in memory, and those with the rows of A that are."""
    stack: list[int] = []
    a: list[int] = []
    b: list[int] = []
    for length, step_a, step_b in zip(
        product.stack, product.a.strides, product.b.strides, strict=True
    ):
        if length == 1:
            continue
        if stack and a[-1] == length * step_a and b[-1] == length * step_b:
            stack[-1] *= length
            a[-1], b[-1] = step_a, step_b
        else:
            stack.append(length)
            a.append(step_a)
            b.append(step_b)
    rows = product.rows
    in_rows = stack and not b[-1] and a[-1] == rows * product.inner
    if in_rows and not product.a.transposed and len(stack) == 1:
        rows *= stack.pop()
        a.pop()
        b.pop()
    return replace(
        product,
        rows=rows,
        stack=tuple(stack),
        a=product.a._replace(strides=tuple(a)),
        b=product.b._replace(strides=tuple(b)),
    )


def _pitches(product: Multiplication) -> tuple[int, int, int]:
    return (
        product.rows if product.a.transposed else product.inner,
        product.inner if product.b.transposed else product.columns,
        product.columns,
    )


def _by_library(plan: Plan, product: Multiplication, outer: tuple[int, ...], members: int) -> None:
    if product.bias is not None:
        plan.add(*_bias_first(product))
    size = product.rows * product.columns
    last_a, last_b = (one.strides[-1] if one.strides else 0 for one in (product.a, product.b))
    call = blas.Product(
        product.dtype,
        product.rows,
        product.columns,
        product.inner,
        _pitches(product),
        (product.a.transposed, product.b.transposed),
        members,
        (last_a, last_b, size),
        adds=product.bias is not None,
        result_dtype=product.result,
    )
    itemsize, result = width_of(product.dtype), width_of(product.result)
    for number, place in enumerate(np.ndindex(*outer)):
        at_a, at_b = (
            moved(one.address, itemsize * sum(map(int.__mul__, place, one.strides)))
            for one in (product.a, product.b)
        )
        at_c = moved(product.c, number * members * size * result)
        plan.add(Invocation(call, (at_a, at_b, at_c)))


def _bias_first(product: Multiplication) -> list[Step]:
    """Write the bias to all rows of C: added to in the product, the sum is rounded once."""
    assert product.bias is not None
    function = with_files(
        kernel("product_ends.cu", "begin_with_bias", T=C_TYPES[product.result], **_NO_SLICES),
        "divisor.cuh",
    )
    rows = product.count // product.columns
    at_once = max(1, ((1 << 31) - 1) // product.columns)
    return [
        over(
            function,
            min(at_once, rows - row) * product.columns,
            (
                product.bias,
                moved(product.c, row * product.columns * width_of(product.result)),
                divisor(product.columns),
            ),
        )
        for row in range(0, rows, at_once)
    ]


_NO_SLICES = {"W": "float", "B": "float"}


def _by_tiles(device: Device, plan: Plan, product: Multiplication) -> None:
    members = math.prod(product.stack)
    pitches = _pitches(product)
    loaders = {
        name: loader(device, product.dtype, along, (pitch, *one.strides))
        for name, along, pitch, one in (
            ("A_KIND", not product.a.transposed, pitches[0], product.a),
            ("B_KIND", product.b.transposed, pitches[1], product.b),
        )
    }
    stages = STAGES if all(one.startswith("Runs") for one in loaders.values()) else 2
    frame = frame_of(device, product.dtype, product.rows, product.columns, members, stages)
    tiles = -(-product.rows // frame.side) * -(-product.columns // frame.side)
    slices, length = slices_of(device, frame, tiles * members, product.inner)
    computing = computing_dtype(product.dtype)
    sliced = slices > 1
    target, bias = product.c, product.bias
    if sliced:
        target, bias = plan.passing(slices * product.count * width_of(computing)), None
    function = with_files(
        kernel(
            "matmul.cu",
            "product",
            T=C_TYPES[product.dtype],
            RESULT=C_TYPES[computing if sliced else product.result],
            FRAME=frame.text,
            THREADS=frame.threads,
            A_ALONG=int(not product.a.transposed),
            B_ALONG=int(product.b.transposed),
            **loaders,
        ),
        "product.cuh",
    )
    padding = (1,) * (AXES - len(product.stack))
    stack = structure(
        length=(*padding, *product.stack),
        **{
            name: np.array((*(0 for _ in padding), *one.strides), np.int64)
            for name, one in (("a", product.a), ("b", product.b))
        },
    )
    arguments: tuple[Argument, ...] = (
        product.a.address,
        product.b.address,
        bias or NULL,
        target,
        stack,
        *map(np.int32, pitches[:2]),
        *map(np.int32, (product.rows, product.columns, product.inner, slices, length)),
        np.bool_(product.columns % 4 == 0),
    )
    grid = (tiles * slices * members, 1, 1)
    plan.add(Launch(function, grid, (frame.threads, 1, 1), arguments, frame.shared))
    if sliced:
        dtypes = (computing, product.dtype, product.result)
        ends = (target, product.bias, product.c)
        plan.add(add_slices(ends, dtypes, slices, product.columns, product.count))


def add_slices(
    addresses: tuple[Address, Address | None, Address],
    dtypes: tuple[str, str, str],
    slices: int,
    columns: int,
    count: int,
) -> Step:
    """Add slices one behind the other, and a bias of ``columns`` elements, to a result."""
    parts, bias, target = addresses
    names = dict(zip("WBT", (C_TYPES[one] for one in dtypes), strict=True))
    function = with_files(kernel("product_ends.cu", "add_slices", **names), "divisor.cuh")
    arguments = (parts, bias or NULL, target, np.int32(slices), divisor(columns))
    return over(function, count, arguments)


def width_of(dtype: str) -> int:
    """Return the bytes of an element."""
    return 2 if dtype in HALF_TYPES else np.dtype(dtype).itemsize
