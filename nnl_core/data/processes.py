"""Processes that take a batch's samples, and write them into memory that they share with us."""

from __future__ import annotations

import os
import pickle
import signal
import traceback
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.shared_memory import SharedMemory
from typing import NamedTuple, TypeAlias, cast

import numpy as np

from nnl_core.data.source import Array, DataSource, check_fields
from nnl_core.data.workers import Failure, Outcome, Task, take_task
from nnl_core.errors import DataError
from nnl_core.graph.spec import Spec
from nnl_core.hooks.loading import describe

ALIGNMENT = 64
PATIENCE = 5.0  # seconds that a worker gets to finish what it is at, before it is ended

Sent: TypeAlias = tuple[bytes, str]
"""An exception, pickled, and its traceback as text."""


class Layout(NamedTuple):
    """Where the arrays of a batch lie in a slot of the shared memory: field after field."""

    fields: Mapping[str, Spec]
    rows: int

    @property
    def slot_bytes(self) -> int:
        """Bytes of one batch of all ``rows``."""
        return sum(self._field_bytes(spec) for spec in self.fields.values())

    def views(self, memory: SharedMemory, slot: int, rows: int) -> dict[str, Array]:
        """Return the first rows of the arrays of a slot, as they lie in memory."""
        place = slot * self.slot_bytes
        views: dict[str, Array] = {}
        for field, spec in self.fields.items():
            shape = rows, *spec.shape
            views[field] = np.ndarray(shape, spec.dtype, memory.buf, place)
            place += self._field_bytes(spec)
        return views

    def _field_bytes(self, spec: Spec) -> int:
        return -(-self.rows * spec.nbytes // ALIGNMENT) * ALIGNMENT


class WorkerTraceback(Exception):
    """The cause of an exception from another process: the traceback there."""


class _Worker:
    """A process, our end of the pipe to it, and how many of its tasks are unanswered."""

    def __init__(self, process: SpawnProcess, connection: Connection) -> None:
        self.process = process
        self.connection = connection
        self.unanswered = 0


class ProcessWorkers:
    """Spawned processes that each have a copy of the source: for sources that compute in Python.

    Raises DataError where the source cannot be sent to them, and where one of them dies.
    """

    def __init__(self, source: DataSource, count: int, prefetch: int, rows: int) -> None:
        self.prefetch = prefetch
        self._name = source.name
        self._layout = Layout(dict(source.fields), rows)
        try:
            pickled = pickle.dumps(source, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise DataError(
                f"{source.name} cannot be sent to another process: {describe(error)}; let threads "
                "take its samples, or use functions and classes of a module"
            ) from error
        context = get_context("spawn")  # a fork would copy threads' locks, and a GPU's state
        size = max(1, self._layout.slot_bytes * prefetch)
        try:
            self._memory = SharedMemory(create=True, size=size)
        except OSError as error:
            raise DataError(
                f"{source.name}: no {size} bytes of shared memory for {prefetch} batches: "
                f"{describe(error)}; use less prefetch, smaller batches, or threads"
            ) from error
        self._workers: list[_Worker] = []
        self.close = weakref.finalize(self, _stop, self._workers, self._memory, os.getpid())
        try:
            for number in range(count):
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=serve,
                    args=(theirs, self._memory.name, self._layout, prefetch),
                    name=f"nnl data worker {number}",
                    daemon=True,
                )
                try:
                    with _uninterrupted():
                        process.start()
                except BaseException:
                    ours.close()
                    raise
                finally:
                    theirs.close()
                self._workers.append(_Worker(process, ours))
            for worker in self._workers:  # only now, so that they start at the same time
                self._send(worker, pickled)
        except BaseException:
            self.close()
            raise

    def submit(self, task: Task) -> None:
        """Give a task to the process that has fewest."""
        worker = min(self._workers, key=lambda worker: worker.unanswered)
        self._send(worker, pickle.dumps(task, pickle.HIGHEST_PROTOCOL))
        worker.unanswered += 1

    def _send(self, worker: _Worker, message: bytes) -> None:
        try:
            worker.connection.send_bytes(message)
        except OSError:
            raise self._death(worker) from None

    def collect(self) -> tuple[int, Outcome]:
        """Wait for the next answer, and copy its arrays out of the shared memory."""
        ready = wait([worker.connection for worker in self._workers])
        (worker,) = (worker for worker in self._workers if worker.connection is ready[0])
        try:
            number, rows, sent = cast("tuple[int, int, Sent | None]", worker.connection.recv())
        except (EOFError, OSError):
            raise self._death(worker) from None
        worker.unanswered -= 1
        if sent is not None:
            return number, Failure(_received(sent))
        views = self._layout.views(self._memory, number % self.prefetch, rows)
        return number, {field: view.copy() for field, view in views.items()}

    def _death(self, worker: _Worker) -> DataError:
        """Say how a worker ended whose end of the pipe is closed."""
        process = worker.process
        process.join(PATIENCE)
        code = process.exitcode
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
            remedy = "the system may have run out of memory: use fewer workers, or less prefetch"
        else:
            how = f"ended with status {code}"
            remedy = (
                "what it wrote on standard error says why; a script that starts workers does so "
                "under: if __name__ == '__main__':"
            )
        return DataError(f"{self._name}: {process.name} (process {process.pid}) {how}; {remedy}")


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back. A process that is started meanwhile never hears of it: it is for us."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stop(workers: list[_Worker], memory: SharedMemory, owner: int) -> None:
    """Close the pipes, which ends the processes, and give back what they shared with us."""
    if os.getpid() != owner:  # a fork of this process is not their parent
        return
    for worker in workers:
        worker.connection.close()
    for worker in workers:
        for end in (worker.process.terminate, worker.process.kill, None):
            worker.process.join(PATIENCE)
            if end is None or not worker.process.is_alive():
                break
            end()
        with suppress(ValueError):  # of one that not even SIGKILL has ended yet
            worker.process.close()
    workers.clear()
    memory.close()
    with suppress(FileNotFoundError):
        memory.unlink()


def _received(sent: Sent) -> BaseException:
    """Return an exception from another process, its cause being its traceback there."""
    pickled, text = sent
    error = cast(BaseException, pickle.loads(pickled))
    error.__cause__ = WorkerTraceback(f"\n{text}")
    return error


# -------------------------------------------------------------------- in the worker


def serve(connection: Connection, memory_name: str, layout: Layout, prefetch: int) -> None:
    """Answer tasks until the pipe is closed: what a worker process runs."""
    memory = SharedMemory(memory_name)
    try:
        with suppress(EOFError, OSError):
            source = _load(connection.recv_bytes())
            while True:
                task = cast(Task, connection.recv())
                sent = _answer(source, task, memory, layout, task.number % prefetch)
                connection.send((task.number, len(task.ids), sent))
    finally:
        memory.close()


def _load(pickled: bytes) -> DataSource | Sent:
    try:
        return cast(DataSource, pickle.loads(pickled))
    except BaseException as error:
        return _to_send(error)


def _answer(
    source: DataSource | Sent, task: Task, memory: SharedMemory, layout: Layout, slot: int
) -> Sent | None:
    """Take a task's samples into a slot, or return what that raised."""
    if isinstance(source, tuple):
        return source
    try:
        arrays = take_task(source, task)
        check_fields(arrays, layout.fields, f"{source.name}: a batch")
        for field, view in layout.views(memory, slot, len(task.ids)).items():
            if arrays[field].shape != view.shape:
                raise DataError(
                    f"{source.name}: asked for {len(view)} samples, got {len(arrays[field])}"
                )
            view[...] = arrays[field]
    except BaseException as error:
        return _to_send(error)
    return None


def _to_send(error: BaseException) -> Sent:
    text = "".join(traceback.format_exception(error))
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)  # one that takes several arguments can often be sent, but not read
    except BaseException:
        pickled = pickle.dumps(DataError(describe(error)))
    return pickled, text
