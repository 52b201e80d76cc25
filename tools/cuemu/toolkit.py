"""Where the CUDA toolkit is: the folder with include/cuda.h, from which all else is found."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MISSING = (
    "there are no CUDA headers: install the CUDA toolkit, or pip install nvidia-cuda-runtime, or "
    "set CUDA_HOME to the folder that holds include/cuda.h"
)


def find_toolkit() -> Path | None:
    """Return the folder that holds ``include/cuda.h``, or ``None``.

    ``CUDA_HOME`` or ``CUDA_PATH`` name it; else it is that of the nvcc on PATH, that in one of the
    usual places, or that of NVIDIA's wheels.
    """
    for folder in _candidates():
        if (folder / "include" / "cuda.h").is_file():
            return folder.resolve()
    return None


def version_of(toolkit: Path) -> int:
    """Return the toolkit's CUDA version as its header has it: 13000 for 13.0."""
    header = (toolkit / "include" / "cuda.h").read_text("utf-8", "replace")
    found = re.search(r"#define\s+CUDA_VERSION\s+(\d+)", header)
    return int(found[1]) if found else 0


def _candidates() -> Iterator[Path]:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield Path(os.environ[name])
    yield from _of_compiler()
    for root in (Path("/usr/local"), Path("/opt")):
        yield root / "cuda"
        yield from sorted(root.glob("cuda-*"), reverse=True)
    yield Path("/usr")
    for entry in sys.path:
        yield from sorted(Path(entry or ".").glob("nvidia/cu[0-9]*"), reverse=True)
        yield Path(entry or ".") / "nvidia" / "cuda_runtime"


def _of_compiler() -> Iterator[Path]:
    """Yield where an nvcc says that it is: what stands on PATH may be a wrapper."""
    stand_in = Path(__file__).with_name("bin")
    for entry in os.get_exec_path():
        compiler = shutil.which("nvcc", path=entry)
        if compiler is None or Path(entry).resolve() == stand_in.resolve():
            continue
        said = subprocess.run(
            [compiler, "--dryrun", "-E", "-x", "cu", os.devnull],
            capture_output=True,
            text=True,
            check=False,
        )
        found = re.search(r"^#\$ TOP=(.+)$", said.stderr, re.MULTILINE)
        if found:
            yield Path(found[1].strip())
        yield Path(compiler).resolve().parent.parent
