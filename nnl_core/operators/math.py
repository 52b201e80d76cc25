"""Mathematical functions of single elements, roundings, and constant arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import real, wholes
from nnl_core.graph.operator import Array, Operator, Precision, Sample, defop
from nnl_core.graph.spec import DEFAULT_DTYPE
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import cast, is_number, same_dtype, unbroadcast
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

# For gradients -----------------------------------------------------------------------------------


@defop("nnl::chain_rule", save=("g", "d"), outputs=("z",))
def chain_rule(g: Array, d: Array) -> Array:
    """Multiply a gradient by a derivative, giving 0 where the gradient is 0.

    So a branch that `where` did not select stays without gradient even where its derivative is
    infinite or not a number. For gradient rules.

    Args:
        g: the gradient of the result.
        d: the derivative, broadcast with ``g``.

    Gradient:
        ``dg = d h``, ``dd = g h``, by the same rule.

    Examples:
        >>> F.chain_rule(np.array([0.0, 2.0]), np.array([np.inf, 3.0])).d
        array([0., 6.])

    Elsewhere:
        - nnabla: none, internal to its gradients
        - PyTorch: none, `torch.where(g == 0, g, g * d)`
        - ONNX: none, `Where` of `Equal` and `Mul`
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
    """Give ``g`` the sign of ``x``: ``y = g sign(x)``, 0 where either is 0.

    For gradient rules; unlike `sign`, its gradient is the derivative.

    Args:
        g: any shape.
        x: any shape, broadcast with ``g``.

    Gradient:
        ``dg = sign(x) dy``; the sign itself has no slope.

    Examples:
        >>> F.times_sign(np.array([2.0, 2.0, 2.0]), np.array([-5.0, 0.0, 5.0])).d
        array([-2.,  0.,  2.])

    Elsewhere:
        - nnabla: none, `g * F.sign(x, alpha=0)`, but for the gradient
        - PyTorch: none, `g * torch.sign(x)`
        - ONNX: none, `Mul` of g and `Sign`
    """
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


_WIDE = {"acos", "acosh", "asin", "atanh", "cosh", "exp", "expm1", "log", "log1p", "rsqrt", "sinh"}
"""What grows without bound, or falls steeply: computed in float32 under mixed precision."""


def _define(
    name: str,
    text: str,
    function: Callable[[Array], Any],
    expression: str,
    derivative: Callable[[Any, Any], Any],
    save: tuple[str, ...],
    low: float,
    high: float,
) -> Operator:
    """Define ``y = function(x)``, checked between ``low`` and ``high``.

    ``derivative`` is a function of ``y`` and ``x``, of which it uses what ``save`` names.
    """

    def reference(x: Array) -> Any:
        return function(x)

    reference.__module__ = __name__
    reference.__doc__ = text
    precision: Precision = "full" if name in _WIDE else "operands"
    operator = defop(f"nnl::{name}", save=save, precision=precision)(reference)
    operator.elementwise(expression)
    operator.vjp(lambda g, y, x: (chain_rule(g, derivative(y, x)),))

    def samples(rng: np.random.Generator) -> Iterator[Sample]:
        for shape in ((), (0, 2), (3, 5)):
            yield Sample(rng.uniform(low, high, size=shape))

    operator.samples(samples)
    return operator


exp_operator = _define("exp", "``e ** x``.", np.exp, "expf(x)", lambda y, x: y, ("y",), -2, 2)
expm1_operator = _define(
    "expm1",
    "``e ** x - 1``, exact near 0.",
    np.expm1,
    "expm1f(x)",
    lambda y, x: y + 1,
    ("y",),
    -2,
    2,
)
log_operator = _define(
    "log", "Natural logarithm.", np.log, "logf(x)", lambda y, x: 1 / x, ("x",), 0.2, 3
)
log1p_operator = _define(
    "log1p",
    "``log(1 + x)``, exact near 0.",
    np.log1p,
    "log1pf(x)",
    lambda y, x: 1 / (x + 1),
    ("x",),
    -0.7,
    3,
)
sqrt_operator = _define(
    "sqrt", "Square root.", np.sqrt, "sqrtf(x)", lambda y, x: 0.5 / y, ("y",), 0.2, 3
)
rsqrt_operator = _define(
    "rsqrt",
    "``1 / sqrt(x)``.",
    lambda x: 1 / np.sqrt(x),
    "1.0f / sqrtf(x)",
    lambda y, x: -0.5 * y * y * y,
    ("y",),
    0.2,
    3,
)
sin_operator = _define("sin", "Sine.", np.sin, "sinf(x)", lambda y, x: cos(x), ("x",), -3, 3)
cos_operator = _define("cos", "Cosine.", np.cos, "cosf(x)", lambda y, x: -sin(x), ("x",), -3, 3)
tan_operator = _define(
    "tan", "Tangent.", np.tan, "tanf(x)", lambda y, x: y * y + 1, ("y",), -1.2, 1.2
)
sinh_operator = _define(
    "sinh", "Hyperbolic sine.", np.sinh, "sinhf(x)", lambda y, x: cosh(x), ("x",), -2, 2
)
cosh_operator = _define(
    "cosh", "Hyperbolic cosine.", np.cosh, "coshf(x)", lambda y, x: sinh(x), ("x",), -2, 2
)
asin_operator = _define(
    "asin",
    "Inverse sine.",
    np.arcsin,
    "asinf(x)",
    lambda y, x: rsqrt(1 - x * x),
    ("x",),
    -0.9,
    0.9,
)
acos_operator = _define(
    "acos",
    "Inverse cosine.",
    np.arccos,
    "acosf(x)",
    lambda y, x: -rsqrt(1 - x * x),
    ("x",),
    -0.9,
    0.9,
)
atan_operator = _define(
    "atan",
    "Inverse tangent.",
    np.arctan,
    "atanf(x)",
    lambda y, x: 1 / (x * x + 1),
    ("x",),
    -3,
    3,
)
asinh_operator = _define(
    "asinh",
    "Inverse hyperbolic sine.",
    np.arcsinh,
    "asinhf(x)",
    lambda y, x: rsqrt(x * x + 1),
    ("x",),
    -3,
    3,
)
acosh_operator = _define(
    "acosh",
    "Inverse hyperbolic cosine.",
    np.arccosh,
    "acoshf(x)",
    lambda y, x: rsqrt(x * x - 1),
    ("x",),
    1.2,
    4,
)
atanh_operator = _define(
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

erf_operator = _define(
    "erf",
    "Error function.",
    error_function,
    "erff(x)",
    lambda y, x: exp(-(x * x)) * (2 / math.sqrt(math.pi)),
    ("x",),
    -3,
    3,
)


def exp(x: Operand) -> Variable:
    """Raise e to each element: ``y = e ** x``.

    Overflows to infinity, underflows to 0.

    Args:
        x: any shape; integers become ``float32``.

    Gradient:
        ``dx = y dy``.

    Examples:
        >>> F.exp(np.array([0.0, 1.0])).d
        array([1.        , 2.71828183])

    Elsewhere:
        - nnabla: `exp`
        - PyTorch: `torch.exp`
        - ONNX: `Exp`
    """
    return exp_operator(floating(x))


def expm1(x: Operand) -> Variable:
    """Compute ``y = e ** x - 1``, exact near 0.

    Where ``x`` is small, ``exp(x) - 1`` would lose most of its digits.

    Args:
        x: any shape; integers become ``float32``.

    Gradient:
        ``dx = (y + 1) dy``.

    Examples:
        >>> F.expm1(np.array([0.0, 1e-10])).d
        array([0.e+00, 1.e-10])

    Elsewhere:
        - nnabla: none, `F.exp(x) - 1`
        - PyTorch: `torch.expm1`
        - ONNX: none, `Exp` and `Sub`, less exact near 0
    """
    return expm1_operator(floating(x))


def log(x: Operand) -> Variable:
    """Take the natural logarithm: ``y = ln(x)``.

    -inf at 0, NaN below.

    Args:
        x: any shape; integers become ``float32``.

    Gradient:
        ``dx = dy / x``.

    Examples:
        >>> F.log(np.array([1.0, np.e])).d
        array([0., 1.])

    Elsewhere:
        - nnabla: `log`
        - PyTorch: `torch.log`
        - ONNX: `Log`
    """
    return log_operator(floating(x))


def log1p(x: Operand) -> Variable:
    """Compute ``y = ln(1 + x)``, exact near 0.

    -inf at -1, NaN below.

    Args:
        x: any shape; integers become ``float32``.

    Gradient:
        ``dx = dy / (1 + x)``.

    Examples:
        >>> F.log1p(np.array([0.0, 1e-10])).d
        array([0.e+00, 1.e-10])

    Elsewhere:
        - nnabla: none, `F.log(1 + x)`
        - PyTorch: `torch.log1p`
        - ONNX: none, `Add` and `Log`, less exact near 0
    """
    return log1p_operator(floating(x))


def sqrt(x: Operand) -> Variable:
    """Take the square root: ``y = sqrt(x)``.

    NaN below 0.

    Args:
        x: any shape; integers become ``float32``.

    Gradient:
        ``dx = dy / (2 y)``, infinite at 0.

    Examples:
        >>> F.sqrt(np.array([4.0, 9.0])).d
        array([2., 3.])

    Elsewhere:
        - nnabla: none, `F.pow_scalar(x, 0.5)`
        - PyTorch: `torch.sqrt`
        - ONNX: `Sqrt`
    """
    return sqrt_operator(floating(x))


def rsqrt(x: Operand) -> Variable:
    """Divide 1 by the square root: ``y = 1 / sqrt(x)``.

    Infinite at 0, NaN below.

    Args:
        x: any shape; integers become ``float32``.

    Gradient:
        ``dx = -y ** 3 dy / 2``.

    Examples:
        >>> F.rsqrt(np.array([4.0, 0.25])).d
        array([0.5, 2. ])

    Elsewhere:
        - nnabla: none, `F.pow_scalar(x, -0.5)`
        - PyTorch: `torch.rsqrt`
        - ONNX: none, `Sqrt` and `Reciprocal`
    """
    return rsqrt_operator(floating(x))


def sin(x: Operand) -> Variable:
    """Compute the sine of angles in radians.

    NaN at infinity.

    Args:
        x: any shape; integers become ``float32``.

    Gradient:
        ``dx = cos(x) dy``.

    Examples:
        >>> F.sin(np.array([0.0, np.pi / 2])).d
        array([0., 1.])

    Elsewhere:
        - nnabla: `sin`
        - PyTorch: `torch.sin`
        - ONNX: `Sin`
    """
    return sin_operator(floating(x))


def cos(x: Operand) -> Variable:
    """Compute the cosine of angles in radians.

    NaN at infinity.

    Args:
        x: any shape; integers become ``float32``.

    Gradient:
        ``dx = -sin(x) dy``.

    Examples:
        >>> F.cos(np.array([0.0, np.pi])).d
        array([ 1., -1.])

    Elsewhere:
        - nnabla: `cos`
        - PyTorch: `torch.cos`
        - ONNX: `Cos`
    """
    return cos_operator(floating(x))


def tan(x: Operand) -> Variable:
    """Compute the tangent of angles in radians.

    NaN at infinity.

    Args:
        x: any shape; integers become ``float32``.

    Gradient:
        ``dx = (1 + y ** 2) dy``.

    Examples:
        >>> F.tan(np.array([0.0, 1.0])).d
        array([0.        , 1.55740772])

    Elsewhere:
        - nnabla: `tan`
        - PyTorch: `torch.tan`
        - ONNX: `Tan`
    """
    return tan_operator(floating(x))


def sinh(x: Operand) -> Variable:
    """Compute the hyperbolic sine: ``y = (e ** x - e ** -x) / 2``.

    Args:
        x: any shape; integers become ``float32``.

    Gradient:
        ``dx = cosh(x) dy``.

    Examples:
        >>> F.sinh(np.array([0.0, np.log(2)])).d
        array([0.  , 0.75])

    Elsewhere:
        - nnabla: `sinh`
        - PyTorch: `torch.sinh`
        - ONNX: `Sinh`
    """
    return sinh_operator(floating(x))


def cosh(x: Operand) -> Variable:
    """Compute the hyperbolic cosine: ``y = (e ** x + e ** -x) / 2``.

    Args:
        x: any shape; integers become ``float32``.

    Gradient:
        ``dx = sinh(x) dy``.

    Examples:
        >>> F.cosh(np.array([0.0, np.log(2)])).d
        array([1.  , 1.25])

    Elsewhere:
        - nnabla: `cosh`
        - PyTorch: `torch.cosh`
        - ONNX: `Cosh`
    """
    return cosh_operator(floating(x))


def asin(x: Operand) -> Variable:
    """Compute the angle, between -pi/2 and pi/2, whose sine is ``x``.

    NaN outside of [-1, 1].

    Args:
        x: any shape; integers become ``float32``.

    Gradient:
        ``dx = dy / sqrt(1 - x ** 2)``, infinite at -1 and 1.

    Examples:
        >>> F.asin(np.array([0.0, 1.0])).d
        array([0.        , 1.57079633])

    Elsewhere:
        - nnabla: `asin`
        - PyTorch: `torch.asin`
        - ONNX: `Asin`
    """
    return asin_operator(floating(x))


def acos(x: Operand) -> Variable:
    """Compute the angle, between 0 and pi, whose cosine is ``x``.

    NaN outside of [-1, 1].

    Args:
        x: any shape; integers become ``float32``.

    Gradient:
        ``dx = -dy / sqrt(1 - x ** 2)``, infinite at -1 and 1.

    Examples:
        >>> F.acos(np.array([1.0, -1.0])).d
        array([0.        , 3.14159265])

    Elsewhere:
        - nnabla: `acos`
        - PyTorch: `torch.acos`
        - ONNX: `Acos`
    """
    return acos_operator(floating(x))


def atan(x: Operand) -> Variable:
    """Compute the angle, between -pi/2 and pi/2, whose tangent is ``x``.

    Args:
        x: any shape; integers become ``float32``.

    Gradient:
        ``dx = dy / (1 + x ** 2)``.

    Examples:
        >>> F.atan(np.array([0.0, np.inf])).d
        array([0.        , 1.57079633])

    Elsewhere:
        - nnabla: `atan`
        - PyTorch: `torch.atan`
        - ONNX: `Atan`
    """
    return atan_operator(floating(x))


def asinh(x: Operand) -> Variable:
    """Invert the hyperbolic sine: ``y = ln(x + sqrt(x ** 2 + 1))``.

    Args:
        x: any shape; integers become ``float32``.

    Gradient:
        ``dx = dy / sqrt(x ** 2 + 1)``.

    Examples:
        >>> F.asinh(np.array([0.0, 0.75])).d
        array([0.        , 0.69314718])

    Elsewhere:
        - nnabla: `asinh`
        - PyTorch: `torch.asinh`
        - ONNX: `Asinh`
    """
    return asinh_operator(floating(x))


def acosh(x: Operand) -> Variable:
    """Invert the hyperbolic cosine: ``y = ln(x + sqrt(x ** 2 - 1))``.

    NaN below 1.

    Args:
        x: any shape; integers become ``float32``.

    Gradient:
        ``dx = dy / sqrt(x ** 2 - 1)``, infinite at 1.

    Examples:
        >>> F.acosh(np.array([1.0, 1.25])).d
        array([0.        , 0.69314718])

    Elsewhere:
        - nnabla: `acosh`
        - PyTorch: `torch.acosh`
        - ONNX: `Acosh`
    """
    return acosh_operator(floating(x))


def atanh(x: Operand) -> Variable:
    """Invert the hyperbolic tangent: ``y = ln((1 + x) / (1 - x)) / 2``.

    Infinite at -1 and 1, NaN beyond.

    Args:
        x: any shape; integers become ``float32``.

    Gradient:
        ``dx = dy / (1 - x ** 2)``.

    Examples:
        >>> F.atanh(np.array([0.0, 0.6])).d
        array([0.        , 0.69314718])

    Elsewhere:
        - nnabla: `atanh`
        - PyTorch: `torch.atanh`
        - ONNX: `Atanh`
    """
    return atanh_operator(floating(x))


def erf(x: Operand) -> Variable:
    """Compute the error function of each element.

    ``y = 2 / sqrt(pi) integral_0^x exp(-t ** 2) dt``, to a few units in the last place.

    Args:
        x: any shape; integers become ``float32``.

    Gradient:
        ``dx = 2 / sqrt(pi) exp(-x ** 2) dy``.

    Examples:
        >>> F.erf(np.array([0.0, 0.5])).d
        array([0.        , 0.52049988])

    Elsewhere:
        - nnabla: `erf`
        - PyTorch: `torch.erf`
        - ONNX: `Erf`
    """
    return erf_operator(floating(x))


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
    """Multiply each element by itself: ``y = x * x``.

    Args:
        x: any shape and dtype.

    Gradient:
        ``dx = 2 x dy``.

    Examples:
        >>> F.square(np.array([-2.0, 3.0])).d
        array([4., 9.])

    Elsewhere:
        - nnabla: none, `F.pow_scalar(x, 2)`
        - PyTorch: `torch.square`
        - ONNX: none, `Mul` of x and x
    """
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
    """Take the absolute value: ``y = |x|``.

    Args:
        x: any shape and dtype.

    Gradient:
        ``dx = sign(x) dy``, 0 at 0.

    Examples:
        >>> F.abs(np.array([-2.0, 3.0])).d
        array([2., 3.])

    Elsewhere:
        - nnabla: `abs`, gradient 1 at 0
        - PyTorch: `torch.abs`
        - ONNX: `Abs`
    """
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
    """Compute the angle of the point (``x1``, ``x0``), between -pi and pi.

    Args:
        x0: ordinates; integers become ``float32``.
        x1: abscissas, broadcast with ``x0``.

    Gradient:
        ``dx0 = x1 dy / (x0 ** 2 + x1 ** 2)``, ``dx1 = -x0 dy / (x0 ** 2 + x1 ** 2)``.

    Examples:
        >>> F.atan2(np.array([1.0, 0.0]), np.array([0.0, -1.0])).d
        array([1.57079633, 3.14159265])

    Elsewhere:
        - nnabla: `atan2`
        - PyTorch: `torch.atan2`
        - ONNX: none, `Atan` of the quotient and `Where` by quadrant
    """
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
    """Give 1 for positive ``x``, -1 for negative ``x``, ``alpha`` for 0, NaN for NaN.

    Truths are counted as integers.

    Args:
        x: any shape and dtype.
        alpha: the value at 0.

    Gradient:
        Straight through: ``dx = dy``.

    Examples:
        >>> F.sign(np.array([-3.0, 0.0, 2.0]), alpha=0.0).d
        array([-1.,  0.,  1.])

    Elsewhere:
        - nnabla: `sign`
        - PyTorch: `torch.sign`, 0 at 0, gradient 0
        - ONNX: `Sign`, 0 at 0
    """
    held = holding(x, alpha)
    if held.dtype == bool:
        held = cast(held, np.int64)
    result: Variable = sign_operator(held, alpha=alpha)
    return result


def _rounding(
    name: str, text: str, function: Callable[[Array], Array], expression: str
) -> Operator:
    """Define a rounding, whose gradient goes straight through."""

    def reference(x: Array) -> Array:
        return function(x) if x.dtype.kind == "f" else x.copy()

    reference.__module__ = __name__
    reference.__doc__ = text
    operator = defop(f"nnl::{name}")(reference)
    operator.elementwise(expression)
    operator.vjp(surrogate=True)(lambda g, y, x: (g,))
    operator.samples(_plain_samples)
    return operator


round_operator = _rounding(
    "round", "Nearest integer, halves to the even one.", np.round, "rintf(x)"
)
ceil_operator = _rounding("ceil", "Smallest integer not below ``x``.", np.ceil, "ceilf(x)")
floor_operator = _rounding("floor", "Greatest integer not above ``x``.", np.floor, "floorf(x)")


def round(x: Operand) -> Variable:
    """Round to the nearest integer, halves to the even one.

    Args:
        x: any shape and dtype; integers stay as they are.

    Gradient:
        Straight through: ``dx = dy``.

    Examples:
        >>> F.round(np.array([0.5, 1.5, -0.7])).d
        array([ 0.,  2., -1.])

    Elsewhere:
        - nnabla: `round`, halves away from 0
        - PyTorch: `torch.round`
        - ONNX: `Round`
    """
    return round_operator(x)


def ceil(x: Operand) -> Variable:
    """Round up: the smallest integer not below ``x``.

    Args:
        x: any shape and dtype; integers stay as they are.

    Gradient:
        Straight through: ``dx = dy``.

    Examples:
        >>> F.ceil(np.array([0.2, -0.7])).d
        array([ 1., -0.])

    Elsewhere:
        - nnabla: `ceil`
        - PyTorch: `torch.ceil`
        - ONNX: `Ceil`
    """
    return ceil_operator(x)


def floor(x: Operand) -> Variable:
    """Round down: the greatest integer not above ``x``.

    Args:
        x: any shape and dtype; integers stay as they are.

    Gradient:
        Straight through: ``dx = dy``.

    Examples:
        >>> F.floor(np.array([0.2, -0.7])).d
        array([ 0., -1.])

    Elsewhere:
        - nnabla: `floor`
        - PyTorch: `torch.floor`
        - ONNX: `Floor`
    """
    return floor_operator(x)


# Constant arrays ---------------------------------------------------------------------------------


def constant(val: float = 0, shape: Iterable[int] = ()) -> Variable:
    """Make a ``float32`` array of one value, which never changes.

    Args:
        val: the value.
        shape: the lengths of the axes; none give a 0-d array.

    Raises:
        ShapeError: a length is negative.

    Gradient:
        None: nothing goes in.

    Examples:
        >>> F.constant(2.0, (2, 3)).d
        array([[2., 2., 2.],
               [2., 2., 2.]], dtype=float32)

    Elsewhere:
        - nnabla: `constant`
        - PyTorch: `torch.full`, shape first
        - ONNX: `ConstantOfShape`
    """
    lengths = wholes(shape, "shape")
    if any(length < 0 for length in lengths):
        raise ShapeError(f"constant: shape {lengths} has a negative axis")
    if not is_number(val) and getattr(val, "shape", None) != ():
        raise OperatorError(f"constant: val={val!r} is not a number")
    result: Variable = F.broadcast_to(Variable.constant(np.asarray(val, DEFAULT_DTYPE)), lengths)
    return result


def arange(start: float, stop: float, step: float = 1) -> Variable:
    """Count from ``start`` on in steps, before ``stop``, as ``float32``.

    Args:
        start: the first value.
        stop: where to end; not reached.
        step: the distance, negative to count down.

    Raises:
        ShapeError: the step is 0.

    Gradient:
        None: nothing goes in.

    Examples:
        >>> F.arange(0, 1, 0.25).d
        array([0.  , 0.25, 0.5 , 0.75], dtype=float32)

    Elsewhere:
        - nnabla: `arange`
        - PyTorch: `torch.arange`
        - ONNX: `Range`
    """
    if step == 0:
        raise ShapeError("arange: step is 0; give a positive or a negative one")
    start, stop, step = real(start, "start"), real(stop, "stop"), real(step, "step")
    if not math.isfinite(stop - start):
        raise OperatorError(f"arange: from {start} to {stop} there is no end; give finite numbers")
    return Variable.constant(np.arange(start, stop, step).astype(DEFAULT_DTYPE))


def linspace(start: float, stop: float, num: int) -> Variable:
    """Give ``num`` evenly spaced ``float32`` values from ``start`` to ``stop``, both included.

    Args:
        start: the first value.
        stop: the last value.
        num: how many.

    Raises:
        ShapeError: ``num`` is negative.

    Gradient:
        None: nothing goes in.

    Examples:
        >>> F.linspace(0, 1, 5).d
        array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)

    Elsewhere:
        - nnabla: `linspace`
        - PyTorch: `torch.linspace`
        - ONNX: none, `Range`, `Mul` and `Add`
    """
    if num < 0:
        raise ShapeError(f"linspace: num is {num}; it must not be negative")
    return Variable.constant(np.linspace(start, stop, num).astype(DEFAULT_DTYPE))
