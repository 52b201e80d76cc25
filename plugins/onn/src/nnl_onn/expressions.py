"""Expressions in ``x`` and ``w``: read, differentiated, and written as NumPy, C and CUDA."""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import sympy

from nnl_core.errors import OperatorError
from nnl_core.graph.operator import Array

X, W = sympy.symbols("x w", real=True)

# Reading -----------------------------------------------------------------------------------------

_FUNCTIONS: Mapping[str, Callable[..., sympy.Basic]] = {
    "abs": sympy.Abs,
    "cos": sympy.cos,
    "cosh": sympy.cosh,
    "exp": sympy.exp,
    "heaviside": lambda t: sympy.Heaviside(t, 0),
    "log": sympy.log,
    "maximum": sympy.Max,
    "minimum": sympy.Min,
    "sign": sympy.sign,
    "sin": sympy.sin,
    "sinc": lambda t: _sinc(t),
    "sinh": sympy.sinh,
    "sqrt": sympy.sqrt,
    "tan": sympy.tan,
    "tanh": sympy.tanh,
    "where": lambda condition, yes, no: sympy.Piecewise((yes, condition), (no, True)),
}
_OPERATIONS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: _power(a, b),
    ast.USub: lambda a: -a,
    ast.UAdd: lambda a: a,
    ast.Lt: sympy.Lt,
    ast.LtE: sympy.Le,
    ast.Gt: sympy.Gt,
    ast.GtE: sympy.Ge,
}
_NAMES: Mapping[str, sympy.Expr] = {"x": X, "w": W, "pi": sympy.pi, "e": sympy.E}


def _power(base: sympy.Expr, exponent: sympy.Expr) -> sympy.Expr:
    if exponent.is_number and abs(exponent) > 64:
        raise ValueError(f"exponent {exponent} is above 64")
    return base**exponent


def _sinc(t: sympy.Expr) -> sympy.Expr:
    """Return ``sin(t) / t``; near 0 as its series, whose derivatives cancel nowhere.

    The ninth term is below half a unit in the last place of ``float64`` where the two meet.
    """
    series = sum(
        (-1) ** n * t ** (2 * n) / sympy.Integer(math.factorial(2 * n + 1)) for n in range(9)
    )
    return sympy.Piecewise((series, sympy.Abs(t) < 1), (sympy.sin(t) / t, True))


@functools.cache
def parse(text: str) -> sympy.Expr:
    """Read an expression in ``x`` and ``w``, in Python's notation; nothing in it is executed.

    It may hold numbers, ``pi``, ``e``, ``+ - * / **``, comparisons, the functions ``abs cos cosh
    exp heaviside log maximum minimum sign sin sinc sinh sqrt tan tanh``, and ``where(condition,
    yes, no)``; ``sinc(t)`` is ``sin(t) / t``, ``heaviside(0)`` is 0.

    Raises `OperatorError` for anything else.
    """
    try:
        value = _read(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, TypeError, ValueError) as error:
        raise OperatorError(f"{text!r} is no expression in x and w: {error}") from error
    if not isinstance(value, sympy.Expr) or value.has(sympy.nan, sympy.zoo, sympy.oo, sympy.I):
        raise OperatorError(f"{text!r} has no real value: {value}")
    return value


def _read(node: ast.AST) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return sympy.Rational(repr(node.value))
    if isinstance(node, ast.Name) and node.id in _NAMES:
        return _NAMES[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_read(node.left), _read(node.right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_read(node.operand))
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _OPERATIONS:
        return _OPERATIONS[type(node.ops[0])](_read(node.left), _read(node.comparators[0]))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        function = _FUNCTIONS.get(node.func.id)
        if function is not None:
            return function(*map(_read, node.args))
        raise ValueError(
            f"there is no function {node.func.id!r}; there are {', '.join(_FUNCTIONS)}"
        )
    raise ValueError(f"it may not hold {ast.unparse(node)!r}")


# Derivatives -------------------------------------------------------------------------------------


@functools.cache
def differentiate(expression: sympy.Expr, path: str) -> sympy.Expr:
    """Return a derivative: by ``x`` and ``w`` in the order of the letters of ``path``.

    Where a step is taken the derivative is 0.
    """
    for letter in path:
        expression = sympy.diff(expression, X if letter == "x" else W)
        expression = expression.replace(sympy.DiracDelta, lambda *_: sympy.Integer(0))
    return expression


# Writing -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dialect:
    """How a language writes functions, numbers, and a choice between two values."""

    functions: Mapping[str, str]
    number: Callable[[float], str]
    choice: str
    conjunction: str
    disjunction: str


_NUMPY_NAMES = ("cos", "cosh", "exp", "log", "sin", "sinh", "sqrt", "tan", "tanh", "sign")
NUMPY = Dialect(
    {**{name: f"np.{name}" for name in _NUMPY_NAMES}, "Abs": "np.abs", "pow": "np.power",
     "Max": "np.maximum", "Min": "np.minimum"},
    repr,
    "np.where({condition}, {yes}, {no})",
    " & ",
    " | ",
)  # fmt: skip


def c_dialect(functions: Mapping[str, str] | None = None, *, suffix: str = "f") -> Dialect:
    """Return C or CUDA in ``float`` (suffix ``f``) or ``double`` (none), with other functions."""
    names = {name: f"{name}{suffix}" for name in _NUMPY_NAMES if name != "sign"}
    names |= {"Abs": f"fabs{suffix}", "pow": f"pow{suffix}"}
    names |= {"Max": f"fmax{suffix}", "Min": f"fmin{suffix}"}
    return Dialect(
        {**names, **(functions or {})},
        lambda value: f"{value!r}{suffix}",
        "(({condition}) ? {yes} : {no})",
        " && ",
        " || ",
    )


C = c_dialect()


def write(expression: sympy.Expr, dialect: Dialect) -> str:
    """Write an expression in a language; small whole powers are products."""
    return _Writer(dialect).text(expression)


class _Writer:
    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def text(self, e: sympy.Basic) -> str:
        if e.is_Symbol:
            return str(e.name)
        if e.is_Number or e.is_NumberSymbol:
            value = float(e)
            return f"({self.dialect.number(value)})" if value < 0 else self.dialect.number(value)
        if e.is_Add:
            return "(" + " + ".join(map(self.text, e.args)) + ")"
        if e.is_Mul:
            return self._product(e)
        if e.is_Pow:
            return self._power(e)
        if e.is_Relational:
            left, right = map(self.text, e.args)
            return f"({left} {e.rel_op} {right})"
        if isinstance(e, (sympy.And, sympy.Or)):
            is_and = isinstance(e, sympy.And)
            joined = self.dialect.conjunction if is_and else self.dialect.disjunction
            return "(" + joined.join(map(self.text, e.args)) + ")"
        return self._function(e)

    def _product(self, e: sympy.Basic) -> str:
        # What is divided by goes below one line, so that there is one division.
        numerator, denominator = sympy.fraction(e, exact=True)
        if denominator != 1 and not denominator.is_Number:
            return f"({self.text(numerator)} / {self.text(denominator)})"
        return "(" + " * ".join(map(self.text, e.args)) + ")"

    def _power(self, e: sympy.Basic) -> str:
        base, exponent = e.args
        if exponent.is_Integer and 1 < exponent <= 8:
            return "(" + " * ".join([self.text(base)] * int(exponent)) + ")"
        if exponent == -1 or (exponent.is_Integer and exponent < 0):
            return f"({self.dialect.number(1.0)} / {self.text(base**-exponent)})"
        if exponent == sympy.Rational(1, 2):
            return f"{self.dialect.functions['sqrt']}({self.text(base)})"
        return f"{self.dialect.functions['pow']}({self.text(base)}, {self.text(exponent)})"

    def _function(self, e: sympy.Basic) -> str:
        zero, one = self.dialect.number(0.0), self.dialect.number(1.0)
        if isinstance(e, sympy.Piecewise):
            *pairs, (last, _) = e.args
            result = self.text(last)
            for value, condition in reversed(pairs):
                result = self._choose(self.text(condition), self.text(value), result)
            return result
        name = e.func.__name__
        if name == "Heaviside":
            at_zero = self.text(e.args[1])
            argument = self.text(e.args[0])
            below = zero if at_zero == zero else self._choose(
                f"{argument} < {zero}", zero, at_zero
            )  # fmt: skip
            return self._choose(f"{argument} > {zero}", one, below)
        if name == "sign" and "sign" not in self.dialect.functions:
            argument = self.text(e.args[0])
            below = self._choose(f"{argument} < {zero}", f"(-{one})", zero)
            return self._choose(f"{argument} > {zero}", one, below)
        if name not in self.dialect.functions:
            raise OperatorError(f"{e} cannot be written as code: {name} has no form there")
        function = self.dialect.functions[name]
        if name in ("Max", "Min"):
            return functools.reduce(
                lambda left, right: f"{function}({left}, {right})", map(self.text, e.args)
            )
        return f"{function}({', '.join(map(self.text, e.args))})"

    def _choose(self, condition: str, yes: str, no: str) -> str:
        return self.dialect.choice.format(condition=condition, yes=yes, no=no)


def statements(
    named: Mapping[str, sympy.Expr],
    dialect: Dialect,
    declaration: str = "",
    end: str = ";",
    temporary: str = "t_",
) -> list[str]:
    """Write assignments of named expressions; what they have in common is computed once.

    ``declaration`` stands before each, as ``"const float "``. Temporaries are ``t_0``, ``t_1``, ...
    """
    shared, reduced = sympy.cse(list(named.values()), symbols=sympy.numbered_symbols(temporary))
    pairs = [*((str(symbol), e) for symbol, e in shared), *zip(named, reduced, strict=True)]
    return [f"{declaration}{name} = {write(e, dialect)}{end}" for name, e in pairs]


@functools.cache
def numpy_function(expression: sympy.Expr) -> Callable[[Array, Array], Array]:
    """Return a function of arrays ``x`` and ``w``, which broadcast."""
    lines = statements({"result": expression}, NUMPY, "    ", "")
    text = "\n".join(["def function(x, w):", *lines, "    return result"])
    scope: dict[str, Any] = {"np": np}
    exec(text, scope)  # of names and numbers that `write` has put together
    function: Callable[[Array, Array], Array] = scope["function"]

    def broadcast(x: Array, w: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.broadcast_to(function(x, w), np.broadcast_shapes(x.shape, w.shape))

    return broadcast


# What an expression is like ----------------------------------------------------------------------


class Planes(NamedTuple):
    """An expression whose parts in ``x`` alone have names.

    ``core`` is in ``w`` and the symbols ``f0``, ``f1``, ...; ``planes`` says what these are in
    ``x``.
    """

    core: sympy.Expr
    planes: Mapping[sympy.Symbol, sympy.Expr]


@functools.cache
def planes(expression: sympy.Expr) -> Planes:
    """Take out the largest parts in ``x`` alone, which are computed once for each element.

    Of a `sympy.Tuple` of several expressions, the planes are those of all.
    """
    found: dict[sympy.Expr, sympy.Symbol] = {}

    def plane(part: sympy.Expr) -> sympy.Symbol:
        return found.setdefault(part, sympy.Symbol(f"f{len(found)}", real=True))

    def hoist(part: sympy.Basic) -> sympy.Basic:
        if isinstance(part, sympy.Tuple):  # of several expressions, or of a choice
            return part.func(*map(hoist, part.args))
        if not part.has(X) or part.is_Boolean:
            return part.xreplace({X: plane(X)}) if part.has(X) else part
        if not part.has(W):
            return plane(part)
        if part.is_Mul or part.is_Add:
            alone = [one for one in part.args if one.has(X) and not one.has(W)]
            others = [one for one in part.args if one not in alone]
            if alone:
                return part.func(plane(part.func(*alone)), *map(hoist, others))
        return part.func(*map(hoist, part.args))

    core = hoist(expression)
    return Planes(core, {symbol: part for part, symbol in found.items()})


@functools.cache
def separated(expression: sympy.Expr) -> tuple[tuple[sympy.Expr, sympy.Expr], ...] | None:
    """Return ``a_r(x), b_r(w)`` whose products add up to the expression, or ``None``."""
    by_x: dict[sympy.Expr, sympy.Expr] = {}
    by_w: dict[sympy.Expr, sympy.Expr] = {}
    for term in sympy.Add.make_args(sympy.expand(expression)):
        factors = sympy.Mul.make_args(term)
        if any(factor.has(X) and factor.has(W) for factor in factors):
            return None
        of_x = sympy.Mul(*(factor for factor in factors if factor.has(X)))
        of_w = sympy.Mul(*(factor for factor in factors if factor.has(W)))
        number = sympy.Mul(*(factor for factor in factors if not factor.has(X, W)))
        by_x[of_x] = by_x.get(of_x, sympy.Integer(0)) + number * of_w
        by_w[of_w] = by_w.get(of_w, sympy.Integer(0)) + number * of_x
    if len(by_x) <= len(by_w):
        return tuple(by_x.items())
    return tuple((of_x, of_w) for of_w, of_x in by_w.items())


class Monotone(NamedTuple):
    """``g(u)`` increasing in ``u = w * plane``: of a maximum or median it is computed once."""

    plane: sympy.Expr
    u: sympy.Symbol
    g: sympy.Expr


@functools.cache
def monotone(expression: sympy.Expr) -> Monotone | None:
    """Return the expression as an increasing function of ``w`` times a part in ``x``, if it is."""
    core, parts = planes(expression)
    if len(parts) != 1:
        return None
    ((symbol, plane),) = parts.items()
    u = sympy.Symbol("u", real=True)
    g = sympy.simplify(core.subs(W, u / symbol))
    if g.has(symbol) or g.has(W) or not sympy.simplify(g.diff(u)).is_positive:
        return None
    return Monotone(plane, u, g)


def in_order(path: str) -> str:
    """Return the letters of a path sorted: true derivatives do not depend on their order."""
    return "".join(sorted(path, reverse=True))


def evaluate_at(expression: sympy.Expr, values: Sequence[float]) -> float:
    """Return the value at ``x, w``, with 30 digits on the way."""
    x, w = (sympy.Float(value, 30) for value in values)
    return float(expression.subs({X: x, W: w}).evalf(30))
