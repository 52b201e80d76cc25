"""From CUDA C++ to functions on a device: one module for all that is new, kept on disk."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from nnl_core.errors import BackendError, NnlError
from nnl_core.gpu.device import Device
from nnl_core.gpu.kernel import FOLDER, Kernel, unit_name
from nnl_core.gpu.toolchain import find_compiler

OPTIONS = ("-std=c++17", "-O3", "-lineinfo", "-w")
ASSURED = 48 << 10  # bytes of shared memory, its own and dynamic, that every kernel may have
ERROR_LINE = re.compile(r"\((\d+)\): error: |:(\d+):(?:\d+:)? (?:fatal )?error: ")


class KernelError(NnlError):
    """A kernel does not compile; the message has the compiler's words."""


class Compiler:
    """Compiles texts for one device, each once in a process, and once on a machine.

    Compiled code is kept in ``NNL_CACHE_DIR``, else in ``nnl/cuda`` of the user's cache folder, by
    a hash of text, options, architecture and compiler.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._functions: dict[tuple[str, str], Any] = {}
        self._shared: dict[tuple[str, str], int] = {}
        self._modules: dict[str, Any] = {}
        self._lock = threading.RLock()

    def load(self, kernels: Iterable[Kernel]) -> None:
        """Compile and load the texts of these kernels that are not loaded, in one module."""
        with self._lock:
            texts = {one.text: None for one in kernels if one.text not in self._modules}
            if not texts:
                return
            module = self._load(tuple(texts))
            self._modules.update(dict.fromkeys(texts, module))

    def function(self, kernel: Kernel, shared: int = 0) -> Any:
        """Return a kernel as PyCUDA's function, with leave to use dynamic shared memory."""
        key = (kernel.text, kernel.entry)
        found = self._functions.get(key)
        if found is None:
            self.load((kernel,))
            with self.device:
                found = self._modules[kernel.text].get_function(kernel.symbol)
            self._functions[key] = found
        if shared > self._shared.get(key, 0):
            self._shared[key] = shared
            with self.device:
                if shared + found.shared_size_bytes > ASSURED:
                    attribute = self.device.cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
                    found.set_attribute(attribute, shared)
        return found

    def _load(self, texts: tuple[str, ...]) -> Any:
        code = compiled(source_of(texts), self.device.architecture)
        with self.device:
            return self.device.cuda.module_from_buffer(code)


def source_of(texts: Iterable[str]) -> str:
    """Return one source of several texts, each in a namespace of its own name."""
    parts = [(FOLDER / "common.cuh").read_text()]
    names = []
    for text in texts:
        name = unit_name(text)
        names.append(name)
        parts.append(f"#define UNIT {name}\nnamespace {name} {{\n{text}\n}}\n#undef UNIT\n")
    # Behind all of them, so that no unit sees the names of another.
    return "\n".join([*parts, *(f"using namespace {name};" for name in names), ""])


def compiled(source: str, architecture: str) -> bytes:
    """Return the machine code of a source, from the cache where it was compiled before.

    Raises `KernelError` with the compiler's words, `BackendError` where there is no compiler.
    """
    program = find_compiler()
    if program is None:
        raise BackendError("there is no CUDA compiler; `nnl info` says what to install")
    parts = (source, *OPTIONS, architecture, compiler_version(program))
    name = sha256("\0".join(parts).encode()).hexdigest()
    path = cache_folder() / name[:2] / f"{name}.cubin"
    try:
        return path.read_bytes()
    except OSError:
        pass
    code = _compile(program, source, architecture)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as draft:
            draft.write(code)
        os.replace(draft.name, path)
    except OSError:
        pass  # a cache that cannot be written is no reason not to compute
    return code


def cache_folder() -> Path:
    """Return where compiled code is kept."""
    named = os.environ.get("NNL_CACHE_DIR")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (Path(named) if named else Path(base) / "nnl") / "cuda"


@cache
def compiler_version(program: str) -> str:
    """Return what a compiler says of itself."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return said.stdout


def _compile(program: str, source: str, architecture: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernels.cu").write_text(source)
        code = Path(folder) / "kernels.cubin"
        command = [program, "--cubin", *OPTIONS, "-arch", architecture, "kernels.cu"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, cwd=folder, timeout=600
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise KernelError(f"{program} does not run: {error}") from error
        if done.returncode or not code.exists():
            raise KernelError(_said(done.stderr or done.stdout, source))
        return code.read_bytes()


def _said(words: str, source: str) -> str:
    """Return the first errors of a compiler, the first with its line."""
    lines = [line for line in words.splitlines() if "error" in line.lower()] or words.splitlines()
    message = "a CUDA kernel does not compile:\n" + "\n".join(lines[:4])
    found = ERROR_LINE.search(words)
    if found:
        number = int(found[1] or found[2])
        texts = source.splitlines()
        if 0 < number <= len(texts):
            message += f"\nline {number}: {texts[number - 1].strip()}"
    return message
