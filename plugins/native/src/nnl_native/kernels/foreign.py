"""Kernels that operators bring along: a C function of arrays, called as it is."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nnl_core.errors import OperatorError
from nnl_core.graph.ir import Instruction
from nnl_core.graph.kernels import select_kernel
from nnl_core.graph.operator import KernelSource, Operator
from nnl_core.graph.spec import Spec
from nnl_core.hooks import OperatorSet
from nnl_core.session import current_session
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
    support = "\n".join(
        [ARRAY, *_definitions(call), f'#line 1 "{_title(call)}"', kernel.text, '#line 1 "call"']
    )
    return CStep(body, tuple(operands), tuple(dims), 1, 0, support)


def _title(call: Call) -> str:
    return f"C kernel of {call.operator.name}"


def _definitions(call: Call) -> Iterator[str]:
    """Yield what the text may use: ``TYPE_x`` of inputs and outputs, ``ATTRIBUTE_axis``."""
    operator = call.operator
    types: dict[str, str] = {}
    for position, operand in enumerate(call.inputs):
        name = operator.input_name(position)
        if operand is not None and name is not None:
            types.setdefault(name, operand.c_type)
    for position, operand in enumerate(call.outputs):
        types.setdefault(operator.output_name(position).removeprefix("*"), operand.c_type)
    for name, c_type in types.items():
        yield f"#define TYPE_{name} {c_type}"
    for name, value in call.attributes.items():
        text = _constant(value)
        if text is None:
            continue
        yield f"#define ATTRIBUTE_{name} {text}"
        if isinstance(value, tuple):
            yield f"#define ATTRIBUTE_{name}_length {len(value)}"


def _constant(value: object) -> str | None:
    """Return an attribute in C; ``None`` and what C has no constants for are not defined."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int):
        return f"INT64_C({value})" if abs(value) < 1 << 63 else None
    if isinstance(value, float):
        special = {"inf": "INFINITY", "-inf": "(-INFINITY)", "nan": "NAN"}
        return special.get(repr(value), f"({value!r})")
    if isinstance(value, str):
        escaped = "".join(f"\\{byte:03o}" for byte in value.encode())
        return f'"{value}"' if value.isalnum() and value.isascii() else f'"{escaped}"'
    if isinstance(value, tuple):
        items = [_constant(item) for item in value]
        texts = [item for item in items if item is not None]
        return f"{{{', '.join(texts)}}}" if len(texts) == len(items) else None
    return None


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
        words = error.message.partition("\n")[2] or error.message
        warnings.warn(
            f"{_owner(call.operator)}: the C kernel of operator {call.operator.name!r} does not "
            f"compile, and NumPy computes it instead{_place(call.operator, kernel.text)}:\n{words}",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


def expression_compiles(operator: Operator, statement: str, inputs: Mapping[int, str]) -> bool:
    """Tell whether an operator's C expression compiles; where it does not, a warning says so.

    ``statement`` computes a value ``v<number>`` from others, whose types ``inputs`` gives. A fused
    loop would fail as a whole, and not say because of whom.
    """
    numbers: dict[str, str] = {}
    declared = " ".join(f"const {c_type} v{number} = 0;" for number, c_type in inputs.items())
    text = re.sub(
        r"\bv\d+\b",
        lambda found: numbers.setdefault(found[0], f"v{len(numbers)}"),
        f"void NAME(void) {{ {declared}\n{statement} }}",
    )
    name = kernel_name(text)
    if name in _refused:
        return False
    try:
        load_functions({name: text})
    except CompileError as error:
        _refused.add(name)
        words = error.message.partition("\n")[2] or error.message
        expression = operator.expression or ""
        warnings.warn(
            f"{_owner(operator)}: the elementwise expression {expression!r} of operator "
            f"{operator.name!r} does not compile, and NumPy computes it instead"
            f"{_place(operator, expression)}:\n{words}",
            RuntimeWarning,
            stacklevel=2,
        )
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


def _owner(operator: Operator) -> str:
    """Return who brought an operator: plugin, distribution and version, else its module."""
    manager = current_session().manager
    namespace = operator.name.partition("::")[0]
    for record in manager.collect(OperatorSet):
        if record.name == namespace:
            entry = manager.owner(record)
            if entry is not None and entry.name != "core":
                return f"plugin {entry.name!r} ({entry.distribution} {entry.version})"
    return f"module {operator.module}"


def _place(operator: Operator, text: str) -> str:
    """Return where a text starts, if it is found in the module of the operator."""
    spec = find_spec(operator.module) if operator.module != "__main__" else None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return ""
    source = Path(spec.origin).read_text("utf-8")
    before, found, _ = source.partition(text)
    return f" (its line 1 is line {before.count(chr(10)) + 1} of {spec.origin})" if found else ""
