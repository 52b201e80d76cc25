"""Builds the emulator's libcuda.so.1 and libcublas.so.13, once for each content of its sources."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.cuemu.cache import cache_folder, make_once
from tools.cuemu.toolkit import MISSING, find_toolkit

SOURCES = Path(__file__).with_name("src")
COMPILE = (
    *("g++", "-std=c++17", "-O2", "-g1", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"),
    *("-Wno-missing-field-initializers", "-Werror"),
)
NOT_SUPPORTED = 801  # CUDA_ERROR_NOT_SUPPORTED


class BuildError(Exception):
    """The emulator, or what needs it, cannot be built here; the message says why."""


def build() -> Path:
    """Return the folder with the libraries, built from the sources as they are now.

    It is kept in ``CUEMU_CACHE``, else in ``cuemu`` of the user's cache folder. Raises `BuildError`
    where the CUDA headers are missing, or with what the compiler says.
    """
    toolkit = find_toolkit()
    if toolkit is None:
        raise BuildError(MISSING)
    include = toolkit / "include"
    folder = cache_folder("CUEMU_CACHE", "cuemu") / f"lib-{_fingerprint(include)}"
    return make_once(folder, lambda draft: _build(include, draft))


def _fingerprint(include: Path) -> str:
    parts = [*COMPILE, Path(__file__).read_text(), run(["g++", "--version"])]
    parts += [path.read_text() for path in sorted(SOURCES.iterdir())]
    parts.append((include / "cuda.h").read_text("utf-8", "replace"))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _build(include: Path, draft: Path) -> None:
    sources = sorted(SOURCES.glob("*.cpp"))
    objects = [draft / f"{source.stem}.o" for source in sources]

    def compile_one(source: Path, target: Path) -> None:
        run([*COMPILE, f"-I{include}", "-c", str(source), "-o", str(target)])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, sources, objects))
    blas = draft / "cublas.o"
    parts = [part for part in objects if part != blas]
    parts.append(_stubs(include, parts, draft))
    cuda = draft / "libcuda.so.1"
    _link(cuda, [*map(str, parts), "-ldl", "-lpthread"])
    _link(draft / "libcublas.so.13", [str(blas), f"-L{draft}", "-l:libcuda.so.1"])
    (draft / "libcuda.so").symlink_to(cuda.name)  # for linkers, such as PyCUDA's
    for part in (*parts, blas):
        part.unlink()


def _link(target: Path, parts: Iterable[str]) -> None:
    run(["g++", "-shared", f"-Wl,-soname,{target.name}", "-o", str(target), *parts])


def _stubs(include: Path, parts: Iterable[Path], draft: Path) -> Path:
    """Compile the entry points that the emulator has not: they say that they are not supported."""
    defined = set(re.findall(r" T (\w+)", run(["nm", *map(str, parts)])))
    headers = ["-include", "cuda.h", "-include", "cudaProfiler.h"]
    text = run(["g++", "-E", "-P", f"-I{include}", *headers, "-x", "c", os.devnull])
    names = sorted(set(re.findall(r"\b(cu[A-Z]\w*) *\(", text)) - defined)
    source, target = draft / "stubs.c", draft / "stubs.o"
    source.write_text(
        "".join(f"int {name}(void) {{ return {NOT_SUPPORTED}; }}\n" for name in names)
    )
    run(["gcc", "-w", "-fPIC", "-c", str(source), "-o", str(target)])
    source.unlink()
    return target


def run(command: list[str]) -> str:
    """Run a program and return what it prints. Raises `BuildError` with its words."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"{command[0]} does not run: {error}") from error
    if done.returncode:
        words = done.stderr or done.stdout
        raise BuildError(f"{' '.join(command)} ends with {done.returncode}:\n{words[-2000:]}")
    return done.stdout
