"""Kernels of the operators ``onn::`` in CUDA, made from a nodal operator's expression and a pool.

They are deterministic: no number depends on the order in which threads come.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import sympy

from nnl_core import KernelSource
from nnl_core.graph.operator import Operator
from nnl_core.graph.spec import Spec
from nnl_onn.expressions import Dialect, statements
from nnl_onn.kernels_c import DIALECTS, TYPES, Form, form_of, pool_macros, read
from nnl_onn.terms import M, terms

THREADS = 256  # of a block, as the text has it
NOTED = 1 << 28  # bytes of selected taps that are noted at a time, unless one sample has more
MOST = 1 << 31  # elements of an array that an int can count


def attach(*operators: Operator) -> None:
    """Give the operators their kernels."""
    for operator in operators:
        operator.kernel("cuda", functools.partial(_rule, operator))


def _rule(
    operator: Operator,
    inputs: Sequence[Spec | None],
    outputs: Sequence[Spec],
    attributes: Mapping[str, Any],
) -> KernelSource | None:
    form = form_of(operator, inputs, attributes)
    given = [spec for spec in (*inputs, *outputs) if spec is not None]
    if form is None or any(spec.size >= MOST for spec in given) or not inputs:
        return None
    options: dict[str, object] = {"dtypes": tuple(TYPES), "block": THREADS}
    if "y" in operator.outputs:
        text = source(form, None, 1)
        return None if text is None else KernelSource(text, "onn_operate", options)
    g, x, w = inputs[:3]
    assert g is not None and x is not None and w is not None
    batch = x.shape[0]
    selects = form.pool != "sum"
    noted = g.size * w.shape[1] * selects  # taps that a pool selects
    chunks = max(1, min(batch, math.ceil(noted / NOTED)))
    each = math.ceil(batch / chunks)
    taken = noted // max(1, batch) * each
    if taken >= MOST or math.prod(form.kernel) > 256:
        return None
    name = operator.input_name(3) if len(inputs) == 4 else None
    text = source(form, name, chunks)
    if text is None:
        return None
    kinds = [_blocks(taken)] if selects else []
    for output in operator.outputs:
        kinds.append(
            _blocks(x.size // max(1, batch) * each) if output == "dx" else w.shape[0] * w.shape[1]
        )
    options |= {"stages": tuple(kinds * chunks), "scratch": max(taken, 1) * selects}
    return KernelSource(text, "onn_gradients", options)


def _blocks(count: int) -> int:
    return min(max(1, math.ceil(count / THREADS)), 1 << 20)


@functools.cache
def source(form: Form, factor: str | None, chunks: int) -> str | None:
    """Return the text of a kernel; ``None`` of a nodal operator that is no expression.

    ``factor`` names the further input of a gradient, whether it is given or not.
    """
    found = terms(form.nodal, form.pool != "sum", form.results, form.factors)
    if found is None:
        return None
    kind, _ = TYPES[form.dtype]
    dialect = DIALECTS[kind]
    taps = math.prod(form.kernel)
    defined = {
        "ONN_INLINE": "static __device__ __forceinline__",
        "T": kind,
        "M": "int",
        "TAPS": str(taps),
        "ONN_PLANES": _declared(found.planes, dialect, "p_"),
        "ONN_CONSTANTS": _declared(found.constants, dialect, "u_"),
    }
    for name in ("kernel", "stride", "dilation"):
        defined[f"ONN_{name.upper()}"] = "{" + ", ".join(map(str, getattr(form, name))) + "}"
    if found.value is not None:
        defined |= pool_macros(form.pool, taps, "value[{}]")
        defined["ONN_VALUE"] = _declared({"v": found.value}, dialect)
        if all(one.free_symbols <= {M} for one in found.results.values()):
            defined["ONN_FOLLOWS"] = ""
    for name, result in found.results.items():
        defined[f"ONN_{name.upper()}"] = _declared({name: result}, dialect)
    names = [name for name, _ in form.results]
    if names != ["y"]:
        defined |= {f"HAS_{name.upper()}": "" for name in names}
        kinds = len(names) + (found.value is not None)
        defined |= {"ONN_GRADIENTS": "", "KINDS": str(kinds), "CHUNKS": str(chunks)}
        if factor is not None:
            defined["ONN_FACTOR"] = factor
    lines = [f"#define {name} {text}" for name, text in defined.items()]
    after = [f"#undef {name.partition('(')[0]}" for name in defined]
    return "\n".join([*lines, read("elementary.c"), read("operate.cu"), *after])


def _declared(named: Mapping[str, sympy.Expr], dialect: Dialect, temporary: str = "t_") -> str:
    return " ".join(statements(named, dialect, "[[maybe_unused]] const T ", temporary=temporary))
