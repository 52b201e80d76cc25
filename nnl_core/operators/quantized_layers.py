"""Affine maps and convolutions whose weights are binarized, or fixed to powers of two in steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import real, whole, wholes
from nnl_core.graph.modes import no_grad
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.dtypes import floating, wide
from nnl_core.operators.stochastic import generator_of
from nnl_core.operators.surrogates import keep, straight_through

__all__ = [
    "binary_connect_affine",
    "binary_connect_convolution",
    "binary_weight_affine",
    "binary_weight_convolution",
    "inq_affine",
    "inq_convolution",
]

PerAxis = int | Sequence[int] | None


# Two values --------------------------------------------------------------------------------------


def _same_shape(name: str, weight: Variable, argument: str, other: Operand) -> None:
    if np.shape(other) != weight.shape:
        raise ShapeError(
            f"{name}: {argument} has shape {np.shape(other)} and weight {weight.shape}; give equal "
            "shapes"
        )


def _signs(name: str, weight: Operand, binary_weight: Operand, zero: float) -> Variable:
    """Return the signs of a weight, and let them be stored, too."""
    weight = floating(weight)
    _same_shape(name, weight, "binary_weight", binary_weight)
    signs: Variable = F.sign(weight, real(zero, "quantize_zero_to"))
    keep(name, signs, [("binary_weight", binary_weight, signs)])
    return signs


def _scaled_signs(
    name: str,
    weight: Operand,
    binary_weight: Operand,
    alpha: Operand,
    zero: float,
    axes: Sequence[int],
) -> Variable:
    """Return the signs times the mean absolute value over axes, and let both be stored, too."""
    weight = floating(weight)
    _same_shape(name, weight, "binary_weight", binary_weight)
    with no_grad():
        signs = F.sign(weight, real(zero, "quantize_zero_to"))
        means = F.mean(F.abs(weight), axes, True)
        scaled = signs * means
    result: Variable = straight_through(weight, scaled)
    keep(name, result, [("binary_weight", binary_weight, signs), ("alpha", alpha, means)])
    return result


def binary_connect_affine(
    x: Operand,
    weight: Operand,
    binary_weight: Operand,
    bias: Operand | None = None,
    base_axis: int = 1,
    quantize_zero_to: float = 1.0,
) -> Variable:
    """Apply a fully connected layer with the signs of its weight: ``y = x sign(W) + b``.

    Each forward pass stores ``sign(W)`` in ``binary_weight``, where that is a variable.
    Courbariaux et al., "BinaryConnect" (arXiv:1511.00363).

    Args:
        x: ``(batch..., inputs...)``; the axes from ``base_axis`` on are flattened.
        weight: ``(inputs, outputs...)``.
        binary_weight: shape of ``weight``; written, not read.
        bias: ``(outputs...)``.
        base_axis: first axis that is not a batch axis.
        quantize_zero_to: sign of 0.

    Returns:
        ``(batch..., outputs...)``.

    Raises:
        ShapeError: the shapes do not fit.
        OperatorError: ``binary_weight`` is computed, so that nothing can be stored in it.

    Gradient:
        That of the layer, the gradient of ``sign(W)`` going straight through to ``weight``.

    Examples:
        >>> w = np.array([[0.3], [-7.0]])
        >>> kept = Variable((2, 1))
        >>> F.binary_connect_affine(np.array([[5.0, 2.0]]), w, kept).d
        array([[3.]])
        >>> kept.d.tolist()
        [[1.0], [-1.0]]

    Elsewhere:
        - nnabla: `binary_connect_affine`
        - PyTorch: none, `torch.sign` and `torch.nn.functional.linear`
        - ONNX: none, Sign and Gemm
    """
    signs = _signs("binary_connect_affine", weight, binary_weight, quantize_zero_to)
    result: Variable = F.affine(x, signs, bias, base_axis)
    return result


def binary_connect_convolution(
    x: Operand,
    weight: Operand,
    binary_weight: Operand,
    bias: Operand | None = None,
    base_axis: int = 1,
    pad: PerAxis = None,
    stride: PerAxis = None,
    dilation: PerAxis = None,
    group: int = 1,
    quantize_zero_to: float = 1.0,
) -> Variable:
    """Convolve with the signs of a weight: ``y = x * sign(W) + b``.

    Each forward pass stores ``sign(W)`` in ``binary_weight``, where that is a variable.
    Courbariaux et al., "BinaryConnect" (arXiv:1511.00363).

    Args:
        x: ``(batch..., channels, *spatial)``.
        weight: ``(maps, channels / group, *kernel)``.
        binary_weight: shape of ``weight``; written, not read.
        bias: ``(maps,)``.
        base_axis: axis of the channels.
        pad: zeros at both ends of each spatial axis.
        stride: steps of the window.
        dilation: steps between the places that the window reads.
        group: number of groups that channels and maps are divided into.
        quantize_zero_to: sign of 0.

    Returns:
        ``(batch..., maps, *spatial)``, as `convolution`.

    Raises:
        ShapeError: the shapes do not fit.
        OperatorError: ``binary_weight`` is computed, so that nothing can be stored in it.

    Gradient:
        That of the convolution, the gradient of ``sign(W)`` going straight through to ``weight``.

    Examples:
        >>> x, w = np.array([[[1.0, 2.0, 4.0]]]), np.array([[[-0.5, 0.1]]])
        >>> F.binary_connect_convolution(x, w, Variable((1, 1, 2))).d
        array([[[1., 2.]]])

    Elsewhere:
        - nnabla: `binary_connect_convolution`
        - PyTorch: none, `torch.sign` and `torch.nn.functional.conv2d`
        - ONNX: none, Sign and Conv
    """
    signs = _signs("binary_connect_convolution", weight, binary_weight, quantize_zero_to)
    result: Variable = F.convolution(x, signs, bias, base_axis, pad, stride, dilation, group)
    return result


def binary_weight_affine(
    x: Operand,
    weight: Operand,
    binary_weight: Operand,
    alpha: Operand,
    bias: Operand | None = None,
    base_axis: int = 1,
    quantize_zero_to: float = 1.0,
) -> Variable:
    """Apply a fully connected layer with scaled signs: ``y = x (alpha sign(W)) + b``.

    ``alpha`` is the mean of ``|W|`` over the inputs of each output. Each forward pass stores
    ``sign(W)`` and ``alpha`` in the arguments of these names, where they are variables.
    Rastegari et al., "XNOR-Net" (arXiv:1603.05279).

    Args:
        x: ``(batch..., inputs...)``; the axes from ``base_axis`` on are flattened.
        weight: ``(inputs, outputs...)``.
        binary_weight: shape of ``weight``; written, not read.
        alpha: one element per output, in any shape; written, not read.
        bias: ``(outputs...)``.
        base_axis: first axis that is not a batch axis.
        quantize_zero_to: sign of 0.

    Returns:
        ``(batch..., outputs...)``.

    Raises:
        ShapeError: the shapes do not fit.
        OperatorError: ``binary_weight`` or ``alpha`` is computed, so that nothing can be stored.

    Gradient:
        That of the layer, the gradient of ``alpha sign(W)`` going straight through to ``weight``.

    Examples:
        >>> w, kept, alpha = np.array([[3.0], [-1.0]]), Variable((2, 1)), Variable((1,))
        >>> F.binary_weight_affine(np.array([[5.0, 2.0]]), w, kept, alpha).d
        array([[6.]])
        >>> alpha.d.tolist()
        [2.0]

    Elsewhere:
        - nnabla: `binary_weight_affine`
        - PyTorch: none, `torch.sign` and `torch.nn.functional.linear`
        - ONNX: none, Sign, ReduceMean and Gemm
    """
    name = "binary_weight_affine"
    scaled = _scaled_signs(name, weight, binary_weight, alpha, quantize_zero_to, (0,))
    result: Variable = F.affine(x, scaled, bias, base_axis)
    return result


def binary_weight_convolution(
    x: Operand,
    weight: Operand,
    binary_weight: Operand,
    alpha: Operand,
    bias: Operand | None = None,
    base_axis: int = 1,
    pad: PerAxis = None,
    stride: PerAxis = None,
    dilation: PerAxis = None,
    group: int = 1,
    quantize_zero_to: float = 1.0,
) -> Variable:
    """Convolve with scaled signs of a weight: ``y = x * (alpha sign(W)) + b``.

    ``alpha`` is the mean of ``|W|`` over each map's window. Each forward pass stores ``sign(W)``
    and ``alpha`` in the arguments of these names, where they are variables. Rastegari et al.,
    "XNOR-Net" (arXiv:1603.05279).

    Args:
        x: ``(batch..., channels, *spatial)``.
        weight: ``(maps, channels / group, *kernel)``.
        binary_weight: shape of ``weight``; written, not read.
        alpha: one element per map, in any shape; written, not read.
        bias: ``(maps,)``.
        base_axis: axis of the channels.
        pad: zeros at both ends of each spatial axis.
        stride: steps of the window.
        dilation: steps between the places that the window reads.
        group: number of groups that channels and maps are divided into.
        quantize_zero_to: sign of 0.

    Returns:
        ``(batch..., maps, *spatial)``, as `convolution`.

    Raises:
        ShapeError: the shapes do not fit.
        OperatorError: ``binary_weight`` or ``alpha`` is computed, so that nothing can be stored.

    Gradient:
        That of the convolution, the gradient of ``alpha sign(W)`` going straight through to
        ``weight``.

    Examples:
        >>> x, w = np.array([[[1.0, 2.0, 4.0]]]), np.array([[[-3.0, 1.0]]])
        >>> F.binary_weight_convolution(x, w, Variable((1, 1, 2)), Variable((1,))).d
        array([[[2., 4.]]])

    Elsewhere:
        - nnabla: `binary_weight_convolution`
        - PyTorch: none, `torch.sign` and `torch.nn.functional.conv2d`
        - ONNX: none, Sign, ReduceMean and Conv
    """
    weight = floating(weight)
    axes = tuple(range(1, weight.ndim))
    name = "binary_weight_convolution"
    scaled = _scaled_signs(name, weight, binary_weight, alpha, quantize_zero_to, axes)
    result: Variable = F.convolution(x, scaled, bias, base_axis, pad, stride, dilation, group)
    return result


# Powers of two, more and more of them ------------------------------------------------------------


@defop("nnl::inq", outputs=("new_weight", "new_indicator", "new_held"))
def inq(
    weight: Array,
    indicator: Array,
    held: Array,
    step: Array,
    key: Array | None = None,
    *,
    num_bits: int,
    iterations: tuple[int, ...],
) -> tuple[Array, Array, Array]:
    """Fix more weights if ``step`` is one of ``iterations``, and round those that are fixed.

    ``indicator`` is 0 where a weight is free. ``held`` has the values that fixed weights had,
    and NaN for those that were free. At the last iteration all are fixed, at others half of those
    that are free: the largest, or with ``key`` each with probability 1/2.
    """
    values = np.where(np.isnan(held), weight, held)
    fixed = indicator != 0
    if int(step) in iterations:
        if int(step) == iterations[-1]:
            fixed = np.ones_like(fixed)
        elif key is not None:
            fixed = fixed | (generator_of(key).random(fixed.shape) < 0.5)
        else:
            fixed = fixed | _larger_half(values, ~fixed)
    new = np.where(fixed, _powers_of_two(values, num_bits), values)
    marks = np.where(fixed, np.where(indicator != 0, indicator, 1), 0).astype(indicator.dtype)
    return new, marks, np.where(fixed, new, held.dtype.type(np.nan))


def _larger_half(values: Array, free: Array) -> Array:
    """Return the mask of the half (rounded down) of free values with the largest sizes."""
    order = np.argsort(-np.abs(values), axis=None, kind="stable")
    order = order[free.reshape(-1)[order]]
    chosen = np.zeros(values.size, bool)
    chosen[order[: order.size // 2]] = True
    return chosen.reshape(values.shape)


def _powers_of_two(values: Array, num_bits: int) -> Array:
    """Return 0 or the nearest of ``2^(num_bits - 2)`` powers of two, with the values' signs."""
    given, values = values, wide(values)
    sizes = np.abs(values)
    top = int(_nearest_exponent(np.max(sizes, initial=0) or 1))
    bottom = top + 1 - 2 ** (num_bits - 2)
    exponents = np.clip(_nearest_exponent(sizes), max(bottom, -(2**20)), top)
    powers = np.ldexp(np.copysign(np.ones_like(values), values), exponents)
    zero = (sizes < np.ldexp(1.0, max(bottom - 1, -(2**20)))) | (sizes == 0)
    powers = np.where(zero, values.dtype.type(0), powers)
    return np.where(np.isnan(values), values, powers).astype(given.dtype, copy=False)


def _nearest_exponent(sizes: Any) -> Any:
    """Return the exponent of the nearest power of two; the middle is nearest to the greater."""
    mantissa, exponent = np.frexp(sizes)  # sizes = mantissa * 2^exponent, mantissa in [1/2, 1)
    return exponent - 1 + (mantissa >= 0.75)


@inq.infer
def inq_infer(
    weight: Spec,
    indicator: Spec,
    held: Spec,
    step: Spec,
    key: Spec | None,
    *,
    num_bits: int,
    iterations: tuple[int, ...],
) -> tuple[Spec, Spec, Spec]:
    """Those of the weight, the indicator and what was held."""
    if not weight.shape == indicator.shape == held.shape:
        raise ShapeError(f"indicator has shape {indicator.shape}, weight expects {weight.shape}")
    return weight, indicator, held


@inq.samples
def inq_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Before, at and at the last iteration; some fixed; by size and by chance; 0-d; empty."""
    for shape in ((3, 5), (), (0, 2)):
        size = 2.0 ** rng.integers(-4, 2, size=shape) * rng.choice([1.0, 1.25, 1.75], size=shape)
        weight = rng.choice([-1, 1], size=shape) * size
        indicator = rng.integers(0, 2, size=shape)
        held = np.where(indicator == 1, 0.5, np.nan)
        for step in range(3):
            given = (weight, indicator, held, np.array(step))
            yield Sample(*given, None, num_bits=4, iterations=(1, 2))
            key = rng.integers(0, 2**63, size=2, dtype=np.uint64)
            yield Sample(*given, key, num_bits=2, iterations=(1, 2))
    yield Sample(
        np.zeros(3), np.ones(3), np.full(3, np.nan), np.array(0), num_bits=3, iterations=()
    )


def _fixed_in_steps(
    name: str,
    weight: Operand,
    indicator: Operand,
    num_bits: int,
    inq_iterations: Sequence[int],
    selection_algorithm: str,
    seed: int,
) -> Variable:
    """Return a weight of which more and more is fixed, counting the runs of this node."""
    if num_bits < 2:
        raise OperatorError(
            f"{name}: num_bits {num_bits} must be 2 or more: zero and the sign need two"
        )
    if selection_algorithm not in ("largest_abs", "random"):
        raise OperatorError(
            f"{name}: selection_algorithm {selection_algorithm!r} must be 'largest_abs' or 'random'"
        )
    given, weight = weight, floating(weight)
    _same_shape(name, weight, "indicator_fixedweights", indicator)
    held = Variable.from_numpy_array(np.full(weight.shape, np.nan, weight.dtype))
    step = Variable.from_numpy_array(np.array(0, np.int64))
    with no_grad():
        key = (F.random_key(seed),) if selection_algorithm == "random" else ()
        new_weight, new_indicator, new_held = inq(
            weight,
            indicator,
            held,
            step,
            *key,
            num_bits=whole(num_bits, "num_bits"),
            iterations=wholes(inq_iterations, "inq_iterations"),
        )
    result: Variable = straight_through(weight, new_weight)
    pairs = [
        ("weight", given, new_weight),
        ("indicator_fixedweights", indicator, new_indicator),
        ("held", held, new_held),
        ("step", step, step + 1),
    ]
    keep(name, result, pairs)
    return result


def inq_affine(
    x: Operand,
    weight: Operand,
    indicator_fixedweights: Operand,
    bias: Operand | None = None,
    base_axis: int = 1,
    num_bits: int = 4,
    inq_iterations: Sequence[int] = (),
    selection_algorithm: str = "largest_abs",
    seed: int = -1,
) -> Variable:
    """Apply a fully connected layer whose weights are fixed, step by step, to powers of two.

    Incremental network quantization, Zhou et al. (arXiv:1702.03044). The layer counts its forward
    passes from 0. At those listed in ``inq_iterations`` half of the weights that are still free
    (rounded down) are fixed, at the last one all. A fixed weight becomes 0 or the nearest of the
    ``2^(num_bits - 2)`` powers of two up to the one nearest to the largest weight
    (``2^n1, n1 = floor(log2(4/3 max |W|))``), with its sign; 0 if it is below half of the least.
    Each forward pass stores the weights that it used in ``weight``, whatever a solver made of the
    fixed ones, and 1 in ``indicator_fixedweights`` where they are fixed.

    Args:
        x: ``(batch..., inputs...)``; the axes from ``base_axis`` on are flattened.
        weight: ``(inputs, outputs...)``; written, too.
        indicator_fixedweights: shape of ``weight``, any dtype: 0 where a weight is free, 1 where it
            is fixed; written, too.
        bias: ``(outputs...)``.
        base_axis: first axis that is not a batch axis.
        num_bits: bits of a weight, 2 or more: one is the sign, one says that it is 0.
        inq_iterations: numbers of the forward passes that fix weights, in increasing order.
        selection_algorithm: ``"largest_abs"``, or ``"random"``: each with probability 1/2.
        seed: of the random choice; -1 for the global sequence.

    Returns:
        ``(batch..., outputs...)``.

    Raises:
        ShapeError: the shapes do not fit.
        OperatorError: ``num_bits`` or ``selection_algorithm`` is another, or ``weight`` is
            computed, so that nothing can be stored in it.

    Gradient:
        That of the layer, going straight through to ``weight``, also where it is fixed.

    Examples:
        >>> w = Variable.from_numpy_array(np.array([[0.9], [-0.3]]))
        >>> F.inq_affine(np.array([[1.0, 1.0]]), w, Variable((2, 1)), inq_iterations=(0,)).d
        array([[0.75]])
        >>> w.d.tolist()
        [[1.0], [-0.25]]

    Elsewhere:
        - nnabla: `inq_affine`
        - PyTorch: none, `torch.nn.utils.parametrize` with a rounding
        - ONNX: none, Gemm with the rounded weights
    """
    fixed = _fixed_in_steps(
        "inq_affine",
        weight,
        indicator_fixedweights,
        num_bits,
        inq_iterations,
        selection_algorithm,
        seed,
    )
    result: Variable = F.affine(x, fixed, bias, base_axis)
    return result


def inq_convolution(
    x: Operand,
    weight: Operand,
    indicator_fixedweights: Operand,
    bias: Operand | None = None,
    base_axis: int = 1,
    pad: PerAxis = None,
    stride: PerAxis = None,
    dilation: PerAxis = None,
    group: int = 1,
    num_bits: int = 4,
    inq_iterations: Sequence[int] = (),
    selection_algorithm: str = "largest_abs",
    seed: int = -1,
) -> Variable:
    """Convolve with weights that are fixed, step by step, to powers of two.

    Incremental network quantization, Zhou et al. (arXiv:1702.03044): see `inq_affine`.

    Args:
        x: ``(batch..., channels, *spatial)``.
        weight: ``(maps, channels / group, *kernel)``; written, too.
        indicator_fixedweights: shape of ``weight``, any dtype: 0 where a weight is free, 1 where it
            is fixed; written, too.
        bias: ``(maps,)``.
        base_axis: axis of the channels.
        pad: zeros at both ends of each spatial axis.
        stride: steps of the window.
        dilation: steps between the places that the window reads.
        group: number of groups that channels and maps are divided into.
        num_bits: bits of a weight, 2 or more: one is the sign, one says that it is 0.
        inq_iterations: numbers of the forward passes that fix weights, in increasing order.
        selection_algorithm: ``"largest_abs"``, or ``"random"``: each with probability 1/2.
        seed: of the random choice; -1 for the global sequence.

    Returns:
        ``(batch..., maps, *spatial)``, as `convolution`.

    Raises:
        ShapeError: the shapes do not fit.
        OperatorError: ``num_bits`` or ``selection_algorithm`` is another, or ``weight`` is
            computed, so that nothing can be stored in it.

    Gradient:
        That of the convolution, going straight through to ``weight``, also where it is fixed.

    Examples:
        >>> x, w = np.array([[[1.0, 2.0, 4.0]]]), np.array([[[-0.9, 0.3]]])
        >>> F.inq_convolution(x, w, Variable((1, 1, 2)), inq_iterations=(0,)).d
        array([[[-0.5, -1. ]]])

    Elsewhere:
        - nnabla: `inq_convolution`
        - PyTorch: none, `torch.nn.utils.parametrize` with a rounding
        - ONNX: none, Conv with the rounded weights
    """
    fixed = _fixed_in_steps(
        "inq_convolution",
        weight,
        indicator_fixedweights,
        num_bits,
        inq_iterations,
        selection_algorithm,
        seed,
    )
    result: Variable = F.convolution(x, fixed, bias, base_axis, pad, stride, dilation, group)
    return result
