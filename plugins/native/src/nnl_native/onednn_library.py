"""oneDNN's shared library: where it is, whether it can be used, its functions and its engine."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from nnl_core.errors import BackendError

OLDEST = (3, 2)
"""The oldest version whose numbers are these: that of the wheel."""
NEWER = (3, 3)
_CPU, _IN_ORDER, _OPENMP = 1, 1, 2
_STATUS = {1: "out of memory", 2: "invalid arguments", 3: "not implemented", 6: "failed at run"}


class PrimitiveError(BackendError):
    """oneDNN makes no such primitive."""


# Finding and loading -----------------------------------------------------------------------------


def _candidates() -> Iterator[tuple[Path, tuple[int, int]]]:
    """Yield where the library may be, and the oldest version that is taken from there."""
    name = "libdnnl.so.3"
    yield Path(name), NEWER  # wherever the loader looks; asked later, it would name the wheel's
    yield Path(sys.prefix, "lib", name), OLDEST
    with contextlib.suppress(metadata.PackageNotFoundError):
        for file in metadata.distribution("onednn-cpu-gomp").files or ():
            if file.name == name:
                yield Path(str(file.locate())), OLDEST
    yield Path(name), OLDEST


class _Version(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("patch", ctypes.c_int),
        ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
        ("gpu_runtime", ctypes.c_uint),
    ]


class _Search(NamedTuple):
    path: Path | None
    problem: str | None


@functools.cache
def _search() -> _Search:
    """Return the first library that can be used, or why there is none.

    A system's is preferred where it is newer than the wheel's.
    """
    reasons = []
    for path, oldest in _candidates():
        if path.is_absolute() and not path.exists():
            continue
        try:
            loaded = ctypes.CDLL(str(path))
            loaded.dnnl_version.restype = ctypes.POINTER(_Version)
            version = loaded.dnnl_version().contents
        except (OSError, AttributeError) as error:
            if path.is_absolute():
                reasons.append(f"{path} cannot be loaded: {error}")
            continue
        found = version.major, version.minor
        if OLDEST <= found < oldest:
            continue  # no newer than the wheel's, which comes next
        if found < OLDEST:
            reasons.append(f"{path} is version {version.major}.{version.minor}; 3.2 is needed")
        elif version.cpu_runtime != _OPENMP:
            reasons.append(f"{path} is not built for OpenMP")
        else:
            return _Search(path, None)
    missing = "oneDNN's libdnnl.so.3 is not installed: pip install onednn-cpu-gomp"
    return _Search(None, "; ".join(dict.fromkeys(reasons)) or missing)


def find_library() -> Path | None:
    """Return the library's file: of this environment, else of the system."""
    return _search().path


def problem() -> str | None:
    """Return why oneDNN cannot be used; ``None`` where it can."""
    return _search().problem


_P, _I, _F = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
_LENGTHS = ctypes.POINTER(ctypes.c_int64)
_SIGNATURES: dict[str, tuple[type | None, ...]] = {  # result, then arguments
    "dnnl_engine_create": (_I, _P, _I, ctypes.c_size_t),
    "dnnl_stream_create": (_I, _P, _P, ctypes.c_uint),
    "dnnl_memory_desc_create_with_strides": (_I, _P, _I, _LENGTHS, _I, _LENGTHS),
    "dnnl_memory_desc_create_with_tag": (_I, _P, _I, _LENGTHS, _I, _I),
    "dnnl_memory_desc_clone": (_I, _P, _P),
    "dnnl_memory_desc_destroy": (_I, _P),
    "dnnl_memory_desc_equal": (_I, _P, _P),
    "dnnl_memory_desc_get_size": (ctypes.c_size_t, _P),
    "dnnl_memory_create": (_I, _P, _P, _P, _P),
    "dnnl_memory_destroy": (_I, _P),
    "dnnl_primitive_desc_query": (_I, _P, _I, _I, _P),
    "dnnl_primitive_desc_query_md": (_P, _P, _I, _I),
    "dnnl_primitive_desc_destroy": (_I, _P),
    "dnnl_primitive_create": (_I, _P, _P),
    "dnnl_primitive_destroy": (_I, _P),
    "dnnl_primitive_execute": (_I, _P, _P, _I, _P),
    "dnnl_primitive_attr_create": (_I, _P),
    "dnnl_primitive_attr_destroy": (_I, _P),
    "dnnl_primitive_attr_set_scratchpad_mode": (_I, _P, _I),
    "dnnl_primitive_attr_set_post_ops": (_I, _P, _P),
    "dnnl_post_ops_create": (_I, _P),
    "dnnl_post_ops_destroy": (_I, _P),
    "dnnl_post_ops_append_eltwise": (_I, _P, _I, _F, _F),
    "dnnl_post_ops_append_sum": (_I, _P, _F, ctypes.c_int32, _I),
    "dnnl_post_ops_append_binary": (_I, _P, _I, _P),
    "dnnl_convolution_forward_primitive_desc_create": (
        _I, _P, _P, _I, _I, _P, _P, _P, _P, _LENGTHS, _LENGTHS, _LENGTHS, _LENGTHS, _P,
    ),
    "dnnl_convolution_backward_data_primitive_desc_create": (
        _I, _P, _P, _I, _P, _P, _P, _LENGTHS, _LENGTHS, _LENGTHS, _LENGTHS, _P, _P,
    ),
    "dnnl_convolution_backward_weights_primitive_desc_create": (
        _I, _P, _P, _I, _P, _P, _P, _P, _LENGTHS, _LENGTHS, _LENGTHS, _LENGTHS, _P, _P,
    ),
    "dnnl_matmul_primitive_desc_create": (_I, _P, _P, _P, _P, _P, _P, _P),
    "dnnl_reorder_primitive_desc_create": (_I, _P, _P, _P, _P, _P, _P),
    "omp_get_max_threads": (_I,),
    "omp_set_num_threads": (None, _I),
}  # fmt: skip


@functools.cache
def library() -> ctypes.CDLL:
    """Return the loaded library; raises `BackendError` with the reason where there is none."""
    found = _search()
    if found.path is None:
        raise BackendError(str(found.problem))
    loaded = ctypes.CDLL(str(found.path))
    for name, (result, *arguments) in _SIGNATURES.items():
        function = getattr(loaded, name)  # OpenMP's come from what the library is linked with
        function.restype, function.argtypes = result, arguments
    return loaded


def address(function: str) -> int:
    """Return where a function of the library is, for C code that calls it."""
    found = ctypes.cast(getattr(library(), function), ctypes.c_void_p).value
    assert found is not None
    return found


def checked(status: int, what: str) -> None:
    """Raise `PrimitiveError` where a function of the library did not do what was asked."""
    if status:
        raise PrimitiveError(f"oneDNN: {what}: {_STATUS.get(status, f'status {status}')}")


@functools.cache
def engine() -> int:
    """Return the engine of the processor; it lives as long as the process."""
    made = ctypes.c_void_p()
    checked(library().dnnl_engine_create(ctypes.byref(made), _CPU, 0), "engine of the CPU")
    return made.value or 0


@functools.cache
def stream() -> int:
    """Return the stream of the engine; a processor's may be used by several threads at once."""
    made = ctypes.c_void_p()
    checked(
        library().dnnl_stream_create(ctypes.byref(made), engine(), _IN_ORDER), "stream of the CPU"
    )
    return made.value or 0
