"""The C that walks a program's steps, and the libraries it calls: threads and oneDNN."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nnl_core.cpu.threads import thread_count
from nnl_native import onednn_library as onednn
from nnl_native.compiler import kernel_name, load_functions
from nnl_native.onednn import Descriptor


class Argument(ctypes.Structure):
    """An argument of a primitive."""

    _fields_ = (("name", ctypes.c_int32), ("memory", ctypes.c_void_p))


class StepRecord(ctypes.Structure):
    """A step as C sees it."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("index", ctypes.c_void_p),
        ("d", ctypes.c_void_p),
        ("units", ctypes.c_int64),
        ("threads", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("arguments", ctypes.c_void_p),
    )


class Libraries(ctypes.Structure):
    """Functions of the libraries that C calls."""

    _fields_ = (
        ("parallel", ctypes.c_void_p),
        ("set_threads", ctypes.c_void_p),
        ("thread", ctypes.c_void_p),
        ("threads", ctypes.c_void_p),
        ("execute", ctypes.c_void_p),
        ("set_memory", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    )


Walk = Callable[[int, int, int, int, int, int], int]
"""Called with the addresses of libraries and steps, first and last step, address of the slots, and
the number of threads; returns the number of the step that failed, or -1.
"""


@functools.cache
def walker() -> Walk:
    """Return the C function that walks steps; it is compiled, or found in the cache, at first."""
    source = Path(__file__).with_name("runtime.c").read_text("utf-8")
    name = kernel_name(source)
    address = load_functions({name: source})[name]
    prototype = ctypes.CFUNCTYPE(
        ctypes.c_int64,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_void_p,
        ctypes.c_int64,
    )
    walk: Walk = prototype(address)
    return walk


@functools.cache
def libraries() -> Libraries:
    """Return the functions that the walker calls: libgomp's, and oneDNN's where it is there.

    oneDNN runs on libgomp too: the threads are the same ones.
    """
    found = Libraries()
    if onednn.problem() is None:
        found.execute = onednn.address("dnnl_primitive_execute")
        found.set_memory = onednn.address("dnnl_memory_set_data_handle")
        found.stream = onednn.stream()
    try:
        threads = ctypes.CDLL("libgomp.so.1")
    except OSError:
        return found
    found.parallel = _address(threads.GOMP_parallel)
    found.set_threads = _address(threads.omp_set_num_threads)
    found.thread = _address(threads.omp_get_thread_num)
    found.threads = _address(threads.omp_get_num_threads)
    return found


class Memory:
    """A oneDNN memory object, whose address each run sets; one frame's own."""

    def __init__(self, descriptor: Descriptor) -> None:
        made = ctypes.c_void_p()
        self._library = onednn.library()
        status = self._library.dnnl_memory_create(
            ctypes.byref(made), descriptor.pointer, onednn.engine(), None
        )
        onednn.checked(status, f"memory of {descriptor}")
        self.pointer = made.value

    def __del__(self) -> None:
        if pointer := getattr(self, "pointer", None):
            self._library.dnnl_memory_destroy(pointer)


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


_forked = False


def threads_in_use() -> int:
    """Return how many threads a program uses: one in a process that was forked.

    The threads of libgomp do not survive a fork, and waiting for them would hang.
    """
    return 1 if _forked else thread_count()


def _note_fork() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)
