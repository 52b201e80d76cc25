"""Batches into networks: in parts, at once, or on their way while a device computes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from nnl_core.data import Batch, DataIterator
from nnl_core.graph.backend import Backend, Buffer, Prefetcher, current_backend, streams
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


class Feeder:
    """Takes a trainer's batches, on their way to a device where its backend does that."""

    def __init__(self, iterator: DataIterator, accumulate: int) -> None:
        self._iterator, self._accumulate = iterator, accumulate
        self._backend: Backend | None = None
        self._prefetcher: Prefetcher | None = None

    def batches(
        self, epoch: int, start: int, names: Collection[str] | None
    ) -> Iterator[tuple[Batch, Sequence[Buffers | None]]]:
        """Yield an epoch's batches, each with the buffers of its parts that have these fields.

        They are copied there while the step before runs. ``None``: nothing is placed ahead.
        """
        prefetcher = None if names is None else self._find()
        if prefetcher is None or names is None:
            for batch in self._iterator.epoch(epoch, start):
                yield batch, [None] * min(self._accumulate, len(batch))
            return
        try:
            place = partial(self._place, prefetcher, names)
            for batch in self._iterator.epoch(epoch, start, place):
                yield batch, prefetcher.take(batch.placed)
        finally:
            prefetcher.close()

    def _find(self) -> Prefetcher | None:
        """Return the backend's prefetcher, the same for all epochs: programs know its addresses."""
        backend = current_backend()
        if backend is not self._backend:
            self._backend = backend
            self._prefetcher = backend.prefetcher() if streams(backend) else None
        return self._prefetcher

    def _place(
        self, prefetcher: Prefetcher, names: Collection[str], arrays: dict[str, Array]
    ) -> object:
        parts: list[dict[str, Array]] = []
        start = 0
        for size in part_sizes(len(next(iter(arrays.values()))), self._accumulate):
            rows = slice(start, start + size)
            parts.append({name: array[rows] for name, array in arrays.items() if name in names})
            start += size
        return prefetcher.place(parts)
