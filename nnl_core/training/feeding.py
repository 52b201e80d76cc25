"""Batches into networks: in parts, at once, or on their way while a device computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from nnl_core.data import Batch, DataIterator
from nnl_core.graph.backend import Buffer, current_backend, streams
from nnl_core.graph.spec import Spec

if TYPE_CHECKING:
    from nnl_core.data.source import Array
    from nnl_core.training.model import Network

Buffers = Mapping[str, Buffer]


def feed(network: Network, batch: Batch, placed: Buffers | None = None) -> None:
    """Copy a batch into a network's inputs, but for those that are on the device already."""
    arrays = batch.arrays
    for name, variable in network.inputs.items():
        buffer = None if placed is None else placed.get(name)
        if buffer is None or Spec.of(arrays[name]) != variable.spec:
            variable.data.write(arrays[name])
        else:
            variable.data.adopt_buffer(current_backend(), buffer)


def part_sizes(size: int, accumulate: int) -> list[int]:
    """Return how many samples each part of a batch has: almost equally many, none without any."""
    count = min(accumulate, size)
    return [size // count + (number < size % count) for number in range(count)]


def parts_of(batch: Batch, accumulate: int) -> list[Batch]:
    """Return a batch in parts that come after one another."""
    if accumulate == 1:
        return [batch]
    parts, start = [], 0
    for size in part_sizes(len(batch), accumulate):
        rows = slice(start, start + size)
        arrays = {name: array[rows] for name, array in batch.arrays.items()}
        count = min(max(batch.count - start, 0), size)
        parts.append(Batch(arrays, batch.ids[rows], count))
        start += size
    return parts


def fed_ahead(
    iterator: DataIterator, epoch: int, start: int, accumulate: int, names: frozenset[str]
) -> Iterator[tuple[Batch, list[Buffers | None]]]:
    """Yield an epoch's batches, each with the buffers of its parts that have these fields.

    They are copied there while the step before runs, where the backend does that.
    """
    backend = current_backend()
    if not streams(backend):
        for batch in iterator.epoch(epoch, start):
            yield batch, [None] * min(accumulate, len(batch))
        return
    with closing(backend.prefetcher()) as prefetcher:

        def place(arrays: dict[str, Array]) -> object:
            used = {name: array for name, array in arrays.items() if name in names}
            count = len(next(iter(arrays.values())))
            sizes = part_sizes(count, accumulate)
            ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
            return prefetcher.place(
                [
                    {name: array[end - size : end] for name, array in used.items()}
                    for size, end in zip(sizes, ends, strict=True)
                ]
            )

        for batch in iterator.epoch(epoch, start, place):
            yield batch, list(prefetcher.take(batch.placed))
