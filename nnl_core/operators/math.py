"""Mathematical functions of single elements, roundings, and constant arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.polynomial import chebyshev

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import DEFAULT_DTYPE
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import cast, same_dtype, unbroadcast
from nnl_core.operators.dtypes import floating, holding, wide

__all__ = [
    "abs",
    "acos",
    "acosh",
    "arange",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "ceil",
    "chain_rule",
    "constant",
    "cos",
    "cosh",
    "erf",
    "exp",
    "expm1",
    "floor",
    "linspace",
    "log",
    "log1p",
    "round",
    "rsqrt",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "times_sign",
]

Unary: TypeAlias = Callable[[Operand], Variable]


# For gradients -----------------------------------------------------------------------------------


@defop("nnl::chain_rule", save=("g", "d"), outputs=("z",))
def chain_rule(g: Array, d: Array) -> Array:
    """Multiply a gradient ``g`` by a derivative ``d``, giving 0 where ``g`` is 0.

    So a branch that `where` did not select stays without gradient even where its derivative is
    infinite or not a number.
    """
    return np.where(g == 0, g, g * d)


chain_rule.elementwise("g == 0 ? g : g * d")


@chain_rule.vjp
def chain_rule_vjp(h: Any, z: Any, g: Any, d: Any) -> tuple[Any, ...]:
    """``dg = h d, dd = h g``, by the same rule."""
    return unbroadcast(chain_rule(h, d), g), unbroadcast(chain_rule(h, g), d)


@chain_rule.samples
def chain_rule_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Equal shapes, broadcasting, 0-d, empty."""
    for left, right in (((3, 5), (3, 5)), ((2, 3), (3,)), ((), ()), ((0, 2), (2,))):
        yield Sample(rng.uniform(0.5, 2, size=left), rng.normal(size=right))


@defop("nnl::times_sign", save=("x",))
def times_sign(g: Array, x: Array) -> Array:
    """``g`` where ``x`` is positive, ``-g`` where it is negative, 0 where either is 0."""
    return np.where(x > 0, g, np.where(x < 0, -g, np.where(g == 0, g, x * 0))).astype(g.dtype)


times_sign.elementwise("x > 0 ? g : (x < 0 ? -g : (g == 0 ? g : x * 0))")


@times_sign.vjp
def times_sign_vjp(h: Any, y: Any, g: Any, x: Any) -> tuple[Any, ...]:
    """``dg = h sign(x)``; the sign itself has no slope."""
    return unbroadcast(times_sign(h, x), g), None


@times_sign.samples
def times_sign_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Equal shapes, broadcasting, zeros, 0-d, empty."""
    yield Sample(rng.normal(size=(3, 5)), rng.normal(size=(3, 5)))
    yield Sample(rng.normal(size=(3, 4)), np.array([-1.5, 0.0, 2.0, -0.0]))
    yield Sample(rng.normal(size=()), rng.normal(size=(2,)))
    yield Sample(rng.normal(size=(0, 2)), rng.normal(size=(2,)))


# Functions of one element ------------------------------------------------------------------------


def _define(
    name: str,
    text: str,
    function: Callable[[Array], Any],
    expression: str,
    derivative: Callable[[Any, Any], Any],
    save: tuple[str, ...],
    low: float,
    high: float,
) -> Unary:
    """Define ``y = function(x)``, checked between ``low`` and ``high``, and return what users call.

    ``derivative`` is a function of ``y`` and ``x``, of which it uses what ``save`` names.
    """

    def reference(x: Array) -> Any:
        return function(x)

    reference.__module__ = __name__
    reference.__doc__ = text
    operator = defop(f"nnl::{name}", save=save)(reference)
    operator.elementwise(expression)
    operator.vjp(lambda g, y, x: (chain_rule(g, derivative(y, x)),))

    def samples(rng: np.random.Generator) -> Iterator[Sample]:
        for shape in ((), (0, 2), (3, 5)):
            yield Sample(rng.uniform(low, high, size=shape))

    operator.samples(samples)

    def call(x: Operand) -> Variable:
        result: Variable = operator(floating(x))
        return result

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{text} Integers become ``float32``."
    return call


exp: Unary = _define("exp", "``e ** x``.", np.exp, "expf(x)", lambda y, x: y, ("y",), -2, 2)
expm1: Unary = _define(
    "expm1",
    "``e ** x - 1``, exact near 0.",
    np.expm1,
    "expm1f(x)",
    lambda y, x: y + 1,
    ("y",),
    -2,
    2,
)
log: Unary = _define(
    "log", "Natural logarithm.", np.log, "logf(x)", lambda y, x: 1 / x, ("x",), 0.2, 3
)
log1p: Unary = _define(
    "log1p",
    "``log(1 + x)``, exact near 0.",
    np.log1p,
    "log1pf(x)",
    lambda y, x: 1 / (x + 1),
    ("x",),
    -0.7,
    3,
)
sqrt: Unary = _define(
    "sqrt", "Square root.", np.sqrt, "sqrtf(x)", lambda y, x: 0.5 / y, ("y",), 0.2, 3
)
rsqrt: Unary = _define(
    "rsqrt",
    "``1 / sqrt(x)``.",
    lambda x: 1 / np.sqrt(x),
    "1.0f / sqrtf(x)",
    lambda y, x: -0.5 * y * y * y,
    ("y",),
    0.2,
    3,
)
sin: Unary = _define("sin", "Sine.", np.sin, "sinf(x)", lambda y, x: cos(x), ("x",), -3, 3)
cos: Unary = _define("cos", "Cosine.", np.cos, "cosf(x)", lambda y, x: -sin(x), ("x",), -3, 3)
tan: Unary = _define(
    "tan", "Tangent.", np.tan, "tanf(x)", lambda y, x: y * y + 1, ("y",), -1.2, 1.2
)
sinh: Unary = _define(
    "sinh", "Hyperbolic sine.", np.sinh, "sinhf(x)", lambda y, x: cosh(x), ("x",), -2, 2
)
cosh: Unary = _define(
    "cosh", "Hyperbolic cosine.", np.cosh, "coshf(x)", lambda y, x: sinh(x), ("x",), -2, 2
)
asin: Unary = _define(
    "asin",
    "Inverse sine.",
    np.arcsin,
    "asinf(x)",
    lambda y, x: rsqrt(1 - x * x),
    ("x",),
    -0.9,
    0.9,
)
acos: Unary = _define(
    "acos",
    "Inverse cosine.",
    np.arccos,
    "acosf(x)",
    lambda y, x: -rsqrt(1 - x * x),
    ("x",),
    -0.9,
    0.9,
)
atan: Unary = _define(
    "atan",
    "Inverse tangent.",
    np.arctan,
    "atanf(x)",
    lambda y, x: 1 / (x * x + 1),
    ("x",),
    -3,
    3,
)
asinh: Unary = _define(
    "asinh",
    "Inverse hyperbolic sine.",
    np.arcsinh,
    "asinhf(x)",
    lambda y, x: rsqrt(x * x + 1),
    ("x",),
    -3,
    3,
)
acosh: Unary = _define(
    "acosh",
    "Inverse hyperbolic cosine.",
    np.arccosh,
    "acoshf(x)",
    lambda y, x: rsqrt(x * x - 1),
    ("x",),
    1.2,
    4,
)
atanh: Unary = _define(
    "atanh",
    "Inverse hyperbolic tangent.",
    np.arctanh,
    "atanhf(x)",
    lambda y, x: 1 / (1 - x * x),
    ("x",),
    -0.9,
    0.9,
)


def error_function(x: Array) -> Array:
    """Compute erf to a few units in the last place.

    Below 1 by its Taylor series (Abramowitz and Stegun, 7.1.5); from 1 on as ``1 - exp(-x^2) q(x)``
    with ``q(x) = exp(x^2) erfc(x)``, interpolated in ``(x - 3) / (x + 3)`` at the Chebyshev nodes
    of ``1 <= x <= 6``; beyond 6 it is 1 to the last bit of a ``float64``.
    """
    real = wide(x).dtype.type
    double = real is np.float64
    size = np.minimum(np.abs(x).astype(real), real(6))
    small, large = np.minimum(size, real(1)), np.maximum(size, real(1))
    squared = small * small
    series = np.zeros_like(small)
    for n in reversed(range(19 if double else 11)):
        series = series * squared + real((-1) ** n / (math.factorial(n) * (2 * n + 1)))
    series = series * small * real(2 / math.sqrt(math.pi))
    middle, scale = (_NEAR + _FAR) / 2, 2 / (_FAR - _NEAR)
    place = ((large - real(3)) / (large + real(3)) - real(middle)) * real(scale)
    tail = chebyshev.chebval(place, _TAIL[: 15 if double else 9].astype(real))
    result = np.where(size < 1, series, real(1) - np.exp(-large * large) * tail)
    return np.copysign(result, x).astype(x.dtype)


_NEAR, _FAR = -0.5, 1 / 3  # (x - 3) / (x + 3) at 1 and at 6


def _tail_coefficients() -> Array:
    """Return the Chebyshev coefficients of ``exp(x^2) erfc(x)`` between 1 and 6."""
    nodes = chebyshev.chebpts1(15)
    ratio = (nodes + 1) / 2 * (_FAR - _NEAR) + _NEAR
    points = 3 * (1 + ratio) / (1 - ratio)
    values = [math.erfc(x) * math.exp(x * x) for x in points]
    return np.asarray(chebyshev.chebfit(nodes, values, 14))


_TAIL = _tail_coefficients()

erf: Unary = _define(
    "erf",
    "Error function.",
    error_function,
    "erff(x)",
    lambda y, x: exp(-(x * x)) * (2 / math.sqrt(math.pi)),
    ("x",),
    -3,
    3,
)


@defop("nnl::square", save=("x",))
def square_operator(x: Array) -> Array:
    """``x * x``."""
    return np.multiply(x, x)


square_operator.elementwise("x * x")


@square_operator.vjp
def square_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """``dx = 2 g x``."""
    return (chain_rule(g, x) * 2.0,)


def square(x: Operand) -> Variable:
    """``x * x``."""
    result: Variable = square_operator(x)
    return result


@defop("nnl::abs", save=("x",))
def abs_operator(x: Array) -> Array:
    """Absolute value."""
    return np.abs(x)


abs_operator.elementwise("fabsf(x)")


@abs_operator.vjp
def abs_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """``dx = g sign(x)``, 0 at 0."""
    return (times_sign(g, x),)


def abs(x: Operand) -> Variable:
    """Absolute value; its gradient at 0 is 0."""
    result: Variable = abs_operator(x)
    return result


def _plain_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """0-d, empty, odd sizes, integers; away from 0."""
    for shape in ((), (0, 2), (3, 5)):
        yield Sample(rng.uniform(0.3, 2, size=shape) * rng.choice([-1, 1], size=shape))
    yield Sample(rng.integers(-9, 9, size=(2, 3)))


square_operator.samples(_plain_samples)
abs_operator.samples(_plain_samples)


@defop("nnl::atan2", save=("x0", "x1"))
def atan2_operator(x0: Array, x1: Array) -> Array:
    """Angle of the point with ordinate ``x0`` and abscissa ``x1``, broadcasting."""
    return np.arctan2(x0, x1)


atan2_operator.elementwise("atan2f(x0, x1)")


@atan2_operator.vjp
def atan2_vjp(g: Any, y: Any, x0: Any, x1: Any) -> tuple[Any, ...]:
    """``dx0 = g x1 / (x0^2 + x1^2), dx1 = -g x0 / (x0^2 + x1^2)``."""
    length = x0 * x0 + x1 * x1
    return (
        unbroadcast(chain_rule(g, x1 / length), x0),
        unbroadcast(chain_rule(g, -x0 / length), x1),
    )


@atan2_operator.samples
def atan2_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """All quadrants, broadcasting, 0-d, empty."""
    yield Sample(np.array([1.0, 1.5, -1.0, -0.5]), np.array([0.5, -1.0, 2.0, -1.0]))
    yield Sample(rng.uniform(0.5, 2, size=(3, 1)), rng.uniform(0.5, 2, size=(4,)))
    yield Sample(rng.uniform(0.5, 2, size=()), rng.uniform(0.5, 2, size=(0, 2)))


def atan2(x0: Operand, x1: Operand) -> Variable:
    """Angle of the point with ordinate ``x0`` and abscissa ``x1``, between -pi and pi."""
    left, right = same_dtype(x0, x1)
    result: Variable = atan2_operator(floating(left), floating(right))
    return result


# Roundings ---------------------------------------------------------------------------------------


@defop("nnl::sign")
def sign_operator(x: Array, *, alpha: float = 1.0) -> Array:
    """1 where ``x`` is positive, -1 where it is negative, ``alpha`` at 0; NaN stays NaN."""
    return np.where(x == 0, x.dtype.type(alpha), np.sign(x))


sign_operator.elementwise("x > 0 ? 1.0f : (x < 0 ? -1.0f : (x == 0 ? alpha : x))")


@sign_operator.infer
def sign_infer(x: Any, *, alpha: float) -> Any:
    """The same as the input."""
    return x


@sign_operator.vjp(surrogate=True)
def sign_vjp(g: Any, y: Any, x: Any, *, alpha: float) -> tuple[Any, ...]:
    """Straight through: ``dx = g``."""
    return (g,)


@sign_operator.samples
def sign_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Both signs, zeros with several values, 0-d, empty, integers."""
    yield Sample(np.array([[-1.5, 0.0, 2.0], [0.5, -0.0, -3.0]]))
    yield Sample(np.array([-1.5, 0.0, 2.0]), alpha=0.0)
    yield Sample(np.array(0.0), alpha=-0.5)
    yield Sample(np.zeros((0, 2)))
    yield Sample(np.array([-3, 0, 4]), alpha=0.0)


def sign(x: Operand, alpha: float = 1.0) -> Variable:
    """1 for positive ``x``, -1 for negative, ``alpha`` for 0; truths are counted as integers.

    The gradient goes straight through: ``dx = dy``.
    """
    held = holding(x, alpha)
    if held.dtype == bool:
        held = cast(held, np.int64)
    result: Variable = sign_operator(held, alpha=alpha)
    return result


def _rounding(name: str, text: str, function: Callable[[Array], Array], expression: str) -> Unary:
    """Define a rounding, whose gradient goes straight through; return what users call."""

    def reference(x: Array) -> Array:
        return function(x) if x.dtype.kind == "f" else x.copy()

    reference.__module__ = __name__
    reference.__doc__ = text
    operator = defop(f"nnl::{name}")(reference)
    operator.elementwise(expression)
    operator.vjp(surrogate=True)(lambda g, y, x: (g,))
    operator.samples(_plain_samples)

    def call(x: Operand) -> Variable:
        result: Variable = operator(x)
        return result

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{text} The gradient goes straight through: ``dx = dy``."
    return call


round: Unary = _rounding("round", "Nearest integer, halves to the even one.", np.round, "rintf(x)")
ceil: Unary = _rounding("ceil", "Smallest integer not below ``x``.", np.ceil, "ceilf(x)")
floor: Unary = _rounding("floor", "Greatest integer not above ``x``.", np.floor, "floorf(x)")


# Constant arrays ---------------------------------------------------------------------------------


def constant(val: float = 0, shape: Iterable[int] = ()) -> Variable:
    """Return a ``float32`` variable of the given shape that holds ``val`` and never changes."""
    lengths = tuple(int(length) for length in shape)
    if any(length < 0 for length in lengths):
        raise ShapeError(f"constant: shape {lengths} has a negative axis")
    result: Variable = F.broadcast_to(Variable.constant(np.asarray(val, DEFAULT_DTYPE)), lengths)
    return result


def arange(start: float, stop: float, step: float = 1) -> Variable:
    """Return ``float32`` values from ``start`` on, ``step`` apart, before ``stop``."""
    if step == 0:
        raise ShapeError("arange: step is 0; give a positive or a negative one")
    return Variable.constant(np.arange(start, stop, step).astype(DEFAULT_DTYPE))


def linspace(start: float, stop: float, num: int) -> Variable:
    """Return ``num`` evenly spaced ``float32`` values from ``start`` to ``stop``, both included."""
    if num < 0:
        raise ShapeError(f"linspace: num is {num}; it must not be negative")
    return Variable.constant(np.linspace(start, stop, num).astype(DEFAULT_DTYPE))
