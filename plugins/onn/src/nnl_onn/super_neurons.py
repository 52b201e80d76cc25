"""Super neurons: generative neurons whose kernels are shifted, each connection's by its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from nnl_core import Variable
from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.variable import Operand
from nnl_core.initializers import RandomSource, UniformInitializer
from nnl_core.operators.arithmetic import same_dtype
from nnl_core.operators.dtypes import floating
from nnl_core.operators.naming import named
from nnl_core.operators.windows import Lengths, groups, lengths, pairs, span, window_shape
from nnl_core.parameters import Initial, get_parameter_or_create
from nnl_core.parametric_functions.common import bias, layer_scope, weight
from nnl_onn.functions import Border, Pad, PerAxis
from nnl_onn.self_onn import add_bias, channels_of, first_values, self_operate

Shifts: TypeAlias = Literal["learned", "random"]


@named
def super_operate(
    x: Operand,
    w: Operand,
    shift: Operand,
    limit: float,
    *,
    pad: Pad = None,
    border: Border = "zeros",
    stride: PerAxis = None,
    dilation: PerAxis = None,
    group: int = 1,
) -> Variable:
    """Operate as `self_operate` does, with each connection's kernel shifted.

    ``y[n, m, i] = sum over c, q and k of w[m, c, q, k] x_q[n, c, i stride + k dilation - pad +
    shift[m, c]]``, where ``x_q`` are the powers of ``x``, linear in between (Kiranyaz et al.,
    "Super neurons", 2023). A kernel shifted by a fraction is the mean of shifted ones, so this is
    one convolution with kernels that are longer by twice the limit.

    Args:
        x: ``(batch, channels, *spatial)``, of one to three spatial axes.
        w: ``(maps, channels / group, order, *kernel)``.
        shift: ``(maps, channels / group, axes)``, a number of elements along each spatial axis.
        limit: the largest shift; others are cut there, and then have a gradient of 0.
        pad: what is added at both ends of each spatial axis, for a shift of 0, or ``"same"``.
        border: what is beyond, as far as shifts reach: ``"zeros"``, ``"reflect"``,
            ``"replicate"`` or ``"circular"``.
        stride: steps of the window.
        dilation: steps between the places that a window reads.
        group: number of groups that channels and maps are divided into.

    Returns:
        ``(batch, maps, *places)``, as many as without shifts.

    Raises:
        OperatorError: the limit is no positive number.
        ShapeError: shapes do not fit together.

    Gradient:
        Of any order. That of a shift by a whole number is the derivative to the right.
    """
    if not (math.isfinite(limit) and limit > 0):
        raise OperatorError(f"limit {limit} of shifts must be a positive number")
    w, shift = same_dtype(floating(w), floating(shift))
    count = w.ndim - 3
    if count < 1 or shift.shape != (*w.shape[:2], count):
        raise ShapeError(
            f"shifts of shape {shift.shape} do not fit a weight of shape {w.shape}: they are "
            "(maps, channels / group, number of spatial axes)"
        )
    gaps = lengths("dilation", dilation, count, 1)
    reach = math.ceil(limit)
    covered = span(w.shape[3:], gaps)
    if pad == "same":
        pad = tuple(((length - 1) // 2, length // 2) for length in covered)
    elif isinstance(pad, str):
        raise OperatorError(f"pad {pad!r} is neither 'same' nor numbers")
    ends = [(before + reach, after + reach) for before, after in pairs(pad, count)]
    kernels = shifted_kernels(w, F.clip(shift, -limit, limit), reach, gaps)
    return self_operate(x, kernels, pad=ends, border=border, stride=stride, group=group)


def shifted_kernels(w: Variable, shift: Variable, reach: int, dilation: Lengths) -> Variable:
    """Return kernels ``(maps, channels, order, *longer)`` that do what shifted ones do.

    Each axis becomes ``(kernel - 1) dilation + 1 + 2 reach`` long; shifts are at most ``reach``.
    """
    outer = w.shape[:3]
    for axis, gap in enumerate(dilation):
        kernel = w.shape[3 + axis]
        longer = (kernel - 1) * gap + 1 + 2 * reach
        offsets = np.arange(longer)[:, None] - gap * np.arange(kernel) - reach
        by = F.reshape(shift[:, :, axis], (*outer[:2], 1, 1))
        whole = F.clip(F.floor(F.unlink(by)), -reach, reach - 1)
        rest = by - whole
        apart = Variable.from_numpy_array(offsets.astype(w.dtype)) - whole
        at, after = (F.cast(F.equal_scalar(apart, place), w.dtype) for place in (0.0, 1.0))
        spread = F.reshape(at + (after - at) * rest, (*outer[:2], 1, 1, longer, kernel, 1))
        left, right = math.prod(w.shape[3 : 3 + axis]), math.prod(w.shape[4 + axis :])
        apart_by_tap = F.reshape(w, (*outer, left, 1, kernel, right))
        shape = (*outer, *w.shape[3 : 3 + axis], longer, *w.shape[4 + axis :])
        w = F.reshape(F.sum(spread * apart_by_tap, axis=5), shape)
    return w


@named
def super_operational(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    order: int = 3,
    limit: float = 2,
    shifts: Shifts = "learned",
    pad: Pad = None,
    border: Border = "zeros",
    stride: PerAxis = None,
    dilation: PerAxis = None,
    group: int = 1,
    bounded: bool = True,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    shift_init: Initial | None = None,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Apply super neurons: generative neurons that look beside where their kernel is.

    Parameters ``super_operational/W`` of shape (outmaps, channels / group, order, *kernel),
    ``super_operational/shift`` of shape (outmaps, channels / group, axes), and
    ``super_operational/b`` of shape (outmaps,). Each connection's kernel is shifted by ``limit *
    tanh(shift / limit)`` where shifts are learned, so that they stay in their limit and never stop
    to learn, and by ``shift`` itself where they are random.

    Args:
        inp: ``(batch, channels, *spatial)``, of one to three spatial axes.
        outmaps: how many neurons, each of which makes one output map.
        kernel: shape of the window.
        order: the highest power; 3, 5 and 7 are customary.
        limit: the largest shift. What is computed grows with it, as by a kernel that is longer by
            twice the limit.
        shifts: ``"learned"``, or ``"random"``: drawn once, and left out of training.
        pad: what is added at both ends of each spatial axis, for a shift of 0, or ``"same"``.
        border: what is beyond, as far as shifts reach: ``"zeros"``, ``"reflect"``,
            ``"replicate"`` or ``"circular"``.
        stride: steps of the window.
        dilation: steps between the places that a window reads.
        group: number of groups that channels and maps are divided into.
        bounded: whether tanh is applied to the input first, which keeps its powers in [-1, 1].
        w_init: an initializer or an array; by default as that of `self_operational`.
        b_init: an initializer or an array; by default 0.
        shift_init: an initializer or an array; by default uniform in the limit.
        fix_parameters: whether the parameters are left out of training.
        rng: where the initial values come from; by default that of the library.
        with_bias: whether there is a bias.
        name: a scope for the parameters; ``None`` for the current one.

    Returns:
        ``(batch, outmaps, *places)``.

    Gradient:
        That of `super_operate`, for the input and the parameters.

    Examples:
        >>> from nnl_onn import super_operational
        >>> super_operational(Variable((8, 3, 32, 24)), 16, (3, 3), limit=1, pad="same").shape
        (8, 16, 32, 24)
    """
    if shifts not in ("learned", "random"):
        raise OperatorError(f"shifts {shifts!r} are neither 'learned' nor 'random'")
    kernel = window_shape(kernel)
    inner = channels_of(inp, kernel) // groups(group)
    shape = (outmaps, inner, order, *kernel)
    init = w_init if w_init is not None else first_values(inner * order, outmaps, kernel, rng)
    drawn = UniformInitializer((-limit, limit), rng) if shift_init is None else shift_init
    learned = shifts == "learned"
    with layer_scope("super_operational", name):
        w = weight(shape, init, (outmaps, inner, kernel), fix_parameters, rng)
        b = bias((outmaps,), b_init, with_bias, fix_parameters)
        shift = get_parameter_or_create(
            "shift", (outmaps, inner, len(kernel)), drawn, learned, learned and not fix_parameters
        )
        y = super_operate(
            F.tanh(inp) if bounded else inp, w,
            limit * F.tanh(shift / limit) if learned else shift, limit, pad=pad, border=border,
            stride=stride, dilation=dilation, group=group,
        )  # fmt: skip
        return add_bias(y, b)
