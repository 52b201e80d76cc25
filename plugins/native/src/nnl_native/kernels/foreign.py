"""Kernels that operators bring along: a C function of arrays, called as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from nnl_core.codegen.foreign import attached_source, definitions, isolated, tell_refused
from nnl_core.errors import OperatorError
from nnl_core.graph.ir import Instruction
from nnl_core.graph.kernels import select_kernel
from nnl_core.graph.operator import KernelSource, Operator
from nnl_core.graph.spec import Spec
from nnl_native.compiler import CompileError, kernel_name, load_functions
from nnl_native.kernel import C_TYPES, Call, CStep, Emission, Entry, all_plain

ARRAY = """
#ifndef NNL_ARRAY
#define NNL_ARRAY
struct nnl_array {
    void *data; /* C-contiguous; NULL: an optional input that is not given */
    const int64_t *shape;
    int64_t rank;
    int64_t size; /* product of the shape */
};
#endif
"""

_refused: set[str] = set()  # texts that do not compile; who wrote them was told


def foreign_entry(
    operator: Operator, inputs: Sequence[Spec | None], attributes: Mapping[str, Any]
) -> Entry | None:
    """Return how to call the C kernel that is attached to an operator, or selected by a plugin."""
    if select_kernel(operator, "c", inputs, attributes) is None:
        return None
    return Entry(_emit, all_plain)


def _emit(call: Call) -> Emission | None:
    inputs = [None if one is None else one.spec for one in call.inputs]
    outputs = [one.spec for one in call.outputs]
    kernel = attached_source(call.operator, "c", inputs, outputs, call.attributes, C_TYPES)
    if kernel is None:
        return None
    stages = _stages(call.operator, kernel)
    scratch = _scratch(call.operator, kernel)
    operands, lengths, arrays = _described(call, scratch)
    shared = "" if stages is None else ", d[0] + begin, d[0] + end"
    body = f"{arrays}\nif (begin < end && {kernel.entry}(inputs, outputs{shared})) *failure = 1;"
    written = definitions(call.operator, call.attributes, inputs, outputs, C_TYPES)
    support = "\n".join(
        [ARRAY, *written, f'#line 1 "{_title(call)}"', kernel.text, '#line 1 "call"']
    )
    touched = sum(spec.size for spec in (*inputs, *outputs) if spec is not None)
    cost = touched + call.operator.count_multiply_adds(inputs, outputs, dict(call.attributes))
    steps = tuple(
        CStep(body, operands, (first, *lengths), units, cost, support)
        for first, units in zip(accumulate(stages or (1,), initial=0), stages or (1,), strict=False)
    )
    if not _compiles(steps[0], call, kernel):
        return None
    return Emission(steps, (scratch,) if scratch else ())


def _stages(operator: Operator, kernel: KernelSource) -> tuple[int, ...] | None:
    """Return how many units each stage of a kernel has, where threads share its work."""
    units = kernel.options.get("units")
    if units is None:
        return None
    stages = units if isinstance(units, list | tuple) else (units,)
    if not stages or not all(isinstance(one, int) and one >= 0 for one in stages):
        raise OperatorError(
            f"operator {operator.name!r}: option 'units' of its C kernel is {units!r}; give the "
            "number of units, or that of each stage"
        )
    return tuple(stages)


def _scratch(operator: Operator, kernel: KernelSource) -> int:
    scratch = kernel.options.get("scratch", 0)
    if not isinstance(scratch, int) or scratch < 0:
        raise OperatorError(
            f"operator {operator.name!r}: option 'scratch' of its C kernel is {scratch!r}; give a "
            "number of bytes"
        )
    return scratch


def _described(call: Call, scratch: int) -> tuple[tuple[str, ...], tuple[int, ...], str]:
    """Return operands, their lengths (``d[1]`` and on), and C that describes them as arrays."""
    operands: list[str] = []
    lengths: list[int] = []
    described: dict[str, list[str]] = {"in": [], "out": []}
    for kind, values in (("in", call.inputs), ("out", call.outputs)):
        for position, operand in enumerate(values):
            if operand is None:
                described[kind].append("{0, 0, 0, 0}")
                continue
            name, rank, first = f"{kind}{position}", len(operand.shape), len(lengths) + 1
            operands.append(name)
            described[kind].append(f"{{(void *){name}, d + {first}, {rank}, d[{first + rank}]}}")
            lengths += [*operand.shape, operand.size]
    if scratch:
        operands.append("tmp0")
        first = len(lengths) + 1
        described["out"].append(f"{{(void *)tmp0, d + {first}, 1, d[{first}]}}")
        lengths.append(scratch)
    inputs, outputs = (", ".join(described[kind]) for kind in ("in", "out"))
    return (
        tuple(operands),
        tuple(lengths),
        (
            f"const struct nnl_array inputs[] = {{{inputs or '{0, 0, 0, 0}'}}};\n"
            f"struct nnl_array outputs[] = {{{outputs}}};"
        ),
    )


def _title(call: Call) -> str:
    return f"C kernel of {call.operator.name}"


# Compiling ----------------------------------------------------------------------------------------


def _compiles(step: CStep, call: Call, kernel: KernelSource) -> bool:
    """Compile a kernel in a library of its own, so that its names meet those of no other.

    The program finds it there again, by its text. One that does not compile is left to NumPy, and
    a warning tells whose it is and what the compiler says.
    """
    name, text = _function(step, call)
    if name in _refused:
        return False
    try:
        load_functions({name: text})
    except CompileError as error:
        _refused.add(name)
        tell_refused(call.operator, "C", kernel.text, _words(error))
        return False
    return True


def expression_compiles(operator: Operator, statement: str, inputs: Mapping[int, str]) -> bool:
    """Tell whether an operator's C expression compiles; where it does not, a warning says so.

    ``statement`` computes a value ``v<number>`` from others, whose types ``inputs`` gives. A fused
    loop would fail as a whole, and not say because of whom.
    """
    text = f"void NAME(void) {{ {isolated(statement, inputs)} }}"
    name = kernel_name(text)
    if name in _refused:
        return False
    try:
        load_functions({name: text})
    except CompileError as error:
        _refused.add(name)
        tell_refused(operator, "C", operator.expression or "", _words(error))
        return False
    return True


def _function(step: CStep, call: Call) -> tuple[str, str]:
    """Return the name and text that the function has in a program."""
    from nnl_native.lowering import Piece  # which imports the kernels
    from nnl_native.program import function_text

    operands = (*call.inputs, *call.outputs)
    inputs, outputs = range(len(call.inputs)), range(len(call.inputs), len(operands))
    instruction = Instruction(call.operator, tuple(inputs), tuple(outputs), {})
    types = {k: one.c_type for k, one in enumerate(operands) if one is not None}
    text = function_text(step, Piece(instruction, None), types.__getitem__)
    return kernel_name(text), text


def _words(error: CompileError) -> str:
    """Return what the compiler said."""
    return error.message.partition("\n")[2] or error.message
