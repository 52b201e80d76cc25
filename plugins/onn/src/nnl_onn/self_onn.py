"""Self-organized operational layers: neurons whose nodal operator is a polynomial they learn."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnl_core import Variable
from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.variable import Operand
from nnl_core.initializers import RandomSource, UniformInitializer
from nnl_core.operators.arithmetic import same_dtype
from nnl_core.operators.dtypes import floating
from nnl_core.operators.naming import named
from nnl_core.operators.windows import groups, window_shape
from nnl_core.parameters import Initial
from nnl_core.parametric_functions.common import bias, layer_scope, weight
from nnl_onn.functions import Border, Pad, PerAxis, operate, transposed_operate
from nnl_onn.powers import powers

TANH_GAIN = 5 / 3
"""By how much first values are larger before tanh, as is usual with Glorot and Bengio's."""


@named
def self_operate(
    x: Operand,
    w: Operand,
    *,
    pad: Pad = None,
    border: Border = "zeros",
    stride: PerAxis = None,
    dilation: PerAxis = None,
    group: int = 1,
) -> Variable:
    """Convolve the powers of ``x``: each connection's nodal operator is a polynomial of its own.

    ``y[n, m, i] = sum over c, q and k of w[m, c, q, k] x[n, c, i stride + k dilation - pad]^(q +
    1)`` (Kiranyaz et al., "Self-organized operational neural networks with generative neurons",
    2021). The powers are each the one before it times ``x``; all of them are one convolution.

    Args:
        x: ``(batch, channels, *spatial)``, of one to three spatial axes. Powers stay small where
            ``x`` is in [-1, 1].
        w: ``(maps, channels / group, order, *kernel)``.
        pad: what is added at both ends of each spatial axis, or ``"same"``, see `operate`.
        border: what is added: ``"zeros"``, ``"reflect"``, ``"replicate"`` or ``"circular"``.
        stride: steps of the window.
        dilation: steps between the places that a window reads.
        group: number of groups that channels and maps are divided into.

    Returns:
        ``(batch, maps, *places)``.

    Raises:
        ShapeError: shapes do not fit together.

    Gradient:
        Of any order.
    """
    x, w = _checked(x, w)
    maps, inner, order, *kernel = w.shape
    joined = F.reshape(w, (maps, inner * order, *kernel))
    return operate(
        _powers(x, order), joined, pad=pad, border=border, stride=stride, dilation=dilation,
        group=group,
    )  # fmt: skip


@named
def transposed_self_operate(
    x: Operand,
    w: Operand,
    *,
    pad: Pad = None,
    stride: PerAxis = None,
    dilation: PerAxis = None,
    group: int = 1,
    output_padding: PerAxis = None,
) -> Variable:
    """Apply a transposed convolution to the powers of ``x``: `self_operate` for decoders.

    Args:
        x: ``(batch, channels, *spatial)``, of one to three spatial axes.
        w: ``(channels, order, maps / group, *kernel)``.
        pad: what is taken off at both ends of each spatial axis.
        stride: how much longer each axis becomes.
        dilation: steps between the places that a kernel reads.
        group: number of groups that channels and maps are divided into.
        output_padding: lengthens each axis at its end.

    Returns:
        ``(batch, maps, *places)``, as many places as `F.deconvolution` makes.

    Raises:
        ShapeError: shapes do not fit together.

    Gradient:
        Of any order.
    """
    x, w = _checked(x, w)
    channels, order, maps, *kernel = w.shape
    joined = F.reshape(w, (channels * order, maps, *kernel))
    return transposed_operate(
        _powers(x, order), joined, pad=pad, stride=stride, dilation=dilation, group=group,
        output_padding=output_padding,
    )  # fmt: skip


def _checked(x: Operand, w: Operand) -> tuple[Variable, Variable]:
    x, w = same_dtype(floating(x), floating(w))
    if w.ndim != x.ndim + 1 or x.ndim < 3:
        raise ShapeError(
            f"a weight of shape {w.shape} does not fit an input of shape {x.shape}: it has one "
            "axis more, of powers, and the input is (batch, channels, *spatial)"
        )
    return x, w


def _powers(x: Variable, order: int) -> Variable:
    """Put the powers of a channel beside each other, as channels."""
    if order == 1:
        return x
    batch, channels, *spatial = x.shape
    joined: Variable = F.reshape(
        powers(x, order=order, axis=2), (batch, channels * order, *spatial)
    )  # fmt: skip
    return joined


# Layers ------------------------------------------------------------------------------------------


@named
def self_operational(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    order: int = 3,
    pad: Pad = None,
    border: Border = "zeros",
    stride: PerAxis = None,
    dilation: PerAxis = None,
    group: int = 1,
    bounded: bool = True,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Apply generative neurons: polynomials of tanh of the input, one for each connection and tap.

    Parameters ``self_operational/W`` of shape (outmaps, channels / group, order, *kernel) and
    ``self_operational/b`` of shape (outmaps,). ``W[:, :, 0]`` is the weight of a convolution: with
    the rest 0 and ``bounded=False`` the layer is that convolution.

    Args:
        inp: ``(batch, channels, *spatial)``, of one to three spatial axes.
        outmaps: how many neurons, each of which makes one output map.
        kernel: shape of the window.
        order: the highest power; 3, 5 and 7 are customary.
        pad: what is added at both ends of each spatial axis, or ``"same"``, see `operate`.
        border: what is added: ``"zeros"``, ``"reflect"``, ``"replicate"`` or ``"circular"``.
        stride: steps of the window.
        dilation: steps between the places that a window reads.
        group: number of groups that channels and maps are divided into.
        bounded: whether tanh is applied to the input first, which keeps its powers in [-1, 1].
        w_init: an initializer or an array; by default uniform (Glorot and Bengio, 2010), over all
            powers, with the gain of tanh.
        b_init: an initializer or an array; by default 0.
        fix_parameters: whether the parameters are left out of training.
        rng: where the initial values come from; by default that of the library.
        with_bias: whether there is a bias.
        name: a scope for the parameters; ``None`` for the current one.

    Returns:
        ``(batch, outmaps, *places)``.

    Gradient:
        That of `self_operate`, for the input and the parameters.

    Examples:
        >>> from nnl_onn import self_operational
        >>> self_operational(Variable((8, 3, 32, 24)), 16, (3, 3), order=5, pad="same").shape
        (8, 16, 32, 24)
    """
    kernel = window_shape(kernel)
    inner = channels_of(inp, kernel) // groups(group)
    shape = (outmaps, inner, order, *kernel)
    init = w_init if w_init is not None else first_values(inner * order, outmaps, kernel, rng)
    with layer_scope("self_operational", name):
        w = weight(shape, init, (outmaps, inner, kernel), fix_parameters, rng)
        b = bias((outmaps,), b_init, with_bias, fix_parameters)
        y = self_operate(
            F.tanh(inp) if bounded else inp, w, pad=pad, border=border, stride=stride,
            dilation=dilation, group=group,
        )  # fmt: skip
        return add_bias(y, b)


@named
def transposed_self_operational(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    order: int = 3,
    pad: Pad = None,
    stride: PerAxis = None,
    dilation: PerAxis = None,
    group: int = 1,
    output_padding: PerAxis = None,
    bounded: bool = True,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Apply generative neurons as a transposed convolution, as decoders do to enlarge.

    Parameters ``transposed_self_operational/W`` of shape (channels, order, outmaps / group,
    *kernel) and ``transposed_self_operational/b`` of shape (outmaps,).

    Args:
        inp: ``(batch, channels, *spatial)``, of one to three spatial axes.
        outmaps: how many neurons, each of which makes one output map.
        kernel: shape of the window.
        order: the highest power; 3, 5 and 7 are customary.
        pad: what is taken off at both ends of each spatial axis.
        stride: how much longer each axis becomes.
        dilation: steps between the places that a kernel reads.
        group: number of groups that channels and maps are divided into.
        output_padding: lengthens each axis at its end; less than the stride or the dilation.
        bounded: whether tanh is applied to the input first, which keeps its powers in [-1, 1].
        w_init: an initializer or an array; by default as that of `self_operational`.
        b_init: an initializer or an array; by default 0.
        fix_parameters: whether the parameters are left out of training.
        rng: where the initial values come from; by default that of the library.
        with_bias: whether there is a bias.
        name: a scope for the parameters; ``None`` for the current one.

    Returns:
        ``(batch, outmaps, *places)``.

    Gradient:
        That of `transposed_self_operate`, for the input and the parameters.

    Examples:
        >>> from nnl_onn import transposed_self_operational
        >>> transposed_self_operational(Variable((8, 3, 16, 12)), 4, (2, 2), stride=2).shape
        (8, 4, 32, 24)
    """
    kernel = window_shape(kernel)
    channels = channels_of(inp, kernel)
    inner = channels // groups(group)
    shape = (channels, order, outmaps // group, *kernel)
    init = w_init if w_init is not None else first_values(inner * order, outmaps, kernel, rng)
    with layer_scope("transposed_self_operational", name):
        w = weight(shape, init, (outmaps, inner, kernel), fix_parameters, rng)
        b = bias((outmaps,), b_init, with_bias, fix_parameters)
        y = transposed_self_operate(
            F.tanh(inp) if bounded else inp, w, pad=pad, stride=stride, dilation=dilation,
            group=group, output_padding=output_padding,
        )  # fmt: skip
        return add_bias(y, b)


def channels_of(inp: Variable, kernel: Sequence[int]) -> int:
    """Return the number of channels; raise `ShapeError` where the kernel has other axes."""
    if inp.ndim != len(kernel) + 2:
        raise ShapeError(
            f"input of shape {inp.shape} does not fit a kernel of {len(kernel)} axes: it is "
            "(batch, channels, *spatial)"
        )
    return inp.shape[1]


def first_values(
    inputs: int, outmaps: int, kernel: Sequence[int], rng: RandomSource | None
) -> UniformInitializer:
    """Return first values for neurons that sum ``inputs`` planes, powers included."""
    limit = TANH_GAIN * math.sqrt(6 / (max(1, inputs + outmaps) * math.prod(kernel)))
    return UniformInitializer((-limit, limit), rng)


def add_bias(y: Variable, b: Variable | None) -> Variable:
    """Add a bias to each output map, where there is one."""
    return y if b is None else y + F.reshape(b, (1, -1, *(1,) * (y.ndim - 2)))
