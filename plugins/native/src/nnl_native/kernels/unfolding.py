"""Windows as columns, and columns added up where their windows are."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from nnl_core.operators.windows import placements, span
from nnl_native.kernel import Call, CStep, Emission, Operand, emitter
from nnl_native.kernels.copying import is_known

TYPES = ("float32", "float64")


def _dims(spatial: tuple[int, ...], attributes: Mapping[str, Any]) -> tuple[int, ...]:
    """Return for each axis: length, kernel, stride, dilation, width before, placements."""
    kernel, stride, pad, dilation = (
        attributes[name] for name in ("kernel", "stride", "pad", "dilation")
    )
    places = placements(spatial, span(kernel, dilation), stride, pad)
    axes = zip(spatial, kernel, stride, dilation, pad, places, strict=True)
    return tuple(
        number for n, k, s, d, (before, _), m in axes for number in (n, k, s, d, before, m)
    )


def _walk(axes: int, inside: list[str], outside: list[str]) -> str:
    """Return the loops over one channel: its taps, then rows of placements along the last axis.

    ``picture`` points to the channel, ``columns`` to its columns. ``inside`` is done with the
    placements ``first`` to ``last`` of a row, whose elements are ``line[o * stride]``; ``outside``
    before, with the whole row, ``row``, of ``width``.
    """
    lines = []
    for a in range(axes):
        at = 6 * a
        lines.append(
            f"const int64_t n{a} = d[{at}], kernel{a} = d[{at + 1}], stride{a} = d[{at + 2}], "
            f"dilation{a} = d[{at + 3}], before{a} = d[{at + 4}], places{a} = d[{at + 5}];"
        )
    taps = " * ".join(f"kernel{a}" for a in range(axes))
    places = " * ".join(f"places{a}" for a in range(axes))
    last = axes - 1
    elements = " * ".join(f"n{a}" for a in range(axes))
    lines += [
        f"const int64_t taps = {taps}, places = {places}, elements = {elements};",
        f"const int64_t width = places{last};",
        "for (int64_t unit = begin; unit < end; unit++)",
        "for (int64_t tap = 0; tap < taps; tap++) {",
        "int64_t rest = tap;",
    ]
    for a in reversed(range(axes)):
        lines.append(
            f"const int64_t start{a} = rest % kernel{a} * dilation{a} - before{a}; "
            f"rest /= kernel{a};"
        )
    lines += [
        f"const int64_t stride = stride{last};",
        f"const int64_t first = MIN(width, start{last} < 0 ? "
        f"(stride - 1 - start{last}) / stride : 0);",
        f"const int64_t room = n{last} - 1 - start{last};",
        "const int64_t last = room < 0 ? first : MAX(first, MIN(width, room / stride + 1));",
        "for (int64_t number = 0; number < places / width; number++) {",
        "int64_t left = number, from = 0, scale = n" + str(last) + "; int beyond = 0;",
    ]
    for a in reversed(range(last)):
        lines.append(
            f"{{ const int64_t i = left % places{a} * stride{a} + start{a}; left /= places{a}; "
            f"beyond |= (i < 0) | (i >= n{a}); from += i * scale; scale *= n{a}; }}"
        )
    lines += [
        "T *row = columns + (unit * taps + tap) * places + number * width;",
        f"T *line = picture + unit * elements + from + start{last};",
        *outside,
        "if (beyond) continue;",
        *inside,
        "} }",
    ]
    return "\n".join(lines)


def _step(x: Operand, y: Operand, body: str, dims: tuple[int, ...], pictures: str) -> Emission:
    """Return the step whose units are channels."""
    columns = "in0" if pictures == "out0" else "out0"
    head = f"typedef {y.c_type} T; T *picture = (T *){pictures}, *columns = (T *){columns};\n"
    channels = prod((x if pictures == "in0" else y).shape[:2])
    cost = max(x.size, y.size)
    return Emission((CStep(head + body, ("in0", "out0"), dims, channels, cost),))


@emitter("nnl::unfold")
def emit_unfold(call: Call) -> Emission | None:
    """Copy rows of each tap."""
    x, y = call.inputs[0], call.outputs[0]
    if x is None or not is_known(call):
        return None
    if not y.size:
        return Emission(())
    body = _walk(
        len(x.shape) - 2,
        [
            "#pragma omp simd",
            "for (int64_t o = first; o < last; o++) row[o] = line[o * stride];",
        ],
        [
            "for (int64_t o = 0; o < (beyond ? width : first); o++) row[o] = 0;",
            "for (int64_t o = last; o < width; o++) row[o] = 0;",
        ],
    )
    return _step(x, y, body, _dims(x.shape[2:], call.attributes), "in0")


@emitter("nnl::fold")
def emit_fold(call: Call) -> Emission | None:
    """Clear each channel, then add rows of each tap."""
    x, y = call.inputs[0], call.outputs[0]
    if x is None or y.dtype.name not in TYPES or not call.has_only(*TYPES):
        return None
    if not y.size:
        return Emission(())
    clear = (
        "for (int64_t i = begin * elements; i < end * elements; i++) picture[i] = 0;\n"
        "for (int64_t unit"
    )
    body = _walk(
        len(y.shape) - 2,
        [
            "#pragma omp simd",
            "for (int64_t o = first; o < last; o++) line[o * stride] += row[o];",
        ],
        [],
    ).replace("for (int64_t unit", clear, 1)
    return _step(x, y, body, _dims(y.shape[2:], call.attributes), "out0")
