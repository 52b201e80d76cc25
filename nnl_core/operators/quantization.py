"""Simulated quantization: floating values brought to few levels, the gradient going through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import real
from nnl_core.graph.modes import no_grad
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec, elementwise_spec
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import cast, unbroadcast
from nnl_core.operators.dtypes import floating, single_precision, wide
from nnl_core.operators.samples import unary_samples
from nnl_core.operators.surrogates import half_away, keep, straight_through

__all__ = [
    "binary_sigmoid",
    "binary_tanh",
    "dequantize_linear",
    "fixed_point_quantize",
    "min_max_quantize",
    "pow2_quantize",
    "prune",
    "quantize_linear",
]

INTEGER_RANGES = {"int8": (-128, 127), "uint8": (0, 255)}
ROUND_MODES = ("HALF_AWAY_FROM_ZERO", "HALF_TO_EVEN")


def _require(name: str, holds: bool, sentence: str) -> None:
    if not holds:
        raise OperatorError(f"{name}: {sentence}")


def _fits(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether a shape broadcasts to another one that it does not enlarge."""
    ends = zip(reversed(shape), reversed(whole), strict=False)
    return len(shape) <= len(whole) and all(n in (1, m) for n, m in ends)


# Two levels --------------------------------------------------------------------------------------


@defop("nnl::binary_sigmoid", save=("x",))
def binary_sigmoid_operator(x: Array) -> Array:
    """1 where ``x`` is positive, else 0; NaN stays NaN."""
    return np.heaviside(x, x.dtype.type(0))


binary_sigmoid_operator.elementwise("x > 0 ? 1.0f : (x <= 0 ? 0.0f : x)")
binary_sigmoid_operator.samples(unary_samples)


@binary_sigmoid_operator.vjp(surrogate=True)
def binary_sigmoid_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """Half of it between -1 and 1."""
    return (F.where(F.abs(x) >= 1, 0.0, g * 0.5),)


def binary_sigmoid(x: Operand) -> Variable:
    """Binarize to 0 and 1: ``y = 1 if x > 0 else 0``.

    NaN stays NaN. Courbariaux et al., "Binarized neural networks" (arXiv:1602.02830).

    Args:
        x: any shape, floating.

    Returns:
        Shape and dtype of ``x``.

    Gradient:
        That of the line through (-1, 0) and (1, 1): 1/2 where ``|x| < 1``, else 0.

    Examples:
        >>> F.binary_sigmoid(np.array([-0.5, 0.0, 3.0])).d
        array([0., 0., 1.])

    Elsewhere:
        - nnabla: `binary_sigmoid`
        - PyTorch: `torch.heaviside`, with values=0; it has no gradient
        - ONNX: none, Greater and Cast
    """
    result: Variable = binary_sigmoid_operator(floating(x))
    return result


@defop("nnl::binary_tanh", save=("x",))
def binary_tanh_operator(x: Array) -> Array:
    """1 where ``x`` is positive, else -1; NaN stays NaN."""
    return 2 * np.heaviside(x, x.dtype.type(0)) - 1


binary_tanh_operator.elementwise("x > 0 ? 1.0f : (x <= 0 ? -1.0f : x)")
binary_tanh_operator.samples(unary_samples)


@binary_tanh_operator.vjp(surrogate=True)
def binary_tanh_vjp(g: Any, y: Any, x: Any) -> tuple[Any, ...]:
    """All of it between -1 and 1."""
    return (F.where(F.abs(x) >= 1, 0.0, g),)


def binary_tanh(x: Operand) -> Variable:
    """Binarize to -1 and 1: ``y = 1 if x > 0 else -1``.

    NaN stays NaN. Courbariaux et al., "Binarized neural networks" (arXiv:1602.02830).

    Args:
        x: any shape, floating.

    Returns:
        Shape and dtype of ``x``.

    Gradient:
        1 where ``|x| < 1``, else 0.

    Examples:
        >>> F.binary_tanh(np.array([-0.5, 0.0, 3.0])).d
        array([-1., -1.,  1.])

    Elsewhere:
        - nnabla: `binary_tanh`
        - PyTorch: `torch.sign`, which is 0 at 0 and has no gradient
        - ONNX: `Sign`, which is 0 at 0
    """
    result: Variable = binary_tanh_operator(floating(x))
    return result


# Levels at equal distances -----------------------------------------------------------------------


@defop("nnl::fixed_point_quantize", save=("x",))
@single_precision
def fixed_point_quantize_operator(
    x: Array, *, low: float, high: float, delta: float, fine: bool = True
) -> Array:
    """Nearest multiple of ``delta`` between ``low`` and ``high``, halves away from zero."""
    low, high, delta = (x.dtype.type(number) for number in (low, high, delta))
    return half_away(np.clip(x, low, high) / delta) * delta


fixed_point_quantize_operator.elementwise(
    "x != x ? x : roundf(fminf(fmaxf(x, low), high) / delta) * delta"
)


@fixed_point_quantize_operator.vjp(surrogate=True)
def fixed_point_quantize_vjp(
    g: Any, y: Any, x: Any, *, low: float, high: float, delta: float, fine: bool
) -> tuple[Any, ...]:
    """All of it, or (``fine``) what is within the range."""
    return (_within(g, x, low, high) if fine else g,)


def _within(g: Variable, x: Variable, low: Operand, high: Operand) -> Variable:
    result: Variable = F.where(x < low, 0.0, F.where(x > high, 0.0, g))
    return result


def _between_steps(rng: np.random.Generator, shape: tuple[int, ...], low: int, high: int) -> Array:
    """Return numbers away from the halves between whole ones, where roundings tell them apart."""
    return rng.integers(low, high, size=shape) + rng.uniform(-0.3, 0.3, size=shape)


@fixed_point_quantize_operator.samples
def fixed_point_quantize_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Within and beyond the range, 0-d, empty, both gradients."""
    for shape, delta, fine in (((), 0.5, True), ((0, 2), 1.0, True), ((5, 7), 0.3, False)):
        x = _between_steps(rng, shape, -9, 10) * delta
        yield Sample(x, low=-7 * delta, high=7 * delta, delta=delta, fine=fine)
        yield Sample(x, low=0.0, high=7 * delta, delta=delta, fine=fine)


def fixed_point_quantize(
    x: Operand,
    sign: bool = True,
    n: int = 8,
    delta: float = 2**-4,
    quantize: bool = True,
    ste_fine_grained: bool = True,
) -> Variable:
    """Round to multiples of ``delta`` that ``n`` bits count, as fixed-point numbers do.

    ``y = round(clip(x, min, max) / delta) * delta`` with
    ``max = (2^(n-1) - 1) delta, min = -max`` if signed, else ``max = (2^n - 1) delta, min = 0``.
    Halves are rounded away from zero. NaN stays NaN.

    Args:
        x: any shape, floating.
        sign: whether one of the bits is a sign.
        n: number of bits.
        delta: distance of two levels.
        quantize: ``False`` returns ``x`` as it is.
        ste_fine_grained: whether the gradient stops outside the range.

    Returns:
        Shape and dtype of ``x``: the levels as floating numbers.

    Raises:
        OperatorError: no bit is left for the number, or ``delta`` is not positive.

    Gradient:
        Straight through (1), and with ``ste_fine_grained`` 0 where ``x < min`` or ``x > max``.

    Examples:
        >>> F.fixed_point_quantize(np.array([-9.0, 0.3, 0.75]), n=3, delta=0.5).d
        array([-1.5,  0.5,  1. ])

    Elsewhere:
        - nnabla: `fixed_point_quantize`
        - PyTorch: `torch.fake_quantize_per_tensor_affine`, which rounds halves to even
        - ONNX: none, QuantizeLinear followed by DequantizeLinear
    """
    x = floating(x)
    if not quantize:
        return x
    _require("fixed_point_quantize", delta > 0, f"delta {delta} must be positive")
    bits = n - bool(sign)
    _require(
        "fixed_point_quantize", bits > 0, f"n = {n} bits leave {bits} for the number; give more"
    )
    high = (2.0**bits - 1) * delta
    result: Variable = fixed_point_quantize_operator(
        x,
        low=-high if sign else 0.0,
        high=high,
        delta=real(delta, "delta"),
        fine=bool(ste_fine_grained),
    )
    return result


@defop("nnl::quantize_between", save=("x", "low", "high"))
@single_precision
def quantize_between(
    x: Array, low: Array, high: Array, scale: Array, *, fine: bool = True
) -> Array:
    """Nearest of ``low, low + scale, ...`` up to ``high``, halves away from ``low``."""
    return half_away((np.clip(x, low, high) - low) / scale) * scale + low


quantize_between.elementwise(
    "x != x ? x : high != high ? high :"
    " roundf((fminf(fmaxf(x, low), high) - low) / scale) * scale + low"
)


@quantize_between.infer
def quantize_between_infer(x: Spec, low: Spec, high: Spec, scale: Spec, *, fine: bool) -> Spec:
    """That of ``x``."""
    if not all(_fits(spec.shape, x.shape) for spec in (low, high, scale)):
        raise ShapeError(f"a range of shape {low.shape} does not broadcast to {x.shape}")
    return x


@quantize_between.vjp(surrogate=True)
def quantize_between_vjp(
    g: Any, y: Any, x: Any, low: Any, high: Any, scale: Any, *, fine: bool
) -> tuple[Any, ...]:
    """What is beyond a bound goes to the bound; all of it, or what is within, to ``x``."""
    dx = _within(g, x, low, high) if fine else g
    d_low = unbroadcast(F.where(x < low, g, 0.0), low)
    d_high = unbroadcast(F.where(x > high, g, 0.0), high)
    return dx, d_low, d_high, None


@quantize_between.samples
def quantize_between_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """One range, one per row or column, 0-d, empty, both gradients."""
    for shape, bound, fine in [
        ((3, 5), (1, 1), True),
        ((3, 5), (3, 1), False),
        ((2, 3, 4), (1, 3, 1), True),
        ((), (), True),
        ((0, 3), (1, 3), True),
    ]:
        scale = rng.uniform(0.3, 1, size=bound)
        x = _between_steps(rng, shape, -6, 7) * scale
        yield Sample(x, -4 * scale, 4 * scale, scale, fine=fine)


@defop("nnl::quantization_range", outputs=("low", "high", "scale", "top"))
def quantization_range(
    qr_min: Array, qr_max: Array, ql_min: Array, ql_max: Array, *, eps: float
) -> tuple[Array, Array, Array, Array]:
    """Move a range of values so that 0 is one of its levels ``ql_min`` to ``ql_max``.

    Returns the range, the distance of two levels, and ``qr_max`` raised to ``qr_min + eps``.
    """
    bottom, first, last = wide(qr_min), wide(ql_min), wide(ql_max)
    top = np.where(wide(qr_max) - bottom < eps, bottom + bottom.dtype.type(eps), wide(qr_max))
    scale = (top - bottom) / (last - first)
    exact = first - bottom / scale
    zero = np.where(exact <= first, first, np.where(exact >= last, last, half_away(exact)))
    results = ((first - zero) * scale, (last - zero) * scale, scale, top)
    low, high, scale, top = (np.asarray(one.astype(qr_min.dtype, copy=False)) for one in results)
    return low, high, scale, top


@quantization_range.infer
def quantization_range_infer(
    qr_min: Spec, qr_max: Spec, ql_min: Spec, ql_max: Spec, *, eps: float
) -> tuple[Spec, Spec, Spec, Spec]:
    """That of the range."""
    if not qr_min.shape == qr_max.shape == ql_min.shape == ql_max.shape:
        raise ShapeError("qr_min, qr_max, ql_min and ql_max need one shape")
    return qr_min, qr_min, qr_min, qr_min


@quantization_range.samples
def quantization_range_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """0 among the values, below and above them; no range; 0-d; empty."""
    low = np.array([-2.0, 1.0, -5.0, 1.0])
    high = np.array([3.3, 2.0, -4.0, 1.0])
    yield Sample(low, high, np.full(4, -8.0), np.full(4, 7.0), eps=0.25)
    for shape in ((), (0, 1)):
        yield Sample(*(np.full(shape, one) for one in (-1.2, 2.0, 0.0, 16.0)), eps=0.25)


def min_max_quantize(
    x: Operand,
    qr_min: Operand,
    qr_max: Operand,
    ql_min: Operand,
    ql_max: Operand,
    decay: float = 0.999,
    x_min_max: bool = False,
    ema: bool = False,
    ste_fine_grained: bool = True,
    eps: float = 0.01,
    quantize: bool = True,
) -> Variable:
    """Round to the levels ``ql_min`` to ``ql_max``, spread from ``qr_min`` to ``qr_max``.

    ``y = round((clip(x, m, M) - m) / scale) * scale + m`` with
    ``scale = (qr_max - qr_min) / (ql_max - ql_min)``. ``m`` and ``M`` are ``qr_min`` and
    ``qr_max`` moved so that 0 is a level: ``zero = round(ql_min - qr_min / scale)``, brought
    between ``ql_min`` and ``ql_max``, ``m = (ql_min - zero) scale, M = (ql_max - zero) scale``.
    Halves are rounded away from zero. NaN stays NaN. Jacob et al., "Quantization and training of
    neural networks for efficient integer-arithmetic-only inference" (arXiv:1712.05877).

    Each forward pass sets ``qr_min`` and ``qr_max``, where they are variables, to what it used.

    Args:
        x: any shape, floating.
        qr_min: least value; its shape broadcasts to ``x``, with 1 for axes that share a range.
        qr_max: greatest value; one less than ``qr_min + eps`` becomes that. Shape of ``qr_min``.
        ql_min: first level, such as 0. Shape of ``qr_min``.
        ql_max: last level, such as 255. Shape of ``qr_min``.
        decay: share of the old range in a moving average.
        x_min_max: whether the range is that of ``x``, over the axes that share one.
        ema: whether ``qr_min`` and ``qr_max`` are moving averages: with ``x_min_max``
            ``decay * old + (1 - decay) * that of x`` is stored and used, without it they are used.
        ste_fine_grained: whether the gradient of ``x`` stops outside the range.
        eps: least width of a range.
        quantize: ``False`` returns ``x`` as it is.

    Returns:
        Shape and dtype of ``x``: the values of the levels, not their numbers.

    Raises:
        ShapeError: the ranges have different shapes, or do not broadcast to ``x``.
        OperatorError: ``x_min_max`` has to update a range that is computed.

    Gradient:
        Of ``x`` straight through (1), and with ``ste_fine_grained`` 0 outside ``[m, M]``. Without
        ``x_min_max`` and ``ema``, ``qr_min`` gets the sum of the gradients where ``x < m``, and
        ``qr_max`` that where ``x > M``; else they get none. The levels get none.

    Examples:
        >>> x = np.array([-7.0, -0.4, 1.5, 9.0])
        >>> low, high = np.array([-6.0]), np.array([6.0])
        >>> F.min_max_quantize(x, low, high, np.array([0.0]), np.array([12.0])).d
        array([-6.,  0.,  2.,  6.])

    Elsewhere:
        - nnabla: `min_max_quantize`
        - PyTorch: `torch.ao.quantization.FakeQuantize`, with a MinMaxObserver; halves to even
        - ONNX: none, QuantizeLinear followed by DequantizeLinear
    """
    x = floating(x)
    if not quantize:
        return x
    low, high, first, last = (
        cast(one, x.dtype) if one.dtype != x.dtype else one
        for one in map(floating, (qr_min, qr_max, ql_min, ql_max))
    )
    if not _fits(low.shape, x.shape):
        raise ShapeError(
            f"min_max_quantize: a range of shape {low.shape} does not broadcast to the input of "
            f"shape {x.shape}"
        )
    learned = not (x_min_max or ema)
    with no_grad():
        if x_min_max:
            extremes = _extremes(x, low.shape)
            if ema:
                old = (low, high)
                extremes = tuple(
                    was * decay + now * (1 - decay) for was, now in zip(old, extremes, strict=True)
                )
            low, high = extremes
        bottom, top, scale, raised = quantization_range(
            low, high, first, last, eps=real(eps, "eps")
        )
    if learned:
        bottom, top = straight_through(low, bottom), straight_through(high, top)
    y: Variable = quantize_between(x, bottom, top, scale, fine=bool(ste_fine_grained))
    pairs = [("qr_min", qr_min, low)] if x_min_max else []
    keep("min_max_quantize", y, [*pairs, ("qr_max", qr_max, raised)], computed=not x_min_max)
    return y


def _extremes(x: Variable, shape: tuple[int, ...]) -> tuple[Variable, ...]:
    """Return the least and the greatest elements over what a range of that shape is shared by."""
    lengths = (1,) * (x.ndim - len(shape)) + shape
    axes = tuple(axis for axis, length in enumerate(lengths) if length == 1)
    both = (x, x) if not axes else (F.min(x, axes, True), F.max(x, axes, True))
    return tuple(F.reshape(one, shape) for one in both)


# Powers of two -----------------------------------------------------------------------------------


@defop("nnl::pow2_quantize", save=("x",))
@single_precision
def pow2_quantize_operator(
    x: Array, *, sign: bool, with_zero: bool, low: float, high: float, fine: bool = True
) -> Array:
    """Power of two from ``low`` to ``high`` whose logarithm is nearest, with the sign of ``x``."""
    low, high, zero = (x.dtype.type(number) for number in (low, high, 0.0))
    size = np.abs(x)
    # x = mantissa * 2^exponent with a mantissa in [1/2, 1): the factor makes half an octave more.
    exponent = np.frexp(np.minimum(size, high) * x.dtype.type(np.sqrt(2)))[1] - 1
    power = np.clip(np.ldexp(np.ones_like(x), exponent), low, high)
    least = zero if with_zero else low
    power = np.where((size < low * x.dtype.type(np.sqrt(0.5))) | (size == 0), least, power)
    negative = -power if sign else least
    return np.where(np.isnan(x), x, np.where(x < 0, negative, power))


pow2_quantize_operator.elementwise(
    "x != x ? x : (x < 0 && !sign) ? (with_zero ? 0.0f : low) :"
    " (fabsf(x) < low * 0.7071067811865476f || x == 0) ? (with_zero ? 0.0f : x < 0 ? -low : low) :"
    " copysignf(fmaxf(low, ldexpf(1.0f, ilogbf(fminf(fabsf(x), high) * 1.4142135623730951f))), x)"
)


@pow2_quantize_operator.vjp(surrogate=True)
def pow2_quantize_vjp(
    g: Any, y: Any, x: Any, *, sign: bool, with_zero: bool, low: float, high: float, fine: bool
) -> tuple[Any, ...]:
    """All of it, or (``fine``) what is not rounded down to ``high`` or up from below 0."""
    if not fine:
        return (g,)
    beyond = 2**0.5 * high
    return (_within(g, x, -beyond if sign else 0.0, beyond),)


@pow2_quantize_operator.samples
def pow2_quantize_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Within the range, beyond it, below it, 0; all forms; 0-d; empty."""
    for sign in (True, False):
        for with_zero in (True, False):
            given = {"sign": sign, "with_zero": with_zero, "low": 2.0**-4, "high": 2.0}
            x = 2 ** (rng.integers(-6, 4, size=(5, 7)) + rng.uniform(-0.3, 0.3, size=(5, 7)))
            yield Sample(x * rng.choice([-1, 1], size=x.shape), fine=sign, **given)
            yield Sample(np.array([0.0, -0.0, 1e4, -1e4, 1e-3, -1e-3]), **given)
    yield Sample(np.array(0.3), **given)
    yield Sample(np.zeros((0, 2)), **given)


def pow2_quantize(
    x: Operand,
    sign: bool = True,
    with_zero: bool = True,
    n: int = 8,
    m: int = 1,
    quantize: bool = True,
    ste_fine_grained: bool = True,
) -> Variable:
    """Round to powers of two up to ``2^m`` that ``n`` bits count.

    ``|y| = 2^round(log2 |x|)``, brought between ``min = 2^(m - 2^k + 1)`` and ``max = 2^m``, where
    ``k`` is ``n`` less one bit for a sign and one for zero. The border between two powers is their
    geometric mean. With zero, ``y = 0`` where ``|x| < min / sqrt(2)``; without it, 0 becomes
    ``min``. Unsigned, negative numbers become the least level. NaN stays NaN.

    Args:
        x: any shape, floating.
        sign: whether one of the bits is a sign.
        with_zero: whether one of the bits says that a number is 0.
        n: number of bits.
        m: exponent of the greatest level.
        quantize: ``False`` returns ``x`` as it is.
        ste_fine_grained: whether the gradient stops outside the range.

    Returns:
        Shape and dtype of ``x``.

    Raises:
        OperatorError: no bit is left for the exponent.

    Gradient:
        Straight through (1), and with ``ste_fine_grained`` 0 where ``|x|`` is nearer to
        ``2^(m+1)`` than to ``2^m``, and for negative ``x`` if unsigned.

    Examples:
        >>> F.pow2_quantize(np.array([-9.0, 0.01, 0.3, 0.7]), n=4, m=1).d
        array([-2.  ,  0.  ,  0.25,  0.5 ])

    Elsewhere:
        - nnabla: `pow2_quantize`
        - PyTorch: none, `torch.exp2(torch.round(torch.log2(x)))` and a clamp
        - ONNX: none, Log, Round and Pow
    """
    x = floating(x)
    if not quantize:
        return x
    bits = n - bool(sign) - bool(with_zero)
    _require("pow2_quantize", bits > 0, f"n = {n} bits leave {bits} for the exponent; give more")
    result: Variable = pow2_quantize_operator(
        x,
        sign=bool(sign),
        with_zero=bool(with_zero),
        low=2.0 ** max(m - 2**bits + 1, -1100),  # beyond, it is 0
        high=2.0**m,
        fine=bool(ste_fine_grained),
    )
    return result


# The largest elements ----------------------------------------------------------------------------


def prune_position(size: int, rate: float) -> int:
    """Return the position of the threshold among sorted sizes, a product in single precision."""
    return int(np.float32(size - 1) * np.float32(rate))


@defop("nnl::prune")
def prune_operator(x: Array, *, rate: float) -> Array:
    """0 where the size is below that of the element at ``rate`` of all sorted sizes."""
    if rate == 1 or not x.size:
        return np.zeros_like(x)
    sizes = np.abs(x)
    threshold = np.sort(sizes, axis=None)[prune_position(x.size, rate)]
    return np.where(sizes < threshold, x.dtype.type(0), x)


@prune_operator.infer
def prune_infer(x: Spec, *, rate: float) -> Spec:
    """The same as the input."""
    return x


@prune_operator.vjp(surrogate=True)
def prune_vjp(g: Any, y: Any, x: Any, *, rate: float) -> tuple[Any, ...]:
    """All of it, so that what was pruned can grow again."""
    return (g,)


@prune_operator.samples
def prune_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Nothing, half, most and all pruned; 0-d; empty."""
    for rate in (0.0, 0.5, 0.9, 1.0):
        yield Sample(rng.permutation(21).reshape(3, 7) - 9.25, rate=rate)
    yield Sample(np.array(-2.0), rate=0.5)
    yield Sample(np.zeros((0, 2)), rate=0.5)


def prune(x: Operand, rate: float = 0.9) -> Variable:
    """Set the elements of least absolute value to 0: ``y = 0 if |x| < threshold else x``.

    ``threshold = sort(|x|)[int((x.size - 1) * rate)]``, the product in single precision; what
    equals it stays. NaN is larger than all numbers. At rate 1 all become 0.

    Args:
        x: any shape, floating.
        rate: share of the elements to prune, from 0 to 1.

    Returns:
        Shape and dtype of ``x``.

    Raises:
        OperatorError: ``rate`` is not from 0 to 1.

    Gradient:
        Straight through (1), also where elements are pruned.

    Examples:
        >>> F.prune(np.array([3.0, -1.0, 0.5, -4.0]), rate=0.7).d
        array([ 3.,  0.,  0., -4.])

    Elsewhere:
        - nnabla: `prune`
        - PyTorch: `torch.nn.utils.prune.l1_unstructured`, which prunes a module's parameter
        - ONNX: none, Abs, TopK and Where
    """
    _require("prune", 0 <= rate <= 1, f"rate {rate} must be from 0 to 1")
    result: Variable = prune_operator(floating(x), rate=real(rate, "rate"))
    return result


# Integers as ONNX has them -----------------------------------------------------------------------


@defop("nnl::quantize_linear", save=("x", "scale"))
@single_precision
def quantize_linear_operator(
    x: Array, scale: Array, zero_point: Array, *, low: float, high: float, even: bool = False
) -> Array:
    """``round(x / scale) + round(zero_point)``, both brought between ``low`` and ``high``."""
    nearest = np.round if even else half_away
    zero = np.clip(nearest(zero_point), low, high)
    return np.asarray(np.clip(nearest(x / scale) + zero, low, high), x.dtype)


quantize_linear_operator.elementwise(
    "x / scale != x / scale ? x / scale : zero_point != zero_point ? zero_point :"
    " fminf(fmaxf((even ? rintf(x / scale) : roundf(x / scale)) +"
    " fminf(fmaxf(even ? rintf(zero_point) : roundf(zero_point), low), high), low), high)"
)


@quantize_linear_operator.infer
def quantize_linear_infer(
    x: Spec, scale: Spec, zero_point: Spec, *, low: float, high: float, even: bool
) -> Spec:
    """That of ``x``."""
    return _scaled_spec(x, scale, zero_point)


def _scaled_spec(x: Spec, scale: Spec, zero_point: Spec) -> Spec:
    for name, spec in (("scale", scale), ("zero_point", zero_point)):
        if not _fits(spec.shape, x.shape):
            raise ShapeError(f"{name} of shape {spec.shape} does not broadcast to {x.shape}")
    return elementwise_spec(x, scale, zero_point)


@quantize_linear_operator.vjp(surrogate=True)
def quantize_linear_vjp(
    g: Any, y: Any, x: Any, scale: Any, zero_point: Any, *, low: float, high: float, even: bool
) -> tuple[Any, ...]:
    """That of ``x / scale + zero_point``."""
    slope = 1 / scale
    return (
        F.chain_rule(g, slope),
        unbroadcast(F.chain_rule(g, -x * slope * slope), scale),
        unbroadcast(g, zero_point),
    )


@quantize_linear_operator.samples
def quantize_linear_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """One scale, one per column, beyond the range, both roundings, 0-d, empty."""
    for shape, per, even in [
        ((3, 5), (1, 1), False),
        ((3, 5), (1, 5), True),
        ((), (), True),
        ((0, 2), (1, 2), False),
    ]:
        scale = rng.uniform(0.3, 1, size=per)
        x = _between_steps(rng, shape, -12, 13) * scale
        zero = _between_steps(rng, per, -9, 10)
        yield Sample(x, scale, zero, low=-8.0, high=7.0, even=even)


def quantize_linear(
    x: Operand,
    scale: Operand,
    zero_point: Operand,
    round_mode: str = "HALF_AWAY_FROM_ZERO",
    narrow_range: bool = False,
    dtype: npt.DTypeLike = "int8",
) -> Variable:
    """Return the number of the level nearest to ``x``: ``saturate(round(x / scale) + zero_point)``.

    ``saturate`` brings numbers into the range of ``dtype``; ``zero_point`` is rounded and brought
    there, too, but not changed. NaN stays NaN.

    Args:
        x: any shape, floating.
        scale: distance of two levels, positive; its shape broadcasts to ``x``, with 1 for axes
            that share one.
        zero_point: number of the level that 0 has; its shape broadcasts likewise.
        round_mode: ``"HALF_AWAY_FROM_ZERO"`` or ``"HALF_TO_EVEN"``.
        narrow_range: whether the least number of the range stays unused.
        dtype: ``int8`` (-128 to 127) or ``uint8`` (0 to 255).

    Returns:
        Shape and dtype of ``x``: whole numbers, kept as floating ones.

    Raises:
        OperatorError: the round mode or dtype is another.
        ShapeError: ``scale`` or ``zero_point`` does not broadcast to ``x``.

    Gradient:
        That of ``x / scale + zero_point``, as if nothing was rounded or saturated.

    Examples:
        >>> F.quantize_linear(np.array([-0.26, 0.25, 99.0]), 0.5, 10.0).d
        array([  9.,  11., 127.])

    Elsewhere:
        - nnabla: `quantize_linear`, which also rounds the variable `zero_point` itself
        - PyTorch: `torch.quantize_per_tensor`, which rounds halves to even
        - ONNX: `QuantizeLinear`, which rounds halves to even and takes an axis
    """
    _require(
        "quantize_linear",
        round_mode in ROUND_MODES,
        f"round_mode {round_mode!r} must be one of {', '.join(ROUND_MODES)}",
    )
    name = np.dtype(dtype).name
    _require("quantize_linear", name in INTEGER_RANGES, f"dtype {name} must be int8 or uint8")
    low, high = INTEGER_RANGES[name]
    x, scale, zero_point = _like_first(x, scale, zero_point)
    result: Variable = quantize_linear_operator(
        x,
        scale,
        zero_point,
        low=float(low + bool(narrow_range)),
        high=float(high),
        even=round_mode == "HALF_TO_EVEN",
    )
    return result


def _like_first(x: Operand, *others: Operand) -> tuple[Variable, ...]:
    """Return all in the floating dtype of the first."""
    x = floating(x)
    same = (one if one.dtype == x.dtype else cast(one, x.dtype) for one in map(floating, others))
    return x, *same


def dequantize_linear(x: Operand, scale: Operand, zero_point: Operand) -> Variable:
    """Return the value of level number ``x``: ``(x - zero_point) * scale``.

    Args:
        x: any shape; integers are computed in ``float32``.
        scale: distance of two levels; its shape broadcasts to ``x``.
        zero_point: number of the level that 0 has; its shape broadcasts likewise.

    Returns:
        Shape of ``x``, and its dtype if that is floating.

    Raises:
        ShapeError: ``scale`` or ``zero_point`` does not broadcast to ``x``.

    Gradient:
        The derivatives: ``scale`` for ``x``, ``-scale`` for ``zero_point``, and
        ``x - zero_point`` for ``scale``.

    Examples:
        >>> F.dequantize_linear(np.array([9.0, 11.0]), 0.5, 10.0).d
        array([-0.5,  0.5])

    Elsewhere:
        - nnabla: `dequantize_linear`, which has no gradient of `scale` and `zero_point`
        - PyTorch: `torch.dequantize`, of a tensor that knows its scale and zero point
        - ONNX: `DequantizeLinear`, which takes an axis
    """
    x, scale, zero_point = _like_first(x, scale, zero_point)
    try:
        _scaled_spec(x.spec, scale.spec, zero_point.spec)
    except ShapeError as error:
        raise ShapeError(f"dequantize_linear: {error}") from None
    result: Variable = (x - zero_point) * scale
    return result
