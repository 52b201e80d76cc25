"""Smooth activation functions, element by element.

NaN stays NaN, and all are finite for inputs of 1000 and -1000. An element whose result does not
count (``g`` is 0) has gradient 0, even where the derivative is not a number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError
from nnl_core.graph.checks import real
from nnl_core.graph.operator import Array, Sample, defop, lookup
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.dtypes import floating, single_precision
from nnl_core.operators.samples import signed_points, unary_samples

__all__ = [
    "gelu",
    "log_sigmoid",
    "mish",
    "sigmoid",
    "silu",
    "sinc",
    "softplus",
    "softsign",
    "swish",
    "tanh",
    "tanh_shrink",
]

FAR = 1000.0
"""Where gates have long been 0 or 1 exactly, and count infinity as: it times 0 is no number."""
SOFTSIGN_FAR = 1e30
"""Where softsign has long been 1, and counts infinity as."""


# Sigmoids ----------------------------------------------------------------------------------------


@defop("nnl::sigmoid", save=("y",))
@single_precision
def sigmoid_operator(x: Array) -> Array:
    """``1 / (1 + exp(-x))``."""
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


sigmoid_operator.elementwise("1.0f / (1.0f + expf(-x))")
sigmoid_operator.samples(unary_samples)


@sigmoid_operator.vjp
def sigmoid_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """``g y (1 - y)``."""
    return (F.chain_rule(g, y * (1 - y)),)


def sigmoid(x: Operand) -> Variable:
    """Squeeze into (0, 1): ``y = 1 / (1 + exp(-x))``.

    Args:
        x: any shape, floating; integers become ``float32``.

    Gradient:
        ``y (1 - y)``.

    Examples:
        >>> F.sigmoid(np.array([0.0, -1000.0])).d
        array([0.5, 0. ])

    Elsewhere:
        - nnabla: `sigmoid`
        - PyTorch: `torch.sigmoid`
        - ONNX: `Sigmoid`
    """
    return sigmoid_operator(floating(x))


@defop("nnl::tanh", save=("y",))
def tanh_operator(x: Array) -> Array:
    """Hyperbolic tangent."""
    return np.tanh(x)


tanh_operator.elementwise("tanhf(x)")
tanh_operator.samples(unary_samples)


@tanh_operator.vjp
def tanh_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """``g (1 - y^2)``."""
    return (F.chain_rule(g, 1 - y * y),)


def tanh(x: Operand) -> Variable:
    """Compute the hyperbolic tangent: ``y = (e ** x - e ** -x) / (e ** x + e ** -x)``.

    Args:
        x: any shape, floating; integers become ``float32``.

    Gradient:
        ``1 - y ** 2``.

    Examples:
        >>> F.tanh(np.array([0.0, np.log(2)])).d
        array([0. , 0.6])

    Elsewhere:
        - nnabla: `tanh`
        - PyTorch: `torch.tanh`
        - ONNX: `Tanh`
    """
    return tanh_operator(floating(x))


@defop("nnl::tanh_shrink", save=("x",))
@single_precision
def tanh_shrink_operator(x: Array) -> Array:
    """``x - tanh(x)``."""
    return x - np.tanh(x)


tanh_shrink_operator.elementwise("x - tanhf(x)")
tanh_shrink_operator.samples(unary_samples)


@tanh_shrink_operator.vjp
def tanh_shrink_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """``g tanh(x)^2``."""
    return (F.chain_rule(g, tanh(x) ** 2),)


def tanh_shrink(x: Operand) -> Variable:
    """Compute ``y = x - tanh(x)``.

    Args:
        x: any shape, floating; integers become ``float32``.

    Gradient:
        ``tanh(x) ** 2``.

    Examples:
        >>> F.tanh_shrink(np.array([0.0, 100.0])).d
        array([ 0., 99.])

    Elsewhere:
        - nnabla: `tanh_shrink`
        - PyTorch: `torch.nn.functional.tanhshrink`
        - ONNX: none, `Sub` and `Tanh`
    """
    return tanh_shrink_operator(floating(x))


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


@defop("nnl::log_sigmoid", save=("x",), precision="full")
@single_precision
def log_sigmoid_operator(x: Array) -> Array:
    """Logarithm of the sigmoid, ``-log(1 + exp(-x))``."""
    return -_softplus(-x)


log_sigmoid_operator.elementwise("fminf(x, 0.0f) - log1pf(expf(-fabsf(x)))")
log_sigmoid_operator.samples(unary_samples)


@log_sigmoid_operator.vjp
def log_sigmoid_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """``g sigmoid(-x)``."""
    return (F.chain_rule(g, sigmoid(-x)),)


def log_sigmoid(x: Operand) -> Variable:
    """Take the logarithm of the sigmoid without overflow: ``y = -log(1 + exp(-x))``.

    Args:
        x: any shape, floating; integers become ``float32``.

    Gradient:
        ``1 - sigmoid(x)``.

    Examples:
        >>> F.log_sigmoid(np.array([0.0, -1000.0])).d
        array([-6.93147181e-01, -1.00000000e+03])

    Elsewhere:
        - nnabla: `log_sigmoid`
        - PyTorch: `torch.nn.functional.logsigmoid`
        - ONNX: none, `Neg` of `Softplus` of `Neg`
    """
    return log_sigmoid_operator(floating(x))


@defop("nnl::softplus", save=("x",), precision="full")
@single_precision
def softplus_operator(x: Array, *, beta: float = 1.0) -> Array:
    """``log(1 + exp(beta x)) / beta``."""
    return _softplus(x * beta) / beta


softplus_operator.elementwise(
    "(fmaxf(beta * x, 0.0f) + log1pf(expf(-fabsf(beta * x)))) * (1.0f / beta)"
)


@softplus_operator.vjp
def softplus_vjp(g: Any, y: Any, x: Any, *, beta: float) -> tuple[Any, ...]:
    """``g sigmoid(beta x)``."""
    return (F.chain_rule(g, sigmoid(x * beta)),)


@softplus_operator.samples
def softplus_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Several slopes."""
    for x in signed_points(rng):
        yield Sample(x)
    yield Sample(rng.normal(size=(5,)), beta=0.1)
    yield Sample(rng.normal(size=(5,)), beta=-3.0)


def softplus(x: Operand, beta: float = 1.0) -> Variable:
    """Smooth a relu without overflow: ``y = log(1 + exp(beta x)) / beta``.

    Args:
        x: any shape, floating; integers become ``float32``.
        beta: how sharp the bend is.

    Raises:
        OperatorError: ``beta`` is 0.

    Gradient:
        ``sigmoid(beta x)``.

    Examples:
        >>> F.softplus(np.array([0.0, 1000.0])).d
        array([6.93147181e-01, 1.00000000e+03])

    Elsewhere:
        - nnabla: `softplus`
        - PyTorch: `torch.nn.functional.softplus`
        - ONNX: `Softplus`, with beta 1
    """
    if not beta:
        raise OperatorError("softplus: beta is 0, by which the result is divided; give another")
    return softplus_operator(floating(x), beta=real(beta, "beta"))


@defop("nnl::softsign", save=("x",))
@single_precision
def softsign_operator(x: Array) -> Array:
    """``x / (1 + |x|)``, of infinity 1."""
    near = np.clip(x, -SOFTSIGN_FAR, SOFTSIGN_FAR)
    return np.asarray(near / (1 + np.abs(near)))


softsign_operator.elementwise(
    "fabsf(x) > 1e30f ? (x > 0.0f ? 1.0f : -1.0f) : x / (1.0f + fabsf(x))"
)
softsign_operator.samples(unary_samples)


@softsign_operator.vjp
def softsign_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """``g / (1 + |x|)^2``."""
    return (F.chain_rule(g, 1 / (1 + F.abs(x)) ** 2),)


def softsign(x: Operand) -> Variable:
    """Squeeze into (-1, 1): ``y = x / (1 + |x|)``.

    Args:
        x: any shape, floating; integers become ``float32``.

    Gradient:
        ``1 / (1 + |x|) ** 2``.

    Examples:
        >>> F.softsign(np.array([-1.0, 3.0])).d
        array([-0.5 ,  0.75])

    Elsewhere:
        - nnabla: `softsign`
        - PyTorch: `torch.nn.functional.softsign`
        - ONNX: `Softsign`
    """
    return softsign_operator(floating(x))


# Gated by themselves -----------------------------------------------------------------------------


def _near(x: Variable) -> Variable:
    return F.clip(x, -FAR, FAR)


@defop("nnl::swish", save=("x",))
@single_precision
def swish_operator(x: Array) -> Array:
    """``x sigmoid(x)``."""
    small = np.exp(-np.abs(x))
    return np.maximum(x, -FAR) * (np.where(x < 0, small, 1) / (1 + small))


swish_operator.elementwise("x < -1000.0f ? 0.0f : x / (1.0f + expf(-x))")
swish_operator.samples(unary_samples)


@swish_operator.vjp
def swish_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """``g s (1 + x (1 - s))`` for ``s = sigmoid(x)``."""
    x = _near(x)
    s = sigmoid(x)
    return (F.chain_rule(g, s * (1 + x * (1 - s))),)


def swish(x: Operand) -> Variable:
    """Compute ``y = x sigmoid(x)``.

    Ramachandran et al., 2017.

    Args:
        x: any shape, floating; integers become ``float32``.

    Gradient:
        ``y + sigmoid(x) (1 - y)``.

    Examples:
        >>> F.swish(np.array([0.0, 100.0])).d
        array([  0., 100.])

    Elsewhere:
        - nnabla: `swish`
        - PyTorch: `torch.nn.functional.silu`
        - ONNX: `Swish`
    """
    return swish_operator(floating(x))


def silu(x: Operand) -> Variable:
    """Compute ``y = x sigmoid(x)``: another name of `swish`.

    Args:
        x: any shape, floating; integers become ``float32``.

    Gradient:
        ``y + sigmoid(x) (1 - y)``.

    Examples:
        >>> F.silu(np.array([0.0, 100.0])).d
        array([  0., 100.])

    Elsewhere:
        - nnabla: `swish`
        - PyTorch: `torch.nn.functional.silu`
        - ONNX: `Swish`
    """
    return swish(x)


GELU_SCALE, GELU_CUBE = math.sqrt(2 / math.pi), 0.044715


@defop("nnl::gelu", save=("x",))
@single_precision
def gelu_operator(x: Array) -> Array:
    """``x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))``."""
    near = np.maximum(x, -FAR)
    return 0.5 * near * (1 + np.tanh(GELU_SCALE * (near + GELU_CUBE * near * near * near)))


gelu_operator.elementwise(
    "x < -1000.0f ? 0.0f : "
    "0.5f * x * (1.0f + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)))"
)
gelu_operator.samples(unary_samples)


@gelu_operator.vjp
def gelu_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """The derivative of the product; beyond 30, where it is 0 or 1, powers may overflow."""
    x = F.clip(x, -30.0, 30.0)
    square = x * x
    t = tanh(x * (square * (GELU_SCALE * GELU_CUBE) + GELU_SCALE))
    inner = square * (3 * GELU_SCALE * GELU_CUBE) + GELU_SCALE
    return (F.chain_rule(g, (t + 1) * 0.5 + x * (1 - t * t) * inner * 0.5),)


@defop("nnl::exact_gelu", save=("x",))
@single_precision
def exact_gelu_operator(x: Array) -> Array:
    """``x / 2 (1 + erf(x / sqrt(2)))``."""
    return 0.5 * np.maximum(x, -FAR) * (1 + lookup("nnl::erf").reference(x * math.sqrt(0.5)))


exact_gelu_operator.elementwise(
    "x < -1000.0f ? 0.0f : 0.5f * x * (1.0f + erff(0.7071067811865476f * x))"
)
exact_gelu_operator.samples(unary_samples)


@exact_gelu_operator.vjp
def exact_gelu_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """``g (P + x p)`` for the standard normal distribution function ``P`` and its density ``p``."""
    x = _near(x)
    below = (F.erf(x * math.sqrt(0.5)) + 1) * 0.5
    density = F.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
    return (F.chain_rule(g, below + x * density),)


def gelu(x: Operand, *, approximate: str = "tanh") -> Variable:
    """Weigh ``x`` by the standard normal distribution function at ``x``.

    Hendrycks and Gimpel, 2016.

    Args:
        x: any shape, floating; integers become ``float32``.
        approximate: ``"tanh"`` for ``(1 + tanh(sqrt(2 / pi) (x + 0.044715 x ** 3))) / 2`` in its
            place, ``"none"`` for the error function.

    Raises:
        OperatorError: another ``approximate``.

    Gradient:
        The derivative of the formula chosen.

    Examples:
        >>> F.gelu(np.array([0.0, 100.0])).d
        array([  0., 100.])

    Elsewhere:
        - nnabla: `gelu`, the tanh form
        - PyTorch: `torch.nn.functional.gelu`, which uses the error function by default
        - ONNX: `Gelu`
    """
    x = floating(x)
    if approximate == "tanh":
        return gelu_operator(x)
    if approximate == "none":
        return exact_gelu_operator(x)
    raise OperatorError(f"gelu: approximate is {approximate!r}; it may be 'tanh' or 'none'")


@defop("nnl::mish", save=("x",))
@single_precision
def mish_operator(x: Array) -> Array:
    """``x tanh(softplus(x))``."""
    return np.maximum(x, -FAR) * np.tanh(_softplus(x))


mish_operator.elementwise(
    "x < -1000.0f ? 0.0f : x * tanhf(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))))"
)
mish_operator.samples(unary_samples)


@mish_operator.vjp
def mish_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """``g (t + x (1 - t^2) sigmoid(x))`` for ``t = tanh(softplus(x))``."""
    x = _near(x)
    t = tanh(softplus(x))
    return (F.chain_rule(g, t + x * (1 - t * t) * sigmoid(x)),)


def mish(x: Operand) -> Variable:
    """Compute ``y = x tanh(log(1 + exp(x)))``.

    Misra, 2019.

    Args:
        x: any shape, floating; integers become ``float32``.

    Gradient:
        The derivative.

    Examples:
        >>> F.mish(np.array([0.0, 100.0])).d
        array([  0., 100.])

    Elsewhere:
        - nnabla: `mish`
        - PyTorch: `torch.nn.functional.mish`
        - ONNX: `Mish`
    """
    return mish_operator(floating(x))


# Sinc --------------------------------------------------------------------------------------------

SERIES_BELOW = 0.3
"""Where the gradient of sinc is summed as a series: there the closed form cancels."""


@defop("nnl::sinc", save=("x", "y"))
@single_precision
def sinc_operator(x: Array) -> Array:
    """``sin(x) / x``, and 1 at 0."""
    away = np.where(x == 0, 1, x)
    return np.where(x == 0, 1, np.sin(away) / away).astype(x.dtype)


sinc_operator.elementwise("x == 0.0f ? 1.0f : sinf(x) / x")


@sinc_operator.vjp
def sinc_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """``g (cos(x) - y) / x``; near 0 its Taylor series to ``x^9``."""
    near = F.abs(x) < SERIES_BELOW
    safe, small = F.where(near, 1.0, x), F.where(near, x, 0.0)
    square = small * small
    terms = square * (1 / 3991680) - 1 / 45360
    for factor in (1 / 840, -1 / 30, 1 / 3):
        terms = terms * square + factor
    return (F.chain_rule(g, F.where(near, -(small * terms), (F.cos(x) - y) / safe)),)


@sinc_operator.samples
def sinc_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """At 0, near it and away from it."""
    yield from unary_samples(rng)
    yield Sample(np.array([0.0, 1e-3, -0.2, 0.4]))


def sinc(x: Operand) -> Variable:
    """Compute ``y = sin(x) / x``, and 1 at 0.

    Args:
        x: any shape, floating; integers become ``float32``.

    Gradient:
        ``(cos(x) - y) / x``, 0 at 0.

    Examples:
        >>> F.sinc(np.array([0.0, np.pi / 2])).d
        array([1.        , 0.63661977])

    Elsewhere:
        - nnabla: `sinc`
        - PyTorch: `torch.sinc`, of pi x
        - ONNX: none, `Sin`, `Div` and `Where`
    """
    return sinc_operator(floating(x))
