"""Kernels and expressions that operators bring along: which, what they may use, who is told."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from nnl_core.errors import OperatorError
from nnl_core.graph.kernels import select_kernel
from nnl_core.graph.operator import KernelSource, Operator
from nnl_core.graph.spec import Spec
from nnl_core.hooks import OperatorSet
from nnl_core.session import current_session

LANGUAGES = {"c": "C", "cuda": "CUDA"}


def attached_source(
    operator: Operator,
    backend: str,
    inputs: Sequence[Spec | None],
    outputs: Sequence[Spec],
    attributes: Mapping[str, object],
    types: Mapping[str, str],
) -> KernelSource | None:
    """Return the text that a plugin selects for a call, or that is attached to its operator.

    ``types`` has the type of an element by the name of its dtype. ``None`` where there is no text,
    or it is not for these dtypes. Raises `OperatorError` for what is no text, and for a bad option.
    """
    kernel = select_kernel(operator, backend, inputs, attributes)
    if kernel is not None and not isinstance(kernel, KernelSource) and callable(kernel):
        kernel = kernel(inputs, outputs, attributes)
    if kernel is None:
        return None
    whose = f"operator {operator.name!r}: "
    if not isinstance(kernel, KernelSource):
        raise OperatorError(
            f"{whose}its {backend!r} kernel is {kernel!r}; give a KernelSource, or a function "
            "(input specs, output specs, attributes) that returns one"
        )
    dtypes = kernel.options.get("dtypes", ("float32",))
    if not isinstance(dtypes, list | tuple) or not all(name in types for name in dtypes):
        raise OperatorError(
            f"{whose}option 'dtypes' of its {LANGUAGES[backend]} kernel is {dtypes!r}; it lists "
            f"some of {', '.join(types)}"
        )
    given = [spec for spec in (*inputs, *outputs) if spec is not None]
    return kernel if all(spec.dtype.name in dtypes for spec in given) else None


def definitions(
    operator: Operator,
    attributes: Mapping[str, object],
    inputs: Sequence[Spec | None],
    outputs: Sequence[Spec],
    types: Mapping[str, str],
) -> Iterator[str]:
    """Yield what a kernel's text may use: ``TYPE_x`` of inputs and outputs, ``ATTRIBUTE_axis``.

    ``types`` has the type of an element by the name of its dtype.
    """
    named: dict[str, str] = {}
    for position, spec in enumerate(inputs):
        name = operator.input_name(position)
        if spec is not None and name is not None:
            named.setdefault(name, types[spec.dtype.name])
    for position, spec in enumerate(outputs):
        named.setdefault(operator.output_name(position).removeprefix("*"), types[spec.dtype.name])
    for name, c_type in named.items():
        yield f"#define TYPE_{name} {c_type}"
    for name, value in attributes.items():
        text = literal(value)
        if text is None:
            continue
        yield f"#define ATTRIBUTE_{name} {text}"
        if isinstance(value, tuple):
            yield f"#define ATTRIBUTE_{name}_length {len(value)}"


def literal(value: object) -> str | None:
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
        items = [literal(item) for item in value]
        texts = [item for item in items if item is not None]
        return f"{{{', '.join(texts)}}}" if len(texts) == len(items) else None
    return None


def isolated(statement: str, inputs: Mapping[int, str]) -> str:
    """Return statements that declare what a member's statement reads, and the statement.

    ``inputs`` has the types of the values ``v<number>``, which are numbered anew from 0, so that
    equal statements of several graphs are one text.
    """
    numbers: dict[str, str] = {}
    declared = " ".join(f"const {c_type} v{number} = 0;" for number, c_type in inputs.items())
    return re.sub(
        r"\bv\d+\b",
        lambda found: numbers.setdefault(found[0], f"v{len(numbers)}"),
        f"{declared}\n{statement}",
    )


def tell_refused(operator: Operator, language: str, text: str, words: str) -> None:
    """Warn that an operator's kernel (or expression) does not compile, saying whose it is.

    ``language`` is what it is written in, ``words`` are the compiler's.
    """
    what = f"the {language} kernel of operator {operator.name!r}"
    if text == operator.expression:
        what = f"the elementwise expression {text!r} of operator {operator.name!r}"
    warnings.warn(
        f"{_owner(operator)}: {what} does not compile, and NumPy computes it instead"
        f"{_place(operator, text)}:\n{words}",
        RuntimeWarning,
        stacklevel=3,
    )


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
