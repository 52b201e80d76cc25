"""Who takes a batch's samples in the background, and threads that do."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol, TypeAlias

from nnl_core.data.source import Array, DataSource, Ids, take_at


class Task(NamedTuple):
    """A batch to take: its number in the epoch, and its samples, ``genuine`` of them no repeats."""

    number: int
    ids: Ids
    genuine: int
    seed: int
    epoch: int


class Failure(NamedTuple):
    """What came of a task that raised."""

    error: BaseException


Outcome: TypeAlias = dict[str, Array] | Failure


class Workers(Protocol):
    """Take batches in the background; up to ``prefetch`` tasks may be submitted and unanswered."""

    prefetch: int

    def submit(self, task: Task) -> None:
        """Let somebody take a task. Numbers follow one another, or all answers are collected."""

    def collect(self) -> tuple[int, Outcome]:
        """Wait for the answer to any task, and return its number and its arrays."""

    def close(self) -> object:
        """End all workers, once a task that one is at is over; a second call does nothing."""


def take_task(source: DataSource, task: Task) -> dict[str, Array]:
    """Take the samples of a task."""
    return take_at(source, task.ids, task.seed, task.epoch)


def in_order(workers: Workers, tasks: Iterable[Task]) -> Iterator[tuple[Task, dict[str, Array]]]:
    """Yield tasks and their arrays in the tasks' order, while the next ones are being taken.

    What a task raises is raised when it is its turn.
    """
    remaining = iter(tasks)
    submitted: deque[Task] = deque()
    answered: dict[int, Outcome] = {}

    def submit(count: int) -> None:
        for task in islice(remaining, count):
            workers.submit(task)
            submitted.append(task)

    submit(workers.prefetch)
    while submitted:
        task = submitted.popleft()
        while task.number not in answered:
            number, outcome = workers.collect()
            answered[number] = outcome
        outcome = answered.pop(task.number)
        if isinstance(outcome, Failure):
            try:
                raise outcome.error
            finally:
                del outcome  # or it and its traceback would hold one another
        submit(1)
        yield task, outcome


class ThreadWorkers:
    """Threads of this process: for sources that wait for files, or that compute in NumPy."""

    def __init__(self, source: DataSource, count: int, prefetch: int) -> None:
        self.prefetch = prefetch
        # Queues of this kind may be written to by a finalizer that interrupts one of their readers.
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._outcomes: SimpleQueue[tuple[int, Outcome]] = SimpleQueue()
        threads: list[threading.Thread] = []
        self.close = weakref.finalize(self, _stop, threads, self._tasks, os.getpid())
        try:
            for number in range(count):
                thread = threading.Thread(
                    target=_serve,
                    args=(source, self._tasks, self._outcomes),
                    name=f"nnl data worker {number}",
                    daemon=True,
                )
                thread.start()
                threads.append(thread)
        except BaseException:
            self.close()
            raise

    def submit(self, task: Task) -> None:
        """Let the next thread that is free take a task."""
        self._tasks.put(task)

    def collect(self) -> tuple[int, Outcome]:
        """Wait for the next answer."""
        return self._outcomes.get()


# Outside of the class: a thread that held its workers would keep them from being collected.
def _serve(
    source: DataSource,
    tasks: SimpleQueue[Task | None],
    outcomes: SimpleQueue[tuple[int, Outcome]],
) -> None:
    while (task := tasks.get()) is not None:
        try:
            outcomes.put((task.number, take_task(source, task)))
        except BaseException as error:
            outcomes.put((task.number, Failure(error)))


def _stop(threads: Sequence[threading.Thread], tasks: SimpleQueue[Task | None], owner: int) -> None:
    if os.getpid() != owner:  # a fork of the process has none of its threads
        return
    with suppress(Empty):
        while True:
            tasks.get_nowait()
    for _ in threads:
        tasks.put(None)
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join()
