"""Operational neurons as functions of variables, before bias and activation."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import sympy

from nnl_core import Variable
from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.variable import Operand
from nnl_core.operators.arithmetic import same_dtype
from nnl_core.operators.dtypes import floating
from nnl_core.operators.naming import named
from nnl_core.operators.windows import Lengths, Pairs, groups, lengths, pairs, span
from nnl_onn.expressions import X, separated
from nnl_onn.graph import build, can_build
from nnl_onn.nodal import find_nodal
from nnl_onn.operators import operate as operate_operator
from nnl_onn.pools import find_pool

Border: TypeAlias = Literal["zeros", "reflect", "replicate", "circular"]
PerAxis: TypeAlias = int | Sequence[int] | None
Pad: TypeAlias = int | Sequence[int | Sequence[int]] | Literal["same"] | None
Terms: TypeAlias = tuple[tuple[sympy.Expr, sympy.Expr], ...]

BORDERS = ("zeros", "reflect", "replicate", "circular")
MOST_TERMS = 4
"""Of how many convolutions a layer is made at most: beyond it they cost more than they save."""


@named
def operate(
    x: Operand,
    w: Operand,
    nodal: str = "mul",
    pool: str = "sum",
    *,
    pad: Pad = None,
    border: Border = "zeros",
    stride: PerAxis = None,
    dilation: PerAxis = None,
    group: int = 1,
) -> Variable:
    """Operate on windows of ``x``: over input maps, sum the pool over taps of ``nodal(x, w)``.

    ``y[n, m, i] = sum over c of the pool over k of nodal(x[n, c, i stride + k dilation - pad],
    w[m, c, k])``. With ``mul`` and ``sum`` it is `F.convolution`; whatever else is a sum of
    products of a function of ``x`` and one of ``w`` is computed as a convolution, too.

    Args:
        x: ``(batch, channels, *spatial)``, of one to three spatial axes.
        w: ``(maps, channels / group, *kernel)``.
        nodal: name of a nodal operator, or an expression in ``x`` and ``w``.
        pool: name of a pool.
        pad: how much is added at both ends of each spatial axis: one number, one for each axis, or
            pairs (before, after); ``"same"`` for as many outputs as inputs where ``stride`` is 1.
        border: what is added: ``"zeros"``, which the nodal operator takes like any other element,
            or more of the input: ``"reflect"``-ed at its outermost elements, ``"replicate"`` of
            these, or ``"circular"``, from the other end.
        stride: steps of the window; one number, or one for each axis.
        dilation: steps between the places that a window reads.
        group: number of groups that channels and maps are divided into.

    Returns:
        ``(batch, maps, *places)``.

    Raises:
        ShapeError: shapes do not fit together.
        OperatorError: there is no such border.
        UnknownComponentError: there is no such nodal operator or pool.

    Gradient:
        Of any order. Through a pool that selects it goes to the selected tap: the first of equal
        ones.
    """
    x, w = same_dtype(floating(x), floating(w))
    count = w.ndim - 2
    steps = lengths("stride", stride, count, 1)
    gaps = lengths("dilation", dilation, count, 1)
    ends = _ends(pad, span(w.shape[2:], gaps))
    terms = _terms(nodal, pool)
    if terms is None:
        result: Variable = operate_operator(
            _bordered(x, ends, border), w, nodal=nodal, pool=pool, stride=steps, dilation=gaps,
            groups=groups(group),
        )  # fmt: skip
        return result
    if not (border == "zeros" and _vanishes(terms)):
        x, ends = _bordered(x, ends, border), ((0, 0),) * count
    data = _expanded([build(of_x, x) for of_x, _ in terms], 2)
    weight = _expanded([build(of_w, w) for _, of_w in terms], 2)
    return F.convolution(data, weight, pad=ends, stride=steps, dilation=gaps, group=group)


@named
def transposed_operate(
    x: Operand,
    w: Operand,
    nodal: str = "mul",
    pool: str = "sum",
    *,
    pad: Pad = None,
    stride: PerAxis = None,
    dilation: PerAxis = None,
    group: int = 1,
    output_padding: PerAxis = None,
) -> Variable:
    """Operate on windows of ``x`` spread by zeros: the layer of decoders, which enlarges.

    ``stride - 1`` zeros go between neighbours of ``x``, and as many around it as a kernel reaches;
    then it is `operate`, with the kernel turned around and a stride of 1. With ``mul`` and ``sum``
    it is `F.deconvolution`. The zeros between take part in a pool like those of a border.

    Args:
        x: ``(batch, channels, *spatial)``, of one to three spatial axes.
        w: ``(channels, maps / group, *kernel)``, as that of a deconvolution.
        nodal: name of a nodal operator, or an expression in ``x`` and ``w``.
        pool: name of a pool.
        pad: what is taken off at both ends of each spatial axis.
        stride: how much longer each axis becomes.
        dilation: steps between the places that a kernel reads.
        group: number of groups that channels and maps are divided into.
        output_padding: lengthens each axis at its end; less than the stride or the dilation.

    Returns:
        ``(batch, maps, *places)``, of ``(length - 1) stride + (kernel - 1) dilation + 1 - pads +
        output_padding`` places.

    Raises:
        ShapeError: shapes do not fit together.
        UnknownComponentError: there is no such nodal operator or pool.

    Gradient:
        As that of `operate`.
    """
    x, w = same_dtype(floating(x), floating(w))
    count = w.ndim - 2
    steps = lengths("stride", stride, count, 1)
    gaps = lengths("dilation", dilation, count, 1)
    covered = span(w.shape[2:], gaps)
    ends = _ends(pad, covered)
    longer = _longer(output_padding, steps, gaps)
    terms = _terms(nodal, pool)
    if terms is not None and _vanishes(terms):
        data = _expanded([build(of_x, x) for of_x, _ in terms], 2)
        weight = _expanded([build(of_w, w) for _, of_w in terms], 1)
        return F.deconvolution(
            data, weight, pad=ends, stride=steps, dilation=gaps, group=group, output_padding=longer
        )
    outer = [
        (reach - 1 - before, reach - 1 - after + more)
        for reach, (before, after), more in zip(covered, ends, longer, strict=True)
    ]
    spread = _pad(_spread(x, steps), outer)
    return operate(spread, _turned(w, groups(group)), nodal, pool, dilation=gaps, group=group)


# Products of a function of x and one of w --------------------------------------------------------


@functools.cache
def _terms_of(expression: sympy.Expr) -> Terms | None:
    terms = separated(expression)
    if terms is None or len(terms) > MOST_TERMS:
        return None
    return terms if all(can_build(part) for term in terms for part in term) else None


def _terms(nodal: str, pool: str) -> Terms | None:
    """Return the products whose sum a nodal operator is, where a convolution computes it."""
    found = find_nodal(nodal)
    if find_pool(pool).select is not None or found.is_surrogate:
        return None
    expression = found.expression()
    return None if expression is None else _terms_of(expression)


def _vanishes(terms: Terms) -> bool:
    """Whether what is made of ``x = 0`` is 0, so that a convolution's own border does."""
    return all(of_x.subs(X, 0) == 0 for of_x, _ in terms)


def _expanded(parts: Sequence[Variable], axis: int) -> Variable:
    """Put the terms of a channel beside each other, as channels."""
    if len(parts) == 1:
        return parts[0]
    shape = list(parts[0].shape)
    shape[axis - 1] *= len(parts)
    if axis > 1:
        shape[0] = _free(parts[0])
    result: Variable = F.reshape(F.stack(*parts, axis=axis), shape)
    return result


def _free(x: Variable) -> int:
    """Return the first length as `F.reshape` takes it: data may come in batches of another."""
    return -1 if x.size else x.shape[0]


# Borders -----------------------------------------------------------------------------------------


def _ends(pad: Pad, covered: Sequence[int]) -> Pairs:
    if isinstance(pad, str):
        if pad != "same":
            raise OperatorError(f"pad {pad!r} is neither 'same' nor numbers")
        return tuple(((reach - 1) // 2, reach // 2) for reach in covered)
    return pairs(pad, len(covered))


def _longer(output_padding: PerAxis, stride: Lengths, dilation: Lengths) -> Lengths:
    count = len(stride)
    value = 0 if output_padding is None else output_padding
    listed = (value,) * count if isinstance(value, int) else tuple(value)
    limits = tuple(map(max, stride, dilation))
    if len(listed) != count or any(not 0 <= n < m for n, m in zip(listed, limits, strict=True)):
        raise ShapeError(
            f"output_padding {listed} must hold {count} lengths from 0 to below the stride or "
            f"dilation {limits}"
        )
    return listed


def _pad(x: Variable, ends: Sequence[tuple[int, int]], mode: str = "constant") -> Variable:
    """Add elements to the last axes; negative widths take them away."""
    lengths = x.shape[x.ndim - len(ends) :]
    kept = [slice(max(0, -b), n - max(0, -a)) for n, (b, a) in zip(lengths, ends, strict=True)]
    if any(part != slice(0, n) for part, n in zip(kept, lengths, strict=True)):
        x = x[(..., *kept)]
    widths = [max(0, width) for pair in ends for width in pair]
    return F.pad(x, widths, mode) if any(widths) else x


def _bordered(x: Variable, ends: Pairs, border: Border) -> Variable:
    if border not in BORDERS:
        raise OperatorError(f"border {border!r} is none of {', '.join(BORDERS)}")
    if border != "circular":
        modes = {"zeros": "constant", "reflect": "reflect", "replicate": "repeat"}
        return _pad(x, ends, modes[border])
    for axis, (before, after) in enumerate(ends, x.ndim - len(ends)):
        if before or after:
            places = np.arange(-before, x.shape[axis] + after) % x.shape[axis]
            x = F.gather(x, places, axis=axis)
    return x


def _spread(x: Variable, stride: Lengths) -> Variable:
    """Put ``stride - 1`` zeros between neighbours."""
    if all(step == 1 for step in stride):
        return x
    spatial = x.shape[2:]
    first = _free(x), x.shape[1]
    apart = F.reshape(x, (*first, *(n for length in spatial for n in (length, 1))))
    filled = _pad(apart, [pair for step in stride for pair in ((0, 0), (0, step - 1))])
    longer = [length * step for length, step in zip(spatial, stride, strict=True)]
    result = F.reshape(filled, (*first, *longer))
    return _pad(result, [(0, 1 - step) for step in stride])


def _turned(w: Variable, group: int) -> Variable:
    """Return the weight of a deconvolution as that of `operate`."""
    channels, maps, *kernel = w.shape
    if channels % group:
        raise ShapeError(f"weight has {channels} channels, which {group} groups do not divide")
    turned = F.flip(w, tuple(range(2, w.ndim)))
    if group == 1:
        result: Variable = F.transpose(turned, (1, 0, *range(2, w.ndim)))
        return result
    parts = F.reshape(turned, (group, channels // group, maps, *kernel))
    swapped = F.transpose(parts, (0, 2, 1, *range(3, w.ndim + 1)))
    return F.reshape(swapped, (group * maps, channels // group, *kernel))
