"""Stands in for nvcc: compiles CUDA C++ to a shared object of the host, which the emulator loads.

``CUEMU_CHECK=1``, the default, checks memory accesses; ``CUEMU_REAL_NVCC=path`` compiles with the
real nvcc as well. This file runs by itself, so it imports nothing of its package.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

INCLUDE = Path(__file__).resolve().parent / "include"
QUIET = ("-w", "-Wno-attributes", "-fpermissive")
FLAGS = (
    *("-std=c++17", "-fPIC", "-O2", "-g1", "-march=native", "-ffp-contract=fast", "-fwrapv"),
    *("-fno-exceptions", "-fno-rtti", "-fno-math-errno", "-fno-stack-protector"),
    *("-fno-strict-aliasing", "-fno-semantic-interposition"),
    *("-fno-gnu-unique", "-fsanitize=alignment,bounds,integer-divide-by-zero"),
    "-ffunction-sections",  # so that a call within a file is a relocation, too
)
CHECKS = ("-fsanitize=thread", "--param", "tsan-distinguish-volatile=1", "-O1")
LIBRARIES = ("-nodefaultlibs", "-lm", "-lgcc", "-lc")  # no sanitizer's library
LINKED = ("-Wl,-Bsymbolic", "-Wl,--emit-relocs")  # which say what shared memory a kernel has
TARGETS = ("--cubin", "--ptx", "--fatbin", "--preprocess")
VALUED = (
    *("-arch", "-code", "-gencode", "-o", "-Xcompiler", "-Xptxas", "-ccbin", "-maxrregcount"),
    *("--compiler-options", "--maxrregcount"),
)
TABLE_VERSION = 2  # of include/cuemu_table.h
ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)")
KERNEL = re.compile(r"__attribute__\(\(cuemu_kernel\)\)([^;{]*)")
TEMPLATE = re.compile(r"template\s*<[^;{}]+>\s*(static\s+|inline\s+)*$")
BOUNDS = re.compile(r"cuemu_bounds\(((?:[^()]|\([^()]*\))*)\)")
NAME = re.compile(r"\bvoid\s+(\w+\s*(?:<[^()]*>)?)\s*\(")
DYNAMIC_SHARED = re.compile(
    r"\bextern\b([^;{}]*?)static thread_local __attribute__\(\(cuemu_shared\)\)([^;{}]*?)"
    r"(\w+)\s*\[\s*\]\s*;"
)


def is_checked() -> bool:
    """Tell whether accesses are to be checked."""
    return os.environ.get("CUEMU_CHECK", "1") == "1"


def version() -> str:
    """Return a text that changes with all that a compilation depends on: caches go by it."""
    settings = (FLAGS, CHECKS, is_checked(), os.environ.get("CUEMU_REAL_NVCC"))
    parts = [repr(settings).encode(), Path(__file__).read_bytes()]
    parts += [path.read_bytes() for path in sorted(INCLUDE.iterdir())]
    parts.append(run(["g++", "-march=native", "-Q", "--help=target", "--version"]).encode())
    name = hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]
    return f"cuemu nvcc: Cuda compilation tools, release 13.0, V13.0.{name}"


def run(command: Sequence[str]) -> str:
    """Run a program and return what it prints; where it fails, say what it said, and end as it."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        sys.exit(done.returncode)
    return done.stdout


def kernels(text: str) -> dict[str, str]:
    """Return the name and the launch bounds of each kernel of a preprocessed text."""
    found: dict[str, str] = {}
    for match in KERNEL.finditer(text):
        if TEMPLATE.search(text[max(0, match.start() - 300) : match.start()]):
            continue  # of a template, the explicit instantiations are kernels
        bounds = BOUNDS.search(match[1])
        name = NAME.search(ATTRIBUTE.sub(" ", match[1]))
        if name is None:
            sys.exit(f"cuemu nvcc: a kernel without a name: {match[0]!r}")
        found.setdefault(name[1], bounds[1] if bounds else "")
    return found


def with_dynamic_shared(text: str) -> str:
    """Make ``extern __shared__ T name[];`` a pointer to the dynamic shared memory."""

    def pointer(match: re.Match[str]) -> str:
        kind = ATTRIBUTE.sub(" ", f"{match[1]} {match[2]}").strip()
        return (
            f"__attribute__((unused)) {kind} *const {match[3]} = ({kind} *)cuemu_dynamic_shared();"
        )

    return DYNAMIC_SHARED.sub(pointer, text)


def table(names: dict[str, str], *, checked: bool) -> str:
    """Return the source of the table of kernels by which the emulator finds and calls them."""
    rows = ", ".join(
        f'cuemu::row("{name}", &{name}, cuemu::bound({bounds}))' for name, bounds in names.items()
    )
    return (
        f"\nstatic cuemu::Kernel cuemu_rows[] = {{{rows}}};\n"
        f'extern "C" {{ cuemu::Table __cuemu_module = {{cuemu_rows, {len(names)}, {TABLE_VERSION}, '
        f"{int(checked)}, cuemu::touch_shared}}; }}\n"
    )


class Options(NamedTuple):
    """What matters of nvcc's arguments."""

    target: str
    architecture: str
    source: Path
    output: str
    preprocessor: list[str]


def parsed(arguments: Sequence[str]) -> Options:
    """Read nvcc's arguments; what concerns only the real compiler is passed over."""
    found: dict[str, str] = {}
    preprocessor = []
    rest = iter(arguments)
    for argument in rest:
        name, separator, value = argument.partition("=")
        if name in TARGETS:
            found["target"] = name[2:]
        elif name in VALUED:
            found[name] = value if separator else next(rest, "")
        elif argument.startswith(("-I", "-D", "-U")):
            preprocessor.append(argument if argument[2:] else argument + next(rest, ""))
        elif not argument.startswith("-"):
            found["source"] = argument
    if "target" not in found or "source" not in found:
        sys.exit("cuemu nvcc: give one of --cubin, --ptx, --fatbin, --preprocess, and a source")
    source = Path(found["source"])
    return Options(
        found["target"],
        re.sub(r"\D", "", found.get("-arch", "")) or "90",
        source,
        found.get("-o", f"{source.stem}.{found['target']}"),
        preprocessor,
    )


def main(arguments: Sequence[str]) -> None:
    """Compile as nvcc would: ``nvcc --cubin [options] kernel.cu`` writes ``kernel.cubin``."""
    if "--version" in arguments:
        print(version())
        return
    options = parsed(arguments)
    preprocess = [
        *("g++", "-E", "-x", "c++", f"-D__CUDA_ARCH__={options.architecture}0", f"-I{INCLUDE}"),
        *(*options.preprocessor, "-include", str(INCLUDE / "cuemu_device.h"), *FLAGS, *QUIET),
    ]
    if options.target == "preprocess":
        print(run([*preprocess, "-P", str(options.source)]))
        return
    real = os.environ.get("CUEMU_REAL_NVCC")
    if real:
        run([real, *arguments, "-o", os.devnull])
    # Loops that wait for a volatile variable end only where its accesses let other threads run.
    checked = is_checked() or bool(re.search(r"\bvolatile\b", options.source.read_text("utf-8")))
    flags = (*FLAGS, *(CHECKS if checked else ()))
    text = run([*preprocess, *(CHECKS[:1] if checked else ()), str(options.source)])
    names = kernels(text)
    with TemporaryDirectory() as folder:
        preprocessed = Path(folder) / f"{options.source.stem}.ii"
        preprocessed.write_text(with_dynamic_shared(text) + table(names, checked=checked))
        # What the module does not define, the emulator does, which is loaded already.
        command = ["g++", "-shared", *LINKED, *flags, *QUIET, str(preprocessed)]
        run([*command, *LIBRARIES, "-o", options.output])


if __name__ == "__main__":
    main(sys.argv[1:])
