"""Slices by position: taken, put, and added where positions repeat."""

from __future__ import annotations

from math import prod

from nnl_core.graph.spec import normalize_axis
from nnl_native.kernel import Call, CStep, Emission, Operand, Reference, emitter
from nnl_native.kernels.copying import Axis, copy_box, fill, is_known, side, whole
from nnl_native.kernels.positions import flat_position, only_checked, position, reader

ROWS = 4096  # elements that one unit of work copies, about
COLUMNS = 64  # elements of each row that one unit of work puts, at most


def _row(width: int, target: str, source: str, sign: str = "=") -> list[str]:
    """Return the loop that copies a row of ``width``, or adds it."""
    if width == 1:
        return [f"{target}[0] {sign} {source}[0];"]
    return [
        "#pragma omp simd",
        f"for (int64_t j = 0; j < width; j++) {target}[j] {sign} {source}[j];",
    ]


@emitter("nnl::gather")
def emit_gather(call: Call) -> Emission | None:
    """Copy slices: the result is (batch, outer, positions, inner)."""
    x, indices = call.inputs
    y = call.outputs[0]
    if x is None or indices is None or not is_known(call):
        return None
    batch_dims = call.attributes["batch_dims"]
    axis = normalize_axis(call.attributes["axis"], len(x.shape))
    batch, outer = prod(x.shape[:batch_dims]), prod(x.shape[batch_dims:axis])
    taken, inner = prod(indices.shape[batch_dims:]), prod(x.shape[axis + 1 :])
    if not y.size:
        return only_checked("in1", indices, (x.shape[axis],))
    block = min(taken, max(1, ROWS // inner))
    body = [
        "const int64_t outer = d[0], length = d[1], taken = d[2], width = d[3], block = d[4];",
        "const int64_t across = (taken + block - 1) / block;",
        "for (int64_t unit = begin; unit < end; unit++) {",
        "const int64_t row = unit / across, first = unit % across * block;",
        f"const {indices.c_type} *at = in1 + row / outer * taken;",
        "for (int64_t i = first; i < MIN(taken, first + block); i++) {",
        f"const int64_t place = {position(indices, 'at[i]', 'length')};",
        "if (*failure) return;",
        f"const {x.c_type} *restrict p = in0 + (row * length + place) * width;",
        f"{y.c_type} *restrict q = out0 + (row * taken + i) * width;",
        *_row(inner, "q", "p"),
        "} }",
    ]
    dims = (outer, x.shape[axis], taken, inner, block)
    units = batch * outer * -(-taken // block)
    return _emission(body, ("in0", "in1", "out0"), dims, units, y.size, indices)


def _columns(inner: int, threads: int) -> int:
    """Return how many columns a unit of work has: whole lines of the cache, some for each thread.

    Sums do not depend on it.
    """
    share = -(-inner // max(1, threads))
    return min(COLUMNS, -(-share // 16) * 16)


def _emission(
    body: list[str],
    operands: tuple[Reference, ...],
    dims: tuple[int, ...],
    units: int,
    cost: int,
    indices: Operand,
    before: list[CStep] | None = None,
) -> Emission:
    step = CStep("\n".join(body), operands, dims, units, cost, reader(indices))
    return Emission((*(before or ()), step))


@emitter("nnl::gather_adjoint")
def emit_gather_adjoint(call: Call) -> Emission | None:
    """Add slices to zeros, in order: a unit of work has some columns of all rows."""
    g, indices = call.inputs
    y = call.outputs[0]
    if g is None or indices is None or not is_known(call) or y.dtype.kind == "b":
        return None
    axis, batch_dims = call.attributes["axis"], call.attributes["batch_dims"]
    size = call.attributes["size"]
    batch, outer = prod(g.shape[:batch_dims]), prod(g.shape[batch_dims:axis])
    taken, inner = prod(indices.shape[batch_dims:]), prod(y.shape[axis + 1 :])
    if not y.size:
        return only_checked("in1", indices, (size,))
    body = [
        "const int64_t outer = d[0], length = d[1], taken = d[2], inner = d[3], columns = d[4];",
        "const int64_t across = (inner + columns - 1) / columns;",
        "for (int64_t unit = begin; unit < end; unit++) {",
        "const int64_t row = unit / across, column = unit % across * columns;",
        "const int64_t width = MIN(columns, inner - column);",
        f"const {indices.c_type} *at = in1 + row / outer * taken;",
        f"{y.c_type} *sums = out0 + row * length * inner + column;",
        f"const {g.c_type} *rows = in0 + row * taken * inner + column;",
        "const int64_t rows0 = width == inner ? 1 : length;",
        "const int64_t width0 = width == inner ? length * inner : width;",
        "for (int64_t i = 0; i < rows0; i++) {",
        "#pragma omp simd",
        "for (int64_t j = 0; j < width0; j++) sums[i * inner + j] = 0;",
        "}",
        "for (int64_t i = 0; i < taken; i++) {",
        f"const int64_t place = {position(indices, 'at[i]', 'length')};",
        "if (*failure) return;",
        f"const {g.c_type} *restrict p = rows + i * inner;",
        f"{y.c_type} *restrict q = sums + place * inner;",
        *_row(inner, "q", "p", "+="),
        "} }",
    ]
    columns = _columns(inner, call.threads)
    dims = (outer, size, taken, inner, columns)
    units = batch * outer * -(-inner // columns)
    return _emission(body, ("in0", "in1", "out0"), dims, units, y.size + g.size, indices)


@emitter("nnl::gather_nd")
def emit_gather_nd(call: Call) -> Emission | None:
    """Copy slices at positions along several axes."""
    x, indices = call.inputs
    y = call.outputs[0]
    if x is None or indices is None or not is_known(call):
        return None
    depth = indices.shape[0]
    if not y.size:
        return only_checked("in1", indices, x.shape[:depth], from_end=True)
    taken, width = prod(indices.shape[1:]), prod(x.shape[depth:])
    block = min(taken, max(1, ROWS // width))
    body = [
        "const int64_t taken = d[0], width = d[1], block = d[2];",
        "for (int64_t unit = begin; unit < end; unit++)",
        "for (int64_t i = unit * block; i < MIN(taken, (unit + 1) * block); i++) {",
        *flat_position(indices, depth, 3, "in1[axis * taken + i]"),
        f"const {x.c_type} *restrict p = in0 + place * width;",
        f"{y.c_type} *restrict q = out0 + i * width;",
        *_row(width, "q", "p"),
        "}",
    ]
    dims = (taken, width, block, *x.shape[:depth])
    return _emission(body, ("in0", "in1", "out0"), dims, -(-taken // block), y.size, indices)


@emitter("nnl::scatter_nd")
def emit_scatter_nd(call: Call) -> Emission | None:
    """Put slices, in order: the last at a position stays, or all are added."""
    data, indices, base = call.inputs
    y = call.outputs[0]
    if data is None or indices is None or not is_known(call):
        return None
    add, depth = call.attributes["add"], indices.shape[0]
    if add and y.dtype.kind == "b":
        return None
    before = _start(base, y)
    taken, inner = prod(indices.shape[1:]), prod(y.shape[depth:])
    if not y.size or not data.size:
        checked = only_checked("in1", indices, y.shape[:depth], from_end=True)
        return Emission((*before, *checked.steps))
    body = [
        "const int64_t taken = d[0], inner = d[1], columns = d[2];",
        "for (int64_t unit = begin; unit < end; unit++) {",
        "const int64_t column = unit * columns;",
        "const int64_t width = MIN(columns, inner - column);",
        "for (int64_t i = 0; i < taken; i++) {",
        *flat_position(indices, depth, 3, "in1[axis * taken + i]"),
        f"const {data.c_type} *restrict p = in0 + i * inner + column;",
        f"{y.c_type} *restrict q = out0 + place * inner + column;",
        *_row(inner, "q", "p", "+=" if add else "="),
        "} }",
    ]
    columns = _columns(inner, call.threads)
    dims = (taken, inner, columns, *y.shape[:depth])
    units = -(-inner // columns)
    return _emission(body, ("in0", "in1", "out0"), dims, units, data.size, indices, before)


def _start(base: Operand | None, y: Operand, name: Reference = "in2") -> list[CStep]:
    """Return the step that fills the result with what is there before: a value, or zeros."""
    if base is None:
        return fill(side("out0", y), "0", whole(y))
    axes = [Axis(*axis) for axis in zip(y.shape, base.strides, y.strides, strict=True)]
    return copy_box(side(name, base), side("out0", y), axes)


@emitter("nnl::one_hot")
def emit_one_hot(call: Call) -> Emission | None:
    """Write rows of zeros with a one."""
    x, y = call.inputs[0], call.outputs[0]
    if x is None or not is_known(call):
        return None
    shape = call.attributes["shape"]
    width, depth = prod(shape), len(shape)
    rows = prod(x.shape[:-1])
    if not y.size:
        return None if x.size else Emission(())
    block = min(rows, max(1, ROWS // width))
    body = [
        "const int64_t rows = d[0], width = d[1], block = d[2];",
        "for (int64_t unit = begin; unit < end; unit++)",
        "for (int64_t i = unit * block; i < MIN(rows, (unit + 1) * block); i++) {",
        *flat_position(x, depth, 3, f"in0[i * {depth} + axis]"),
        f"{y.c_type} *restrict q = out0 + i * width;",
        "#pragma omp simd",
        "for (int64_t j = 0; j < width; j++) q[j] = 0;",
        "q[place] = 1;",
        "}",
    ]
    dims = (rows, width, block, *shape)
    return _emission(body, ("in0", "out0"), dims, -(-rows // block), y.size, x)


# Single elements ---------------------------------------------------------------------------------


def _rows_of_elements(indices: Operand, axis: int, first: int) -> list[str]:
    """Return what decodes a row of positions: the parts of all axes but ``axis`` and the last.

    From ``d[first]`` on there are, for each axis, the length of the positions and the strides of
    two arrays; ``one`` and ``two`` are where the row begins in them, ``axis`` not counted in
    ``one``.
    """
    lines = ["int64_t rest = row, one = 0, two = 0;"]
    for place in reversed(range(len(indices.shape) - 1)):
        at = first + 3 * place
        own = "" if place == axis else f"one += i * d[{at + 1}]; "
        lines.append(
            f"{{ const int64_t i = rest % d[{at}]; rest /= d[{at}]; {own}two += i * d[{at + 2}]; }}"
        )
    return lines


@emitter("nnl::gather_elements")
def emit_gather_elements(call: Call) -> Emission | None:
    """Copy single elements, row by row of the positions."""
    x, indices = call.inputs
    y = call.outputs[0]
    if x is None or indices is None or not is_known(call):
        return None
    axis = normalize_axis(call.attributes["axis"], len(x.shape))
    if not y.size:
        return Emission(())
    other = "" if axis == len(x.shape) - 1 else " + j"
    body = [
        "const int64_t width = d[0], length = d[1], step = d[2];",
        "for (int64_t row = begin; row < end; row++) {",
        *_rows_of_elements(indices, axis, 3),
        "for (int64_t j = 0; j < width; j++) {",
        f"const int64_t place = {position(indices, 'in1[row * width + j]', 'length')};",
        "if (*failure) return;",
        f"out0[row * width + j] = in0[one + place * step{other}];",
        "} }",
    ]
    dims = (indices.shape[-1], x.shape[axis], x.strides[axis], *_pairs(indices, x, y))
    units = prod(indices.shape[:-1])
    return _emission(body, ("in0", "in1", "out0"), dims, units, 4 * y.size, indices)


def _pairs(indices: Operand, one: Operand, two: Operand) -> tuple[int, ...]:
    axes = zip(indices.shape, one.strides, two.strides, strict=True)
    return tuple(number for axis in list(axes)[:-1] for number in axis)


@emitter("nnl::scatter_add")
def emit_scatter_add(call: Call) -> Emission | None:
    """Add single elements, in order: what one unit of work adds to, no other does."""
    base, indices, x = call.inputs
    y = call.outputs[0]
    if base is None or indices is None or x is None or not is_known(call) or y.dtype.kind == "b":
        return None
    axis = normalize_axis(call.attributes["axis"], len(y.shape))
    before = _start(base, y, "in0")
    if not indices.size:
        return Emission(tuple(before))
    rows = prod(indices.shape[:-1])
    units = indices.shape[0] if axis and len(indices.shape) > 1 else 1
    other = "" if axis == len(y.shape) - 1 else " + j"
    body = [
        "const int64_t width = d[0], length = d[1], step = d[2], rows = d[3];",
        "for (int64_t row = begin * rows; row < end * rows; row++) {",
        *_rows_of_elements(indices, axis, 4),
        "for (int64_t j = 0; j < width; j++) {",
        f"const int64_t place = {position(indices, 'in1[row * width + j]', 'length')};",
        "if (*failure) return;",
        f"out0[one + place * step{other}] += in2[two + j];",
        "} }",
    ]
    dims = (
        indices.shape[-1],
        y.shape[axis],
        y.strides[axis],
        rows // units,
        *_pairs(indices, y, x),
    )
    cost = 4 * indices.size
    return _emission(body, ("in1", "in2", "out0"), dims, units, cost, indices, before)
