"""From C source to functions: which compiler, which flags, and the cache of what it made."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from nnl_core.cpu.threads import thread_count
from nnl_core.errors import BackendError

FLAGS = (
    "-O3",
    "-march=native",
    "-std=gnu11",
    "-shared",
    "-fPIC",
    "-fopenmp-simd",  # the pragmas alone: threads are the runtime's
    # Results keep to IEEE 754 but for what no rule of ours needs: errno and floating traps. Sums
    # are reassociated only where a loop says so, and NaN and infinity are what they are.
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fwrapv",
    "-w",
)
KERNELS_EACH = 6  # kernels that a further compiler's process pays for
PRELUDE = Path(__file__).with_name("prelude.h")


class CompileError(BackendError):
    """The C compiler refused a source; ``message`` holds its words."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@functools.cache
def compiler_command() -> tuple[str, ...] | None:
    """Return the command of the C compiler: ``CC``, else ``cc``, else that of ``ziglang``."""
    wanted = os.environ.get("CC", "").split() or ["cc"]
    if shutil.which(wanted[0]):
        return tuple(wanted)
    for name in ("gcc", "clang"):
        if shutil.which(name):
            return (name,)
    if find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    return None


@functools.cache
def compiler_identity() -> str:
    """Return what makes two machines' kernels the same: compiler, processor, flags, prelude."""
    command = compiler_command()
    assert command is not None
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    processor = ""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((line for line in lines if line.startswith("flags")), "")
    flags = (*extra_flags(), *FLAGS, PRELUDE.read_text("utf-8"))
    return "\n".join([*command, done.stdout, platform.machine(), processor, *flags])


def extra_flags() -> tuple[str, ...]:
    """Return further flags, of the environment variable ``NNL_CFLAGS`` (a sanitizer's, say)."""
    return tuple(os.environ.get("NNL_CFLAGS", "").split())


def cache_folder() -> Path:
    """Return where compiled kernels are kept: ``NNL_CACHE_DIR``, else below the user's cache."""
    given = os.environ.get("NNL_CACHE_DIR")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "nnl" / "native"


_functions: dict[str, int] = {}  # name of a kernel -> its address
_libraries: list[ctypes.CDLL] = []  # loaded for as long as the process lives
_lock = threading.Lock()


def kernel_name(source: str) -> str:
    """Return the name of a kernel, made of its text: equal texts are one function."""
    return "k_" + hashlib.sha256(source.encode()).hexdigest()[:32]


def load_functions(sources: Mapping[str, str]) -> dict[str, int]:
    """Return the addresses of kernels, by name; those not compiled before become one library.

    ``sources`` gives each kernel's text by its name (`kernel_name`), in which ``NAME`` stands for
    it. Libraries are found again by the kernels in them, in this process or another. Raises
    `CompileError`.
    """
    with _lock:
        missing = {name: text for name, text in sources.items() if name not in _functions}
        if missing:
            folder = cache_folder() / hashlib.sha256(compiler_identity().encode()).hexdigest()[:16]
            missing = {n: t for n, t in missing.items() if not _load_known(folder, n)}
        if missing:
            parts = _parts(missing)
            with ThreadPoolExecutor(len(parts)) as pool:  # each waits for a compiler's process
                libraries = list(pool.map(functools.partial(_compile, folder), parts))
            for library, part in zip(libraries, parts, strict=True):
                _functions.update((name, _address(library, name)) for name in part)
        return {name: _functions[name] for name in sources}


def _parts(sources: Mapping[str, str]) -> list[dict[str, str]]:
    """Return kernels in as many parts, of about equal text, as compilers are worth starting."""
    count = max(1, min(thread_count(), len(sources) // KERNELS_EACH))
    parts: list[dict[str, str]] = [{} for _ in range(count)]
    lengths = [0] * count
    for name, text in sorted(sources.items(), key=lambda item: (-len(item[1]), item[0])):
        shortest = lengths.index(min(lengths))
        parts[shortest][name] = text
        lengths[shortest] += len(text)
    return parts


def _load_known(folder: Path, name: str) -> bool:
    """Load the library that holds a kernel, where the cache has one."""
    link = folder / name[2:4] / name
    try:
        library = ctypes.CDLL(str(link.resolve(strict=True)))
        _functions[name] = _address(library, name)
    except (OSError, AttributeError):
        return False
    _libraries.append(library)
    return True


def _address(library: ctypes.CDLL, name: str) -> int:
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None
    return address


def _compile(folder: Path, sources: Mapping[str, str]) -> ctypes.CDLL:
    """Compile kernels into one library, put it into the cache as a whole, and load it."""
    text = source_text(sources)
    name = hashlib.sha256(text.encode()).hexdigest()[:32] + ".so"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft_folder = tempfile.TemporaryDirectory(dir=folder, prefix=".draft-")
    except OSError:  # a cache that cannot be written to: compile beside it
        draft_folder = tempfile.TemporaryDirectory(prefix="nnl-native-")
    with draft_folder as made:
        draft = Path(made, name)
        run_compiler(text, draft, sources)
        target = folder / name
        try:
            os.replace(draft, target)
            for kernel in sources:
                link = folder / kernel[2:4] / kernel
                link.parent.mkdir(exist_ok=True)
                _link(link, Path("..", name), Path(made))
        except OSError:
            target = draft
        library = ctypes.CDLL(str(target))
    _libraries.append(library)
    return library


def _link(link: Path, target: Path, drafts: Path) -> None:
    """Make or replace a symbolic link at once."""
    draft = drafts / link.name
    draft.symlink_to(target)
    os.replace(draft, link)


def source_text(sources: Mapping[str, str]) -> str:
    """Return one translation unit of several kernels."""
    functions = [text.replace("NAME", name) for name, text in sorted(sources.items())]
    return "\n\n".join([PRELUDE.read_text("utf-8"), *functions]) + "\n"


def run_compiler(text: str, library: Path, sources: Sequence[str] | Mapping[str, str] = ()) -> None:
    """Compile C text into a shared library; raise `CompileError` with the compiler's words."""
    command = compiler_command()
    if command is None:
        raise CompileError("there is no C compiler: install gcc or clang, or nnl-native[zig]")
    file = library.with_suffix(".c")
    file.write_text(text, "utf-8")
    full = [*command, *FLAGS, *extra_flags(), file.name, "-o", library.name, "-lm"]
    done = subprocess.run(full, cwd=library.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(f"the C compiler refuses a kernel:\n{done.stderr.strip()}")
