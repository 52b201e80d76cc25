"""Batches on their way to a device while it computes on the one before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import numpy as np

from nnl_core.gpu.device import Device, DeviceBuffer, raw
from nnl_core.gpu.memory import Block
from nnl_core.graph.operator import Array
from nnl_core.graph.spec import Spec

Arrays = Mapping[str, Array]
Buffers = dict[str, DeviceBuffer]


class PlacedBatch:
    """Buffers of one batch, for each of its parts by field."""

    def __init__(self, device: Device) -> None:
        events = device.cuda.event_flags.DISABLE_TIMING
        self.free = device.cuda.Event(events)  # when what used the buffers before has done so
        self.copied = device.cuda.Event(events)
        self.places: dict[tuple[int, str, Spec], tuple[DeviceBuffer, Block]] = {}
        self.parts: list[Buffers] = []


class Prefetcher:
    """Copies batches to a device on a stream of its own, into two sets of buffers in turns.

    So the addresses of a batch are those of the batch before the last one, and programs that were
    captured for them go on. A batch's buffers hold it until the next batch but one is placed, which
    is to be when all that reads them was enqueued.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        with device:
            self._stream = device.cuda.Stream()
            self._sets = [PlacedBatch(device), PlacedBatch(device)]

    def place(self, parts: Sequence[Arrays]) -> PlacedBatch:
        """Begin to copy a batch, given as the arrays of its parts; they may change at once.

        Waits where the copy of the batch before the last one has not ended.
        """
        self._sets.reverse()
        batch, device, cuda = self._sets[0], self._device, self._device.cuda
        with device:
            if not batch.copied.query():
                batch.copied.synchronize()
            placed = [
                {name: self._place(batch, number, name, array) for name, array in arrays.items()}
                for number, arrays in enumerate(parts)
            ]
            batch.free.record(device.stream)
            self._stream.wait_for_event(batch.free)
            for buffers in placed:
                for buffer, staged in buffers.values():
                    size = buffer.spec.nbytes
                    if size:
                        cuda.memcpy_htod_async(buffer.address, staged.memory[:size], self._stream)
            batch.copied.record(self._stream)
        batch.parts = [
            {name: buffer for name, (buffer, _) in buffers.items()} for buffers in placed
        ]
        return batch

    def take(self, batch: PlacedBatch) -> list[Buffers]:
        """Return a batch's buffers, for what is enqueued from now on."""
        with self._device:
            self._device.stream.wait_for_event(batch.copied)
        return batch.parts

    def close(self) -> None:
        """Let what is enqueued from now on wait for copies on their way: buffers are used again."""
        with suppress(self._device.cuda.Error):  # of a device that failed, and tells others so
            for batch in self._sets:
                self.take(batch)
                with self._device:
                    for _, staged in batch.places.values():
                        self._device.keep(staged, self._stream)

    def __del__(self, is_over: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_over() and hasattr(self, "_sets"):
            self.close()

    def _place(
        self, batch: PlacedBatch, number: int, name: str, array: Array
    ) -> tuple[DeviceBuffer, Block]:
        """Return where an array goes, its bytes in page-locked memory."""
        spec = Spec.of(array)
        key = (number, name, spec)
        if key not in batch.places:
            device = self._device
            batch.places[key] = device.buffer(spec), device.page_locked(spec.nbytes)
        buffer, staged = batch.places[key]
        staged.memory[: spec.nbytes] = raw(np.ascontiguousarray(array))
        return buffer, staged
