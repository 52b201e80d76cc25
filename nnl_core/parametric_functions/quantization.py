"""Layers whose weights and biases are quantized or pruned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnl_core import functions as F
from nnl_core.graph.variable import Operand, Variable
from nnl_core.initializers import ConstantInitializer, RandomSource
from nnl_core.operators.arithmetic import is_number
from nnl_core.operators.surrogates import keep
from nnl_core.parameters import Initial, get_parameter_or_create
from nnl_core.parametric_functions.common import Applied, bias, layer_scope, weight
from nnl_core.parametric_functions.quantized_layers import stored
from nnl_core.parametric_functions.shapes import affine_shapes, convolution_shapes


def _storing(name: str, quantize: bool, function: Applied) -> Applied | None:
    """Return what quantizes a parameter and stores the result in another; ``None`` if not asked."""

    def apply(parameter: Variable) -> Variable:
        result = function(parameter)
        keep(name, result, [(name, stored(name, parameter.shape), result)])
        return result

    return apply if quantize else None


# Quantized and pruned parameters ------------------------------------------------------------------


def fixed_point_quantized_affine(
    inp: Variable,
    n_outmaps: int | Sequence[int],
    base_axis: int = 1,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    quantize_w: bool = True,
    sign_w: bool = True,
    n_w: int = 8,
    delta_w: float = 2**-4,
    ste_fine_grained_w: bool = True,
    quantize_b: bool = True,
    sign_b: bool = True,
    n_b: int = 8,
    delta_b: float = 2**-4,
    ste_fine_grained_b: bool = True,
    name: str | None = None,
) -> Variable:
    """Apply a fully connected layer whose weight and bias are fixed-point numbers.

    Parameters ``fp_quantized_affine/W`` of shape ``(inputs, *n_outmaps)``, and
    ``fp_quantized_affine/b`` of shape ``(*n_outmaps)``. Each forward pass stores the rounded ones,
    which it uses, in ``fp_quantized_affine/W_q`` and ``fp_quantized_affine/b_q``. See
    `F.fixed_point_quantize`.

    Args:
        inp: ``(batch..., inputs...)``; the axes from ``base_axis`` on are flattened.
        n_outmaps: number of outputs, or their axes.
        base_axis: first axis that is not a batch axis.
        w_init: first value of ``W``; default Glorot-uniform.
        b_init: first value of ``b``; default 0.
        fix_parameters: whether no gradient flows to the parameters.
        rng: where default first values are drawn from.
        with_bias: whether to add ``b``.
        quantize_w: whether to quantize ``W``; ``False``: it is used as it is.
        sign_w: whether levels of ``W`` have a sign.
        n_w: bits of a weight.
        delta_w: distance of two levels of ``W``.
        ste_fine_grained_w: whether the gradient of ``W`` stops outside the range.
        quantize_b: whether to quantize ``b``.
        sign_b: whether levels of ``b`` have a sign.
        n_b: bits of a bias.
        delta_b: distance of two levels of ``b``.
        ste_fine_grained_b: whether the gradient of ``b`` stops outside the range.
        name: scope around the parameters.

    Returns:
        ``(batch..., *n_outmaps)``.

    Raises:
        ShapeError: the shapes do not fit.
        OperatorError: a number of bits, distance or rate is impossible.

    Gradient:
        That of the layer, straight through the quantizers to ``W`` and ``b``.

    Examples:
        >>> x = Variable.from_numpy_array(np.ones((2, 3)))
        >>> PF.fixed_point_quantized_affine(x, 5).shape
        (2, 5)
        >>> [key.split("/")[-1] for key in nnl.get_parameters(grad_only=False)]
        ['W', 'W_q', 'b', 'b_q']

    Elsewhere:
        - nnabla: `fixed_point_quantized_affine`
        - PyTorch: `torch.ao.nn.qat.Linear`
        - ONNX: none, QuantizeLinear, DequantizeLinear and Gemm
    """
    shape, outputs, fans = affine_shapes(inp, n_outmaps, base_axis)
    apply_w = _storing(
        "W_q",
        quantize_w,
        lambda v: F.fixed_point_quantize(v, sign_w, n_w, delta_w, True, ste_fine_grained_w),
    )
    apply_b = _storing(
        "b_q",
        quantize_b,
        lambda v: F.fixed_point_quantize(v, sign_b, n_b, delta_b, True, ste_fine_grained_b),
    )
    with layer_scope("fp_quantized_affine", name):
        w = weight(shape, w_init, fans, fix_parameters, rng, apply_w)
        b = bias(outputs, b_init, with_bias, fix_parameters, apply_b)
        return F.affine(inp, w, b, base_axis)


def fixed_point_quantized_convolution(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    pad: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    group: int = 1,
    channel_last: bool = False,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    quantize_w: bool = True,
    sign_w: bool = True,
    n_w: int = 8,
    delta_w: float = 2**-4,
    ste_fine_grained_w: bool = True,
    quantize_b: bool = True,
    sign_b: bool = True,
    n_b: int = 8,
    delta_b: float = 2**-4,
    ste_fine_grained_b: bool = True,
    name: str | None = None,
) -> Variable:
    """Apply a convolution whose weight and bias are fixed-point numbers.

    Parameters ``fp_quantized_conv/W`` of shape ``(outmaps, channels / group, *kernel)``, channels
    last under ``channel_last``, and ``fp_quantized_conv/b`` of shape ``(outmaps,)``. Each forward
    pass stores the rounded ones, which it uses, in ``fp_quantized_conv/W_q`` and
    ``fp_quantized_conv/b_q``. See `F.fixed_point_quantize`.

    Args:
        inp: ``(batch..., channels, *spatial)``, or ``(batch..., *spatial, channels)``.
        outmaps: number of output channels.
        kernel: lengths of the window.
        pad: zeros at both ends of each spatial axis.
        stride: steps of the window.
        dilation: steps between the places that the window reads.
        group: number of groups that channels are divided into.
        channel_last: whether the channels are the last axis.
        w_init: first value of ``W``; default Glorot-uniform.
        b_init: first value of ``b``; default 0.
        base_axis: axis of the channels.
        fix_parameters: whether no gradient flows to the parameters.
        rng: where default first values are drawn from.
        with_bias: whether to add ``b``.
        quantize_w: whether to quantize ``W``; ``False``: it is used as it is.
        sign_w: whether levels of ``W`` have a sign.
        n_w: bits of a weight.
        delta_w: distance of two levels of ``W``.
        ste_fine_grained_w: whether the gradient of ``W`` stops outside the range.
        quantize_b: whether to quantize ``b``.
        sign_b: whether levels of ``b`` have a sign.
        n_b: bits of a bias.
        delta_b: distance of two levels of ``b``.
        ste_fine_grained_b: whether the gradient of ``b`` stops outside the range.
        name: scope around the parameters.

    Returns:
        ``(batch..., outmaps, *spatial)``, as `convolution`.

    Raises:
        ShapeError: the shapes do not fit.
        OperatorError: a number of bits, distance or rate is impossible.

    Gradient:
        That of the layer, straight through the quantizers to ``W`` and ``b``.

    Examples:
        >>> x = Variable.from_numpy_array(np.ones((1, 2, 4, 4)))
        >>> PF.fixed_point_quantized_convolution(x, 5, (3, 3)).shape
        (1, 5, 2, 2)
        >>> [key.split("/")[-1] for key in nnl.get_parameters(grad_only=False)]
        ['W', 'W_q', 'b', 'b_q']

    Elsewhere:
        - nnabla: `fixed_point_quantized_convolution`
        - PyTorch: `torch.ao.nn.qat.Conv2d`
        - ONNX: none, QuantizeLinear, DequantizeLinear and Conv
    """
    shape, outputs, fans = convolution_shapes(inp, outmaps, kernel, group, base_axis, channel_last)
    apply_w = _storing(
        "W_q",
        quantize_w,
        lambda v: F.fixed_point_quantize(v, sign_w, n_w, delta_w, True, ste_fine_grained_w),
    )
    apply_b = _storing(
        "b_q",
        quantize_b,
        lambda v: F.fixed_point_quantize(v, sign_b, n_b, delta_b, True, ste_fine_grained_b),
    )
    with layer_scope("fp_quantized_conv", name):
        w = weight(shape, w_init, fans, fix_parameters, rng, apply_w)
        b = bias(outputs, b_init, with_bias, fix_parameters, apply_b)
        return F.convolution(inp, w, b, base_axis, pad, stride, dilation, group, channel_last)


def pow2_quantized_affine(
    inp: Variable,
    n_outmaps: int | Sequence[int],
    base_axis: int = 1,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    quantize_w: bool = True,
    sign_w: bool = True,
    with_zero_w: bool = False,
    n_w: int = 8,
    m_w: int = 2,
    ste_fine_grained_w: bool = True,
    quantize_b: bool = True,
    sign_b: bool = True,
    with_zero_b: bool = False,
    n_b: int = 8,
    m_b: int = 2,
    ste_fine_grained_b: bool = True,
    name: str | None = None,
) -> Variable:
    """Apply a fully connected layer whose weight and bias are powers of two.

    Parameters ``pow2_quantized_affine/W`` of shape ``(inputs, *n_outmaps)``, and
    ``pow2_quantized_affine/b`` of shape ``(*n_outmaps)``. Each forward pass stores the rounded
    ones, which it uses, in ``pow2_quantized_affine/W_q`` and ``pow2_quantized_affine/b_q``. See
    `F.pow2_quantize`.

    Args:
        inp: ``(batch..., inputs...)``; the axes from ``base_axis`` on are flattened.
        n_outmaps: number of outputs, or their axes.
        base_axis: first axis that is not a batch axis.
        w_init: first value of ``W``; default Glorot-uniform.
        b_init: first value of ``b``; default 0.
        fix_parameters: whether no gradient flows to the parameters.
        rng: where default first values are drawn from.
        with_bias: whether to add ``b``.
        quantize_w: whether to quantize ``W``; ``False``: it is used as it is.
        sign_w: whether levels of ``W`` have a sign.
        with_zero_w: whether 0 is a level of ``W``.
        n_w: bits of a weight.
        m_w: exponent of the greatest level of ``W``.
        ste_fine_grained_w: whether the gradient of ``W`` stops outside the range.
        quantize_b: whether to quantize ``b``.
        sign_b: whether levels of ``b`` have a sign.
        with_zero_b: whether 0 is a level of ``b``.
        n_b: bits of a bias.
        m_b: exponent of the greatest level of ``b``.
        ste_fine_grained_b: whether the gradient of ``b`` stops outside the range.
        name: scope around the parameters.

    Returns:
        ``(batch..., *n_outmaps)``.

    Raises:
        ShapeError: the shapes do not fit.
        OperatorError: a number of bits, distance or rate is impossible.

    Gradient:
        That of the layer, straight through the quantizers to ``W`` and ``b``.

    Examples:
        >>> x = Variable.from_numpy_array(np.ones((2, 3)))
        >>> PF.pow2_quantized_affine(x, 5).shape
        (2, 5)
        >>> [key.split("/")[-1] for key in nnl.get_parameters(grad_only=False)]
        ['W', 'W_q', 'b', 'b_q']

    Elsewhere:
        - nnabla: `pow2_quantized_affine`
        - PyTorch: none, a module with a parametrization
        - ONNX: none, Gemm with the rounded weights
    """
    shape, outputs, fans = affine_shapes(inp, n_outmaps, base_axis)
    apply_w = _storing(
        "W_q",
        quantize_w,
        lambda v: F.pow2_quantize(v, sign_w, with_zero_w, n_w, m_w, True, ste_fine_grained_w),
    )
    apply_b = _storing(
        "b_q",
        quantize_b,
        lambda v: F.pow2_quantize(v, sign_b, with_zero_b, n_b, m_b, True, ste_fine_grained_b),
    )
    with layer_scope("pow2_quantized_affine", name):
        w = weight(shape, w_init, fans, fix_parameters, rng, apply_w)
        b = bias(outputs, b_init, with_bias, fix_parameters, apply_b)
        return F.affine(inp, w, b, base_axis)


def pow2_quantized_convolution(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    pad: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    group: int = 1,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    quantize_w: bool = True,
    with_zero_w: bool = False,
    sign_w: bool = True,
    n_w: int = 8,
    m_w: int = 2,
    ste_fine_grained_w: bool = True,
    quantize_b: bool = True,
    with_zero_b: bool = False,
    sign_b: bool = True,
    n_b: int = 8,
    m_b: int = 2,
    ste_fine_grained_b: bool = True,
    name: str | None = None,
) -> Variable:
    """Apply a convolution whose weight and bias are powers of two.

    Parameters ``pow2_quantized_conv/W`` of shape ``(outmaps, channels / group, *kernel)``, and
    ``pow2_quantized_conv/b`` of shape ``(outmaps,)``. Each forward pass stores the rounded ones,
    which it uses, in ``pow2_quantized_conv/W_q`` and ``pow2_quantized_conv/b_q``. See
    `F.pow2_quantize`.

    Args:
        inp: ``(batch..., channels, *spatial)``.
        outmaps: number of output channels.
        kernel: lengths of the window.
        pad: zeros at both ends of each spatial axis.
        stride: steps of the window.
        dilation: steps between the places that the window reads.
        group: number of groups that channels are divided into.
        w_init: first value of ``W``; default Glorot-uniform.
        b_init: first value of ``b``; default 0.
        base_axis: axis of the channels.
        fix_parameters: whether no gradient flows to the parameters.
        rng: where default first values are drawn from.
        with_bias: whether to add ``b``.
        quantize_w: whether to quantize ``W``; ``False``: it is used as it is.
        with_zero_w: whether 0 is a level of ``W``.
        sign_w: whether levels of ``W`` have a sign.
        n_w: bits of a weight.
        m_w: exponent of the greatest level of ``W``.
        ste_fine_grained_w: whether the gradient of ``W`` stops outside the range.
        quantize_b: whether to quantize ``b``.
        with_zero_b: whether 0 is a level of ``b``.
        sign_b: whether levels of ``b`` have a sign.
        n_b: bits of a bias.
        m_b: exponent of the greatest level of ``b``.
        ste_fine_grained_b: whether the gradient of ``b`` stops outside the range.
        name: scope around the parameters.

    Returns:
        ``(batch..., outmaps, *spatial)``, as `convolution`.

    Raises:
        ShapeError: the shapes do not fit.
        OperatorError: a number of bits, distance or rate is impossible.

    Gradient:
        That of the layer, straight through the quantizers to ``W`` and ``b``.

    Examples:
        >>> x = Variable.from_numpy_array(np.ones((1, 2, 4, 4)))
        >>> PF.pow2_quantized_convolution(x, 5, (3, 3)).shape
        (1, 5, 2, 2)
        >>> [key.split("/")[-1] for key in nnl.get_parameters(grad_only=False)]
        ['W', 'W_q', 'b', 'b_q']

    Elsewhere:
        - nnabla: `pow2_quantized_convolution`
        - PyTorch: none, a module with a parametrization
        - ONNX: none, Conv with the rounded weights
    """
    shape, outputs, fans = convolution_shapes(inp, outmaps, kernel, group, base_axis)
    apply_w = _storing(
        "W_q",
        quantize_w,
        lambda v: F.pow2_quantize(v, sign_w, with_zero_w, n_w, m_w, True, ste_fine_grained_w),
    )
    apply_b = _storing(
        "b_q",
        quantize_b,
        lambda v: F.pow2_quantize(v, sign_b, with_zero_b, n_b, m_b, True, ste_fine_grained_b),
    )
    with layer_scope("pow2_quantized_conv", name):
        w = weight(shape, w_init, fans, fix_parameters, rng, apply_w)
        b = bias(outputs, b_init, with_bias, fix_parameters, apply_b)
        return F.convolution(inp, w, b, base_axis, pad, stride, dilation, group)


def pruned_affine(
    inp: Variable,
    n_outmaps: int | Sequence[int],
    base_axis: int = 1,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    prune_w: bool = True,
    rate_w: float = 0.9,
    prune_b: bool = True,
    rate_b: float = 0.9,
    name: str | None = None,
) -> Variable:
    """Apply a fully connected layer whose weight and bias are pruned: their least elements are 0.

    Parameters ``pruned_affine/W`` of shape ``(inputs, *n_outmaps)``, and ``pruned_affine/b`` of
    shape ``(*n_outmaps)``. Each forward pass stores the pruned ones, which it uses, in
    ``pruned_affine/W_q`` and ``pruned_affine/b_q``. See `F.prune`.

    Args:
        inp: ``(batch..., inputs...)``; the axes from ``base_axis`` on are flattened.
        n_outmaps: number of outputs, or their axes.
        base_axis: first axis that is not a batch axis.
        w_init: first value of ``W``; default Glorot-uniform.
        b_init: first value of ``b``; default 0.
        fix_parameters: whether no gradient flows to the parameters.
        rng: where default first values are drawn from.
        with_bias: whether to add ``b``.
        prune_w: whether to prune ``W``.
        rate_w: share of ``W`` to prune.
        prune_b: whether to prune ``b``.
        rate_b: share of ``b`` to prune.
        name: scope around the parameters.

    Returns:
        ``(batch..., *n_outmaps)``.

    Raises:
        ShapeError: the shapes do not fit.
        OperatorError: a number of bits, distance or rate is impossible.

    Gradient:
        That of the layer, straight through the pruning to ``W`` and ``b``.

    Examples:
        >>> x = Variable.from_numpy_array(np.ones((2, 3)))
        >>> PF.pruned_affine(x, 5).shape
        (2, 5)
        >>> [key.split("/")[-1] for key in nnl.get_parameters(grad_only=False)]
        ['W', 'W_q', 'b', 'b_q']

    Elsewhere:
        - nnabla: `pruned_affine`
        - PyTorch: `torch.nn.utils.prune.l1_unstructured`, on a module
        - ONNX: none, Gemm with the pruned weights
    """
    shape, outputs, fans = affine_shapes(inp, n_outmaps, base_axis)
    apply_w = _storing("W_q", prune_w, lambda v: F.prune(v, rate_w))
    apply_b = _storing("b_q", prune_b, lambda v: F.prune(v, rate_b))
    with layer_scope("pruned_affine", name):
        w = weight(shape, w_init, fans, fix_parameters, rng, apply_w)
        b = bias(outputs, b_init, with_bias, fix_parameters, apply_b)
        return F.affine(inp, w, b, base_axis)


def pruned_convolution(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    pad: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    group: int = 1,
    channel_last: bool = False,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    prune_w: bool = True,
    rate_w: float = 0.9,
    prune_b: bool = True,
    rate_b: float = 0.9,
    name: str | None = None,
) -> Variable:
    """Apply a convolution whose weight and bias are pruned: their least elements are 0.

    Parameters ``pruned_conv/W`` of shape ``(outmaps, channels / group, *kernel)``, channels last
    under ``channel_last``, and ``pruned_conv/b`` of shape ``(outmaps,)``. Each forward pass stores
    the pruned ones, which it uses, in ``pruned_conv/W_q`` and ``pruned_conv/b_q``. See `F.prune`.

    Args:
        inp: ``(batch..., channels, *spatial)``, or ``(batch..., *spatial, channels)``.
        outmaps: number of output channels.
        kernel: lengths of the window.
        pad: zeros at both ends of each spatial axis.
        stride: steps of the window.
        dilation: steps between the places that the window reads.
        group: number of groups that channels are divided into.
        channel_last: whether the channels are the last axis.
        w_init: first value of ``W``; default Glorot-uniform.
        b_init: first value of ``b``; default 0.
        base_axis: axis of the channels.
        fix_parameters: whether no gradient flows to the parameters.
        rng: where default first values are drawn from.
        with_bias: whether to add ``b``.
        prune_w: whether to prune ``W``.
        rate_w: share of ``W`` to prune.
        prune_b: whether to prune ``b``.
        rate_b: share of ``b`` to prune.
        name: scope around the parameters.

    Returns:
        ``(batch..., outmaps, *spatial)``, as `convolution`.

    Raises:
        ShapeError: the shapes do not fit.
        OperatorError: a number of bits, distance or rate is impossible.

    Gradient:
        That of the layer, straight through the pruning to ``W`` and ``b``.

    Examples:
        >>> x = Variable.from_numpy_array(np.ones((1, 2, 4, 4)))
        >>> PF.pruned_convolution(x, 5, (3, 3)).shape
        (1, 5, 2, 2)
        >>> [key.split("/")[-1] for key in nnl.get_parameters(grad_only=False)]
        ['W', 'W_q', 'b', 'b_q']

    Elsewhere:
        - nnabla: `pruned_convolution`
        - PyTorch: `torch.nn.utils.prune.l1_unstructured`, on a module
        - ONNX: none, Conv with the pruned weights
    """
    shape, outputs, fans = convolution_shapes(inp, outmaps, kernel, group, base_axis, channel_last)
    apply_w = _storing("W_q", prune_w, lambda v: F.prune(v, rate_w))
    apply_b = _storing("b_q", prune_b, lambda v: F.prune(v, rate_b))
    with layer_scope("pruned_conv", name):
        w = weight(shape, w_init, fans, fix_parameters, rng, apply_w)
        b = bias(outputs, b_init, with_bias, fix_parameters, apply_b)
        return F.convolution(inp, w, b, base_axis, pad, stride, dilation, group, channel_last)


# Ranges of levels ---------------------------------------------------------------------------------


def _levels(name: str, value: Operand, ndim: int) -> Operand:
    """Return a number as a parameter of that many axes, and anything else as it is."""
    if not is_number(value):
        return value
    shape = (1,) * ndim
    return get_parameter_or_create(name, shape, np.full(shape, value), False, False)


def min_max_quantize(
    x: Variable,
    ql_min: Operand = 0,
    ql_max: Operand = 255,
    decay: float = 0.999,
    x_min_max: bool = False,
    ema: bool = False,
    ste_fine_grained: bool = True,
    eps: float = 0.01,
    qr_min_init: Initial | None = None,
    qr_max_init: Initial | None = None,
    fix_parameters: bool = False,
    name: str | None = None,
) -> Variable:
    """Round to the levels ``ql_min`` to ``ql_max``, spread over a range that is a parameter.

    Parameters ``min_max_quantize/qr_min`` and ``min_max_quantize/qr_max`` of the shape of
    ``ql_min``: the range, trained, or with ``x_min_max`` and ``ema`` a moving average. Levels that
    are given as numbers are parameters, too: ``min_max_quantize/ql_min`` and
    ``min_max_quantize/ql_max`` of shape (1, ..., 1), not trained. See `F.min_max_quantize`.

    Args:
        x: any shape, floating.
        ql_min: first level: a number, or an array with 1 for axes that share a range.
        ql_max: last level, likewise.
        decay: share of the old range in the moving average.
        x_min_max: whether the range is that of ``x``.
        ema: whether the range is a moving average.
        ste_fine_grained: whether the gradient stops outside the range.
        eps: least width of the range.
        qr_min_init: first value of the range's lower end; default -6.
        qr_max_init: first value of its upper end; default 6.
        fix_parameters: whether no gradient flows to the range.
        name: scope around the parameters.

    Returns:
        Shape and dtype of ``x``.

    Raises:
        ShapeError: the levels have different shapes, or do not broadcast to ``x``.

    Gradient:
        As of `F.min_max_quantize`: what is beyond the range goes to its ends.

    Examples:
        >>> x = Variable.from_numpy_array(np.array([-9.0, 0.4, 1.5]))
        >>> PF.min_max_quantize(x, ql_max=12).d
        array([-6.,  0.,  2.])

    Elsewhere:
        - nnabla: `min_max_quantize`
        - PyTorch: `torch.ao.quantization.FakeQuantize`
        - ONNX: none, QuantizeLinear followed by DequantizeLinear
    """
    with layer_scope("min_max_quantize", name):
        first, last = _levels("ql_min", ql_min, x.ndim), _levels("ql_max", ql_max, x.ndim)
        trained, shape = not (x_min_max and ema), np.shape(first)
        low, high = (
            get_parameter_or_create(end, shape, init, trained, not fix_parameters)
            for end, init in (
                ("qr_min", ConstantInitializer(-6.0) if qr_min_init is None else qr_min_init),
                ("qr_max", ConstantInitializer(6.0) if qr_max_init is None else qr_max_init),
            )
        )
        result: Variable = F.min_max_quantize(
            x, low, high, first, last, decay, x_min_max, ema, ste_fine_grained, eps
        )
        return result


def _ends(low: Initial | None, high: Initial | None, default: float) -> tuple[Initial, Initial]:
    return (
        ConstantInitializer(-default) if low is None else low,
        ConstantInitializer(default) if high is None else high,
    )


def min_max_quantized_affine(
    inp: Variable,
    n_outmaps: int | Sequence[int],
    base_axis: int = 1,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    quantize_w: bool = True,
    ql_min_w: Operand = 0,
    ql_max_w: Operand = 255,
    w_min_max: bool = False,
    qr_min_w_init: Initial | None = None,
    qr_max_w_init: Initial | None = None,
    ste_fine_grained_w: bool = True,
    quantize_b: bool = True,
    ql_min_b: Operand = 0,
    ql_max_b: Operand = 255,
    b_min_max: bool = False,
    qr_min_b_init: Initial | None = None,
    qr_max_b_init: Initial | None = None,
    ste_fine_grained_b: bool = True,
    eps: float = 0.01,
    name: str | None = None,
) -> Variable:
    """Apply a fully connected layer whose weight and bias are rounded to levels in a range.

    Parameters ``min_max_quantized_affine/W`` of shape ``(inputs, *n_outmaps)``, and
    ``min_max_quantized_affine/b`` of shape ``(*n_outmaps)``. Each forward pass stores the rounded
    ones, which it uses, in ``min_max_quantized_affine/W_q`` and ``min_max_quantized_affine/b_q``.
    The ranges and levels are parameters in ``min_max_quantize_w/min_max_quantize`` and
    ``min_max_quantize_b/min_max_quantize`` of this scope, as of `min_max_quantize`. See
    `F.min_max_quantize`.

    Args:
        inp: ``(batch..., inputs...)``; the axes from ``base_axis`` on are flattened.
        n_outmaps: number of outputs, or their axes.
        base_axis: first axis that is not a batch axis.
        w_init: first value of ``W``; default Glorot-uniform.
        b_init: first value of ``b``; default 0.
        fix_parameters: whether no gradient flows to the parameters.
        rng: where default first values are drawn from.
        with_bias: whether to add ``b``.
        quantize_w: whether to quantize ``W``; ``False``: it is used as it is.
        ql_min_w: first level of ``W``: a number, or an array that broadcasts.
        ql_max_w: last level of ``W``.
        w_min_max: whether the range is that of ``W``, else it is trained.
        qr_min_w_init: first value of the range's lower end; default -2.
        qr_max_w_init: first value of its upper end; default 2.
        ste_fine_grained_w: whether the gradient of ``W`` stops outside the range.
        quantize_b: whether to quantize ``b``.
        ql_min_b: first level of ``b``.
        ql_max_b: last level of ``b``.
        b_min_max: whether the range is that of ``b``, else it is trained.
        qr_min_b_init: first value of the range's lower end; default -6.
        qr_max_b_init: first value of its upper end; default 6.
        ste_fine_grained_b: whether the gradient of ``b`` stops outside the range.
        eps: least width of a range.
        name: scope around the parameters.

    Returns:
        ``(batch..., *n_outmaps)``.

    Raises:
        ShapeError: the shapes do not fit.

    Gradient:
        That of the layer, straight through to ``W`` and ``b``; what is beyond a range goes to its
        ends, as of `F.min_max_quantize`.

    Examples:
        >>> x = Variable.from_numpy_array(np.ones((2, 3)))
        >>> PF.min_max_quantized_affine(x, 5, quantize_b=False).shape
        (2, 5)
        >>> [key.split("/")[-1] for key in nnl.get_parameters(grad_only=False)]
        ['W', 'ql_min', 'ql_max', 'qr_min', 'qr_max', 'W_q', 'b']

    Elsewhere:
        - nnabla: `min_max_quantized_affine`
        - PyTorch: `torch.ao.nn.qat.Linear`
        - ONNX: none, QuantizeLinear, DequantizeLinear and Gemm
    """
    shape, outputs, fans = affine_shapes(inp, n_outmaps, base_axis)
    low_w, high_w = _ends(qr_min_w_init, qr_max_w_init, 2.0)
    low_b, high_b = _ends(qr_min_b_init, qr_max_b_init, 6.0)
    apply_w = _storing(
        "W_q",
        quantize_w,
        lambda v: min_max_quantize(
            v,
            ql_min_w,
            ql_max_w,
            x_min_max=w_min_max,
            ste_fine_grained=ste_fine_grained_w,
            eps=eps,
            qr_min_init=low_w,
            qr_max_init=high_w,
            fix_parameters=fix_parameters,
            name="min_max_quantize_w",
        ),
    )
    apply_b = _storing(
        "b_q",
        quantize_b,
        lambda v: min_max_quantize(
            v,
            ql_min_b,
            ql_max_b,
            x_min_max=b_min_max,
            ste_fine_grained=ste_fine_grained_b,
            eps=eps,
            qr_min_init=low_b,
            qr_max_init=high_b,
            fix_parameters=fix_parameters,
            name="min_max_quantize_b",
        ),
    )
    with layer_scope("min_max_quantized_affine", name):
        w = weight(shape, w_init, fans, fix_parameters, rng, apply_w)
        b = bias(outputs, b_init, with_bias, fix_parameters, apply_b)
        return F.affine(inp, w, b, base_axis)


def min_max_quantized_convolution(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    pad: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    group: int = 1,
    channel_last: bool = False,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    quantize_w: bool = True,
    ql_min_w: Operand = 0,
    ql_max_w: Operand = 255,
    w_min_max: bool = False,
    qr_min_w_init: Initial | None = None,
    qr_max_w_init: Initial | None = None,
    ste_fine_grained_w: bool = True,
    quantize_b: bool = True,
    ql_min_b: Operand = 0,
    ql_max_b: Operand = 255,
    b_min_max: bool = False,
    qr_min_b_init: Initial | None = None,
    qr_max_b_init: Initial | None = None,
    ste_fine_grained_b: bool = True,
    eps: float = 0.01,
    name: str | None = None,
) -> Variable:
    """Apply a convolution whose weight and bias are rounded to levels in a range.

    Parameters ``min_max_quantized_conv/W`` of shape ``(outmaps, channels / group, *kernel)``,
    channels last under ``channel_last``, and ``min_max_quantized_conv/b`` of shape ``(outmaps,)``.
    Each forward pass stores the rounded ones, which it uses, in ``min_max_quantized_conv/W_q`` and
    ``min_max_quantized_conv/b_q``. The ranges and levels are parameters in
    ``min_max_quantize_w/min_max_quantize`` and ``min_max_quantize_b/min_max_quantize`` of this
    scope, as of `min_max_quantize`. See `F.min_max_quantize`.

    Args:
        inp: ``(batch..., channels, *spatial)``, or ``(batch..., *spatial, channels)``.
        outmaps: number of output channels.
        kernel: lengths of the window.
        pad: zeros at both ends of each spatial axis.
        stride: steps of the window.
        dilation: steps between the places that the window reads.
        group: number of groups that channels are divided into.
        channel_last: whether the channels are the last axis.
        w_init: first value of ``W``; default Glorot-uniform.
        b_init: first value of ``b``; default 0.
        base_axis: axis of the channels.
        fix_parameters: whether no gradient flows to the parameters.
        rng: where default first values are drawn from.
        with_bias: whether to add ``b``.
        quantize_w: whether to quantize ``W``; ``False``: it is used as it is.
        ql_min_w: first level of ``W``: a number, or an array that broadcasts.
        ql_max_w: last level of ``W``.
        w_min_max: whether the range is that of ``W``, else it is trained.
        qr_min_w_init: first value of the range's lower end; default -2.
        qr_max_w_init: first value of its upper end; default 2.
        ste_fine_grained_w: whether the gradient of ``W`` stops outside the range.
        quantize_b: whether to quantize ``b``.
        ql_min_b: first level of ``b``.
        ql_max_b: last level of ``b``.
        b_min_max: whether the range is that of ``b``, else it is trained.
        qr_min_b_init: first value of the range's lower end; default -6.
        qr_max_b_init: first value of its upper end; default 6.
        ste_fine_grained_b: whether the gradient of ``b`` stops outside the range.
        eps: least width of a range.
        name: scope around the parameters.

    Returns:
        ``(batch..., outmaps, *spatial)``, as `convolution`.

    Raises:
        ShapeError: the shapes do not fit.

    Gradient:
        That of the layer, straight through to ``W`` and ``b``; what is beyond a range goes to its
        ends, as of `F.min_max_quantize`.

    Examples:
        >>> x = Variable.from_numpy_array(np.ones((1, 2, 4, 4)))
        >>> PF.min_max_quantized_convolution(x, 5, (3, 3), quantize_b=False).shape
        (1, 5, 2, 2)
        >>> [key.split("/")[-1] for key in nnl.get_parameters(grad_only=False)]
        ['W', 'ql_min', 'ql_max', 'qr_min', 'qr_max', 'W_q', 'b']

    Elsewhere:
        - nnabla: `min_max_quantized_convolution`
        - PyTorch: `torch.ao.nn.qat.Conv2d`
        - ONNX: none, QuantizeLinear, DequantizeLinear and Conv
    """
    shape, outputs, fans = convolution_shapes(inp, outmaps, kernel, group, base_axis, channel_last)
    low_w, high_w = _ends(qr_min_w_init, qr_max_w_init, 2.0)
    low_b, high_b = _ends(qr_min_b_init, qr_max_b_init, 6.0)
    apply_w = _storing(
        "W_q",
        quantize_w,
        lambda v: min_max_quantize(
            v,
            ql_min_w,
            ql_max_w,
            x_min_max=w_min_max,
            ste_fine_grained=ste_fine_grained_w,
            eps=eps,
            qr_min_init=low_w,
            qr_max_init=high_w,
            fix_parameters=fix_parameters,
            name="min_max_quantize_w",
        ),
    )
    apply_b = _storing(
        "b_q",
        quantize_b,
        lambda v: min_max_quantize(
            v,
            ql_min_b,
            ql_max_b,
            x_min_max=b_min_max,
            ste_fine_grained=ste_fine_grained_b,
            eps=eps,
            qr_min_init=low_b,
            qr_max_init=high_b,
            fix_parameters=fix_parameters,
            name="min_max_quantize_b",
        ),
    )
    with layer_scope("min_max_quantized_conv", name):
        w = weight(shape, w_init, fans, fix_parameters, rng, apply_w)
        b = bias(outputs, b_init, with_bias, fix_parameters, apply_b)
        return F.convolution(inp, w, b, base_axis, pad, stride, dilation, group, channel_last)
