"""Puts the emulator where PyCUDA looks, and talks to it."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.cuemu.cache import cache_folder
from tools.cuemu.library import build
from tools.cuemu.toolkit import MISSING, find_toolkit

COMPILER_FOLDER = Path(__file__).with_name("bin")
STATISTICS = ("launches", "copies", "syncs", "allocs", "used", "peak")
_loaded: list[ctypes.CDLL] = []


def problem() -> str | None:
    """Return ``None``, or why the real PyCUDA cannot run on the emulator here."""
    if importlib.util.find_spec("pycuda") is None:
        return "PyCUDA is not installed; python -m tools.cuemu.build_pycuda does that"
    if shutil.which("g++") is None:
        return "there is no g++, which compiles the kernels for the CPU"
    return MISSING if find_toolkit() is None else None


def activate(check: bool | None = None) -> ctypes.CDLL:
    """Load the emulator, building it first where its sources have changed, and return it.

    Do so before ``pycuda.driver`` is imported: the dynamic linker then takes it for
    ``libcuda.so.1``. The folder of its compiler goes first on PATH. ``check=False`` compiles
    kernels without checks, which is faster; ``None`` leaves that to ``CUEMU_CHECK``. Raises
    `BuildError`.
    """
    if check is not None:
        os.environ["CUEMU_CHECK"] = str(int(check))
    if not _loaded:
        _loaded.extend(_load(build()))
    os.environ["CUEMU_PYTHON"] = sys.executable  # runs the stand-in for nvcc
    os.environ.pop("NVCC", None)
    entries = os.environ["PATH"].split(os.pathsep)
    if entries[0] != str(COMPILER_FOLDER):
        os.environ["PATH"] = os.pathsep.join((str(COMPILER_FOLDER), *entries))
    _set_kernel_cache()
    return _loaded[0]


def _load(folder: Path) -> list[ctypes.CDLL]:
    driver = ctypes.CDLL(str(folder / "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)
    driver.cuemu_last_message.restype = ctypes.c_char_p
    driver.cuemu_set.argtypes = (ctypes.c_char_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64))
    # Whoever asks for libcublas.so.13 by this name now gets the stand-in.
    return [driver, ctypes.CDLL(str(folder / "libcublas.so.13"))]


def _set_kernel_cache() -> None:
    """Give PyCUDA a cache of this process's own kind: it writes there without a lock."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    folder = cache_folder("CUEMU_CACHE", "cuemu") / f"kernels-{worker}"
    os.makedirs(os.environ.setdefault("PYCUDA_CACHE_DIR", str(folder)), exist_ok=True)


def set(**options: int) -> dict[str, int]:
    """Set options and return their values of before.

    ``random_order``, ``lazy_streams``, ``initcheck`` and ``racecheck`` are 0 or 1, ``seed`` is what
    random order starts from, ``memory`` the bytes of each device, ``devices`` how many there are.
    ``clear_fault=1`` forgets a fault, as destroying a context does. Raises `ValueError` for others.
    """
    driver = _active()
    before = {}
    for name, value in options.items():
        if name == "clear_fault":
            driver.cuemu_clear_fault()
            continue
        old = ctypes.c_int64()
        if not driver.cuemu_set(name.encode(), int(value), ctypes.byref(old)):
            raise ValueError(f"the emulator has no option {name!r}")
        before[name] = old.value
    return before


@contextmanager
def option(**options: int) -> Iterator[None]:
    """Set options inside a ``with`` block, and forget a fault at its end."""
    before = set(**options)
    try:
        yield
    finally:
        set(**before, clear_fault=1)


def renew(address: int, size: int) -> None:
    """Begin the life of a block that a pool hands out: its end is at ``size``, its bytes unwritten.

    Pools round sizes up, and hand out memory that others have written: without this, what goes
    past the end of a buffer, or reads what nobody has written there, is found only in new memory.
    What was enqueued runs first. Raises `ValueError` where the device has no such allocation.
    """
    if not _active().cuemu_renew(ctypes.c_uint64(address), ctypes.c_size_t(size)):
        raise ValueError(f"no allocation of at least {size} bytes begins at {address:#x}")


def _active() -> ctypes.CDLL:
    if not _loaded:
        raise RuntimeError("the emulator is not active: call activate() first")
    return _loaded[0]


def stats() -> dict[str, int]:
    """Return the numbers of launches, copies, syncs and allocs so far, and bytes used and peak."""
    numbers = (ctypes.c_uint64 * len(STATISTICS))()
    _active().cuemu_statistics(numbers)
    return dict(zip(STATISTICS, numbers, strict=True))
