"""Convolution and its two adjoints by oneDNN, activations channels last.

Channels last is what oneDNN computes fastest in, but for its own blocked layouts, which are as
fast within a few percent and which nothing else reads. Weights are brought to the layout that the
primitive asks for; they are small beside activations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from nnl_core.operators.windows import span
from nnl_native import onednn
from nnl_native.kernel import (
    Call,
    Emission,
    Layout,
    LayoutRequest,
    Layouts,
    all_plain,
    channels_last,
    emitter,
    plain,
)
from nnl_native.kernels.primitives import run
from nnl_native.runtime import threads_in_use

Shape = tuple[int, ...]
Order = Callable[[Sequence[int]], Layout]
SMALL = 1 << 20  # multiply-adds up to which a plain loop is as good as NumPy's copies of windows


class Plan(NamedTuple):
    """A primitive, the layout of activations, and that of the weight."""

    primitive: onednn.Primitive
    activations: Order
    weight: Layout


class Question(NamedTuple):
    """What a plan depends on: which of three computations, and the convolution's shapes."""

    kind: str
    x: Shape
    weight: Shape
    y: Shape
    bias: bool
    stride: Shape
    before: Shape
    dilation: Shape
    group: int


@functools.lru_cache(maxsize=4096)
def plan(question: Question, threads: int) -> Plan | None:
    """Return how oneDNN computes it; ``None`` where it would take a slow way or none."""
    if not 3 <= len(question.x) <= 5 or any(pad < 0 for pad in question.before):
        return None
    if 0 in (prod(question.x), prod(question.y), prod(question.weight)):
        return None
    work = prod(question.y) * prod(question.weight[1:])
    for activations in _ways(question):
        try:
            primitive = _primitive(question, activations, threads)
        except onednn.PrimitiveError:
            continue
        if work <= SMALL or not primitive.implementation.startswith("ref"):
            number = onednn.WEIGHT_GRADIENT if question.kind == "weight" else onednn.WEIGHT
            weight = primitive.descriptors[number]
            as_it_is = onednn.Descriptor.strided(weight.shape, plain(weight.shape).strides)
            layout = plain(question.weight) if weight == as_it_is else Layout((), opaque=weight)
            return Plan(primitive, activations, layout)
    return None


def _ways(question: Question) -> tuple[Order, ...]:
    """Return layouts to ask for, the best first.

    The gradient of a few channels fills no vectors channels last: a matrix product and plain
    images are up to six times as fast (3 channels, 4 x 4 windows, stride 2).
    """
    few = question.kind == "data" and question.x[1] <= 4 and question.group == 1
    return (plain, channels_last) if few else (channels_last, plain)


def _goes_direct(question: Question) -> bool:
    """Whether oneDNN's direct convolution is faster than that by small matrix products.

    Measured, channels last: of few channels it is, by 5 to 12 percent; of large windows that move
    by single steps, by 10 to 100; and by a factor of two to four where one place sees the whole
    image. With strides and more channels it is slower, forward by up to 35 percent.
    """
    taps, channels = prod(question.weight[2:]), question.x[1]
    if max(question.stride) > 1:
        return taps > 1 and channels <= 16
    return taps > 9


def _primitive(question: Question, activations: Order, threads: int) -> onednn.Primitive:
    kind, x_shape, weight_shape, y_shape, _, stride, before, dilation, _ = question
    after = tuple(  # no more than windows reach: that may be less than nothing
        (places - 1) * step + covered - length - pad
        for places, step, covered, length, pad in zip(
            y_shape[2:], stride, span(weight_shape[2:], dilation), x_shape[2:], before, strict=True
        )
    )
    geometry = onednn.Geometry(stride, dilation, before, after)
    x, y = (
        onednn.Descriptor.strided(shape, activations(shape).strides) for shape in (x_shape, y_shape)
    )
    if _goes_direct(question) and activations is channels_last:
        # Products are only taken where all layouts are given; what is chosen is the same.
        made = _made(question, x, onednn.Descriptor.any(y_shape), geometry, threads)
        number = onednn.DESTINATION if kind == "forward" else onednn.DESTINATION_GRADIENT
        if made.descriptors[number] == y:
            return made
    return _made(question, x, y, geometry, threads)


def _made(
    question: Question,
    x: onednn.Descriptor,
    y: onednn.Descriptor,
    geometry: onednn.Geometry,
    threads: int,
) -> onednn.Primitive:
    kind, weight_shape, group = question.kind, question.weight, question.group
    if group != 1:
        weight_shape = (group, weight_shape[0] // group, *weight_shape[1:])
    weight = onednn.Descriptor.any(weight_shape)
    bias = onednn.Descriptor.strided(question.y[1:2], (1,)) if question.bias else None
    if kind == "forward":
        return onednn.convolution(x, weight, bias, y, geometry, threads)
    if kind == "data":
        return onednn.convolution_data(x, weight, y, geometry, threads)
    return onednn.convolution_weight(x, weight, None, y, geometry, threads)


def _question(
    kind: str, attributes: Mapping[str, Any], x: Shape, weight: Shape, y: Shape, bias: bool = False
) -> Question:
    before = tuple(first for first, _ in attributes["pad"])
    stride, dilation = tuple(attributes["stride"]), tuple(attributes["dilation"])
    return Question(kind, x, weight, y, bias, stride, before, dilation, attributes["group"])


def _asked(request: LayoutRequest | Call) -> Question | None:
    """Return the question of a call; ``None`` where oneDNN does not have the dtype."""
    if any(one is not None and one.dtype.name != "float32" for one in request.inputs):
        return None
    if onednn.problem() is not None:
        return None
    shapes = [() if one is None else one.shape for one in request.inputs]
    result = request.outputs[0].shape
    match request.operator.name:
        case "nnl::convolution":
            bias = len(shapes) > 2 and request.inputs[2] is not None
            return _question("forward", request.attributes, shapes[0], shapes[1], result, bias)
        case "nnl::convolution_data_gradient":
            return _question("data", request.attributes, result, shapes[1], shapes[0])
        case _:
            return _question("weight", request.attributes, shapes[0], result, shapes[1])


def convolution_layouts(request: LayoutRequest) -> Layouts:
    """Ask for channels last and for the weight as the primitive wants it."""
    question = _asked(request)
    if question is None or is_product(question):
        return all_plain(request)
    found = plan(question, threads_in_use())
    if found is None:
        return all_plain(request)
    x, y = found.activations(question.x), found.activations(question.y)
    match question.kind:
        case "forward":
            biases = [None if one is None else plain(one.shape) for one in request.inputs[2:]]
            return Layouts((x, found.weight, *biases), (y,))
        case "data":
            return Layouts((y, found.weight), (x,))
        case _:
            return Layouts((x, y), (found.weight,))


@emitter(
    "nnl::convolution",
    "nnl::convolution_data_gradient",
    "nnl::convolution_weight_gradient",
    layouts=convolution_layouts,
)
def convolution(call: Call) -> Emission | None:
    """Run the primitive."""
    question = _asked(call)
    if question is None:
        return None
    if is_product(question):
        return _as_product(question, call.threads)
    found = plan(question, call.threads)
    if found is None:
        return None
    match question.kind:
        case "forward":
            bias = {onednn.BIAS: "in2"} if question.bias else {}
            return run(
                found.primitive,
                {onednn.SOURCE: "in0", onednn.WEIGHT: "in1", onednn.DESTINATION: "out0"} | bias,
            )
        case "data":
            return run(
                found.primitive,
                {
                    onednn.DESTINATION_GRADIENT: "in0",
                    onednn.WEIGHT: "in1",
                    onednn.SOURCE_GRADIENT: "out0",
                },
            )
        case _:
            return run(
                found.primitive,
                {
                    onednn.SOURCE: "in0",
                    onednn.DESTINATION_GRADIENT: "in1",
                    onednn.WEIGHT_GRADIENT: "out0",
                },
            )


# Windows that see all ----------------------------------------------------------------------------


def is_product(question: Question) -> bool:
    """Whether the only window is the whole of `x`: this is a product of plain matrices.

    The weight then needs no layout of its own, and small batches are up to ten times as fast.
    """
    return (
        question.group == 1
        and prod(question.y[2:]) == 1
        and question.x[1:] == question.weight[1:]
        and not any(question.before)
        and prod(question.x) * question.y[1] > 0
    )


def _as_product(question: Question, threads: int) -> Emission | None:
    """Return the product with the weight as one matrix, a row for each map."""
    batch, maps, inner = question.x[0], question.y[1], prod(question.x[1:])
    x = onednn.Descriptor.strided((batch, inner), (inner, 1))
    y = onednn.Descriptor.strided((batch, maps), (maps, 1))
    weight = onednn.Descriptor.strided((maps, inner), (inner, 1))
    if question.kind == "forward":
        across = onednn.Descriptor.strided((inner, maps), (1, inner))
        bias = onednn.Descriptor.strided((1, maps), (maps, 1)) if question.bias else None
        made = onednn.matmul(x, across, bias, y, threads)
        names = {onednn.SOURCE: "in0", onednn.WEIGHT: "in1", onednn.DESTINATION: "out0"}
        return run(made, names | ({onednn.BIAS: "in2"} if question.bias else {}))
    if question.kind == "data":
        made = onednn.matmul(y, weight, None, x, threads)
        names = {onednn.SOURCE: "in0", onednn.WEIGHT: "in1", onednn.DESTINATION: "out0"}
        return run(made, names)
    across = onednn.Descriptor.strided((maps, batch), (1, maps))
    made = onednn.matmul(across, x, None, weight, threads)
    names = {onednn.SOURCE: "in1", onednn.WEIGHT: "in0", onednn.DESTINATION: "out0"}
    return run(made, names)
