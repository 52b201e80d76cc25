"""Expressions in ``x`` or ``w`` alone as graphs of NNL's functions."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping

import sympy

from nnl_core import Variable
from nnl_core import functions as F
from nnl_core.errors import OperatorError

_FUNCTIONS: Mapping[str, Callable[[Variable], Variable]] = {
    "Abs": F.abs, "cos": F.cos, "cosh": F.cosh, "exp": F.exp, "log": F.log, "sign": F.sign,
    "sin": F.sin, "sinh": F.sinh, "tan": F.tan, "tanh": F.tanh,
}  # fmt: skip
_CHOICES = {
    "Max": (F.maximum2, F.maximum_scalar),
    "Min": (F.minimum2, F.minimum_scalar),
}


def build(expression: sympy.Expr, variable: Variable) -> Variable:
    """Return an expression of one symbol as a function of a variable, of the same shape.

    Raises `OperatorError` where it holds what no function stands for; see `can_build`.
    """
    result = _build(expression, variable)
    if isinstance(result, Variable):
        return result
    return F.mul_scalar(F.ones_like(variable), result)


def can_build(expression: sympy.Expr) -> bool:
    """Whether all that an expression holds is among NNL's functions."""
    return all(
        part.is_Symbol
        or part.is_number
        or part.is_Add
        or part.is_Mul
        or (part.is_Pow and part.exp.is_number)
        or part.func.__name__ in {*_FUNCTIONS, *_CHOICES}
        for part in sympy.preorder_traversal(expression)
    )


def _build(e: sympy.Expr, variable: Variable) -> Variable | float:
    if e.is_Symbol:
        return variable
    if e.is_number:
        return float(e)
    parts = [_build(argument, variable) for argument in e.args]
    # Numbers last: they become attributes, which never widen a dtype.
    parts.sort(key=lambda part: isinstance(part, float))
    name = e.func.__name__
    if e.is_Add:
        return functools.reduce(operator.add, parts)
    if e.is_Mul:
        return functools.reduce(operator.mul, parts)
    if e.is_Pow and e.exp.is_number:
        return F.pow_scalar(parts[0], float(e.exp))
    if name in _FUNCTIONS and isinstance(parts[0], Variable):
        return _FUNCTIONS[name](parts[0])
    if name in _CHOICES:
        of_two, of_number = _CHOICES[name]
        result = parts[0]
        for part in parts[1:]:
            result = of_number(result, part) if isinstance(part, float) else of_two(result, part)
        return result
    raise OperatorError(f"{e} is no function of NNL")
