"""Copies from one layout to another: transposes in blocks, or oneDNN where it knows alone."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from nnl_native import onednn
from nnl_native.kernel import CStep, Emission, Operand
from nnl_native.kernels.primitives import descriptor, run

LINE = 64  # bytes of a cache line, and of a vector
BLOCK = 16  # elements, where no vectors are exchanged
FEW = 4  # so short an axis is unrolled


def reorder(source: Operand, target: Operand, threads: int) -> Emission:
    """Return what copies a value into another layout of the same shape."""
    if source.layout.opaque is not None or target.layout.opaque is not None:
        return _opaque(source, target, threads)
    if source.size == 0:
        return Emission(())
    axes = _merged(source, target)
    size = source.dtype.itemsize
    element = f"uint{8 * size}_t" if size <= 8 else f"struct {{ char bytes[{size}]; }}"
    from_axis = min(range(len(axes)), key=lambda k: abs(axes[k].source))
    to_axis = min(range(len(axes)), key=lambda k: abs(axes[k].target))
    step = _rows(axes) if from_axis == to_axis else _transpose(axes, from_axis, size)
    header = f"typedef {element} T;\nconst T *a = (const T *)in0; T *b = (T *)out0;\n"
    return Emission((step._replace(body=header + step.body, cost=source.size),))


class _Axis(NamedTuple):
    length: int
    source: int  # distance between neighbours
    target: int


def _merged(source: Operand, target: Operand) -> list[_Axis]:
    """Return axes from the target's outermost to its innermost, as few as there can be."""
    given = [
        _Axis(*one)
        for one in zip(source.shape, source.strides, target.strides, strict=True)
        if one[0] != 1
    ]
    given.sort(key=lambda axis: -abs(axis.target))
    merged: list[_Axis] = []
    for axis in given:
        if merged:
            outer = merged[-1]
            length, from_, to = axis
            if (outer.source, outer.target) == (from_ * length, to * length):
                merged[-1] = _Axis(outer.length * length, from_, to)
                continue
        merged.append(axis)
    return merged or [_Axis(1, 1, 1)]


def _unflatten(names: list[str], lengths: list[str]) -> str:
    """Return C that takes ``rest`` apart into indices, the last one running fastest."""
    lines = []
    for name, length in zip(reversed(names), reversed(lengths), strict=True):
        lines.append(f"    const int64_t {name} = rest % {length}; rest /= {length};")
    return "\n".join(lines)


def _offset(names: list[str], strides: list[str]) -> str:
    terms = [f"{name} * {stride}" for name, stride in zip(names, strides, strict=True)]
    return " + ".join(terms) or "0"


class _Outer(NamedTuple):
    dims: tuple[int, ...]
    indices: str
    source: str
    target: str


def _outer(axes: list[_Axis], first: int) -> _Outer:
    """Return the loop variables of axes whose lengths and strides are ``d[first]`` onwards."""
    names = [f"i{k}" for k in range(len(axes))]
    lengths, sources, targets = (
        [f"d[{first + 3 * k + part}]" for k in range(len(axes))] for part in range(3)
    )
    return _Outer(
        tuple(value for axis in axes for value in axis),
        _unflatten(names, lengths),
        _offset(names, sources),
        _offset(names, targets),
    )


def _rows(axes: list[_Axis]) -> CStep:
    """Copy along what is innermost in both; a unit is a row, or a piece of the only one."""
    *outer, row = axes
    if not outer:
        pieces = min(64, max(1, row.length // 4096))
        length = -(-row.length // pieces)
        outer = [_Axis(pieces, length * row.source, length * row.target)]
        limit = "MIN(d[0], d[3] - i0 * d[0])"
    else:
        length, limit = row.length, "d[0]"
    loops = _outer(outer, 4)
    if row.source == row.target == 1:
        copy = "memcpy(to, from, n * sizeof(T));"
    else:
        copy = "for (int64_t i = 0; i < n; i++) to[i * d[2]] = from[i * d[1]];"
    body = f"""
for (int64_t unit = begin; unit < end; unit++) {{
    int64_t rest = unit;
{loops.indices}
    const T *from = a + {loops.source};
    T *to = b + {loops.target};
    const int64_t n = {limit};
    if (n <= 0) continue;
    {copy}
}}"""
    return CStep(
        body,
        ("in0", "out0"),
        (length, row.source, row.target, row.length, *loops.dims),
        units=prod(axis.length for axis in outer),
    )


def _tile(lanes: int) -> str:
    """Return C that transposes a square of vectors of ``lanes`` elements in registers.

    Each round exchanges one bit of the row number for the same bit of the column number.
    """
    rounds = []
    distance = lanes // 2
    while distance:
        low = [k + lanes - distance if k & distance else k for k in range(lanes)]
        high = [k + lanes if k & distance else k + distance for k in range(lanes)]
        picks = [", ".join(map(str, one)) for one in (low, high)]
        rounds.append(f"""
    for (int i = 0; i < {lanes}; i++) {{
        if (i & {distance}) continue;
        const V a = v[i], b = v[i + {distance}];
        v[i] = __builtin_shufflevector(a, b, {picks[0]});
        v[i + {distance}] = __builtin_shufflevector(a, b, {picks[1]});
    }}""")
        distance //= 2
    element = f"uint{512 // lanes}_t"
    unroll = f"#pragma GCC unroll {lanes}"
    rounds_text = "".join(one.replace("\n    for", f"\n    {unroll}\n    for", 1) for one in rounds)
    return f"""
static inline void nnl_tile_{lanes}(const {element} *from, int64_t far, {element} *to,
                                    int64_t row) {{
    typedef {element} V __attribute__((vector_size(64), aligned(sizeof({element}))));
    V v[{lanes}];
    {unroll}
    for (int i = 0; i < {lanes}; i++) v[i] = *(const V *)(from + i * far);
{rounds_text}
    {unroll}
    for (int i = 0; i < {lanes}; i++) *(V *)(to + i * row) = v[i];
}}"""


def _transpose(axes: list[_Axis], from_axis: int, itemsize: int) -> CStep:
    """Exchange the axis that the source has innermost (p) for the target's (q).

    A unit is a block of p: of each line of the source all is used while it is in cache, and the
    target is written along q. Short axes are unrolled, so that vectors are interleaved.
    """
    q = axes[-1]
    p = axes[from_axis]
    outer = [axis for k, axis in enumerate(axes[:-1]) if k != from_axis]
    if q.length <= FEW or p.length <= FEW:
        return _interleave(p, q, outer)
    loops = _outer(outer, 6)
    near_p, near_q = ("1", "1") if p.source == q.target == 1 else ("d[1]", "d[5]")
    block = LINE // itemsize if itemsize in (4, 8) else BLOCK
    whole = ""
    support = ""
    if near_p == "1" and itemsize in (4, 8):
        support = _tile(block)
        whole = f"""
    if (count == {block})
        for (; q + {block} <= d[3]; q += {block})
            nnl_tile_{block}(from + q * far, far, to + q, d[2]);"""
    body = f"""
const int64_t blocks = (d[0] + {block - 1}) / {block};
for (int64_t unit = begin; unit < end; unit++) {{
    int64_t rest = unit / blocks;
    const int64_t p = unit % blocks * {block};
{loops.indices}
    const T *from = a + p * {near_p} + {loops.source};
    T *to = b + p * d[2] + {loops.target};
    const int64_t count = MIN({block}, d[0] - p), far = d[4];
    int64_t q = 0;{whole}
    for (; q < d[3]; q += 64) {{
        const int64_t n = MIN(64, d[3] - q);
        for (int64_t i = 0; i < count; i++) {{
            const T *line = from + i * {near_p} + q * far;
            T *row = to + i * d[2] + q * {near_q};
            #pragma omp simd
            for (int64_t j = 0; j < n; j++) row[j * {near_q}] = line[j * far];
        }}
    }}
}}"""
    return CStep(
        body,
        ("in0", "out0"),
        (*p, q.length, q.source, q.target, *loops.dims),
        units=prod(axis.length for axis in outer) * -(-p.length // block),
        support=support,
    )


def _interleave(p: _Axis, q: _Axis, outer: list[_Axis]) -> CStep:
    """Copy a long axis, each time with all of a short one: channels of an image, say."""
    short, long = (q, p) if q.length <= FEW else (p, q)
    pieces = max(1, min(64, long.length // 1024))
    loops = _outer(outer, 7)
    strides = (long.source, long.target, short.source, short.target)
    # What is text lets the compiler interleave vectors.
    texts = [f"({n})" if abs(n) <= FEW else f"d[{k}]" for k, n in enumerate(strides, 1)]
    from_long, to_long, from_short, to_short = texts
    body = f"""
const int64_t pieces = d[5], length = d[6];
for (int64_t unit = begin; unit < end; unit++) {{
    int64_t rest = unit / pieces;
    const int64_t first = unit % pieces * length;
{loops.indices}
    const T *restrict from = a + first * {from_long} + {loops.source};
    T *restrict to = b + first * {to_long} + {loops.target};
    const int64_t n = MIN(length, d[0] - first);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < {short.length}; k++)
            to[i * {to_long} + k * {to_short}] = from[i * {from_long} + k * {from_short}];
}}"""
    return CStep(
        body,
        ("in0", "out0"),
        (long.length, *strides, pieces, -(-long.length // pieces), *loops.dims),
        units=prod(axis.length for axis in outer) * pieces,
    )


def _opaque(source: Operand, target: Operand, threads: int) -> Emission:
    known = source.layout.opaque or target.layout.opaque
    given, wanted = descriptor(source, known), descriptor(target, known)
    primitive = onednn.reorder(given, wanted, threads)
    return run(primitive, {onednn.SOURCE: "in0", onednn.DESTINATION: "out0"})
