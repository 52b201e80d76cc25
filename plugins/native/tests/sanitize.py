"""Run operators' samples in C that watches its accesses: out of bounds, overflow, misalignment.

    python plugins/native/tests/sanitize.py                 # all operators of the core
    python plugins/native/tests/sanitize.py nnl::softmax onn   # these operators and namespaces

Kernels are compiled with gcc's sanitizers, whose library the interpreter starts with, and values
lie apart, not in one arena, each between memory that nobody may touch. What is found ends the
program with a report; the last line before it names the operator.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator

import numpy as np

FLAGS = (
    "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -O1 -g"
)
DTYPES = ("float32", "float64")


def environment(folder: str) -> dict[str, str]:
    """Return that of a process with the sanitizers in it."""
    libraries = []
    for name in ("libasan.so", "libubsan.so"):
        asked = ["gcc", f"-print-file-name={name}"]
        libraries.append(subprocess.run(asked, capture_output=True, text=True).stdout.strip())
    return {
        **os.environ,
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "CC": "gcc",
        "NNL_CFLAGS": FLAGS,
        "NNL_CACHE_DIR": os.environ.get("NNL_CACHE_DIR", folder),
        "NNL_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "1",
    }


def keep_apart() -> None:
    """Give each value of a program memory of its own, so that what is beside it is nobody's."""
    from nnl_native.program import Frame

    make = Frame.__init__

    def made(frame: Frame, program: object) -> None:
        program.shares = False
        make(frame, program)
        frame.apart = []
        for value in program.plan.offsets:
            frame.apart.append(np.empty(program.graph.specs[value].nbytes, np.uint8))
            frame.slots[value] = frame.apart[-1].ctypes.data
        program.follow_views(frame.slots)

    Frame.__init__ = made


def chosen(names: Iterable[str]) -> Iterator[object]:
    from nnl_core import lookup
    from nnl_core.testing import operators

    for name in names or ["nnl"]:
        yield from [lookup(name)] if "::" in name else operators(name)


def orders(rank: int) -> dict[str, tuple[int, ...]]:
    """Orders in which the axes of an array may lie in memory, the outermost first."""
    axes = tuple(range(rank))
    return {
        "plain": axes,
        "reversed": axes[::-1],
        "channels last": (*axes[:1], *axes[2:], *axes[1:2]),
    }


def run(operator: object) -> None:
    """Run an operator's samples and gradients, in several dtypes and layouts, as one program."""
    from nnl_core import F, Variable, grad
    from nnl_core.errors import NnlError, NotDifferentiableError
    from nnl_core.graph.dtypes import is_floating
    from nnl_core.graph.execute import forward_all

    def leaf(array: np.ndarray | None, dtype: str, layout: str) -> Variable | None:
        if array is None:
            return None
        floats = is_floating(array.dtype)
        array = array.astype(dtype) if floats else array
        order = orders(array.ndim)[layout]
        stored = Variable.from_numpy_array(array.transpose(order).copy(), need_grad=floats)
        return F.transpose(stored, tuple(map(int, np.argsort(order)))) if array.ndim > 1 else stored

    results: list[list[Variable]] = []
    samples = list(operator.iterate_samples(np.random.default_rng(0)))
    for sample, dtype, layout in itertools.product(samples, DTYPES, orders(0)):
        try:
            inputs = [leaf(array, dtype, layout) for array in sample.inputs]
            given = operator(*inputs, **sample.attributes)
            outputs = list(given) if isinstance(given, tuple) else [given]
            results.append(outputs)
            floating = [y for y in outputs if is_floating(y.dtype)]
            wanted = [v for v in inputs if v is not None and is_floating(v.dtype)]
            if floating and wanted:
                slopes = grad(floating, wanted, allow_unused=True)
                results[-1] = [*outputs, *(g for g in slopes if g is not None)]
        except NotDifferentiableError:
            pass
        except NnlError as error:
            print(f"  {sample!r}: {error}", flush=True)
    try:
        forward_all([variable for group in results for variable in group])
    except NnlError:  # one of them: it must not keep the others from running
        for group in results:
            try:
                forward_all(group)
            except NnlError as error:
                print(f"  {error}", flush=True)


def main(names: list[str]) -> int:
    if "-fsanitize" not in os.environ.get("NNL_CFLAGS", ""):
        folder = tempfile.mkdtemp(prefix="nnl-sanitize-")
        try:
            done = subprocess.run([sys.executable, __file__, *names], env=environment(folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return done.returncode
    warnings.simplefilter("error", RuntimeWarning)  # a kernel that does not compile
    import nnl_core as nnl

    nnl.set_backend("native")
    keep_apart()
    count = 0
    for operator in chosen(names):
        print(operator, flush=True)
        run(operator)
        count += 1
    print(f"{count} operators: nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
