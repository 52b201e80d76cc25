"""cuBLAS where it is installed: products of matrices, enqueued on a device's stream."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from nnl_core.errors import BackendError
from nnl_core.gpu.device import Device, DeviceMemoryError

VERSIONS = (13, 12, 11)
WORKSPACE = 32 << 20  # bytes; what the library asks for on the largest GPUs

# Numbers of the library's interface.
TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}
IN_FLOAT, IN_DOUBLE, IN_TF32 = 68, 70, 77  # types of computation
EXACT_SUMS = 16  # no sums of products in half precision
DEFAULT_ALGORITHM = -1
STATUS = {
    1: "not initialized", 3: "out of memory", 7: "invalid value", 8: "architecture mismatch",
    11: "mapping error", 13: "execution failed", 14: "internal error", 15: "not supported",
}  # fmt: skip


@dataclass(frozen=True)
class Product:
    """``C = A B`` of row-major matrices, or ``C = A B + C``, of each member of a stack.

    A pitch is the number of elements from row to row in memory, a stride that from member to
    member. Called with a device and the addresses of A, B and C, it enqueues the product.
    """

    dtype: str
    rows: int
    columns: int
    inner: int
    pitches: tuple[int, int, int]
    transposed: tuple[bool, bool] = (False, False)
    members: int = 1
    strides: tuple[int, int, int] = (0, 0, 0)
    adds: bool = False
    result_dtype: str | None = None

    def __call__(self, device: Device, a: int, b: int, c: int) -> None:
        """Enqueue it; raise `BackendError` where the library refuses."""
        handle = find(device)
        if handle is None:
            raise BackendError("cuBLAS is gone; it was there when this program was compiled")
        handle.multiply(self, a, b, c)


class Handle:
    """The library with its state for one device, on the device's stream."""

    def __init__(self, device: Device, library: ctypes.CDLL) -> None:
        self.device = device
        self._library = library
        self._handle = ctypes.c_void_p()
        with device:
            self._check("create", library.cublasCreate_v2(ctypes.byref(self._handle)))
            self._call("cublasSetStream_v2", ctypes.c_void_p(device.stream.handle))
            # Its own, as a graph that is captured must find the same memory each time.
            address, self._workspace = device.allocate(WORKSPACE)
            self._call(
                "cublasSetWorkspace_v2", ctypes.c_void_p(address), ctypes.c_size_t(WORKSPACE)
            )
            self._call("cublasSetMathMode", ctypes.c_int(EXACT_SUMS))
        self._scalars = {
            IN_FLOAT: (ctypes.c_float(1), ctypes.c_float(0)),
            IN_TF32: (ctypes.c_float(1), ctypes.c_float(0)),
            IN_DOUBLE: (ctypes.c_double(1), ctypes.c_double(0)),
        }

    def multiply(self, product: Product, a: int, b: int, c: int) -> None:
        """Enqueue a product."""
        computing = IN_DOUBLE if product.dtype == "float64" else IN_FLOAT
        if product.dtype == "float32" and self.device.allow_tf32:
            computing = IN_TF32
        one, zero = self._scalars[computing]
        kind = ctypes.c_int(TYPES[product.dtype])
        result = ctypes.c_int(TYPES[product.result_dtype or product.dtype])

        # The library's matrices lie by columns: there, row-major C = A B is C = B A.
        def operand(address: int, which: int) -> tuple[ctypes.c_void_p, ctypes.c_int, ctypes.c_int]:
            return ctypes.c_void_p(address), kind, ctypes.c_int(product.pitches[which])

        shape = (
            ctypes.c_int(product.transposed[1]),
            ctypes.c_int(product.transposed[0]),
            ctypes.c_int(product.columns),
            ctypes.c_int(product.rows),
            ctypes.c_int(product.inner),
            ctypes.byref(one),
        )
        factor = ctypes.byref(one if product.adds else zero)
        target = (ctypes.c_void_p(c), result, ctypes.c_int(product.pitches[2]))
        ending = (ctypes.c_int(computing), ctypes.c_int(DEFAULT_ALGORITHM))
        if product.members == 1:
            self._call(
                "cublasGemmEx", *shape, *operand(b, 1), *operand(a, 0), factor, *target, *ending
            )
            return
        step_a, step_b, step_c = (ctypes.c_longlong(one) for one in product.strides)
        self._call(
            "cublasGemmStridedBatchedEx", *shape, *operand(b, 1), step_b, *operand(a, 0), step_a,
            factor, *target, step_c, ctypes.c_int(product.members), *ending,
        )  # fmt: skip

    def _call(self, function: str, *arguments: object) -> None:
        self._check(function, getattr(self._library, function)(self._handle, *arguments))

    def _check(self, what: str, status: int) -> None:
        if status:
            raise BackendError(
                f"cuBLAS on GPU {self.device.index}: {what} answers "
                f"{STATUS.get(status, 'an error')} ({status})"
            )


_handles: dict[int, Handle | None] = {}


def find(device: Device) -> Handle | None:
    """Return cuBLAS on a device, or ``None`` where it is not installed or does not start."""
    if device.index not in _handles:
        loaded, found = library(), None
        if loaded is not None:
            try:
                found = Handle(device, loaded)
            except DeviceMemoryError:  # there may be room for it later
                raise
            except BackendError:
                pass
        _handles[device.index] = found
    return _handles[device.index]


@cache
def library() -> ctypes.CDLL | None:
    """Return the library: the loaded one, that of the linker's path, of wheels, of a toolkit."""
    for name in _names():
        with suppress(OSError):
            # What it needs beside it is not found in every folder that it is in.
            ctypes.CDLL(name.replace("libcublas.", "libcublasLt."))
        with suppress(OSError):
            return ctypes.CDLL(name)
    return None


def _names() -> Iterator[str]:
    names = [f"libcublas.so.{version}" for version in VERSIONS]
    yield from names
    for folder in _folders():
        yield from (str(folder / name) for name in names if (folder / name).exists())
    # What it raises where there is none is a RuntimeError.
    with suppress(ImportError, RuntimeError):
        pathfinder = import_module("cuda.pathfinder")
        yield str(pathfinder.load_nvidia_dynamic_lib("cublas").abs_path)


def _folders() -> Iterator[Path]:
    for entry in sys.path:
        root = Path(entry or ".") / "nvidia"
        yield from sorted(root.glob("cu[0-9]*/lib"), reverse=True)
        yield root / "cublas" / "lib"
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield Path(os.environ[name]) / "lib64"
    compiler = shutil.which("nvcc")
    if compiler:
        yield Path(compiler).resolve().parent.parent / "lib64"
    yield Path("/usr/local/cuda/lib64")
