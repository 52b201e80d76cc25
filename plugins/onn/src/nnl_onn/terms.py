"""What kernels in C and CUDA are made of: the parts of an expression, each where it is cheapest."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

import sympy

from nnl_onn.expressions import W, X, monotone, planes
from nnl_onn.nodal import Nodal

A, B, M = sympy.symbols("a b m", real=True)  # factors of data and weight; what a pool selects


class Terms(NamedTuple):
    """Expressions of a kernel.

    Attributes
    ----------
    planes
        parts in ``x`` alone, by name: once for each element of the data
    constants
        parts in ``w`` and ``b`` alone, by name: once for each weight
    value
        what a pool selects by, ``None`` for the sum
    results
        what is computed of each tap, or of the selected one; in ``m`` alone, where it follows from
        the selected value
    """

    planes: Mapping[str, sympy.Expr]
    constants: Mapping[str, sympy.Expr]
    value: sympy.Expr | None
    results: Mapping[str, sympy.Expr]


@functools.cache
def terms(
    nodal: Nodal, selects: bool, paths: tuple[tuple[str, str], ...], factors: frozenset[str]
) -> Terms | None:
    """Return the parts of a kernel that computes derivatives of a nodal operator.

    ``paths`` names each result, and the letters that it is derived by; ``factors`` are those of
    ``a`` and ``b`` that results are multiplied by. ``None`` where the operator is a function and
    no expression.
    """
    psi = nodal.expression()
    found = {name: nodal.expression(path) for name, path in paths}
    if psi is None:
        return None
    results: dict[str, sympy.Expr] = {}
    for name, expression in found.items():
        if expression is None:
            return None
        results[name] = expression
    value = None
    if selects:
        grows = monotone(psi)  # of u = w f; of the largest u it is the largest
        value = psi if grows is None else W * grows.plane
        if not factors and paths == (("y", ""),):
            results["y"] = M if grows is None else grows.g.subs(grows.u, M)
    given = sympy.Tuple(*results.values(), *([] if value is None else [value]))
    core, parts = planes(given)
    renamed = {symbol: X for symbol, part in parts.items() if part == X}
    hoist = _Constants()
    # Outside what is hoisted: planes are of x alone.
    product = sympy.Mul(*(symbol for symbol in (A, B) if symbol.name in factors))
    split = [
        hoist.take(one.xreplace(renamed) * (product if position < len(results) else 1))
        for position, one in enumerate(core)
    ]
    return Terms(
        {symbol.name: part for symbol, part in parts.items() if part != X},
        hoist.named,
        split.pop() if selects else None,
        dict(zip(results, split, strict=True)),
    )


class _Constants:
    """Takes out parts that follow from the weight alone, numbers beside them included."""

    def __init__(self) -> None:
        self.named: dict[str, sympy.Expr] = {}
        self._names: dict[sympy.Expr, sympy.Symbol] = {}

    def take(self, part: sympy.Basic) -> sympy.Basic:
        if part.is_Boolean or not part.has(W, B):
            return part
        if part.free_symbols <= {W, B}:
            return self._name(part)
        if part.is_Mul or part.is_Add:
            alone = [one for one in part.args if one.free_symbols <= {W, B}]
            if any(one.free_symbols for one in alone):
                others = [one for one in part.args if one not in alone]
                return part.func(self._name(part.func(*alone)), *map(self.take, others))
        return part.func(*map(self.take, part.args))

    def _name(self, part: sympy.Expr) -> sympy.Expr:
        if part in (W, B):
            return part
        if part not in self._names:
            self._names[part] = symbol = sympy.Symbol(f"c{len(self._names)}", real=True)
            self.named[symbol.name] = part
        return self._names[part]
