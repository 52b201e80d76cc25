"""Shapes of the weights and biases of layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnl_core.graph.spec import normalize_axis
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.gathering import to_variable
from nnl_core.operators.windows import groups, window_shape
from nnl_core.parametric_functions.common import lengths

Shapes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, int, Sequence[int]]]


def affine_shapes(inp: Variable, n_outmaps: int | Sequence[int], base_axis: int) -> Shapes:
    """Return the shapes of weight and bias, and the weight's fans."""
    outputs = lengths(n_outmaps, "n_outmaps")
    inputs = math.prod(inp.shape[base_axis:])
    return (inputs, *outputs), outputs, (inputs, math.prod(outputs), ())


def channels_of(inp: Operand, base_axis: int, channel_last: bool = False) -> int:
    """Return the number of channels; raise `ShapeError` where there is no such axis."""
    shape = to_variable(inp).shape
    return shape[normalize_axis(-1 if channel_last else base_axis, len(shape))]


def convolution_shapes(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    group: int,
    base_axis: int,
    channel_last: bool = False,
) -> Shapes:
    """Return the shapes of weight and bias, and the weight's fans."""
    kernel = window_shape(kernel)
    channels = channels_of(inp, base_axis, channel_last)
    inner = channels // groups(group)
    shape = (outmaps, *kernel, inner) if channel_last else (outmaps, inner, *kernel)
    return shape, (outmaps,), (channels, outmaps, kernel)
