"""Elementwise expressions through the system's C compiler, to hold them against the reference."""

from __future__ import annotations

import ctypes
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nnl_core.graph.operator import Array, Operator
from nnl_core.graph.spec import Spec

OUTPUT_TYPES = {"f": "float", "b": "unsigned char", "i": "long long", "u": "unsigned long long"}
ARRAY_TYPES = {"f": np.float32, "b": np.bool_, "i": np.int64, "u": np.uint64}


class ExpressionCase(NamedTuple):
    """An operator's expression with its attributes' values, for a kind of result."""

    operator: Operator
    attributes: Mapping[str, object]
    output: Spec


def c_compiler() -> str | None:
    """Return the path of the C compiler (``CC``, else ``cc``), or ``None`` where there is none."""
    return shutil.which(os.environ.get("CC", "cc"))


def compile_expressions(
    cases: Sequence[ExpressionCase], compiler: str
) -> list[Callable[..., Array]]:
    """Compile all expressions in one translation unit and return a function for each.

    The functions take arrays that broadcast, compute in ``float``, and return ``float32``,
    ``bool`` or 64-bit integers as the case's output says. Raises `ValueError` with the compiler's
    words where an expression does not compile.
    """
    source = "#include <math.h>\n" + "\n".join(
        _c_function(f"expression_{index}", case) for index, case in enumerate(cases)
    )
    with tempfile.TemporaryDirectory() as folder:
        text, library = Path(folder, "expressions.c"), Path(folder, "expressions.so")
        text.write_text(source)
        command = [compiler, "-O1", "-w", "-shared", "-fPIC", text.name, "-o", library.name, "-lm"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise ValueError(f"the C compiler rejects an expression:\n{done.stderr.strip()}")
        loaded = ctypes.CDLL(str(library))
    return [
        _caller(getattr(loaded, f"expression_{index}"), case) for index, case in enumerate(cases)
    ]


def _c_function(name: str, case: ExpressionCase) -> str:
    inputs = case.operator.parameters.inputs
    kind = OUTPUT_TYPES[case.output.dtype.kind]
    arguments = "".join(f", const float *{one}_array" for one in inputs)
    values = [f"const float {one} = {one}_array[i];" for one in inputs]
    values += [_c_constant(one, value) for one, value in case.attributes.items()]
    return (
        f"void {name}(long count, {kind} *result{arguments}) {{\n"
        f"  for (long i = 0; i < count; i++) {{\n"
        f"    {' '.join(values)}\n"
        f"    result[i] = ({kind})({case.operator.expression});\n  }}\n}}"
    )


def _c_constant(name: str, value: object) -> str:
    if isinstance(value, (bool, np.bool_)):
        return f"const int {name} = {int(value)};"
    if isinstance(value, (int, np.integer)):
        return f"const long {name} = {int(value)};"
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if math.isnan(number):
            return f"const float {name} = NAN;"
        if math.isinf(number):
            return f"const float {name} = {'-' if number < 0 else ''}INFINITY;"
        return f"const float {name} = {number!r}f;"
    return f"/* {name} is no number */"


def _caller(function: Callable[..., object], case: ExpressionCase) -> Callable[..., Array]:
    def call(*inputs: Array) -> Array:
        spread = np.broadcast_arrays(*(np.asarray(one, np.float32) for one in inputs))
        shape = spread[0].shape
        whole = [np.ascontiguousarray(one) for one in spread]
        result: Array = np.empty(shape, ARRAY_TYPES[case.output.dtype.kind])
        pointers = [one.ctypes.data_as(ctypes.c_void_p) for one in (result, *whole)]
        function(ctypes.c_long(result.size), *pointers)
        return result

    return call
