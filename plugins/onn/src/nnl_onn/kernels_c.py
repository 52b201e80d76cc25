"""Kernels of the operators ``onn::`` in C, made from a nodal operator's expression and a pool.

Nothing as large as the connections of a layer is stored: each is a loop over neighbouring
placements, at one tap, and what depends on the data alone is computed once for each element.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nnl_core import KernelSource
from nnl_core.graph.operator import Operator
from nnl_core.graph.spec import Spec
from nnl_onn.expressions import Dialect, c_dialect, statements, write
from nnl_onn.networks import median_network
from nnl_onn.nodal import Nodal, find_nodal
from nnl_onn.terms import M, Terms, terms

FOLDER = Path(__file__).parent / "kernels"
UNITS = 32  # of the gradients' work at least, where there are as many maps and samples
UNROLLED = 32  # taps up to which a pool's comparisons are written out
POOLS = ("sum", "max", "median")

_GUARDED = {"Max": "onn_max", "Min": "onn_min"}
_VECTORS = {name: f"onn_{name}" for name in ("sin", "cos", "exp", "sinh", "cosh", "tanh")}
DIALECTS = {
    "float": c_dialect({**_VECTORS, **_GUARDED}),
    "double": c_dialect(_GUARDED, suffix=""),
}
TYPES = {"float32": ("float", "int32_t"), "float64": ("double", "int64_t")}


class Form(NamedTuple):
    """All that the text of a kernel depends on."""

    results: tuple[tuple[str, str], ...]  # names, and what each is derived by
    nodal: Nodal
    pool: str
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    factors: frozenset[str]
    dtype: str


def form_of(
    operator: Operator, inputs: Sequence[Spec | None], attributes: Mapping[str, Any]
) -> Form | None:
    """Return what the text for a call depends on; ``None`` for a call that no text is made for."""
    given = {operator.input_name(k): spec for k, spec in enumerate(inputs) if spec is not None}
    x, w = given["x"], given["w"]
    if attributes["pool"] not in POOLS or w.ndim > 5 or w.size == 0 or x.dtype.name not in TYPES:
        return None
    paths = {"y": "", "dx": "x", "dw": "w"}
    if len(operator.outputs) == 1:
        paths = {operator.outputs[0]: attributes["derivative"]}
    ones = (1,) * (5 - w.ndim)
    return Form(
        tuple((name, paths[name]) for name in operator.outputs),
        find_nodal(attributes["nodal"]),
        attributes["pool"],
        (*ones, *w.shape[2:]),
        (*ones, *attributes["stride"]),
        (*ones, *attributes["dilation"]),
        frozenset(name for name in ("a", "b") if name in given),
        x.dtype.name,
    )


def attach(*operators: Operator) -> None:
    """Give the operators their kernels."""
    for operator in operators:
        operator.kernel("c", functools.partial(_rule, operator))


def _rule(
    operator: Operator,
    inputs: Sequence[Spec | None],
    outputs: Sequence[Spec],
    attributes: Mapping[str, Any],
) -> KernelSource | None:
    form = form_of(operator, inputs, attributes)
    if form is None:
        return None
    names = [operator.input_name(k) for k in range(len(inputs))]
    x, w = inputs[names.index("x")], inputs[names.index("w")]
    assert x is not None and w is not None
    is_gradient = "y" not in operator.outputs
    at = tuple(names.index(name) if name in names else 0 for name in ("a", "b"))
    text = source(form, at if is_gradient else None)
    if text is None:
        return None
    batch, channels = x.shape[:2]
    options: dict[str, object] = {"dtypes": tuple(TYPES)}
    if not is_gradient:
        options["units"] = batch * w.shape[0]
    elif "dw" in operator.outputs:
        chunks = max(1, min(batch, math.ceil(UNITS / channels)))
        options["units"] = (chunks * channels, w.shape[0])
        options["scratch"] = chunks * w.size * w.dtype.itemsize
    else:
        options["units"] = batch * channels
    return KernelSource(text, "onn_gradients" if is_gradient else "onn_operate", options)


@functools.cache
def source(form: Form, at: tuple[int, int] | None) -> str | None:
    """Return the text of a kernel; ``None`` of a nodal operator that is no expression.

    ``at`` has the positions of the inputs ``a`` and ``b`` of a gradient, 0 where it has none.
    """
    found = terms(form.nodal, form.pool != "sum", form.results, form.factors)
    if found is None:
        return None
    kind, mask = TYPES[form.dtype]
    dialect = DIALECTS[kind]
    inline = "static inline __attribute__((always_inline))"
    defined = {"ONN_INLINE": inline, "T": kind, "M": mask, "TAPS": str(math.prod(form.kernel))}
    for name in ("kernel", "stride", "dilation"):
        defined[f"ONN_{name.upper()}"] = "{" + ", ".join(map(str, getattr(form, name))) + "}"
    defined |= _of_data(found, form, dialect)
    constants = " ".join(statements(found.constants, dialect, "const T ", temporary="u_"))
    defined["ONN_CONSTANTS"] = constants
    defined["ONN_PICKED"] += " " + constants
    defined["ONN_RESULTS"] = " ".join(statements(found.results, dialect, "const T "))
    if found.value is not None:
        defined |= pool_macros(form.pool, math.prod(form.kernel), "value[{}][i]")
        defined["ONN_VALUE"] = " ".join(statements({"v": found.value}, dialect, "const T "))
        if all(one.free_symbols <= {M} for one in found.results.values()):
            defined["ONN_FOLLOWS"] = ""
    files = ["elementary.c", "layout.c", "select.c", "operate.c"]
    if at is not None:
        defined |= {"AT_A": str(at[0]), "AT_B": str(at[1])}
        names = [name for name, _ in form.results]
        defined |= {f"HAS_{name.upper()}": "" for name in names}
        defined["AT_DW"] = str(len(names) - 1)
        files[-1] = "gradients.c"
    if "b" in form.factors:
        defined["HAS_B"] = ""
    lines = ["#include <stdlib.h>", *(f"#define {name} {text}" for name, text in defined.items())]
    return "\n".join([*lines, *(read(file) for file in files)])


@functools.cache
def read(file: str) -> str:
    """Return the text of a file of kernels."""
    return (FOLDER / file).read_text("utf-8")


def _of_data(found: Terms, form: Form, dialect: Dialect) -> dict[str, str]:
    """Return the macros that make planes and read elements of them."""
    names = ["x", *found.planes, *(["a"] if "a" in form.factors else [])]
    made = [
        f"{{ T *to = p + {position} * room; for (int64_t i = 0; i < l->plane; i++) "
        f"{{ const T x = x_[i]; to[i] = {write(part, dialect)}; }} }}"
        for position, part in enumerate(found.planes.values(), 1)
    ]
    pointers = [f"*restrict {name}_ = p + {k} * room" for k, name in enumerate(names)]
    picked = [f"const T {name} = picked[{k}][i];" for k, name in enumerate(names)]
    picked += ["const T w = picked[PLANES][i];", "const T b = picked[PLANES + 1][i];"]
    read_ones = {symbol.name for one in found.results.values() for symbol in one.free_symbols}
    return {
        "PLANES": str(len(names)),
        "USED": str(sum(1 << k for k, name in enumerate(names) if name in read_ones)),
        "ONN_PLANES": " ".join(made),
        "ONN_POINTERS": f"const T {', '.join(pointers)};",
        "ONN_LOAD": " ".join(f"const T {name} = {name}_[i];" for name in names),
        "ONN_PICKED": " ".join(picked),
    }


def pool_macros(pool: str, taps: int, value: str) -> dict[str, str]:
    """Return the macros by which a pool selects; ``value`` with a number in it is that of a tap."""
    rank = taps - 1 if pool == "max" else (taps - 1) // 2
    defined = {"ONN_SELECTS": "", "RANK": str(rank)}
    if taps > UNROLLED:
        return defined
    lines = [f"T s{k} = {value.format(k)};" for k in range(taps)]
    total = " + ".join(f"s{k}" for k in range(taps))
    lines.append(f"const T all = {total}; odd += all - all; M q = 0;")
    if pool == "max":
        lines.append("T m = s0;")
        for k in range(1, taps):
            lines.append(f"{{ const int c = s{k} > m; m = c ? s{k} : m; q = c ? {k} : q; }}")
    else:
        for low, high in median_network(taps):
            lines.append(
                f"{{ const T l = s{low} < s{high} ? s{low} : s{high}, "
                f"h = s{low} < s{high} ? s{high} : s{low}; s{low} = l; s{high} = h; }}"
            )
        lines.append(f"const T m = s{rank};")
        lines += [f"q = {value.format(k)} == m ? {k} : q;" for k in reversed(range(taps))]
    starts = ", ".join(f"*tap{k} = (const bits *)tap[{k}]" for k in range(taps))
    picked = " | ".join(f"(tap{k}[at] & -(M)(chosen[i] == {k}))" for k in range(taps))
    return {
        **defined,
        "ONN_CHOOSE": " ".join(lines),
        "ONN_TAPS": f"const bits {starts};",
        "ONN_PICK(at)": f"({picked})",
    }
