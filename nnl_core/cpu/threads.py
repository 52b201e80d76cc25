"""Threads of the NumPy backend: who shares work, and how many threads BLAS may use for it.

BLAS with several threads waits for all of them at every call. On a machine that does something else
too, that can cost many times a small product, so only large products use BLAS's threads; where
work falls into blocks, threads share the blocks instead.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np

from nnl_core.graph.operator import Array

VARIABLE = "NNL_NUM_THREADS"
SMALL = 1 << 17  # multiply-adds of a product up to which OpenBLAS uses one thread anyway
LARGE = 1 << 24  # multiply-adds of a product from which on BLAS uses its threads

Item = TypeVar("Item")
Result = TypeVar("Result")


@functools.cache
def thread_count() -> int:
    """Return how many threads blocks are shared among: ``NNL_NUM_THREADS``, else the cores."""
    asked = os.environ.get(VARIABLE, "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Use so many threads inside a ``with`` block, as `thread_count` tells whoever asks."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(count)
    thread_count.cache_clear()
    try:
        with blas_threads(count):
            yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
        thread_count.cache_clear()


def share(work: Callable[[Sequence[Item]], Result], items: Sequence[Item]) -> list[Result]:
    """Call ``work`` on consecutive runs of the items, one run a thread, and return its results.

    The runs depend on the number of items and threads alone, so results are repeatable. What
    ``work`` raises is raised here.
    """
    count = min(thread_count(), len(items))
    if count < 2:
        return [work(items)] if items else []
    bounds = [len(items) * part // count for part in range(count + 1)]
    runs = [items[start:stop] for start, stop in pairwise(bounds)]

    def quiet(run: Sequence[Item]) -> Result:
        with np.errstate(all="ignore"):  # each thread has a state of its own
            return work(run)

    with blas_threads(1):
        later = [_pool().submit(quiet, run) for run in runs[1:]]
        try:
            first = quiet(runs[0])
        finally:
            wait(later)
    return [first, *(future.result() for future in later)]


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, thread_count() - 1), thread_name_prefix="nnl-cpu")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork


@functools.cache
def _openblas() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """Return how to ask and set the threads of the OpenBLAS in NumPy's wheel, if it is there."""
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".dylibs"):
        for path in folder.glob("libscipy_openblas*"):
            library = ctypes.CDLL(str(path))
            for suffix in ("64_", ""):
                ask = getattr(library, f"scipy_openblas_get_num_threads{suffix}", None)
                tell = getattr(library, f"scipy_openblas_set_num_threads{suffix}", None)
                if ask is not None and tell is not None:
                    return ask, tell
    return None


@contextmanager
def blas_threads(limit: int) -> Iterator[None]:
    """Let BLAS use at most ``limit`` threads inside a ``with`` block, where it can be told."""
    control = _openblas()
    before = control[0]() if control is not None else 1
    if control is None or before <= limit:
        yield
        return
    control[1](limit)
    try:
        yield
    finally:
        control[1](before)


def product(a: Array, b: Array, out: Array | None = None) -> Array:
    """``np.matmul(a, b, out=out)``, with BLAS's threads only where they pay."""
    multiply_adds = a.size * b.shape[-1] if b.ndim > 1 else a.size
    if SMALL < multiply_adds < LARGE:
        with blas_threads(1):
            return np.asarray(np.matmul(a, b, out=out))
    return np.asarray(np.matmul(a, b, out=out))
