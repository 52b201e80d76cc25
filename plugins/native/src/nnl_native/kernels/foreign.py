"""Kernels that operators bring along: a C function of arrays, called as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nnl_core.codegen.foreign import definitions, isolated, tell_refused
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
    kernel = select_kernel(operator, "c", inputs, attributes)
    if kernel is None:
        return None
    if not isinstance(kernel, KernelSource):
        raise OperatorError(f"operator {operator.name!r}: its 'c' kernel is no KernelSource")
    return Entry(lambda call: _emit(call, kernel), all_plain)


def _emit(call: Call, kernel: KernelSource) -> Emission | None:
    dtypes = kernel.options.get("dtypes", ("float32",))
    if not isinstance(dtypes, list | tuple) or not all(name in C_TYPES for name in dtypes):
        raise OperatorError(
            f"operator {call.operator.name!r}: option 'dtypes' of its C kernel is {dtypes!r}; it "
            f"lists some of {', '.join(C_TYPES)}"
        )
    if not call.has_only(*dtypes):
        return None
    step = _step(call, kernel)
    if not _compiles(step, call, kernel):
        return None
    return Emission((step,))


def _step(call: Call, kernel: KernelSource) -> CStep:
    """Return the step that describes the arrays and calls the kernel."""
    operands: list[str] = []
    dims: list[int] = []
    described: dict[str, list[str]] = {"in": [], "out": []}
    for kind, values in (("in", call.inputs), ("out", call.outputs)):
        for position, operand in enumerate(values):
            if operand is None:
                described[kind].append("{0, 0, 0, 0}")
                continue
            name, rank = f"{kind}{position}", len(operand.shape)
            operands.append(name)
            described[kind].append(
                f"{{(void *){name}, d + {len(dims)}, {rank}, d[{len(dims) + rank}]}}"
            )
            dims += [*operand.shape, operand.size]
    body = (
        f"const struct nnl_array inputs[] = {{{', '.join(described['in']) or '{0, 0, 0, 0}'}}};\n"
        f"struct nnl_array outputs[] = {{{', '.join(described['out'])}}};\n"
        f"if (begin < end && {kernel.entry}(inputs, outputs)) *failure = 1;"
    )
    inputs = [None if one is None else one.spec for one in call.inputs]
    outputs = [one.spec for one in call.outputs]
    written = definitions(call.operator, call.attributes, inputs, outputs, C_TYPES)
    support = "\n".join(
        [ARRAY, *written, f'#line 1 "{_title(call)}"', kernel.text, '#line 1 "call"']
    )
    return CStep(body, tuple(operands), tuple(dims), 1, 0, support)


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
