"""Kernels and expressions that operators bring along for CUDA."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import cast

import numpy as np

from nnl_core.codegen.foreign import attached_source, definitions, isolated, tell_refused
from nnl_core.errors import OperatorError
from nnl_core.gpu.compiler import KernelError, compiled, source_of
from nnl_core.gpu.kernel import (
    C_TYPES,
    THREADS,
    Address,
    Argument,
    Call,
    Emission,
    Kernel,
    Launch,
    blocks,
    c_type,
)
from nnl_core.graph.operator import KernelSource, Operator
from nnl_core.graph.spec import Spec

ARRAY = """
template <class T> struct nnl_array {
    T *data;               // C-contiguous; null: an optional input that is not given
    const int64_t *shape;
    int64_t rank;
    int64_t size;          // product of the shape
};
"""

Shape = tuple[int, int, int]

PLAIN = "sm_80"  # for which expressions are compiled to see whether they do


def emit_foreign(call: Call) -> Emission | None:
    """Return launches of the ``"cuda"`` kernel that is attached to an operator, or selected.

    Its text defines ``__device__ void ENTRY(nnl_array<T> y, ..., nnl_array<const T> x, ...)``: the
    outputs, then the inputs, of the types of their elements. Options: ``dtypes`` (names; default
    ``("float32",)``), ``block`` (threads, or (x, y, z); default 256), ``grid`` (blocks, or
    (x, y, z); default: as many as give each element of the first output a thread), ``shared``
    (bytes of dynamic shared memory), ``scratch`` (bytes of memory that comes as one more output, of
    ``uint8_t``), ``stages`` (grids: the function is launched with each of them in turn, and is
    given the number of the stage as its last argument, an ``int32_t``). Where these depend on
    shapes, a rule makes the kernel. ``None`` where there is none, or it does not compile.
    """
    kernel = attached_source(
        call.operator, "cuda", call.inputs, call.outputs, call.attributes, C_TYPES
    )
    if kernel is None:
        return None
    scratch = _number(call, kernel, "scratch", 0)
    shared = _number(call, kernel, "shared", 0)
    block = _shape(call, "block", kernel.options.get("block", THREADS))
    stages = kernel.options.get("stages")
    if stages is None:
        count = blocks(call.outputs[0].size, math.prod(block))
        grids = [_shape(call, "grid", kernel.options.get("grid", count))]
    elif isinstance(stages, tuple | list):
        grids = [_shape(call, "stages", grid) for grid in stages]
    else:
        raise OperatorError(
            f"operator {call.name!r}: option 'stages' of its CUDA kernel is {stages!r}; give the "
            "grid of each"
        )
    function, arguments = _function(call, kernel, scratch, stages is not None)
    if _is_refused(call.operator, function.text, kernel.text, call.device.architecture):
        return None
    numbers = [()] if stages is None else [(np.int32(number),) for number in range(len(grids))]
    launches = tuple(
        Launch(function, grid, block, (*arguments, *number), shared)
        for grid, number in zip(grids, numbers, strict=True)
    )
    return Emission(launches, (scratch,) if scratch else ())


def expression_compiles(operator: Operator, statement: str, inputs: Mapping[int, str]) -> bool:
    """Tell whether an operator's expression compiles; where it does not, a warning says so.

    ``statement`` computes a value ``v<number>`` from others, whose types ``inputs`` gives.
    """
    text = f'extern "C" __global__ void KERNEL(check)() {{ {isolated(statement, inputs)} }}'
    return not _is_refused(operator, text, operator.expression or "", PLAIN)


def _function(
    call: Call, kernel: KernelSource, scratch: int, in_stages: bool
) -> tuple[Kernel, tuple[Argument, ...]]:
    """Return a kernel that describes the arrays and calls the text's function."""
    parameters: list[str] = []
    described: list[str] = []
    arrays: list[str] = []
    arguments: list[Argument] = []
    memory = [Spec((scratch,), np.dtype(np.uint8))] if scratch else []
    values = [
        *(("out", k, spec) for k, spec in enumerate(call.outputs)),
        *(("scratch", k, spec) for k, spec in enumerate(memory)),
        *(("in", k, spec) for k, spec in enumerate(call.inputs)),
    ]
    for kind, position, spec in values:
        name = f"{kind}{position}"
        if spec is None:
            arrays.append("{}")
            continue
        element = f"{'const ' if kind == 'in' else ''}{c_type(spec.dtype)}"
        parameters.append(f"{element} *{name}")
        arguments.append(Address(kind, position))
        lengths = [f"{name}_{axis}" for axis in range(len(spec.shape))]
        parameters += [f"int64_t {length}" for length in lengths]
        arguments += [np.int64(length) for length in spec.shape]
        described.append(f"const int64_t {name}_shape[] = {{{', '.join([*lengths, '1'])}}};")
        size = " * ".join(lengths) or "1"
        arrays.append(f"nnl_array<{element}>{{{name}, {name}_shape, {len(lengths)}, {size}}}")
    if in_stages:
        parameters.append("int32_t stage")
        arrays.append("stage")
    used = list(definitions(call.operator, call.attributes, call.inputs, call.outputs, C_TYPES))
    text = "\n".join(
        [
            ARRAY,
            *used,
            f'#line 1 "CUDA kernel of {call.name}"',
            kernel.text,
            '#line 1 "call"',
            f'extern "C" __global__ void KERNEL(call)({", ".join(parameters)}) {{',
            *described,
            f"{kernel.entry}({', '.join(arrays)});",
            "}",
            *(f"#undef {line.split()[1]}" for line in used),
        ]
    )
    return Kernel(text, "call"), tuple(arguments)


@cache
def _is_refused(operator: Operator, text: str, own: str, architecture: str) -> bool:
    """Tell whether a text does not compile; the first time, a warning says so of its ``own``."""
    try:
        compiled(source_of((text,)), architecture)
    except KernelError as error:
        tell_refused(operator, "CUDA", own, str(error).partition("\n")[2])
        return True
    return False


def _shape(call: Call, name: str, found: object) -> Shape:
    lengths: Sequence[object] = found if isinstance(found, tuple | list) else (found,)
    if not 1 <= len(lengths) <= 3 or not all(isinstance(one, int) and one >= 0 for one in lengths):
        raise OperatorError(
            f"operator {call.name!r}: option {name!r} of its CUDA kernel is {found!r}; give a "
            "number, or up to three: (x, y, z)"
        )
    x, y, z = (*cast("Sequence[int]", lengths), 1, 1)[:3]
    return x, y, z


def _number(call: Call, kernel: KernelSource, name: str, default: int) -> int:
    found = kernel.options.get(name, default)
    if not isinstance(found, int) or found < 0:
        raise OperatorError(
            f"operator {call.name!r}: option {name!r} of its CUDA kernel is {found!r}; give a "
            "number of bytes"
        )
    return found
