"""Scattering that gives the same bits each time: sort by target, then combine what meets there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nnl_core.gpu.kernel import (
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
    failing,
    kernel,
    scratch,
)
from nnl_core.gpu.strides import any_type, numbers, over_rows
from nnl_core.graph.spec import Spec

FILE = "ordering.cu"
TILE = 2048  # numbers that a block sorts, or counts
FEW = 2 * TILE  # numbers that one block sorts alone
PIECE = 32  # entries that one thread combines at most
MOST_SLOTS = (1 << 32) - 2  # keys are 32 bits, of which one says "nowhere"


class Plan:
    """Steps of a call, and the scratch memory that they need, as they are put together."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.scratch: list[int] = []

    def room(self, nbytes: int) -> Address:
        """Take a piece of scratch memory."""
        self.scratch.append(max(nbytes, 16))
        return scratch(len(self.scratch) - 1)

    def emission(self) -> Emission:
        """Return what an emitter answers."""
        return Emission(tuple(self.steps), tuple(self.scratch))


class Layout(NamedTuple):
    """Places of numbered elements in an array of ``(groups, outer, group, inner)``.

    Element ``n`` is that of ``group`` (and of which group) that it says; it is there for each of
    ``outer * inner`` columns.
    """

    group: int = 1
    outer: int = 1
    inner: int = 1


class Values(NamedTuple):
    """What is scattered: ``values`` of ``dtype``, each for ``taps`` entries, perhaps weighted."""

    address: Address
    dtype: np.dtype
    layout: Layout
    taps: int = 1
    weights: Address = NULL
    weight_type: str = "float"


def sort_pairs(plan: Plan, keys: Address, count: int, most: int) -> tuple[Address, Address]:
    """Sort ``count`` keys (``uint32``, up to ``most``); return where they and their numbers are.

    Equal keys keep their order. The given memory is used, too.
    """
    passes = max(1, -(-most.bit_length() // 8))
    ids, other_keys, other_ids = (plan.room(4 * count) for _ in range(3))
    if count <= FEW:
        text = kernel(FILE, "sort_few", SORTED=1)
        where = (keys, ids, other_keys, other_ids, np.int32(passes), np.int64(count))
        plan.steps.append(Launch(text, (min(count, 1), 1, 1), (256, 1, 1), where))
        return (other_keys, other_ids) if passes % 2 else (keys, ids)
    tiles = blocks(count, TILE)
    counts = plan.room(4 * 256 * tiles)
    now, then = (keys, NULL), (other_keys, other_ids)
    for number in range(passes):
        shift = np.int32(8 * number)
        plan.steps += [
            _tiles("digit_counts", tiles, (now[0], counts, shift, np.int64(count))),
            _tiles("sum_counts", 1, (counts, np.int64(256 * tiles))),
            _tiles("digit_places", tiles, (*now, *then, counts, shift, np.int64(count))),
        ]
        now, then = then, (keys, ids) if number % 2 == 0 else (other_keys, other_ids)
    return now


def _tiles(entry: str, count: int, arguments: Sequence[Argument]) -> Launch:
    text = kernel(FILE, entry, SORTED=1)
    return Launch(text, (count, 1, 1), (256, 1, 1), tuple(arguments))


def list_chosen(
    plan: Plan, call: Call, mask: tuple[Address, Spec], chosen: int, message: str
) -> Address:
    """Return where the places (``int64``) of ``chosen`` elements of a mask that are not 0 are.

    Where there are fewer of them, the rest is -1; where others are, the call fails.
    """
    address, (shape, dtype) = mask
    count = math.prod(shape)
    tiles = blocks(count, TILE)
    counts, places = plan.room(4 * tiles), plan.room(8 * chosen)
    plan.steps.append(filled(places, chosen, -1))

    chooses, bad = any_type(address, dtype), failing(call, message)

    def step(entry: str, grid: int, *arguments: Argument) -> Launch:
        text = kernel(FILE, entry, MASK=1)
        return Launch(text, (grid, 1, 1), (256, 1, 1), arguments)

    plan.steps += [
        step("count_chosen", tiles, *chooses, counts, np.int64(count)),
        step("sum_counts", 1, counts, np.int64(tiles)),
        step("list_chosen", tiles, *chooses, counts, places, *bad, *numbers(chosen, count)),
    ]
    return places


def zero(target: Address, nbytes: int) -> Invocation:
    """Set memory to 0."""
    return Invocation(lambda device, at: device.zero(at, nbytes), (target,))


def filled(target: Address, count: int, value: int) -> Launch:
    """Set whole numbers (``int64``)."""
    text = kernel("movement.cu", "filled", T="int64_t", FILLED=1)
    grid = min(blocks(count), 1 << 20)
    return Launch(text, (grid, 1, 1), (256, 1, 1), (target, *numbers(value, count)))


def combine(
    plan: Plan,
    keys: Address,
    entries: int,
    slots: int,
    values: Values,
    target: tuple[Address, np.dtype, Layout],
    operation: str = "Add",
) -> None:
    """Combine values with what the target holds already, each at the place that its key says.

    ``keys`` are ``entries`` numbers (``uint32``); those of ``slots`` are of no place. Sums are
    of entries in order, at most 32 at once, and then of these parts in order.
    """
    address, dtype, layout = target
    if not entries:
        return
    keys, ids = sort_pairs(plan, keys, entries, slots)
    columns = layout.outer * layout.inner
    pieces = blocks(entries, PIECE)
    parts = pieces * columns * (4 if computing_type(dtype) == "float" else dtype.itemsize)
    firsts, lasts = plan.room(parts), plan.room(parts)

    def text(entry: str) -> Kernel:
        types = {"S": c_type(values.dtype), "T": c_type(dtype), "WEIGHT": values.weight_type}
        return kernel(FILE, entry, COMBINE=operation, **types)

    first = (keys, ids, values.address, values.weights, address, firsts, lasts)
    where = numbers(*values.layout, *layout, values.taps, slots)
    second = (keys, address, firsts, lasts, *numbers(*layout, slots, entries))
    plan.steps.append(over_rows(text("combine_runs"), entries, columns, (*first, *where)))
    if pieces > 1:
        plan.steps.append(over_rows(text("combine_parts"), pieces, columns, second))
