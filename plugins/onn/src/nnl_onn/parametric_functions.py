"""Operational layers, which make their own parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from nnl_core import Variable
from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.initializers import RandomSource, UniformInitializer
from nnl_core.operators.naming import named
from nnl_core.operators.windows import groups, window_shape
from nnl_core.parameters import Initial
from nnl_core.parametric_functions.common import bias, layer_scope, weight
from nnl_onn.functions import Border, Pad, PerAxis, operate, transposed_operate
from nnl_onn.operator_sets import OperatorSet, Sets, find_activation, operator_sets

Kind = TypeVar("Kind")


@named
def operational(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    operators: Sets | None = None,
    pad: Pad = None,
    border: Border = "zeros",
    stride: PerAxis = None,
    dilation: PerAxis = None,
    group: int = 1,
    limit: float | None = None,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Apply operational neurons: ``activation(sum over input maps of pool of nodal(x, w) - b)``.

    Parameters ``operational/W`` of shape (outmaps, channels / group, *kernel) and
    ``operational/b`` of shape (outmaps,). Output maps of equal operators are computed together.

    Args:
        inp: ``(batch, channels, *spatial)``, of one to three spatial axes.
        outmaps: how many neurons, each of which makes one output map.
        kernel: shape of the window.
        operators: an `OperatorSet` for all neurons, or one for each, or tables as project files
            have them, see `operator_sets`; by default ``OperatorSet()``, which makes a
            convolution with tanh.
        pad: what is added at both ends of each spatial axis, or ``"same"``, see `operate`.
        border: what is added: ``"zeros"``, ``"reflect"``, ``"replicate"`` or ``"circular"``.
        stride: steps of the window.
        dilation: steps between the places that a window reads.
        group: number of groups that channels and maps are divided into.
        limit: where given, all values of a sample are scaled before bias and activation so that
            none is larger; the factor counts as a constant. FastONN has 4.
        w_init: an initializer or an array; by default uniform up to one over the number of taps.
        b_init: the same of the bias.
        fix_parameters: whether the parameters are left out of training.
        rng: where the initial values come from; by default that of the library.
        with_bias: whether there is a bias.
        name: a scope for the parameters; ``None`` for the current one.

    Returns:
        ``(batch, outmaps, *places)``.

    Gradient:
        That of `operate`, for the input and the parameters.

    Examples:
        >>> from nnl_onn import OperatorSet, operational
        >>> sets = OperatorSet(nodal="sine", pool="median", activation="tanh")
        >>> operational(Variable((8, 3, 32, 24)), 16, (3, 3), sets, pad="same").shape
        (8, 16, 32, 24)
    """
    kernel = window_shape(kernel)
    groups(group)
    inner = _channels(inp, kernel) // group
    shape = (outmaps, inner, *kernel)

    def neurons(x: Variable, w: Variable, nodal: str, pool: str, group: int) -> Variable:
        return operate(
            x, w, nodal, pool, pad=pad, border=border, stride=stride, dilation=dilation,
            group=group,
        )  # fmt: skip

    with layer_scope("operational", name):
        w, b = _parameters(shape, outmaps, w_init, b_init, fix_parameters, rng, with_bias)
        return _layer(inp, w, b, operators, outmaps, group, limit, neurons, 0)


@named
def transposed_operational(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    operators: Sets | None = None,
    pad: Pad = None,
    stride: PerAxis = None,
    dilation: PerAxis = None,
    group: int = 1,
    output_padding: PerAxis = None,
    limit: float | None = None,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Apply operational neurons to ``inp`` spread by zeros, as decoders do to enlarge.

    Parameters ``transposed_operational/W`` of shape (channels, outmaps / group, *kernel) and
    ``transposed_operational/b`` of shape (outmaps,).

    Args:
        inp: ``(batch, channels, *spatial)``, of one to three spatial axes.
        outmaps: how many neurons, each of which makes one output map.
        kernel: shape of the window.
        operators: as those of `operational`.
        pad: what is taken off at both ends of each spatial axis.
        stride: how much longer each axis becomes.
        dilation: steps between the places that a kernel reads.
        group: number of groups that channels and maps are divided into.
        output_padding: lengthens each axis at its end; less than the stride or the dilation.
        limit: as that of `operational`.
        w_init: an initializer or an array; by default uniform up to one over the number of taps.
        b_init: the same of the bias.
        fix_parameters: whether the parameters are left out of training.
        rng: where the initial values come from; by default that of the library.
        with_bias: whether there is a bias.
        name: a scope for the parameters; ``None`` for the current one.

    Returns:
        ``(batch, outmaps, *places)``.

    Gradient:
        That of `transposed_operate`, for the input and the parameters.

    Examples:
        >>> from nnl_onn import OperatorSet, transposed_operational
        >>> sets = OperatorSet(nodal="sine")
        >>> transposed_operational(Variable((8, 3, 16, 12)), 4, (2, 2), sets, stride=2).shape
        (8, 4, 32, 24)
    """
    kernel = window_shape(kernel)
    channels = _channels(inp, kernel)
    shape = (channels, outmaps // groups(group), *kernel)

    def neurons(x: Variable, w: Variable, nodal: str, pool: str, group: int) -> Variable:
        return transposed_operate(
            x, w, nodal, pool, pad=pad, stride=stride, dilation=dilation, group=group,
            output_padding=output_padding,
        )  # fmt: skip

    with layer_scope("transposed_operational", name):
        w, b = _parameters(shape, outmaps, w_init, b_init, fix_parameters, rng, with_bias)
        return _layer(inp, w, b, operators, outmaps, group, limit, neurons, 1)


def _channels(inp: Variable, kernel: Sequence[int]) -> int:
    if inp.ndim != len(kernel) + 2:
        raise ShapeError(
            f"input of shape {inp.shape} does not fit a kernel of {len(kernel)} axes: it should be "
            "(batch, channels, *spatial)"
        )
    return inp.shape[1]


def _parameters(
    shape: Sequence[int],
    outmaps: int,
    w_init: Initial | None,
    b_init: Initial | None,
    fix_parameters: bool,
    rng: RandomSource | None,
    with_bias: bool,
) -> tuple[Variable, Variable | None]:
    bound = 1 / math.prod(shape[2:])
    uniform = UniformInitializer((-bound, bound), rng)
    fans = (outmaps, shape[1], shape[2:])
    w = weight(shape, uniform if w_init is None else w_init, fans, fix_parameters, rng)
    b = bias((outmaps,), uniform if b_init is None else b_init, with_bias, fix_parameters)
    return w, b


def _layer(
    x: Variable,
    w: Variable,
    b: Variable | None,
    operators: Sets | None,
    outmaps: int,
    group: int,
    limit: float | None,
    neurons: Callable[[Variable, Variable, str, str, int], Variable],
    map_axis: int,
) -> Variable:
    """Return all neurons' output maps; those of the weight lie along ``map_axis``."""
    sets = operator_sets(OperatorSet() if operators is None else operators, outmaps)
    kinds = [(one.nodal, one.pool) for one in sets]
    if len(set(kinds)) == 1:
        y = neurons(x, w, *kinds[0], group)
    else:
        data, rows = _parts(x, group, 1), _parts(w, group, 0)
        count = outmaps // group

        def of_group(number: int) -> Variable:
            return _by_kind(
                kinds[number * count : (number + 1) * count],
                lambda kind, maps: neurons(
                    data[number], _taken(rows[number], maps, map_axis), *kind, 1
                ),
            )

        y = _joined([of_group(number) for number in range(group)])
    if limit is not None:
        largest = F.max(F.abs(y), axis=tuple(range(1, y.ndim)), keepdims=True)
        y = y * F.unlink(limit / F.maximum_scalar(largest, limit))
    if b is not None:
        y = y - F.reshape(b, (1, outmaps, *(1,) * (y.ndim - 2)))
    return _by_kind(
        [one.activation for one in sets],
        lambda activation, maps: find_activation(activation)(_taken(y, maps, 1)),
    )


def _parts(x: Variable, count: int, axis: int) -> list[Variable]:
    if x.shape[axis] % count:
        raise ShapeError(f"{count} groups do not divide {x.shape[axis]} channels or maps")
    length = x.shape[axis] // count
    before = (slice(None),) * axis
    return [x[(*before, slice(n * length, (n + 1) * length))] for n in range(count)]


def _joined(parts: Sequence[Variable]) -> Variable:
    return parts[0] if len(parts) == 1 else F.concatenate(*parts, axis=1)


def _taken(x: Variable, places: Sequence[int] | None, axis: int) -> Variable:
    return x if places is None else F.gather(x, np.array(places), axis=axis)


def _by_kind(
    kinds: Sequence[Kind], apply: Callable[[Kind, Sequence[int] | None], Variable]
) -> Variable:
    """Apply each kind to the maps that are of it (``None``: all), and return all maps in order."""
    distinct = list(dict.fromkeys(kinds))
    if len(distinct) == 1:
        return apply(distinct[0], None)
    places = [[at for at, kind in enumerate(kinds) if kind == one] for one in distinct]
    y = _joined(list(map(apply, distinct, places)))
    order = [at for part in places for at in part]
    return y if order == sorted(order) else F.gather(y, np.argsort(order), axis=1)
