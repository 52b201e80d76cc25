"""A worker's side of the conversation: one workload, commands as lines of JSON.

It runs in the peers' environments too, some of which hold an older Python.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from benchmarks.cpu.arrays import Arrays, batch

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")


class Served(Protocol):
    """A workload in some library."""

    def step(self) -> None:
        """Do one training step, or one inference."""

    def result(self) -> list[float]:
        """Return the losses of the last step, or all that was inferred."""


Build = Callable[[str, Arrays, Arrays], Served]  # from case, batch and first values


class Worker:
    """Answers commands, each with what its method returns."""

    def __init__(self, build: Build) -> None:
        self.build = build
        self.served: Served | None = None
        self.imported = memory("VmRSS")

    def first(self, case: str, path: str) -> dict[str, Any]:
        """Build the workload and do its first step; return seconds and result."""
        with np.load(path) as stored:
            values = dict(stored)
        given = batch(case)
        start = perf_counter()
        self.served = self.build(case, given, values)
        self.served.step()
        seconds = perf_counter() - start
        del values
        forget_peak()  # compilers' memory and the file's arrays are not the steps'
        planned = getattr(self.served, "planned", None)
        return {"seconds": seconds, "result": self.served.result(), "planned": planned}

    def more(self, steps: int) -> list[list[float]]:
        """Do more steps and return the result of each."""
        return [self._stepped().result() for _ in range(steps)]

    def seconds(self, steps: int) -> float:
        """Return the seconds of a step: the mean of several, after one that does not count."""
        assert self.served is not None
        step = self.served.step
        if steps > 1:  # a long step is not disturbed by what ran just before it
            step()
        start = perf_counter()
        for _ in range(steps):
            step()
        return (perf_counter() - start) / steps

    def memory(self) -> int:
        """Return how many bytes the steps needed at their peak, beyond the imported library."""
        return memory("VmHWM") - self.imported

    def _stepped(self) -> Served:
        assert self.served is not None
        self.served.step()
        return self.served


def serve(build: Build) -> None:
    """Answer commands about workloads."""
    answer(Worker(build))


def answer(worker: object) -> None:
    """Answer each line of the standard input by a worker's method; an error is an answer."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        try:
            found = {"answer": getattr(worker, command)(*arguments)}
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(found), file=answers, flush=True)


def memory(field: str) -> int:
    """Return a figure of this process in bytes."""
    for line in STATUS.read_text("utf-8").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"{STATUS} has no {field}")


def forget_peak() -> None:
    """Begin a new peak where nothing is held that was only needed to get here."""
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    try:
        CLEAR.write_text("5")
    except OSError:  # then the peak is that of the first step, too
        return
