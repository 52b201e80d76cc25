"""Pictures read at points between their pixels, and gradients added to the pixels read."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from nnl_core.operators.taps import derivative, kernel
from nnl_native.kernel import (
    Call,
    CStep,
    Emission,
    Layout,
    LayoutRequest,
    Layouts,
    Operand,
    channels_last,
    emitter,
    plain,
)

BLOCK = 64  # points whose taps are found before they are used
TYPES = {"float32": ("float", "f"), "float64": ("double", "")}
OFFSETS = 1 << 31  # what is less fits the type of offsets in a picture
SIMD = "#pragma omp simd"


def _have_channels_last(*operands: Operand) -> bool:
    """Whether channels, axis 1, are neighbours in all of them."""
    return all(one.shape[1] > 1 and one.strides[1] == 1 for one in operands)


def _is_channels_last(x: Operand) -> bool:
    """Whether the channels, axis 1, are innermost."""
    return x.shape[1] > 1 and all(
        x.strides[1] < stride for n, stride in zip(x.shape[2:], x.strides[2:], strict=True) if n > 1
    )


def _layouts(request: LayoutRequest) -> Layouts:
    """Give channels where they are in the pictures; points are plain."""
    x, points = request.inputs
    assert x is not None and points is not None
    arrange = channels_last if _is_channels_last(x) else plain
    return Layouts(
        (Layout(arrange(x.shape).strides), plain(points.shape)),
        tuple(arrange(spec.shape) for spec in request.outputs),
    )


def _find_taps(
    shape: Sequence[int], strides: Sequence[int], attributes: Mapping[str, Any], suffix: str
) -> list[str]:
    """Return what finds ``at`` and ``weight`` of all taps of the points from ``point`` on.

    ``count`` points follow; lengths and strides of the pictures' axes are ``d[0]``, ``d[1]``, ...
    """
    method, padding, cells = (attributes[name] for name in ("method", "padding", "cells"))
    orders = tuple(reversed(attributes["orders"]))
    axes = len(shape)
    taps = len(kernel(method))
    lines = [SIMD, "for (int64_t j = 0; j < count; j++) {"]
    for axis, order in enumerate(orders):
        lines += [
            f"const int64_t n{axis} = d[{2 * axis}];",
            f"T p{axis} = point[j * {axes} + {axes - 1 - axis}];",
            *_axis_taps(axis, method, padding, cells, order, suffix),
        ]
    for number, chosen in enumerate(itertools.product(range(taps), repeat=axes)):
        at = " + ".join(f"a{axis}_{k} * d[{2 * axis + 1}]" for axis, k in enumerate(chosen))
        weight = " * ".join(f"w{axis}_{k}" for axis, k in enumerate(chosen))
        lines.append(f"at[{number}][j] = (int32_t)({at}); weight[{number}][j] = {weight};")
    return [*lines, "}"]


def _axis_taps(
    axis: int, method: str, padding: str, cells: bool, order: int, suffix: str
) -> list[str]:
    """Return what declares the elements along an axis and their weights, as the operator does."""
    n, p, c = f"n{axis}", f"p{axis}", int(cells)
    low = "-(T)0.5" if cells else "(T)0"
    lines = []
    if padding == "reflect":
        lines += [
            f"const int64_t span{axis} = {n} - {1 - c};",
            f"T m{axis} = fmod{suffix}({p} - {low}, (T)(2 * MAX(span{axis}, 1)));",
            f"m{axis} += m{axis} < 0 ? (T)(2 * span{axis}) : 0;",
            f"{p} = span{axis} ? {low} + m{axis} : 0 * {p};",
        ]
        if method.startswith("nearest"):
            other = f"2 * ({low} + (T)span{axis}) - {p}"
            lines.append(f"{p} = {p} > {other} ? {other} : {p};")
    else:
        lines += [
            f"{p} = {p} < -4 ? -4 : {p};",
            f"{p} = {p} > (T)({n} + 3) ? (T)({n} + 3) : {p};",
        ]
    rounded = {
        "nearest_even": f"__builtin_rint{suffix}({p})",
        "nearest": f"__builtin_trunc{suffix}({p} + __builtin_copysign{suffix}((T)0.5, {p}))",
    }.get(method, f"__builtin_floor{suffix}({p})")
    fraction = f"0 * {p}" if method.startswith("nearest") else f"{p} - base{axis}"
    polynomials = kernel(method)
    first = 1 - (len(polynomials) + 1) // 2
    lines += [
        f"const T base{axis} = {rounded}, f{axis} = {fraction};",
        f"const int64_t first{axis} = (int64_t)({p} == {p} ? base{axis} : 0) + {first};",
    ]
    for k, polynomial in enumerate(polynomials):
        a = f"a{axis}_{k}"
        lines.append(f"int64_t {a} = first{axis} + {k};")
        lines.append(f"T w{axis}_{k} = {_evaluated(derivative(polynomial, order), f'f{axis}')};")
        if padding == "zero":
            lines.append(f"w{axis}_{k} = ({a} >= 0) & ({a} < {n}) ? w{axis}_{k} : 0;")
        elif padding == "reflect":
            turn = f"2 * MAX(span{axis}, 1)"
            lines += [
                f"{a} = {a} % ({turn}); {a} += {a} < 0 ? {turn} : 0;",
                f"{a} = MIN({a}, 2 * span{axis} - {c} - {a});",
            ]
        lines.append(f"{a} = MAX(0, MIN({a}, {n} - 1));")
    return lines


def _evaluated(polynomial: Sequence[float], f: str) -> str:
    """Write a polynomial's value, NaN where ``f`` is."""
    *lower, highest = polynomial
    text = f"(0 * {f} + (T){highest!r})"
    for factor in reversed(lower):
        text = f"({text} * {f} + (T){factor!r})"
    return text


def _prepared(
    pictures: Operand, values: Operand, points: Operand, call: Call
) -> tuple[list[str], list[str], tuple[int, ...], int] | None:
    """Return declarations, what finds taps, dims and the number of taps; or ``None``.

    After lengths and strides of the pictures' axes, the dims are the number of places and of
    channels, then the strides of batch, channel (both sides) and place.
    """
    dtype = values.dtype.name
    if dtype not in TYPES or not call.has_only(dtype):
        return None
    shape, strides = pictures.shape[2:], pictures.strides[2:]
    if sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) >= OFFSETS:
        return None
    kind, suffix = TYPES[dtype]
    places = prod(values.shape[2:])
    taps = len(kernel(call.attributes["method"])) ** len(shape)
    lengths = [number for pair in zip(shape, strides, strict=True) for number in pair]
    at = len(lengths)
    inner = [s for n, s in zip(values.shape[2:], values.strides[2:], strict=True) if n > 1]
    dims = (
        *lengths, places, values.shape[1], pictures.strides[0], values.strides[0],
        pictures.strides[1], values.strides[1], inner[-1] if inner else 1,
    )  # fmt: skip
    last = _have_channels_last(pictures, values)
    channel = "1" if last else f"d[{at + 4}]"
    declared = [
        f"typedef {kind} T;",
        f"const int64_t places = d[{at}], channels = d[{at + 1}], batch_x = d[{at + 2}], "
        f"batch_y = d[{at + 3}], channel_x = {channel};",
        f"const int64_t channel_y = {'1' if last else f'd[{at + 5}]'}, "
        f"place_y = {f'd[{at + 6}]' if last else '1'};",
        f"int32_t at[{taps}][{BLOCK}]; T weight[{taps}][{BLOCK}];",
    ]
    return declared, _find_taps(shape, strides, call.attributes, suffix), dims, taps


@emitter("nnl::sample_points", layouts=_layouts)
def emit_sample_points(call: Call) -> Emission | None:
    """Read blocks of points: by vectors of channels where these are innermost, else of points."""
    x, points = call.inputs
    y = call.outputs[0]
    if x is None or points is None:
        return None
    prepared = _prepared(x, y, points, call)
    if prepared is None:
        return None
    if not y.size:
        return Emission(())
    declared, found, dims, taps = prepared
    if _have_channels_last(x, y):
        reads = [
            "for (int64_t j = 0; j < count; j++)",
            SIMD,
            "for (int64_t c = 0; c < channels; c++) {",
            "T sum = 0;",
            *(_term(tap, "c") for tap in range(taps)),
            "y[j * place_y + c] = sum;",
            "}",
        ]
    else:
        reads = [
            "for (int64_t c = 0; c < channels; c++)",
            SIMD,
            "for (int64_t j = 0; j < count; j++) {",
            "T sum = 0;",
            *(_term(tap, "c * channel_x") for tap in range(taps)),
            "y[c * channel_y + j] = sum;",
            "}",
        ]
    body = [
        *declared,
        f"const int64_t across = (places + {BLOCK - 1}) / {BLOCK};",
        "for (int64_t unit = begin; unit < end; unit++) {",
        f"const int64_t picture = unit / across, first = unit % across * {BLOCK};",
        f"const int64_t count = MIN({BLOCK}, places - first);",
        f"const T *point = in1 + (picture * places + first) * {len(x.shape) - 2};",
        *found,
        "const T *x = in0 + picture * batch_x;",
        "T *y = out0 + picture * batch_y + first * place_y;",
        *reads,
        "}",
    ]
    units = x.shape[0] * -(-prod(y.shape[2:]) // BLOCK)
    step = CStep("\n".join(body), ("in0", "in1", "out0"), dims, units, y.size * taps)
    return Emission((step,))


def _term(tap: int, channel: str) -> str:
    """Add a weighted pixel; what has weight 0 may be infinite, and does not count."""
    w = f"weight[{tap}][j]"
    return f"{{ const T v = x[at[{tap}][j] + {channel}]; sum += {w} * ({w} == 0 ? 0 : v); }}"


@emitter("nnl::sample_points_adjoint", layouts=_layouts)
def emit_sample_points_adjoint(call: Call) -> Emission | None:
    """Add to pictures, point after point; a unit of work has some channels of one picture."""
    g, points = call.inputs
    dx = call.outputs[0]
    if g is None or points is None:
        return None
    prepared = _prepared(dx, g, points, call)
    if prepared is None:
        return None
    if not dx.size:
        return Emission(())
    declared, found, dims, taps = prepared
    pictures, channels = dx.shape[:2]
    shares = min(channels, -(-call.threads // pictures))  # sums do not depend on it
    dims = (*dims, shares, prod(dx.shape[2:]))
    pixels, share = f"d[{len(dims) - 1}]", f"d[{len(dims) - 2}]"
    last = _have_channels_last(dx, g)
    add = "q[c * channel_x] += w * y[j * place_y + c * channel_y];"
    taken = [
        f"for (int tap = 0; tap < {taps}; tap++) {{",
        "const T w = weight[tap][j];",
        "if (w == 0) continue;",
        "T *q = dx + at[tap][j];",
    ]
    over_points = "for (int64_t j = 0; j < count; j++)"
    over_pixels = f"for (int64_t i = 0; i < {pixels}; i++)"
    over_channels = "for (int64_t c = low; c < high; c++)"
    loops = [over_pixels, SIMD, over_channels] if last else [over_channels, SIMD, over_pixels]
    place = "i * channels + c" if last else "c * channel_x + i"
    adds = (
        [over_points, *taken, SIMD, f"{over_channels} {add}", "}"]
        if last
        else [over_channels, over_points, *taken, add, "}"]
    )
    body = [
        *declared,
        "for (int64_t unit = begin; unit < end; unit++) {",
        f"const int64_t picture = unit / {share}, part = unit % {share};",
        f"const int64_t low = channels * part / {share}, high = channels * (part + 1) / {share};",
        "T *dx = out0 + picture * batch_x;",
        *loops,
        f"dx[{place}] = 0;",
        f"for (int64_t first = 0; first < places; first += {BLOCK}) {{",
        f"const int64_t count = MIN({BLOCK}, places - first);",
        f"const T *point = in1 + (picture * places + first) * {len(dx.shape) - 2};",
        *found,
        "const T *y = in0 + picture * batch_y + first * place_y;",
        *adds,
        "} }",
    ]
    units = pictures * shares
    cost = g.size * taps + dx.size
    return Emission((CStep("\n".join(body), ("in0", "in1", "out0"), dims, units, cost),))
