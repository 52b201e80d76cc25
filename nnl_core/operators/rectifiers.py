"""Activation functions with a kink: relu and its kin, and those that are cut off.

At a kink the gradient is that of the side where ``y`` grows less: 0 for relu, the slope for
leaky_relu, 0 at the ends of the hard functions. NaN stays NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.checks import real
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import normalize_axis
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import same_dtype, unbroadcast
from nnl_core.operators.dtypes import floating, holding, single_precision
from nnl_core.operators.samples import signed_points, unary_samples

__all__ = [
    "celu",
    "crelu",
    "elu",
    "hard_sigmoid",
    "hard_tanh",
    "leaky_relu",
    "prelu",
    "relu",
    "relu6",
    "selu",
]


@defop("nnl::relu", save=("y",))
def relu_operator(x: Array) -> Array:
    """``max(x, 0)``."""
    return np.maximum(x, x.dtype.type(0))


relu_operator.elementwise("(x > 0.0f || isnan(x)) ? x : 0.0f")
relu_operator.samples(unary_samples)


@relu_operator.vjp
def relu_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """``g`` where ``x > 0``."""
    return (relu_gradient(g, y),)


@defop("nnl::relu_gradient", save=("y",), outputs=("dx",))
def relu_gradient(g: Array, y: Array) -> Array:
    """``g`` where ``y > 0``, else 0."""
    return np.where(y > 0, g, g.dtype.type(0))


relu_gradient.elementwise("y > 0.0f ? g : 0.0f")


@relu_gradient.vjp
def relu_gradient_vjp(h: Any, dx: Any, g: Any, y: Any) -> tuple[Any, ...]:
    """Linear in ``g``; constant in ``y``."""
    return relu_gradient(h, y), None


@relu_gradient.samples
def relu_gradient_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """As the function's."""
    for x in signed_points(rng):
        yield Sample(rng.normal(size=x.shape), x)


def relu(x: Operand, inplace: bool = False) -> Variable:
    """Keep what is positive: ``y = max(x, 0)``.

    NaN stays NaN.

    Args:
        x: any shape.
        inplace: a hint that planning memory makes needless.

    Gradient:
        1 where ``x > 0``, else 0.

    Examples:
        >>> F.relu(np.array([-1.0, 2.0])).d
        array([0., 2.])

    Elsewhere:
        - nnabla: `relu`
        - PyTorch: `torch.nn.functional.relu`
        - ONNX: `Relu`
    """
    return relu_operator(x)


@defop("nnl::leaky_relu", save=("x",))
def leaky_relu_operator(x: Array, *, alpha: float = 0.1) -> Array:
    """``x`` where it is positive, else ``alpha x``."""
    return np.where(x > 0, x, x * x.dtype.type(alpha))


leaky_relu_operator.elementwise("x > 0.0f ? x : alpha * x")


@leaky_relu_operator.vjp
def leaky_relu_vjp(g: Any, y: Any, x: Any, *, alpha: float) -> tuple[Any, ...]:
    """``g`` where ``x > 0``, else ``alpha g``."""
    return (F.where(x > 0, g, g * alpha),)


@leaky_relu_operator.samples
def leaky_relu_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Several slopes, none and a negative one among them."""
    for x in signed_points(rng):
        yield Sample(x)
    for alpha in (0.0, -0.5, 2.0):
        yield Sample(x, alpha=alpha)


def leaky_relu(x: Operand, alpha: float = 0.1, inplace: bool = False) -> Variable:
    """Let a part of what is negative through: ``y = x`` where ``x > 0``, else ``alpha x``.

    Args:
        x: any shape, floating; integers become ``float32``.
        alpha: the slope for negative ``x``.
        inplace: a hint that changes nothing.

    Gradient:
        1 where ``x > 0``, else ``alpha``.

    Examples:
        >>> F.leaky_relu(np.array([-1.0, 2.0])).d
        array([-0.1,  2. ])

    Elsewhere:
        - nnabla: `leaky_relu`
        - PyTorch: `torch.nn.functional.leaky_relu`, whose slope is 0.01 by default
        - ONNX: `LeakyRelu`, whose slope is 0.01 by default
    """
    return leaky_relu_operator(floating(x), alpha=real(alpha, "alpha"))


@defop("nnl::prelu", save=("x", "slope"))
def prelu_operator(x: Array, slope: Array) -> Array:
    """``x`` where it is positive, else ``slope x``, broadcasting."""
    return np.where(x > 0, x, slope * x)


prelu_operator.elementwise("x > 0.0f ? x : slope * x")


@prelu_operator.vjp
def prelu_vjp(g: Any, y: Any, x: Any, slope: Any) -> tuple[Any, ...]:
    """``dx = g`` or ``g slope``; ``dslope`` sums ``g x`` where ``x`` is not positive."""
    positive = x > 0
    dx = F.where(positive, g, F.chain_rule(g, slope))
    dslope = F.where(positive, 0.0, F.chain_rule(g, x))
    return unbroadcast(dx, x), unbroadcast(dslope, slope)


@prelu_operator.samples
def prelu_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """One slope for all, and one for each channel."""
    for x in signed_points(rng):
        yield Sample(x, np.array(0.25))
    x = rng.choice([-1, 1], size=(2, 3, 4)) * rng.uniform(0.1, 2, size=(2, 3, 4))
    yield Sample(x, rng.normal(size=(1, 3, 1)))


def prelu(x0: Operand, x1: Operand, base_axis: int = 1) -> Variable:
    """Let a learned part of what is negative through: ``y = x0`` where ``x0 > 0``, else ``x1 x0``.

    He et al., 2015.

    Args:
        x0: any shape.
        x1: one slope for all, or one for each index of axis ``base_axis``.
        base_axis: the axis that slopes belong to.

    Raises:
        ShapeError: the number of slopes fits no axis.

    Gradient:
        Of ``x0`` 1 or the slope; of ``x1`` the sum of ``x0 dy`` where ``x0`` is not positive.

    Examples:
        >>> F.prelu(np.array([[-2.0, -2.0]]), np.array([0.5, 0.25])).d
        array([[-1. , -0.5]])

    Elsewhere:
        - nnabla: `prelu`
        - PyTorch: `torch.nn.functional.prelu`
        - ONNX: `PRelu`
    """
    x, slope = same_dtype(floating(x0), x1)
    if slope.size == 1:
        shape = (1,) * x.ndim
    else:
        axis = normalize_axis(base_axis, x.ndim)
        if slope.shape != (x.shape[axis],):
            raise ShapeError(
                f"prelu: slopes of shape {slope.shape} do not fit axis {axis} of an input of shape "
                f"{x.shape}; give one slope, or {x.shape[axis]}"
            )
        shape = tuple(n if place == axis else 1 for place, n in enumerate(x.shape))
    return prelu_operator(x, F.reshape(slope, shape))


@defop("nnl::relu6", save=("x",))
def relu6_operator(x: Array) -> Array:
    """``min(max(x, 0), 6)``."""
    return np.clip(x, x.dtype.type(0), x.dtype.type(6))


relu6_operator.elementwise("isnan(x) ? x : fminf(fmaxf(x, 0.0f), 6.0f)")


@relu6_operator.vjp
def relu6_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """``g`` between 0 and 6."""
    return (F.where(F.logical_and(x > 0, x < 6), g, 0.0),)


@relu6_operator.samples
def relu6_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Below, between and above."""
    yield from unary_samples(rng)
    yield Sample(rng.uniform(6.1, 9, size=(3,)))


def relu6(x: Operand) -> Variable:
    """Cut off at 0 and 6: ``y = min(max(x, 0), 6)``.

    Args:
        x: any shape.

    Gradient:
        1 between the ends, 0 at and beyond them.

    Examples:
        >>> F.relu6(np.array([-9.0, 0.5, 7.0])).d
        array([0. , 0.5, 6. ])

    Elsewhere:
        - nnabla: `relu6`
        - PyTorch: `torch.nn.functional.relu6`
        - ONNX: `Clip`
    """
    return relu6_operator(x)


@defop("nnl::hard_sigmoid", save=("x",))
@single_precision
def hard_sigmoid_operator(x: Array) -> Array:
    """``0.2 x + 0.5``, cut off below 0 and above 1."""
    return np.clip(x * 0.2 + 0.5, 0, 1)


hard_sigmoid_operator.elementwise("isnan(x) ? x : fminf(fmaxf(0.2f * x + 0.5f, 0.0f), 1.0f)")
hard_sigmoid_operator.samples(unary_samples)


@hard_sigmoid_operator.vjp
def hard_sigmoid_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """``0.2 g`` where ``|x| < 2.5``."""
    return (F.where(F.logical_and(x > -2.5, x < 2.5), g * 0.2, 0.0),)


def hard_sigmoid(x: Operand) -> Variable:
    """Cut off a line: ``y = min(max(0.2 x + 0.5, 0), 1)``.

    Args:
        x: any shape, floating; integers become ``float32``.

    Gradient:
        0.2 between the ends, 0 at and beyond them.

    Examples:
        >>> F.hard_sigmoid(np.array([-9.0, 0.0, 1.0])).d
        array([0. , 0.5, 0.7])

    Elsewhere:
        - nnabla: `hard_sigmoid`
        - PyTorch: `torch.nn.functional.hardsigmoid`, with slope 1/6
        - ONNX: `HardSigmoid`
    """
    return hard_sigmoid_operator(floating(x))


@defop("nnl::hard_tanh", save=("x",))
def hard_tanh_operator(x: Array) -> Array:
    """``x``, cut off below -1 and above 1."""
    return np.clip(x, x.dtype.type(-1), x.dtype.type(1))


hard_tanh_operator.elementwise("isnan(x) ? x : fminf(fmaxf(x, -1.0f), 1.0f)")
hard_tanh_operator.samples(unary_samples)


@hard_tanh_operator.vjp
def hard_tanh_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """``g`` where ``|x| < 1``."""
    return (F.where(F.logical_and(x > -1, x < 1), g, 0.0),)


def hard_tanh(x: Operand) -> Variable:
    """Cut off at -1 and 1: ``y = min(max(x, -1), 1)``.

    Args:
        x: any shape.

    Gradient:
        1 between the ends, 0 at and beyond them.

    Examples:
        >>> F.hard_tanh(np.array([-9.0, 0.5, 2.0])).d
        array([-1. ,  0.5,  1. ])

    Elsewhere:
        - nnabla: `hard_tanh`
        - PyTorch: `torch.nn.functional.hardtanh`
        - ONNX: `Clip`
    """
    return hard_tanh_operator(holding(x, -1))


# Exponential units -------------------------------------------------------------------------------


@defop("nnl::elu", save=("x",))
@single_precision
def elu_operator(x: Array, *, alpha: float = 1.0) -> Array:
    """``x`` where it is positive, else ``alpha (exp(x) - 1)``."""
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


elu_operator.elementwise("x > 0.0f ? x : alpha * expm1f(x)")


@elu_operator.vjp
def elu_vjp(g: Any, y: Any, x: Any, *, alpha: float) -> tuple[Any, ...]:
    """``g`` where ``x > 0``, else ``alpha exp(x) g``."""
    return (F.chain_rule(g, F.where(x > 0, 1.0, F.exp(F.minimum_scalar(x, 0.0)) * alpha)),)


@elu_operator.samples
def elu_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Several heights, none among them."""
    for x in signed_points(rng):
        yield Sample(x)
    for alpha in (0.0, 0.5, -1.5):
        yield Sample(rng.choice([-1, 1], size=(7,)) * rng.uniform(0.1, 3, size=(7,)), alpha=alpha)


def elu(x: Operand, alpha: float = 1.0) -> Variable:
    """Bend what is negative: ``y = x`` where ``x > 0``, else ``alpha (exp(x) - 1)``.

    Clevert et al., 2015.

    Args:
        x: any shape, floating; integers become ``float32``.
        alpha: the limit for large negative ``x`` is ``-alpha``.

    Gradient:
        1 where ``x > 0``, else ``alpha exp(x)``.

    Examples:
        >>> F.elu(np.array([-np.log(2), 2.0])).d
        array([-0.5,  2. ])

    Elsewhere:
        - nnabla: `elu`
        - PyTorch: `torch.nn.functional.elu`
        - ONNX: `Elu`
    """
    return elu_operator(floating(x), alpha=real(alpha, "alpha"))


SELU_SCALE, SELU_ALPHA = 1.05070098735548, 1.673263242354377


@defop("nnl::selu", save=("x",))
@single_precision
def selu_operator(x: Array, *, scale: float = SELU_SCALE, alpha: float = SELU_ALPHA) -> Array:
    """``scale`` times ``x`` where it is positive, else times ``alpha (exp(x) - 1)``."""
    return np.where(x > 0, scale * x, scale * alpha * np.expm1(np.minimum(x, 0)))


selu_operator.elementwise("x > 0.0f ? scale * x : scale * alpha * expm1f(x)")


@selu_operator.vjp
def selu_vjp(g: Any, y: Any, x: Any, *, scale: float, alpha: float) -> tuple[Any, ...]:
    """``scale g`` where ``x > 0``, else ``scale alpha exp(x) g``."""
    falling = F.exp(F.minimum_scalar(x, 0.0)) * (scale * alpha)
    return (F.chain_rule(g, F.where(x > 0, scale, falling)),)


@selu_operator.samples
def selu_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """The constants of self-normalising networks, and others."""
    for x in signed_points(rng):
        yield Sample(x)
    yield Sample(x[:2] / 400, scale=0.5, alpha=1.5)


def selu(x: Operand, scale: float = SELU_SCALE, alpha: float = SELU_ALPHA) -> Variable:
    """Scale an elu so that activations keep mean 0 and variance 1.

    ``y = scale x`` where ``x > 0``, else ``scale alpha (exp(x) - 1)`` (Klambauer et al., 2017).

    Args:
        x: any shape, floating; integers become ``float32``.
        scale: factor of all.
        alpha: the ``alpha`` of `elu`.

    Gradient:
        ``scale`` where ``x > 0``, else ``scale alpha exp(x)``.

    Examples:
        >>> F.selu(np.array([0.0, 2.0]), scale=1.5, alpha=1.0).d
        array([0., 3.])

    Elsewhere:
        - nnabla: `selu`
        - PyTorch: `torch.nn.functional.selu`
        - ONNX: `Selu`
    """
    return selu_operator(floating(x), scale=real(scale, "scale"), alpha=real(alpha, "alpha"))


def celu(x: Operand, alpha: float = 1.0, axis: int = 1) -> Variable:
    """Concatenate ``elu(x)`` and ``elu(-x)`` along an axis.

    Args:
        x: any shape with that axis.
        alpha: the ``alpha`` of `elu`.
        axis: the axis, which doubles.

    Gradient:
        That of both halves, with their signs.

    Examples:
        >>> F.celu(np.array([[2.0]])).d.round(3)
        array([[ 2.   , -0.865]])

    Elsewhere:
        - nnabla: `celu`
        - PyTorch: none, `torch.nn.functional.elu` of x and -x; its `celu` is another function
        - ONNX: none, `Elu` and `Concat`; its `Celu` is another function
    """
    x = floating(x)
    result: Variable = F.concatenate(elu(x, alpha), elu(-x, alpha), axis=axis)
    return result


def crelu(x: Operand, axis: int = 1) -> Variable:
    """Concatenate ``relu(x)`` and ``relu(-x)`` along an axis.

    Shang et al., 2016.

    Args:
        x: any shape with that axis.
        axis: the axis, which doubles.

    Gradient:
        That of both halves, with their signs; 0 at 0.

    Examples:
        >>> F.crelu(np.array([[2.0, -3.0]])).d
        array([[2., 0., 0., 3.]])

    Elsewhere:
        - nnabla: `crelu`
        - PyTorch: none, `torch.nn.functional.relu` of x and -x
        - ONNX: none, `Relu` and `Concat`
    """
    x = floating(x)
    result: Variable = F.concatenate(relu(x), relu(-x), axis=axis)
    return result
