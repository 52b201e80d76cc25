"""NumPy kernels of the activation functions: few passes, into planned memory.

``out`` may be the input's own memory: each reads its input for the last time in the pass that first
writes to ``out``, or earlier.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnl_core.cpu.kernels.select import choose
from nnl_core.graph.operator import Array, Operator
from nnl_core.operators import activation as family
from nnl_core.operators import rectifiers


def _attach(operator: Operator) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Attach ``function(x, out, **attributes)``, which computes in ``float32`` or ``float64``."""

    def attach(function: Callable[..., object]) -> Callable[..., object]:
        def kernel(x: Array, *, out: Array | None, **attributes: Any) -> Array:
            if out is None:
                out = np.empty(x.shape, x.dtype)
            function(x, out, **attributes)
            return out

        operator.kernel("numpy", kernel)
        return function

    return attach


def _relu(x: Array, *, out: Array | None) -> Array:
    return np.asarray(np.maximum(x, x.dtype.type(0), out=out))


def _relu_gradient(g: Array, y: Array, *, out: Array | None) -> Array:
    return choose(np.greater(y, 0), g, None, out)


rectifiers.relu_operator.kernel("numpy", _relu)
rectifiers.relu_gradient.kernel("numpy", _relu_gradient)
family.tanh_operator.kernel("numpy", np.tanh)


def _relu6(x: Array, *, out: Array | None) -> Array:
    return np.asarray(np.clip(x, x.dtype.type(0), x.dtype.type(6), out=out))


def _hard_tanh(x: Array, *, out: Array | None) -> Array:
    return np.asarray(np.clip(x, x.dtype.type(-1), x.dtype.type(1), out=out))


rectifiers.relu6_operator.kernel("numpy", _relu6)
rectifiers.hard_tanh_operator.kernel("numpy", _hard_tanh)


@_attach(rectifiers.leaky_relu_operator)
def _leaky_relu(x: Array, out: Array, *, alpha: float) -> None:
    falling = np.asarray(x * alpha)
    if 0 < alpha <= 1:
        np.maximum(x, falling, out=out)
    else:
        choose(np.greater(x, 0), x, falling, out)


def _prelu(x: Array, slope: Array, *, out: Array | None) -> Array:
    falling = np.asarray(slope * x)
    if falling.shape != x.shape:
        x = np.broadcast_to(x, falling.shape)
    return choose(np.greater(x, 0), x, falling, out)


rectifiers.prelu_operator.kernel("numpy", _prelu)


@_attach(rectifiers.hard_sigmoid_operator)
def _hard_sigmoid(x: Array, out: Array) -> None:
    np.multiply(x, 0.2, out=out)
    np.add(out, 0.5, out=out)
    np.clip(out, 0, 1, out=out)


def _exponential_unit(x: Array, out: Array, scale: float, alpha: float) -> None:
    """Add the two sides, of which one is 0."""
    falling = np.asarray(np.minimum(x, 0))
    np.expm1(falling, out=falling)
    np.multiply(falling, scale * alpha, out=falling)
    np.maximum(x, 0, out=out)
    if scale != 1:
        np.multiply(out, scale, out=out)
    np.add(out, falling, out=out)


@_attach(rectifiers.elu_operator)
def _elu(x: Array, out: Array, *, alpha: float) -> None:
    _exponential_unit(x, out, 1.0, alpha)


@_attach(rectifiers.selu_operator)
def _selu(x: Array, out: Array, *, scale: float, alpha: float) -> None:
    _exponential_unit(x, out, scale, alpha)


@_attach(family.sigmoid_operator)
def _sigmoid(x: Array, out: Array) -> None:
    np.negative(x, out=out)
    np.exp(out, out=out)
    np.add(out, 1, out=out)
    np.reciprocal(out, out=out)


def _log_of_one_plus(x: Array) -> Array:
    """Return ``log(1 + exp(-|x|))``."""
    result = np.abs(x, out=np.empty(x.shape, x.dtype))
    np.negative(result, out=result)
    np.exp(result, out=result)
    return np.asarray(np.log1p(result, out=result))


def _softplus_of(x: Array, out: Array) -> None:
    rest = _log_of_one_plus(x)
    np.maximum(x, 0, out=out)
    np.add(out, rest, out=out)


@_attach(family.softplus_operator)
def _softplus(x: Array, out: Array, *, beta: float) -> None:
    if beta == 1:
        _softplus_of(x, out)
    else:
        np.multiply(x, beta, out=out)
        _softplus_of(out, out)
        np.divide(out, beta, out=out)


@_attach(family.log_sigmoid_operator)
def _log_sigmoid(x: Array, out: Array) -> None:
    rest = _log_of_one_plus(x)
    np.minimum(x, 0, out=out)
    np.subtract(out, rest, out=out)


@_attach(family.tanh_shrink_operator)
def _tanh_shrink(x: Array, out: Array) -> None:
    np.subtract(x, np.tanh(x), out=out)


@_attach(family.softsign_operator)
def _softsign(x: Array, out: Array) -> None:
    np.clip(x, -family.SOFTSIGN_FAR, family.SOFTSIGN_FAR, out=out)
    np.divide(out, np.abs(out) + 1, out=out)


@_attach(family.swish_operator)
def _swish(x: Array, out: Array) -> None:
    gate = np.negative(x, out=np.empty(x.shape, x.dtype))
    np.exp(gate, out=gate)
    np.add(gate, 1, out=gate)
    np.maximum(x, -family.FAR, out=out)
    np.divide(out, gate, out=out)


@_attach(family.gelu_operator)
def _gelu(x: Array, out: Array) -> None:
    np.maximum(x, -family.FAR, out=out)
    gate = np.multiply(out, out, out=np.empty(x.shape, x.dtype))
    np.multiply(gate, family.GELU_SCALE * family.GELU_CUBE, out=gate)
    np.add(gate, family.GELU_SCALE, out=gate)
    np.multiply(gate, out, out=gate)
    np.tanh(gate, out=gate)
    np.add(gate, 1, out=gate)
    np.multiply(out, gate, out=out)
    np.multiply(out, 0.5, out=out)


@_attach(family.mish_operator)
def _mish(x: Array, out: Array) -> None:
    gate = np.empty(x.shape, x.dtype)
    _softplus_of(x, gate)
    np.tanh(gate, out=gate)
    np.maximum(x, -family.FAR, out=out)
    np.multiply(out, gate, out=out)
