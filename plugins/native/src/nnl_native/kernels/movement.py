"""Elements in another arrangement, where no view will do: copies, joins, divisions, borders."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnl_core.graph.spec import normalize_axis
from nnl_core.operators.padding import pairs
from nnl_native.kernel import (
    Call,
    CStep,
    Emission,
    LayoutRequest,
    Layouts,
    Operand,
    all_plain,
    dense,
    emitter,
    plain,
)
from nnl_native.kernels.borders import Edge, copy_with_borders
from nnl_native.kernels.copying import Axis, copy_box, fill, is_known, side, whole
from nnl_native.kernels.views import part_of, reshaped, reversed_along


def same_order(request: LayoutRequest) -> Layouts:
    """Take inputs as they are; outputs with as many axes as the largest come in its order."""
    given = [one for one in request.inputs if one is not None]
    largest = max(given, key=lambda one: one.size, default=None)
    return Layouts(
        tuple(None for _ in request.inputs),
        tuple(
            dense(spec.shape, largest.order)
            if largest is not None and spec.ndim == len(largest.shape)
            else plain(spec.shape)
            for spec in request.outputs
        ),
    )


def plain_result(request: LayoutRequest) -> Layouts:
    """Take inputs as they are, and give C-contiguous values."""
    return all_plain(request)._replace(inputs=tuple(None for _ in request.inputs))


def _box(shape: Sequence[int], source: Sequence[int], target: Sequence[int]) -> list[Axis]:
    return [Axis(*axis) for axis in zip(shape, source, target, strict=True)]


def _seen(call: Call, strides: Sequence[int], offset: int = 0) -> Emission:
    """Copy what is seen in the input's memory through these strides."""
    x, y = call.inputs[0], call.outputs[0]
    assert x is not None
    axes = _box(y.shape, strides, y.strides)
    return Emission(tuple(copy_box(side("in0", x, offset), side("out0", y), axes)))


@emitter("nnl::reshape", "nnl::expand_dims", "nnl::squeeze", layouts=plain_result)
def emit_reshape(call: Call) -> Emission | None:
    """Copy in the input's row-major order: the result is plain, so it is seen in that shape."""
    x, y = call.inputs[0], call.outputs[0]
    assert x is not None
    if not is_known(call):
        return None
    strides = reshaped(x.shape, x.strides, y.shape)
    if strides is not None:
        return _seen(call, strides)
    axes = _box(x.shape, x.strides, plain(x.shape).strides)
    return Emission(tuple(copy_box(side("in0", x), side("out0", y), axes)))


@emitter("nnl::transpose", layouts=plain_result)
def emit_transpose(call: Call) -> Emission | None:
    """Copy with the axes in another order."""
    x = call.inputs[0]
    if x is None or not is_known(call):
        return None
    return _seen(call, [x.strides[axis] for axis in call.attributes["axes"]])


@emitter("nnl::flip", layouts=same_order)
def emit_flip(call: Call) -> Emission | None:
    """Copy in reverse order along axes."""
    x = call.inputs[0]
    if x is None or not is_known(call):
        return None
    return _seen(call, *reversed_along(x.shape, x.strides, call.attributes["axes"]))


@emitter("nnl::getitem", layouts=same_order)
def emit_getitem(call: Call) -> Emission | None:
    """Copy a part."""
    x = call.inputs[0]
    if x is None or not is_known(call):
        return None
    return _seen(call, *part_of(x.shape, x.strides, call.attributes["key"]))


@emitter("nnl::broadcast_to", layouts=plain_result)
def emit_broadcast(call: Call) -> Emission | None:
    """Copy with stride 0 along what is repeated."""
    x, y = call.inputs[0], call.outputs[0]
    if x is None or not is_known(call):
        return None
    kept = [0 if n == 1 else s for n, s in zip(x.shape, x.strides, strict=True)]
    return _seen(call, [0] * (len(y.shape) - len(x.shape)) + kept)


@emitter("nnl::tile", layouts=same_order)
def emit_tile(call: Call) -> Emission | None:
    """Copy a box of twice the axes: repetitions, with stride 0, and lengths."""
    x, y = call.inputs[0], call.outputs[0]
    if x is None or not is_known(call):
        return None
    missing = len(y.shape) - len(x.shape)
    shape, strides = (1,) * missing + x.shape, (0,) * missing + x.strides
    axes = []
    for total, n, source, target in zip(y.shape, shape, strides, y.strides, strict=True):
        axes += [Axis(total // n if n else 0, 0, n * target), Axis(n, source, target)]
    return Emission(tuple(copy_box(side("in0", x), side("out0", y), axes)))


@emitter("nnl::unpooling", layouts=same_order)
def emit_unpooling(call: Call) -> Emission | None:
    """Copy a box of twice the axes: lengths, and repetitions with stride 0."""
    x, y = call.inputs[0], call.outputs[0]
    if x is None or not is_known(call):
        return None
    kernel = call.attributes["kernel"]
    times = (1,) * (len(x.shape) - len(kernel)) + tuple(kernel)
    axes = []
    for n, count, source, target in zip(x.shape, times, x.strides, y.strides, strict=True):
        axes += [Axis(n, source, count * target), Axis(count, 0, target)]
    return Emission(tuple(copy_box(side("in0", x), side("out0", y), axes)))


# Joining and dividing ----------------------------------------------------------------------------


@emitter("nnl::concatenate", layouts=same_order)
def emit_concatenate(call: Call) -> Emission | None:
    """Copy each input to its place, converted where the result's type is wider."""
    y = call.outputs[0]
    if not is_known(call):
        return None
    axis = normalize_axis(call.attributes["axis"], len(y.shape))
    steps: list[CStep] = []
    start = 0
    for place, x in enumerate(call.inputs):
        assert x is not None
        target = side("out0", y, start * y.strides[axis])
        axes = _box(x.shape, x.strides, y.strides)
        steps += copy_box(side(f"in{place}", x), target, axes)
        start += x.shape[axis]
    return Emission(tuple(steps))


def _stacked(request: LayoutRequest) -> Layouts:
    """Give outputs the order of the first input, with the new axis where it is asked for."""
    first = request.inputs[0]
    assert first is not None
    spec = request.outputs[0]
    at = normalize_axis(request.attributes["axis"], spec.ndim)
    order = [axis + (axis >= at) for axis in first.order]
    order.insert(at, at)
    return Layouts(tuple(None for _ in request.inputs), (dense(spec.shape, order),))


@emitter("nnl::stack", layouts=_stacked)
def emit_stack(call: Call) -> Emission | None:
    """Copy each input to its place."""
    y = call.outputs[0]
    if not is_known(call):
        return None
    axis = normalize_axis(call.attributes["axis"], len(y.shape))
    others = _without(y, axis)
    steps: list[CStep] = []
    for place, x in enumerate(call.inputs):
        assert x is not None
        target = side("out0", y, place * y.strides[axis])
        steps += copy_box(side(f"in{place}", x), target, _box(x.shape, x.strides, others))
    return Emission(tuple(steps))


def _without(operand: Operand, axis: int) -> tuple[int, ...]:
    return operand.strides[:axis] + operand.strides[axis + 1 :]


def _divided(request: LayoutRequest) -> Layouts:
    """Give outputs the order that the other axes have."""
    x = request.inputs[0]
    assert x is not None
    at = normalize_axis(request.attributes["axis"], len(x.shape))
    order = [axis - (axis > at) for axis in x.order if axis != at]
    return Layouts((None,), tuple(dense(spec.shape, order) for spec in request.outputs))


@emitter("nnl::split", layouts=_divided)
def emit_split(call: Call) -> Emission | None:
    """Copy each part."""
    x = call.inputs[0]
    if x is None or not is_known(call):
        return None
    axis = normalize_axis(call.attributes["axis"], len(x.shape))
    others = _without(x, axis)
    steps: list[CStep] = []
    for place, part in enumerate(call.outputs):
        source = side("in0", x, place * x.strides[axis])
        steps += copy_box(source, side(f"out{place}", part), _box(part.shape, others, part.strides))
    return Emission(tuple(steps))


# Borders -----------------------------------------------------------------------------------------


@emitter("nnl::pad", layouts=same_order)
def emit_pad(call: Call) -> Emission | None:
    """Copy with a border."""
    x, y = call.inputs[0], call.outputs[0]
    if x is None or not is_known(call):
        return None
    attributes = call.attributes
    mode, value = attributes["mode"], attributes["constant_value"]
    widths = pairs(attributes["pad_width"], len(x.shape))
    edges = [
        Edge(total, n, before, source, target, mode if before or after else "constant")
        for total, n, (before, after), source, target in zip(
            y.shape, x.shape, widths, x.strides, y.strides, strict=True
        )
    ]
    return copy_with_borders(x, y, edges, _literal(value, y))


def _literal(value: float, operand: Operand) -> str:
    """Write a number as C does, in the operand's type."""
    if operand.dtype.kind == "b":
        return str(int(bool(value)))
    if operand.dtype.kind in "iu":
        return f"({operand.c_type}){int(value)}"
    if math.isfinite(value):
        return f"({operand.c_type}){value!r}"
    return "NAN" if value != value else "INFINITY" if value > 0 else "-INFINITY"


@emitter("nnl::shift", layouts=same_order)
def emit_shift(call: Call) -> Emission | None:
    """Copy with a border before and a negative one after, or the other way round."""
    x, y = call.inputs[0], call.outputs[0]
    if x is None or not is_known(call):
        return None
    shifts = call.attributes["shifts"]
    mode = "repeat" if call.attributes["border_mode"] == "nearest" else "mirror"
    by = (0,) * (len(x.shape) - len(shifts)) + tuple(shifts)
    edges = [
        Edge(n, n, far, source, target, mode if far else "constant")
        for n, far, source, target in zip(x.shape, by, x.strides, y.strides, strict=True)
    ]
    return copy_with_borders(x, y, edges, "0")


@emitter("nnl::getitem_adjoint", layouts=plain_result)
def emit_getitem_adjoint(call: Call) -> Emission | None:
    """Surround with zeros, or where elements are taken in steps put them among zeros."""
    g, y = call.inputs[0], call.outputs[0]
    if g is None or not is_known(call):
        return None
    key = call.attributes["key"]
    edges = _surrounded(g, y, key)
    if edges is not None:
        return copy_with_borders(g, y, edges, "0")
    strides, offset = part_of(y.shape, y.strides, key)
    put = copy_box(side("in0", g), side("out0", y, offset), _box(g.shape, g.strides, strides))
    return Emission((*fill(side("out0", y), "0", whole(y)), *put))


def _surrounded(g: Operand, y: Operand, key: Sequence[object]) -> list[Edge] | None:
    """Return where a part without gaps lies in the whole, along each axis of the whole."""
    edges: list[Edge] = []
    place = 0
    for item in (*key, *[(None, None, None)] * len(y.shape)):
        if item is None:
            place += 1
            continue
        axis = len(edges)
        if axis == len(y.shape):
            break
        length, target = y.shape[axis], y.strides[axis]
        if isinstance(item, tuple):
            start, _, step = slice(*item).indices(length)
            if step != 1:
                return None
            edges.append(Edge(length, g.shape[place], start, g.strides[place], target, "constant"))
            place += 1
        else:
            assert isinstance(item, int)
            edges.append(Edge(length, 1, item % length, 1, target, "constant"))
    return edges


# Diagonals ---------------------------------------------------------------------------------------


@emitter("nnl::matrix_diag", layouts=plain_result)
def emit_matrix_diag(call: Call) -> Emission | None:
    """Put a diagonal into zeros."""
    x, y = call.inputs[0], call.outputs[0]
    if x is None or not is_known(call):
        return None
    strides = (*y.strides[:-2], y.strides[-2] + y.strides[-1])
    put = copy_box(side("in0", x), side("out0", y), _box(x.shape, x.strides, strides))
    return Emission((*fill(side("out0", y), "0", whole(y)), *put))


@emitter("nnl::matrix_diag_part", layouts=plain_result)
def emit_matrix_diag_part(call: Call) -> Emission | None:
    """Copy a diagonal."""
    x = call.inputs[0]
    if x is None or not is_known(call):
        return None
    return _seen(call, (*x.strides[:-2], x.strides[-2] + x.strides[-1]))
