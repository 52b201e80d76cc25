"""Batches in an order that the seed decides, whoever takes their samples."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from typing import Literal, TypeAlias

import numpy as np

from nnl_core.data.processes import ProcessWorkers
from nnl_core.data.source import Array, DataSource, Ids, check_source
from nnl_core.data.workers import Task, ThreadWorkers, Workers, in_order, take_task
from nnl_core.errors import DataError
from nnl_core.graph.spec import Spec

LastBatch: TypeAlias = Literal["keep", "drop", "pad"]
WorkerKind: TypeAlias = Literal["process", "thread"]


class Batch:
    """Some samples: ``arrays`` by field, and their numbers ``ids`` in the source.

    The first ``count`` count; those after them are repeats that fill a padded batch. ``placed`` is
    what the iterator's ``place`` made of the arrays.
    """

    __slots__ = ("arrays", "count", "ids", "placed")

    def __init__(self, arrays: dict[str, Array], ids: Ids, count: int | None = None) -> None:
        self.arrays = arrays
        self.ids = ids
        self.count = len(ids) if count is None else count
        self.placed: object = None

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, field: str) -> Array:
        return self.arrays[field]


class DataIterator:
    """Epochs of batches of a source.

    The order of an epoch depends on ``seed`` and the epoch's number alone, and so do samples of a
    source that varies: batches are equal bit for bit for any number and kind of workers. A batch's
    arrays are the reader's own.

    Parameters
    ----------
    last_batch
        what becomes of a last batch that is shorter than the rest: ``"keep"``, ``"drop"``, or
        ``"pad"``, which fills it with samples from the beginning of the order
    mask
        the name of one more field, ``float32``: 1 for samples that count, 0 for those that pad
    rank, size
        which of ``size`` slices of every epoch's order this is. Together they have every sample
        once, and their lengths differ by one at most; with ``"drop"`` and ``"pad"`` all of them
        have equally many batches
    workers
        how many threads or processes take samples in the background; 0: the reader does. They are
        started by the first epoch, wait from one whole epoch to the next, and end with an epoch
        that is broken off, with `close`, or with the iterator
    worker_kind
        ``"process"`` spawns processes, to which the source must be sent, and ``"thread"`` threads
    prefetch
        how many batches are taken ahead (default: two for each worker)
    place
        called with a batch's arrays one batch before it is read, to begin what takes time, as
        copying them to a device does; what it returns is the batch's ``placed``

    Raises DataError where there would be no batch, or arguments make no sense.
    """

    def __init__(
        self,
        source: DataSource,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        last_batch: LastBatch = "keep",
        mask: str | None = None,
        rank: int = 0,
        size: int = 1,
        workers: int = 0,
        worker_kind: WorkerKind = "process",
        prefetch: int | None = None,
        place: Callable[[dict[str, Array]], object] | None = None,
    ) -> None:
        check_source(source)
        name, count = source.name, len(source)
        if batch_size < 1:
            raise DataError(f"a batch holds at least one sample, not {batch_size}")
        if count == 0:
            raise DataError(f"{name}: the data set is empty")
        if not 0 <= rank < size:
            raise DataError(f"{name}: rank {rank} is not one of {size} slices, counted from 0")
        slices = "" if size == 1 else f" in each of {size} slices"
        if last_batch == "drop" and count // size < batch_size:
            raise DataError(
                f"{name}: {count // size} samples{slices} are less than one batch of {batch_size}; "
                "choose a smaller batch, or keep the last one"
            )
        if last_batch == "keep" and count < size:
            raise DataError(f"{name}: {count} samples are not enough for {size} slices; pad them")
        if last_batch not in ("keep", "drop", "pad"):
            raise DataError(f"last_batch is keep, drop or pad, not {last_batch!r}")
        if mask in source.fields:
            raise DataError(f"{name} has a field {mask!r}; choose another name for the mask")
        if workers < 0 or (prefetch is not None and prefetch < 1):
            raise DataError(f"there are no {workers} workers, or no {prefetch} batches ahead")
        if worker_kind not in ("process", "thread"):
            raise DataError(f"a worker is a process or a thread, not {worker_kind!r}")
        self.source = source
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.last_batch = last_batch
        self.mask = mask
        self.rank = rank
        self.size = size
        self.workers = workers
        self.worker_kind = worker_kind
        self.prefetch = 2 * workers if prefetch is None else prefetch
        self.place = place
        self._waiting: Workers | None = None  # those of an epoch that was read to its end

    @property
    def fields(self) -> Mapping[str, Spec]:
        """Shape and dtype of one sample's arrays: the source's, and the mask."""
        if self.mask is None:
            return self.source.fields
        return {**self.source.fields, self.mask: Spec((), np.dtype(np.float32))}

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        count = len(self.source)
        if self.last_batch == "drop":
            return count // self.size // self.batch_size
        longest = -(-count // self.size)
        own = longest if self.last_batch == "pad" else -(-(count - self.rank) // self.size)
        return -(-own // self.batch_size)

    @property
    def sizes(self) -> list[int]:
        """The sizes that batches have: the full one first, then that of a shorter last one."""
        if self.last_batch != "keep":
            return [self.batch_size]
        own = -(-(len(self.source) - self.rank) // self.size)
        full = min(self.batch_size, own)
        rest = own % self.batch_size
        return [full, rest] if rest and rest != full else [full]

    def order(self, epoch: int) -> Ids:
        """Return the numbers of this slice's samples in an epoch's order."""
        return self._whole_order(epoch)[self.rank :: self.size]

    def _whole_order(self, epoch: int) -> Ids:
        if not self.shuffle:
            return np.arange(len(self.source))
        return np.random.default_rng((self.seed, epoch)).permutation(len(self.source))

    def _tasks(self, epoch: int, start: int) -> Iterator[Task]:
        whole = self._whole_order(epoch)
        order = whole[self.rank :: self.size]
        length = len(self) * self.batch_size
        padded = order
        if self.last_batch == "pad" and len(order) < length:
            again = order if len(order) else whole  # a slice without a sample repeats any
            padded = np.concatenate([order, np.resize(again, length - len(order))])
        for number in range(start, len(self)):
            begin = number * self.batch_size
            ids = padded[begin : begin + self.batch_size]
            genuine = min(max(len(order) - begin, 0), len(ids))
            yield Task(number, ids, genuine, self.seed, epoch)

    def epoch(
        self,
        number: int = 0,
        start: int = 0,
        place: Callable[[dict[str, Array]], object] | None = None,
    ) -> Iterator[Batch]:
        """Yield the batches of an epoch, beginning with batch ``start``.

        ``place`` is for this epoch what the iterator's own is for all.
        """
        batches = self._batches(number, start)
        place = place or self.place
        return batches if place is None else self._placed(batches, place)

    def _batches(self, number: int, start: int) -> Generator[Batch, None, None]:
        if start >= len(self):
            return
        tasks = self._tasks(number, start)
        if not self.workers:
            for task in tasks:
                yield self._batch(task, take_task(self.source, task))
            return
        workers, self._waiting = self._waiting, None
        workers = workers or self._start()  # a second epoch at the same time has its own
        try:
            for task, arrays in in_order(workers, tasks):
                yield self._batch(task, arrays)
        except BaseException:  # also where the reader goes away
            workers.close()
            raise
        if self._waiting is None:
            self._waiting = workers
        else:
            workers.close()

    def _start(self) -> Workers:
        if self.worker_kind == "thread":
            return ThreadWorkers(self.source, self.workers, self.prefetch)
        return ProcessWorkers(self.source, self.workers, self.prefetch, max(self.sizes))

    def _batch(self, task: Task, arrays: dict[str, Array]) -> Batch:
        if self.mask is not None:
            arrays[self.mask] = (np.arange(len(task.ids)) < task.genuine).astype(np.float32)
        return Batch(arrays, task.ids, task.genuine)

    def _placed(
        self, batches: Generator[Batch, None, None], place: Callable[[dict[str, Array]], object]
    ) -> Iterator[Batch]:
        """Yield batches, each after the one behind it was placed."""
        with closing(batches):
            before: Batch | None = None
            for batch in batches:
                batch.placed = place(batch.arrays)
                if before is not None:
                    yield before
                before = batch
            if before is not None:
                yield before

    def close(self) -> None:
        """End the workers that wait for another epoch."""
        workers, self._waiting = self._waiting, None
        if workers is not None:
            workers.close()
