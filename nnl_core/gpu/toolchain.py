"""Where the CUDA compiler is: on PATH, in a toolkit, or in NVIDIA's wheels."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path


def find_compiler() -> str | None:
    """Return the path of ``nvcc``, or ``None``.

    ``NVCC`` names it; else it is that on PATH, in ``CUDA_HOME`` or ``CUDA_PATH``, in the usual
    places of a toolkit, or in the wheels ``nvidia-cuda-nvcc`` and its like.
    """
    named = os.environ.get("NVCC")
    if named:
        return shutil.which(named)
    found = shutil.which("nvcc")
    if found:
        return found
    for folder in _folders():
        program = folder / "bin" / "nvcc"
        if os.access(program, os.X_OK):
            return str(program)
    return None


def _folders() -> Iterator[Path]:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield Path(os.environ[name])
    yield Path("/usr/local/cuda")
    yield Path("/opt/cuda")
    for entry in sys.path:
        yield from sorted(Path(entry or ".").glob("nvidia/cu[0-9]*"), reverse=True)
        yield Path(entry or ".") / "nvidia" / "cuda_nvcc"
