"""Convolution and its two adjoints, as products of matrices that are never written out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nnl_core.gpu import blas
from nnl_core.gpu.families.products import (
    Matrices,
    Multiplication,
    Plan,
    add_slices,
    computing_dtype,
    divisor,
    frame_of,
    loader,
    multiply,
    slices_of,
    structure,
    width_of,
)
from nnl_core.gpu.kernel import (
    C_TYPES,
    FLOATING,
    NULL,
    Address,
    Call,
    Emission,
    Kernel,
    Launch,
    blocks,
    emitter,
    given,
    kernel,
    over,
    result,
    with_files,
)

AXES = 3
FEW = 8  # maps of a group, up to which a thread computes all of them
ALIGNED = 8  # elements, of which rows of an ordered weight are multiples
LARGEST_GRID = 65535  # in the second direction

Lengths = tuple[int, ...]


@dataclass(frozen=True)
class Axis:
    """Place i and tap j read the source at ``i * scale + base + j * spread``.

    Place i stands at ``start + i * step`` of the target, tap j at ``first + j * tap_step`` of the
    kernel.
    """

    source: int
    target: int
    kernel: int
    places: int
    taps: int
    scale: int
    base: int
    spread: int
    start: int = 0
    step: int = 1
    first: int = 0
    tap_step: int = 1


@dataclass(frozen=True)
class Geometry:
    """What is convolved: sizes of one group, and axes."""

    images: int
    groups: int
    channels: int
    maps: int
    axes: tuple[Axis, ...]

    @property
    def windows(self) -> int:
        """Number of windows of all images."""
        return self.images * math.prod(axis.places for axis in self.axes)

    @property
    def taps(self) -> int:
        """Number of taps of a channel."""
        return math.prod(axis.taps for axis in self.axes)

    @property
    def is_plain(self) -> bool:
        """Whether places are all of the target, in order."""
        return all(axis.places == axis.target and axis.step == 1 for axis in self.axes)

    def packed(self) -> np.generic:
        """Return what kernels know as ``Windows``."""
        axes = self.axes
        targets = _steps([axis.target for axis in axes])
        return structure(
            groups=self.groups,
            channels=self.channels,
            maps=self.maps,
            images=self.images,
            source=_three([axis.source for axis in axes], 1),
            scale=_three([axis.scale for axis in axes], 0),
            base=_three([axis.base for axis in axes], 0),
            spread=_three([axis.spread for axis in axes], 0),
            source_size=math.prod(axis.source for axis in axes),
            target_size=math.prod(axis.target for axis in axes),
            origin=sum(axis.start * step for axis, step in zip(axes, targets, strict=True)),
            step=_three([axis.step * step for axis, step in zip(axes, targets, strict=True)], 0),
            places=_divisors([axis.places for axis in axes]),
            taps=_divisors([axis.taps for axis in axes]),
        )


def _three(values: Sequence[int], filler: int) -> Lengths:
    return (*(filler for _ in range(AXES - len(values))), *values)


def _steps(lengths: Sequence[int]) -> Lengths:
    """Return the elements from one to the next along each axis."""
    return tuple(math.prod(lengths[axis + 1 :]) for axis in range(len(lengths)))


def _divisors(lengths: Sequence[int]) -> np.ndarray:
    """Return what divides by an axis and all that follow."""
    padded = _three(lengths, 1)
    each = [divisor(max(1, math.prod(padded[axis:]))) for axis in range(AXES)]
    return np.array(each, each[0].dtype)


# Operators ---------------------------------------------------------------------------------------


@emitter("nnl::convolution")
def convolution(call: Call) -> Emission | None:
    """Multiply the weight with the windows of the data."""
    x, weight, bias = (*call.inputs, None)[:3]
    y = call.outputs[0]
    if x is None or weight is None or not _is_possible(call, x.shape, y.shape):
        return None
    geometry = _forward(x.shape, y.shape, weight.shape[2:], call.attributes)
    plan = Plan()
    dtype = x.dtype.name
    shift = None if bias is None else given(2)
    if bias is None and _is_pointwise(geometry, call):
        _pointwise(call, plan, geometry, transposed=False)
        return plan.emission()
    _from_windows(call, plan, geometry, Order.of(geometry, transposed=False), dtype, shift)
    return plan.emission()


@emitter("nnl::convolution_data_gradient")
def convolution_data_gradient(call: Call) -> Emission | None:
    """Multiply the weight with windows of the gradient, one phase of the strides after the other.

    The places of a phase are a stride apart, so that the same taps reach them.
    """
    dy, weight = call.inputs[0], call.inputs[1]
    dx = call.outputs[0]
    if dy is None or weight is None or not _is_possible(call, dy.shape, dx.shape):
        return None
    forward = _forward(dx.shape, dy.shape, weight.shape[2:], call.attributes)
    plan = Plan()
    if _is_pointwise(forward, call):
        _pointwise(call, plan, forward, transposed=True)
        return plan.emission()
    for axes in itertools.product(*(_phases(axis) for axis in forward.axes)):
        geometry = replace(forward, channels=forward.maps, maps=forward.channels, axes=tuple(axes))
        order = Order.of(geometry, transposed=True)
        _from_windows(call, plan, geometry, order, dy.dtype.name, None)
    return plan.emission()


@emitter("nnl::convolution_weight_gradient")
def convolution_weight_gradient(call: Call) -> Emission | None:
    """Multiply the gradient with the windows of the data, all images' side by side."""
    x, dy = call.inputs[0], call.inputs[1]
    if x is None or dy is None or not _is_possible(call, x.shape, dy.shape):
        return None
    geometry = _forward(x.shape, dy.shape, call.attributes["kernel"], call.attributes)
    plan = Plan()
    _to_weight(call, plan, geometry, x.dtype.name)
    return plan.emission()


def _is_possible(call: Call, source: Lengths, target: Lengths) -> bool:
    """Whether dtypes are one, there are three axes or fewer, and sizes fit in 32 bits."""
    dtype = call.outputs[0].dtype.name
    if dtype not in FLOATING or not call.has_only(dtype) or len(source) > 2 + AXES:
        return False
    sizes = (math.prod(source[1:]), math.prod(target[1:]), target[0] * math.prod(target[2:]))
    return max(sizes) < 1 << 29


def _forward(
    source: Lengths, target: Lengths, taps: Lengths, attributes: Mapping[str, Any]
) -> Geometry:
    """Return the geometry of a convolution from ``source`` to ``target``."""
    group = attributes["group"]
    axes = [
        Axis(n, m, k, m, k, stride, -before, dilation)
        for n, m, k, stride, (before, _), dilation in zip(
            source[2:],
            target[2:],
            taps,
            attributes["stride"],
            attributes["pad"],
            attributes["dilation"],
            strict=True,
        )
    ]
    if all(axis.source == axis.target and axis.kernel == axis.scale == 1 for axis in axes):
        if not any(axis.base for axis in axes):
            size = math.prod(source[2:])
            axes = [Axis(size, size, 1, size, 1, 1, 0, 1)]
    return Geometry(source[0], group, source[1] // group, target[1] // group, tuple(axes))


def _phases(axis: Axis) -> list[Axis]:
    """Return the axes of a data gradient, of an axis of the convolution, that have elements."""
    stride, dilation = axis.scale, axis.spread
    tap_step = stride // math.gcd(stride, dilation)
    phases = []
    for start in range(min(stride, axis.source)):
        reached = start - axis.base
        fitting = [t for t in range(axis.kernel) if (reached - t * dilation) % stride == 0]
        first = fitting[0] if fitting else 0
        phases.append(
            Axis(
                source=axis.target,
                target=axis.source,
                kernel=axis.kernel,
                places=-(-(axis.source - start) // stride),
                taps=len(fitting),
                scale=1,
                base=(reached - first * dilation) // stride,
                spread=-(tap_step * dilation) // stride,
                start=start,
                step=stride,
                first=first,
                tap_step=tap_step,
            )
        )
    return phases


# Convolutions of single elements -----------------------------------------------------------------


def _is_pointwise(geometry: Geometry, call: Call) -> bool:
    """Whether each image is one product of matrices, and cuBLAS is there to multiply them."""
    (axis, *others) = geometry.axes
    return (
        not others
        and axis.kernel == axis.scale == 1
        and axis.base == 0
        and axis.source == axis.target
        and geometry.groups == 1
        and blas.find(call.device) is not None
    )


def _pointwise(call: Call, plan: Plan, geometry: Geometry, *, transposed: bool) -> None:
    size = geometry.axes[0].source
    inner, rows = geometry.channels, geometry.maps
    if transposed:
        inner, rows = rows, inner
    product = Multiplication(
        call.outputs[0].dtype.name,
        rows,
        size,
        inner,
        Matrices(given(1), transposed, (0,)),
        Matrices(given(0), strides=(inner * size,)),
        result(),
        (geometry.images,),
    )
    multiply(call.device, plan, product)


# Windows times a weight --------------------------------------------------------------------------


@dataclass(frozen=True)
class Order:
    """Where a weight in memory has its elements; steps in elements."""

    by_group: int
    by_map: int
    by_channel: int

    @staticmethod
    def of(geometry: Geometry, *, transposed: bool) -> Order:
        """Return the order of a weight (groups, maps, channels, *kernel), or channels first."""
        size = math.prod(axis.kernel for axis in geometry.axes)
        maps, channels = geometry.maps, geometry.channels
        if transposed:
            return Order(channels * maps * size, size, maps * size)
        return Order(channels * maps * size, channels * size, size)


def _ordered(
    plan: Plan, geometry: Geometry, order: Order, dtype: str, width: int
) -> tuple[Address, int]:
    """Return a weight as rows of taps of channels that are multiples of ``width``; their pitch."""
    inner = geometry.channels * geometry.taps
    axes = geometry.axes
    is_whole = all(axis.taps == axis.kernel for axis in axes)
    if is_whole and order.by_map == inner and inner % width == 0:
        return given(1), inner
    pitch = -(-max(inner, 1) // width) * width
    count = geometry.groups * geometry.maps * pitch
    target = plan.scratch(count * width_of(dtype))
    steps = _steps([axis.kernel for axis in axes])
    packed = structure(
        maps=geometry.maps,
        inner=inner,
        by_group=order.by_group,
        by_map=order.by_map,
        by_channel=order.by_channel,
        first=sum(axis.first * step for axis, step in zip(axes, steps, strict=True)),
        length=_three([max(axis.taps, 1) for axis in axes], 1),
        step=_three([axis.tap_step * step for axis, step in zip(axes, steps, strict=True)], 0),
    )
    function = with_files(
        kernel("convolution_weight.cu", "ordered", T=C_TYPES[dtype]), "divisor.cuh"
    )
    divisors = (divisor(pitch), divisor(max(geometry.taps, 1)))
    plan.add(over(function, count, (given(1), target, packed, *divisors)))
    return target, pitch


def _kernel(geometry: Geometry, entry: str, dtype: str, **defines: str | int) -> Kernel:
    axes = max(len(geometry.axes), 1)
    found = kernel("convolution.cu", entry, T=C_TYPES[dtype], AXES=axes, **defines)
    return with_files(found, "divisor.cuh", "product.cuh")


def _from_windows(
    call: Call, plan: Plan, geometry: Geometry, order: Order, dtype: str, bias: Address | None
) -> None:
    inner, count = geometry.channels * geometry.taps, geometry.windows
    if not count * geometry.groups * geometry.maps:
        return
    few = geometry.maps <= FEW
    weight, pitch = _ordered(plan, geometry, order, dtype, 1 if few else ALIGNED)
    operands = (given(0), weight, bias or NULL, result(), geometry.packed())
    lengths = (np.int32(inner), np.int32(pitch))
    if few:
        function = _kernel(geometry, "few_from_windows", dtype, MAPS=geometry.maps)
        grid = (blocks(count), min(geometry.groups, LARGEST_GRID), 1)
        plan.add(Launch(function, grid, (256, 1, 1), (*operands, *lengths)))
        return
    frame = frame_of(call.device, dtype, geometry.maps, count, geometry.groups)
    function = _kernel(geometry, "from_windows", dtype, FRAME=frame.text, THREADS=frame.threads)
    tiles = -(-geometry.maps // frame.side) * -(-count // frame.side)
    vector = geometry.is_plain and count // geometry.images % 4 == 0
    plan.add(
        Launch(
            function,
            (tiles * geometry.groups, 1, 1),
            (frame.threads, 1, 1),
            (*operands, *lengths, np.bool_(vector)),
            frame.shared,
        )
    )


# A target times windows --------------------------------------------------------------------------


def _to_weight(call: Call, plan: Plan, geometry: Geometry, dtype: str) -> None:
    columns = geometry.channels * geometry.taps
    size = geometry.groups * geometry.maps * columns
    if not size:
        return
    packed = geometry.packed()
    if geometry.maps <= FEW:
        function = _kernel(geometry, "few_to_weight", dtype, MAPS=geometry.maps)
        grid = (columns, min(geometry.groups, LARGEST_GRID), 1)
        arguments = (given(0), given(1), result(), packed, np.int32(columns))
        plan.add(Launch(function, grid, (256, 1, 1), arguments))
        return
    frame = frame_of(call.device, dtype, geometry.maps, columns, geometry.groups)
    tiles = -(-geometry.maps // frame.side) * -(-columns // frame.side) * geometry.groups
    slices, length = slices_of(call.device, frame, tiles, geometry.windows)
    computing = computing_dtype(dtype)
    target = result() if slices == 1 else plan.scratch(slices * size * width_of(computing))
    places = math.prod(axis.places for axis in geometry.axes)
    function = _kernel(
        geometry,
        "to_weight",
        dtype,
        RESULT=C_TYPES[dtype if slices == 1 else computing],
        FRAME=frame.text,
        THREADS=frame.threads,
        SLOPES=loader(call.device, dtype, True, (places,), "Slopes"),
    )
    plan.add(
        Launch(
            function,
            (tiles * slices, 1, 1),
            (frame.threads, 1, 1),
            (given(0), given(1), target, packed, np.int32(columns), np.int32(length)),
            frame.shared,
        )
    )
    if slices > 1:
        dtypes = (computing, dtype, dtype)
        plan.add(add_slices((target, None, result()), dtypes, slices, columns, size))
