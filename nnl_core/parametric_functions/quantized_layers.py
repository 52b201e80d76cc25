"""Layers whose weights are binary, or fixed to powers of two in steps."""

from __future__ import annotations

from collections.abc import Sequence

from nnl_core import functions as F
from nnl_core.graph.variable import Variable
from nnl_core.initializers import ConstantInitializer, RandomSource
from nnl_core.parameters import Initial, get_parameter_or_create
from nnl_core.parametric_functions.common import bias, layer_scope, weight
from nnl_core.parametric_functions.shapes import affine_shapes, convolution_shapes


def stored(name: str, shape: Sequence[int], init: Initial | None = None) -> Variable:
    """Return a parameter that forward passes write: not trained, 0 at first."""
    return get_parameter_or_create(name, shape, init or ConstantInitializer(), False)


# Binary weights -----------------------------------------------------------------------------------


def binary_connect_affine(
    inp: Variable,
    n_outmaps: int | Sequence[int],
    base_axis: int = 1,
    quantize_zero_to: float = 1.0,
    w_init: Initial | None = None,
    wb_init: Initial | None = None,
    b_init: Initial | None = None,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Apply a fully connected layer with the signs of its weight.

    Parameters ``bicon_affine/W`` of shape ``(inputs, *n_outmaps)``, ``bicon_affine/Wb`` of that
    shape (the signs, stored by each forward pass), and ``bicon_affine/b`` of shape
    ``(*n_outmaps)``. See `F.binary_connect_affine`.

    Args:
        inp: ``(batch..., inputs...)``; the axes from ``base_axis`` on are flattened.
        n_outmaps: number of outputs, or their axes.
        base_axis: first axis that is not a batch axis.
        quantize_zero_to: sign of 0.
        w_init: first value of ``W``; default Glorot-uniform.
        wb_init: first value of ``Wb``, until the first forward pass; default 0.
        b_init: first value of ``b``; default 0.
        fix_parameters: whether no gradient flows to the parameters.
        rng: where default first values are drawn from.
        with_bias: whether to add ``b``.
        name: scope around the parameters.

    Returns:
        ``(batch..., *n_outmaps)``.

    Raises:
        ShapeError: the shapes do not fit.

    Gradient:
        That of the layer, straight through the signs to ``W``.

    Examples:
        >>> x = Variable.from_numpy_array(np.ones((2, 3)))
        >>> PF.binary_connect_affine(x, 5).shape
        (2, 5)
        >>> [key.split("/")[-1] for key in nnl.get_parameters(grad_only=False)]
        ['W', 'Wb', 'b']

    Elsewhere:
        - nnabla: `binary_connect_affine`
        - PyTorch: none, a module with a parametrization
        - ONNX: none, Sign and Gemm
    """
    shape, outputs, fans = affine_shapes(inp, n_outmaps, base_axis)
    with layer_scope("bicon_affine", name):
        w = weight(shape, w_init, fans, fix_parameters, rng)
        signs = stored("Wb", shape, wb_init)
        b = bias(outputs, b_init, with_bias, fix_parameters)
        return F.binary_connect_affine(inp, w, signs, b, base_axis, quantize_zero_to)


def binary_connect_convolution(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    pad: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    group: int = 1,
    quantize_zero_to: float = 1.0,
    w_init: Initial | None = None,
    wb_init: Initial | None = None,
    b_init: Initial | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Apply a convolution with the signs of its weight.

    Parameters ``bicon_conv/W`` of shape ``(outmaps, channels / group, *kernel)``, ``bicon_conv/Wb``
    of that shape (the signs, stored by each forward pass), and ``bicon_conv/b`` of shape
    ``(outmaps,)``. See `F.binary_connect_convolution`.

    Args:
        inp: ``(batch..., channels, *spatial)``.
        outmaps: number of output channels.
        kernel: lengths of the window.
        pad: zeros at both ends of each spatial axis.
        stride: steps of the window.
        dilation: steps between the places that the window reads.
        group: number of groups that channels are divided into.
        quantize_zero_to: sign of 0.
        w_init: first value of ``W``; default Glorot-uniform.
        wb_init: first value of ``Wb``, until the first forward pass; default 0.
        b_init: first value of ``b``; default 0.
        base_axis: axis of the channels.
        fix_parameters: whether no gradient flows to the parameters.
        rng: where default first values are drawn from.
        with_bias: whether to add ``b``.
        name: scope around the parameters.

    Returns:
        ``(batch..., outmaps, *spatial)``, as `convolution`.

    Raises:
        ShapeError: the shapes do not fit.

    Gradient:
        That of the layer, straight through the signs to ``W``.

    Examples:
        >>> x = Variable.from_numpy_array(np.ones((1, 2, 4, 4)))
        >>> PF.binary_connect_convolution(x, 5, (3, 3)).shape
        (1, 5, 2, 2)
        >>> [key.split("/")[-1] for key in nnl.get_parameters(grad_only=False)]
        ['W', 'Wb', 'b']

    Elsewhere:
        - nnabla: `binary_connect_convolution`
        - PyTorch: none, a module with a parametrization
        - ONNX: none, Sign and Conv
    """
    shape, outputs, fans = convolution_shapes(inp, outmaps, kernel, group, base_axis)
    with layer_scope("bicon_conv", name):
        w = weight(shape, w_init, fans, fix_parameters, rng)
        signs = stored("Wb", shape, wb_init)
        b = bias(outputs, b_init, with_bias, fix_parameters)
        return F.binary_connect_convolution(
            inp, w, signs, b, base_axis, pad, stride, dilation, group, quantize_zero_to
        )


def binary_weight_affine(
    inp: Variable,
    n_outmaps: int | Sequence[int],
    base_axis: int = 1,
    quantize_zero_to: float = 1.0,
    w_init: Initial | None = None,
    wb_init: Initial | None = None,
    b_init: Initial | None = None,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Apply a fully connected layer with the signs of its weight, scaled.

    Parameters ``bwn_affine/W`` of shape ``(inputs, *n_outmaps)``, ``bwn_affine/Wb`` of that shape
    (the signs, stored by each forward pass), ``bwn_affine/alpha`` of shape ``(*n_outmaps)`` (the
    scales), and ``bwn_affine/b`` of shape ``(*n_outmaps)``. See `F.binary_weight_affine`.

    Args:
        inp: ``(batch..., inputs...)``; the axes from ``base_axis`` on are flattened.
        n_outmaps: number of outputs, or their axes.
        base_axis: first axis that is not a batch axis.
        quantize_zero_to: sign of 0.
        w_init: first value of ``W``; default Glorot-uniform.
        wb_init: first value of ``Wb``, until the first forward pass; default 0.
        b_init: first value of ``b``; default 0.
        fix_parameters: whether no gradient flows to the parameters.
        rng: where default first values are drawn from.
        with_bias: whether to add ``b``.
        name: scope around the parameters.

    Returns:
        ``(batch..., *n_outmaps)``.

    Raises:
        ShapeError: the shapes do not fit.

    Gradient:
        That of the layer, straight through the signs and scales to ``W``.

    Examples:
        >>> x = Variable.from_numpy_array(np.ones((2, 3)))
        >>> PF.binary_weight_affine(x, 5).shape
        (2, 5)
        >>> [key.split("/")[-1] for key in nnl.get_parameters(grad_only=False)]
        ['W', 'Wb', 'alpha', 'b']

    Elsewhere:
        - nnabla: `binary_weight_affine`
        - PyTorch: none, a module with a parametrization
        - ONNX: none, Sign and Gemm
    """
    shape, outputs, fans = affine_shapes(inp, n_outmaps, base_axis)
    with layer_scope("bwn_affine", name):
        w = weight(shape, w_init, fans, fix_parameters, rng)
        signs = stored("Wb", shape, wb_init)
        alpha = stored("alpha", outputs)
        b = bias(outputs, b_init, with_bias, fix_parameters)
        return F.binary_weight_affine(inp, w, signs, alpha, b, base_axis, quantize_zero_to)


def binary_weight_convolution(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    pad: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    group: int = 1,
    quantize_zero_to: float = 1.0,
    w_init: Initial | None = None,
    wb_init: Initial | None = None,
    b_init: Initial | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Apply a convolution with the signs of its weight, scaled.

    Parameters ``bwn_conv/W`` of shape ``(outmaps, channels / group, *kernel)``, ``bwn_conv/Wb`` of
    that shape (the signs, stored by each forward pass), ``bwn_conv/alpha`` of shape ``(outmaps,)``
    (the scales), and ``bwn_conv/b`` of shape ``(outmaps,)``. See `F.binary_weight_convolution`.

    Args:
        inp: ``(batch..., channels, *spatial)``.
        outmaps: number of output channels.
        kernel: lengths of the window.
        pad: zeros at both ends of each spatial axis.
        stride: steps of the window.
        dilation: steps between the places that the window reads.
        group: number of groups that channels are divided into.
        quantize_zero_to: sign of 0.
        w_init: first value of ``W``; default Glorot-uniform.
        wb_init: first value of ``Wb``, until the first forward pass; default 0.
        b_init: first value of ``b``; default 0.
        base_axis: axis of the channels.
        fix_parameters: whether no gradient flows to the parameters.
        rng: where default first values are drawn from.
        with_bias: whether to add ``b``.
        name: scope around the parameters.

    Returns:
        ``(batch..., outmaps, *spatial)``, as `convolution`.

    Raises:
        ShapeError: the shapes do not fit.

    Gradient:
        That of the layer, straight through the signs and scales to ``W``.

    Examples:
        >>> x = Variable.from_numpy_array(np.ones((1, 2, 4, 4)))
        >>> PF.binary_weight_convolution(x, 5, (3, 3)).shape
        (1, 5, 2, 2)
        >>> [key.split("/")[-1] for key in nnl.get_parameters(grad_only=False)]
        ['W', 'Wb', 'alpha', 'b']

    Elsewhere:
        - nnabla: `binary_weight_convolution`
        - PyTorch: none, a module with a parametrization
        - ONNX: none, Sign and Conv
    """
    shape, outputs, fans = convolution_shapes(inp, outmaps, kernel, group, base_axis)
    with layer_scope("bwn_conv", name):
        w = weight(shape, w_init, fans, fix_parameters, rng)
        signs = stored("Wb", shape, wb_init)
        alpha = stored("alpha", outputs)
        b = bias(outputs, b_init, with_bias, fix_parameters)
        return F.binary_weight_convolution(
            inp, w, signs, alpha, b, base_axis, pad, stride, dilation, group, quantize_zero_to
        )


# Weights fixed in steps ---------------------------------------------------------------------------


def inq_affine(
    inp: Variable,
    n_outmaps: int | Sequence[int],
    base_axis: int = 1,
    num_bits: int = 4,
    inq_iterations: Sequence[int] = (),
    selection_algorithm: str = "random",
    seed: int = -1,
    w_init: Initial | None = None,
    i_init: Initial | None = None,
    b_init: Initial | None = None,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Apply a fully connected layer whose weights are fixed, step by step, to powers of two.

    Parameters ``inq_affine/W`` of shape ``(inputs, *n_outmaps)``, ``inq_affine/I`` of that shape (1
    where a weight is fixed), and ``inq_affine/b`` of shape ``(*n_outmaps)``. See `F.inq_affine`,
    whose default is another ``selection_algorithm``.

    Args:
        inp: ``(batch..., inputs...)``; the axes from ``base_axis`` on are flattened.
        n_outmaps: number of outputs, or their axes.
        base_axis: first axis that is not a batch axis.
        num_bits: bits of a weight, 2 or more.
        inq_iterations: numbers of the forward passes that fix half of the free weights, the last
            one all.
        selection_algorithm: ``"random"`` or ``"largest_abs"``: which ones.
        seed: of the random choice; -1 for the global sequence.
        w_init: first value of ``W``; default Glorot-uniform.
        i_init: first value of ``I``; default 0: all weights are free.
        b_init: first value of ``b``; default 0.
        fix_parameters: whether no gradient flows to the parameters.
        rng: where default first values are drawn from.
        with_bias: whether to add ``b``.
        name: scope around the parameters.

    Returns:
        ``(batch..., *n_outmaps)``.

    Raises:
        ShapeError: the shapes do not fit.
        OperatorError: ``num_bits`` or ``selection_algorithm`` is another.

    Gradient:
        That of the layer, straight through to ``W``, also where it is fixed.

    Examples:
        >>> x = Variable.from_numpy_array(np.ones((2, 3)))
        >>> PF.inq_affine(x, 5).shape
        (2, 5)
        >>> [key.split("/")[-1] for key in nnl.get_parameters(grad_only=False)]
        ['W', 'I', 'b']

    Elsewhere:
        - nnabla: `inq_affine`
        - PyTorch: none, a module with a parametrization
        - ONNX: none, Gemm with the rounded weights
    """
    shape, outputs, fans = affine_shapes(inp, n_outmaps, base_axis)
    with layer_scope("inq_affine", name):
        w = weight(shape, w_init, fans, fix_parameters, rng)
        fixed = stored("I", shape, i_init)
        b = bias(outputs, b_init, with_bias, fix_parameters)
        return F.inq_affine(
            inp, w, fixed, b, base_axis, num_bits, inq_iterations, selection_algorithm, seed
        )


def inq_convolution(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    pad: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    group: int = 1,
    num_bits: int = 4,
    inq_iterations: Sequence[int] = (),
    selection_algorithm: str = "random",
    seed: int = -1,
    w_init: Initial | None = None,
    i_init: Initial | None = None,
    b_init: Initial | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Apply a convolution whose weights are fixed, step by step, to powers of two.

    Parameters ``inq_conv/W`` of shape ``(outmaps, channels / group, *kernel)``, ``inq_conv/I`` of
    that shape (1 where a weight is fixed), and ``inq_conv/b`` of shape ``(outmaps,)``. See
    `F.inq_convolution`, whose default is another ``selection_algorithm``.

    Args:
        inp: ``(batch..., channels, *spatial)``.
        outmaps: number of output channels.
        kernel: lengths of the window.
        pad: zeros at both ends of each spatial axis.
        stride: steps of the window.
        dilation: steps between the places that the window reads.
        group: number of groups that channels are divided into.
        num_bits: bits of a weight, 2 or more.
        inq_iterations: numbers of the forward passes that fix half of the free weights, the last
            one all.
        selection_algorithm: ``"random"`` or ``"largest_abs"``: which ones.
        seed: of the random choice; -1 for the global sequence.
        w_init: first value of ``W``; default Glorot-uniform.
        i_init: first value of ``I``; default 0: all weights are free.
        b_init: first value of ``b``; default 0.
        base_axis: axis of the channels.
        fix_parameters: whether no gradient flows to the parameters.
        rng: where default first values are drawn from.
        with_bias: whether to add ``b``.
        name: scope around the parameters.

    Returns:
        ``(batch..., outmaps, *spatial)``, as `convolution`.

    Raises:
        ShapeError: the shapes do not fit.
        OperatorError: ``num_bits`` or ``selection_algorithm`` is another.

    Gradient:
        That of the layer, straight through to ``W``, also where it is fixed.

    Examples:
        >>> x = Variable.from_numpy_array(np.ones((1, 2, 4, 4)))
        >>> PF.inq_convolution(x, 5, (3, 3)).shape
        (1, 5, 2, 2)
        >>> [key.split("/")[-1] for key in nnl.get_parameters(grad_only=False)]
        ['W', 'I', 'b']

    Elsewhere:
        - nnabla: `inq_convolution`
        - PyTorch: none, a module with a parametrization
        - ONNX: none, Conv with the rounded weights
    """
    shape, outputs, fans = convolution_shapes(inp, outmaps, kernel, group, base_axis)
    with layer_scope("inq_conv", name):
        w = weight(shape, w_init, fans, fix_parameters, rng)
        fixed = stored("I", shape, i_init)
        b = bias(outputs, b_init, with_bias, fix_parameters)
        return F.inq_convolution(
            inp,
            w,
            fixed,
            b,
            base_axis,
            pad,
            stride,
            dilation,
            group,
            num_bits,
            inq_iterations,
            selection_algorithm,
            seed,
        )
