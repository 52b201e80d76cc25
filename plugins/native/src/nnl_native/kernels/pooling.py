"""Pooling and its gradients, channels first or last."""

from __future__ import annotations

from collections.abc import Sequence

from nnl_native.kernel import Call, CStep, Emission, LayoutRequest, Layouts, dense, emitter
from nnl_native.kernels.copying import fill, side, whole
from nnl_native.kernels.movement import same_order
from nnl_native.kernels.windows import Row, Windows, find_windows, walk

TYPES = {"float32": ("float", "int32_t"), "float64": ("double", "int64_t")}
BLOCK = 512  # winners of windows that are kept until they are used
SIMD = "#pragma omp simd"
BITS = """
#ifndef NNL_BITS_{kind}
#define NNL_BITS_{kind}
INLINE {mask} nnl_bits_of_{kind}({kind} value) {{
    {mask} bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}}
INLINE {kind} nnl_{kind}_of_bits({mask} bits) {{
    {kind} value;
    memcpy(&value, &bits, sizeof value);
    return value;
}}
#endif
"""
EACH = "for (int64_t j = 0; j < count; j++)"


def _types(call: Call) -> tuple[str, str] | None:
    """Return element and mask type where all values have one type that the kernels know."""
    dtype = call.outputs[0].dtype.name
    return TYPES.get(dtype) if call.has_only(dtype) else None


def _step(windows: Windows, body: str, operands: tuple[str, ...], types: tuple[str, str]) -> CStep:
    kind, mask = types
    head = f"typedef {kind} T; typedef {mask} M;\n"
    if "nnl_bits_of" in body:
        body = body.replace("nnl_bits_of", f"nnl_bits_of_{kind}")
        body = body.replace("nnl_of_bits", f"nnl_{kind}_of_bits")
    support = BITS.format(kind=kind, mask=mask) if "_of_bits" in body else ""
    return CStep(head + body, operands, windows.dims, windows.units, windows.cost, support)


# Forward -----------------------------------------------------------------------------------------


def _combined(row: Row, first: str, combine: str) -> list[str]:
    """Combine all positions of whole windows in a register."""
    tap, *others = row.taps()
    lines = [SIMD, EACH, "{", f"T m = {row.x('in0', tap)};"]
    lines += [f"{{ const T v = {row.x('in0', other)}; m = {combine}; }}" for other in others]
    return [*lines, f"{row.y('out0')} = {first};", "}"]


def _gathered(row: Row, start: str, combine: str) -> list[str]:
    """Combine the positions that lie in the data, one after the other for all windows."""
    lines = [SIMD, f"{EACH} {row.y('out0')} = {start};"]
    return lines + row.each_tap(
        [
            SIMD,
            f"{EACH} {{ const T m = {row.y('out0')}, v = {row.x('in0', 'tap')}; "
            f"{row.y('out0')} = {combine}; }}",
        ]
    )


@emitter("nnl::max_pooling", layouts=same_order)
def emit_max_pooling(call: Call) -> Emission | None:
    """Take the largest of each window."""
    return _forward(call, "NNL_MAX(m, v)", "-INFINITY")


@emitter("nnl::sum_pooling", layouts=same_order)
def emit_sum_pooling(call: Call) -> Emission | None:
    """Sum each window."""
    return _forward(call, "m + v", "0")


def _forward(call: Call, combine: str, start: str) -> Emission | None:
    x, y = call.inputs[0], call.outputs[0]
    types = _types(call)
    if types is None or x is None:
        return None
    if not y.size:
        return Emission(())
    windows = find_windows(x, y, call.attributes, apart=True)
    body = walk(
        windows,
        lambda row: _combined(row, "m", combine),
        lambda row: _gathered(row, start, combine),
    )
    return Emission((_step(windows, body, ("in0", "out0"), types),))


@emitter("nnl::average_pooling", layouts=same_order)
def emit_average_pooling(call: Call) -> Emission | None:
    """Sum each window, and divide by its size."""
    x, y = call.inputs[0], call.outputs[0]
    types = _types(call)
    if types is None or x is None:
        return None
    if not y.size:
        return Emission(())
    windows = find_windows(x, y, call.attributes, apart=True)
    including = call.attributes["including_pad"]

    def part(row: Row) -> list[str]:
        sizes = [
            f"MIN(kernel{n}, n{n} + after{n} - start{n})" if including else f"(high{n} - low{n})"
            for n in range(len(row.windows.slides))
        ]
        return [
            f"const T share = 1 / (T)({' * '.join(sizes) or '1'});",
            *_gathered(row, "0", "m + v"),
            SIMD,
            f"{EACH} {row.y('out0')} *= share;",
        ]

    def full(row: Row) -> list[str]:
        return _combined(row, f"m * (1 / (T){row.windows.taps})", "m + v")

    return Emission((_step(windows, walk(windows, full, part), ("in0", "out0"), types),))


# Gradients ---------------------------------------------------------------------------------------


def _is_apart(windows: Windows) -> bool:
    """Whether no element is in two windows."""
    return all(slide.stride >= slide.kernel for slide in windows.slides)


def _cleared(call: Call, windows: Windows) -> list[CStep]:
    """Return the step that clears the result, where windows apart leave elements out."""
    if not _is_apart(windows) or all(slide.is_covered for slide in windows.slides):
        return []
    dx = call.outputs[0]
    return fill(side("out0", dx), "0", whole(dx))


@emitter("nnl::sum_pooling_gradient", layouts=same_order)
def emit_sum_pooling_gradient(call: Call) -> Emission | None:
    """Give each gradient to all elements of its window."""
    dy, dx = call.inputs[0], call.outputs[0]
    types = _types(call)
    if types is None or dy is None:
        return None
    if not dx.size:
        return Emission(())
    windows = find_windows(dx, dy, call.attributes, apart=False)
    apart = _is_apart(windows)
    if apart:
        windows = find_windows(dx, dy, call.attributes, apart=True)
    sign = "=" if apart else "+="

    def full(row: Row) -> list[str]:
        puts = [f"{row.x('out0', tap)} {sign} g;" for tap in row.taps()]
        return [SIMD, EACH, "{", f"const T g = {row.y('in0')};", *puts, "}"]

    def part(row: Row) -> list[str]:
        # One position at a time: neighbouring windows, which may overlap, then write other places.
        return row.each_tap([SIMD, f"{EACH} {row.x('out0', 'tap')} {sign} {row.y('in0')};"])

    body = walk(
        windows,
        full if apart or windows.along_batch else None,
        part,
        None if apart else "out0",
    )
    return Emission((*_cleared(call, windows), _step(windows, body, ("in0", "out0"), types)))


def _like_the_data(request: LayoutRequest) -> Layouts:
    """Bring all to the order of the data, the second input, without gaps."""
    x = request.inputs[1]
    assert x is not None
    return Layouts(
        tuple(None if one is None else dense(one.shape, x.order) for one in request.inputs),
        tuple(dense(spec.shape, x.order) for spec in request.outputs),
    )


def _winners(row: Row, *, unrolled: bool) -> list[str]:
    """Find where in its window each of a block of maxima is: the first hit, -1 for none.

    NaN, which equals nothing, hits where the data is NaN.
    """
    each = "for (int64_t j = block; j < last; j++)"
    found = "((v == top) | (v != v))"
    if unrolled:
        lines = [SIMD, each, "{", f"const T top = {row.y('in2')}; M w = -1;"]
        lines += [_select(row, tap) for tap in reversed(row.taps())]
        return [*lines, "won[j - block] = w;", "}"]
    lines = [SIMD, f"{each} won[j - block] = -1;"]
    return lines + row.each_tap(
        [
            SIMD,
            f"{each} {{ const T top = {row.y('in2')}, v = {row.x('in1', 'tap')}; "
            f"won[j - block] = {found} ? (M)tap : won[j - block]; }}",
        ],
        backwards=True,
    )


def _with_winners(row: Row, use: Sequence[str], *, unrolled: bool) -> list[str]:
    """Find winners block by block, and do something with each block."""
    return [
        f"for (int64_t block = 0; block < count; block += {BLOCK}) {{",
        f"const int64_t last = MIN(count, block + {BLOCK});",
        f"M won[{BLOCK}];",
        *_winners(row, unrolled=unrolled),
        *use,
        "}",
    ]


@emitter("nnl::max_pooling_gradient", layouts=_like_the_data)
def emit_max_pooling_gradient(call: Call) -> Emission | None:
    """Put each gradient where the maximum of its window is."""
    dy, x, _ = call.inputs
    types = _types(call)
    if types is None or x is None or dy is None:
        return None
    dx = call.outputs[0]
    if not dx.size:
        return Emission(())
    windows = find_windows(dx, dy, call.attributes, apart=False)
    each = "for (int64_t j = block; j < last; j++)"
    if not _is_apart(windows):
        place = "won[j - block]"

        def scatter(row: Row, *, unrolled: bool) -> list[str]:
            add = f"{each} if ({place} >= 0) {row.x('out0', place)} += {row.y('in0')};"
            return _with_winners(row, [add], unrolled=unrolled)

        body = walk(
            windows,
            _add_full if windows.along_batch else lambda row: scatter(row, unrolled=True),
            lambda row: scatter(row, unrolled=False),
            "out0",
        )
    else:
        windows = find_windows(dx, dy, call.attributes, apart=True)
        body = walk(windows, _put_full, _put_part)
    step = _step(windows, body, ("in0", "in1", "in2", "out0"), types)
    return Emission((*_cleared(call, windows), step))


def _put_full(row: Row) -> list[str]:
    """Write all elements of whole windows that do not overlap."""
    # Masks of bits: of choices that depend on each other the compiler makes jumps, not vectors.
    lines = [SIMD, EACH, "{", f"const T top = {row.y('in2')}; M g = nnl_bits_of({row.y('in0')});"]
    lines.append("M open = -1;")
    for tap in row.taps():
        lines.append(
            f"{{ const T v = {row.x('in1', tap)}; "
            "const M hit = -(M)((v == top) | (v != v)) & open; "
            f"{row.x('out0', tap)} = nnl_of_bits(g & hit); open &= ~hit; }}"
        )
    return [*lines, "}"]


def _add_full(row: Row) -> list[str]:
    """Add to all elements of whole windows that may overlap, but not with those of vectors."""
    lines = [SIMD, EACH, "{", f"const T top = {row.y('in2')}; M w = -1;"]
    lines += [_select(row, tap) for tap in reversed(row.taps())]
    lines.append(f"const M g = nnl_bits_of({row.y('in0')});")
    lines += [
        f"{row.x('out0', tap)} += nnl_of_bits(g & -(M)(w == (M){tap}));" for tap in row.taps()
    ]
    return [*lines, "}"]


def _select(row: Row, tap: str) -> str:
    """Make an element the winner if it equals the maximum, or is NaN."""
    return f"{{ const T v = {row.x('in1', tap)}; w = ((v == top) | (v != v)) ? (M){tap} : w; }}"


def _put_part(row: Row) -> list[str]:
    """Write the elements in the data of windows that do not overlap."""
    put = f"{row.x('out0', 'tap')} = won[j - block] == (M)tap ? {row.y('in0')} : 0;"
    use = row.each_tap([SIMD, f"for (int64_t j = block; j < last; j++) {put}"])
    return _with_winners(row, use, unrolled=False)


@emitter("nnl::max_pooling_gather", layouts=_like_the_data)
def emit_max_pooling_gather(call: Call) -> Emission | None:
    """Take what stands where the maximum of each window is."""
    types = _types(call)
    x, z = call.inputs[1], call.outputs[0]
    if types is None or x is None:
        return None
    if not z.size:
        return Emission(())
    windows = find_windows(x, z, call.attributes, apart=True)

    def take(row: Row, *, unrolled: bool) -> list[str]:
        place = "won[j - block]"
        use = (
            f"for (int64_t j = block; j < last; j++) "
            f"{row.y('out0')} = {place} >= 0 ? {row.x('in0', place)} : 0;"
        )
        return _with_winners(row, [use], unrolled=unrolled)

    body = walk(
        windows, lambda row: take(row, unrolled=True), lambda row: take(row, unrolled=False)
    )
    return Emission((_step(windows, body, ("in0", "in1", "in2", "out0"), types),))
