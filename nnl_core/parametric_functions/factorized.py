"""Layers whose weight is a product of small factors: fewer parameters, fewer multiplications."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import ParameterError
from nnl_core.graph.operator import Array
from nnl_core.graph.spec import normalize_axis
from nnl_core.graph.variable import Variable
from nnl_core.initializers import RandomSource, UniformInitializer, calc_uniform_lim_glorot
from nnl_core.operators.windows import window_shape
from nnl_core.parameters import Initial, get_parameter, get_parameter_or_create, pop_parameter
from nnl_core.parametric_functions.common import bias, layer_scope, lengths
from nnl_core.parametric_functions.factorization import cp_decomposition, low_rank

Shape = tuple[int, ...]


def _factors(
    shapes: Mapping[str, Shape], split: Callable[[], Sequence[Array]], fix_parameters: bool
) -> list[Variable]:
    """Return the parameters of these shapes; unless all exist, ``split()`` gives first values."""
    if any(get_parameter(name) is None for name in shapes):
        for (name, shape), value in zip(shapes.items(), split(), strict=True):
            pop_parameter(name)  # one without the others belongs to no product
            get_parameter_or_create(name, shape, value.reshape(shape))
    return [
        get_parameter_or_create(name, shape, None, True, not fix_parameters)
        for name, shape in shapes.items()
    ]


def _first_weight(
    layer: str,
    shape: Shape,
    init: Initial | None,
    fans: tuple[int, int, Shape],
    rng: RandomSource | None,
) -> Array:
    """Return the weight whose factors are the first values."""
    if init is None:
        init = UniformInitializer(calc_uniform_lim_glorot(*fans), rng)
    value = np.asarray(init(shape) if callable(init) else init)
    if value.shape != shape:
        raise ParameterError(
            f"{layer}: the weight to be approximated has shape {value.shape} and must have {shape}"
        )
    return value


def _check_rank(layer: str, r: int, most: int) -> None:
    if not 1 <= r <= most:
        raise ParameterError(f"{layer}: rank {r} must be between 1 and {most}, the full rank")


def svd_affine(
    inp: Variable,
    n_outmaps: int | Sequence[int],
    r: int,
    base_axis: int = 1,
    uv_init: Initial | None = None,
    b_init: Initial | None = None,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Apply a fully connected layer of rank ``r``: ``y = (x U) V + b``.

    Parameters ``svd_affine/U`` of shape ``(inputs, r)``, ``svd_affine/V`` of shape
    ``(r, *n_outmaps)``, and ``svd_affine/b`` of shape ``(*n_outmaps)``. Where they do not exist
    yet, ``U V`` is the matrix of rank ``r`` nearest to ``uv_init``, by singular values, which
    ``U`` contains.

    Args:
        inp: ``(batch..., inputs...)``; the axes from ``base_axis`` on are flattened.
        n_outmaps: number of outputs, or their axes.
        r: rank, from 1 to the smaller of the numbers of inputs and outputs.
        base_axis: first axis that is not a batch axis.
        uv_init: the weight to be approximated, ``(inputs, *n_outmaps)``; default Glorot-uniform.
        b_init: first value of ``b``; default 0.
        fix_parameters: whether no gradient flows to the parameters.
        rng: where a default weight is drawn from.
        with_bias: whether to add ``b``.
        name: scope around the parameters.

    Returns:
        ``(batch..., *n_outmaps)``.

    Raises:
        ParameterError: the rank is out of range, or ``uv_init`` has another shape.

    Gradient:
        To the input, both factors and ``b``.

    Examples:
        >>> weight = np.outer([1.0, 2.0], [3.0, 4.0, 5.0])
        >>> x = Variable.from_numpy_array(np.array([[1.0, 1.0]], np.float32))
        >>> PF.svd_affine(x, 3, r=1, uv_init=weight).d.round(3)
        array([[ 9., 12., 15.]], dtype=float32)

    Elsewhere:
        - nnabla: `svd_affine`
        - PyTorch: none, two `torch.nn.Linear` with factors from `torch.linalg.svd`
        - ONNX: none, two `MatMul`
    """
    outputs = lengths(n_outmaps, "n_outmaps")
    axis = normalize_axis(base_axis, inp.ndim)
    inputs, flat = math.prod(inp.shape[axis:]), math.prod(outputs)
    _check_rank("svd_affine", r, min(inputs, flat))

    def split() -> Sequence[Array]:
        fans = (inputs, flat, ())
        weight = _first_weight("svd_affine", (inputs, *outputs), uv_init, fans, rng)
        return low_rank(weight.reshape(inputs, flat), r)

    with layer_scope("svd_affine", name):
        u, v = _factors({"U": (inputs, r), "V": (r, *outputs)}, split, fix_parameters)
        b = bias(outputs, b_init, with_bias, fix_parameters)
        return F.affine(F.affine(inp, u, base_axis=axis), v, b, axis)


def svd_convolution(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    r: int,
    pad: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    uv_init: Initial | None = None,
    b_init: Initial | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Convolve with kernels of rank ``r`` for each channel: each alone, then across channels.

    A depthwise convolution with ``U`` gives ``r`` maps for each channel, and one of kernel 1 with
    ``V`` sums them. Parameters ``svd_conv/U`` of shape ``(channels r, *kernel)``, ``svd_conv/V``
    of shape ``(outmaps, channels r, 1, ...)``, and ``svd_conv/b`` of shape ``(outmaps,)``. Where
    they do not exist yet, they are nearest to ``uv_init``: for each channel, the matrix of
    taps and maps of rank ``r``, by singular values, which ``U`` contains.

    Args:
        inp: ``(batch..., channels, *spatial)``.
        outmaps: number of output maps.
        kernel: lengths of the window along the spatial axes.
        r: rank, from 1 to the smaller of the numbers of taps and maps.
        pad: zeros at both ends of each spatial axis.
        stride: steps from window to window.
        dilation: steps from tap to tap.
        uv_init: the weight to be approximated, ``(outmaps, channels, *kernel)``; default
            Glorot-uniform.
        b_init: first value of ``b``; default 0.
        base_axis: number of batch axes, or the negative index of the channels.
        fix_parameters: whether no gradient flows to the parameters.
        rng: where a default weight is drawn from.
        with_bias: whether to add ``b``.
        name: scope around the parameters.

    Returns:
        ``(batch..., outmaps, *places)``.

    Raises:
        ParameterError: the rank is out of range, or ``uv_init`` has another shape.
        ShapeError: a window does not fit in the padded axis.

    Gradient:
        To the input, both factors and ``b``.

    Examples:
        >>> x = Variable((8, 16, 10, 10))
        >>> PF.svd_convolution(x, 32, (3, 3), r=2).shape
        (8, 32, 8, 8)
        >>> {name: p.shape for name, p in nnl.get_parameters().items()}
        {'svd_conv/U': (32, 3, 3), 'svd_conv/V': (32, 32, 1, 1), 'svd_conv/b': (32,)}

    Elsewhere:
        - nnabla: `svd_convolution`
        - PyTorch: none, two `torch.nn.Conv2d` with factors from `torch.linalg.svd`
        - ONNX: none, two `Conv`
    """
    window = window_shape(kernel)
    taps, ones = math.prod(window), (1,) * len(window)
    channels = inp.shape[base_axis]
    _check_rank("svd_convolution", r, min(taps, outmaps))

    def split() -> Sequence[Array]:
        shape, fans = (outmaps, channels, *window), (channels, outmaps, window)
        weight = _first_weight("svd_convolution", shape, uv_init, fans, rng)
        left, right = low_rank(weight.reshape(outmaps, channels, taps).transpose(1, 2, 0), r)
        return left.transpose(0, 2, 1), right.transpose(2, 0, 1)

    shapes = {"U": (channels * r, *window), "V": (outmaps, channels * r, *ones)}
    with layer_scope("svd_conv", name):
        u, v = _factors(shapes, split, fix_parameters)
        b = bias((outmaps,), b_init, with_bias, fix_parameters)
        y = F.depthwise_convolution(inp, u, None, base_axis, pad, stride, dilation, r)
        return F.convolution(y, v, b, base_axis)


def cpd3_convolution(
    inp: Variable,
    outmaps: int,
    kernel: Sequence[int],
    r: int,
    pad: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    oik_init: Initial | None = None,
    b_init: Initial | None = None,
    base_axis: int = 1,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    max_iter: int = 500,
    stopping_criterion: float = 1e-5,
    lambda_reg: float = 0.0,
    name: str | None = None,
) -> Variable:
    """Convolve with a weight that is a sum of ``r`` outer products of maps, channels and taps.

    ``W[o, i, k] = sum_r O[o, r] I[i, r] K[k, r]``: ``I`` mixes channels into ``r``, ``K``
    convolves each of these alone, and ``O`` mixes them into maps. (Lebedev et al.,
    arXiv:1412.6553.) Parameters ``cpd3_conv/I`` of shape ``(r, channels, 1, ...)``,
    ``cpd3_conv/K`` of shape ``(r, *kernel)``, ``cpd3_conv/O`` of shape ``(outmaps, r, 1, ...)``,
    and ``cpd3_conv/b`` of shape ``(outmaps,)``. Where they do not exist yet, they approximate
    ``oik_init``, by alternating least squares from a random start.

    Args:
        inp: ``(batch..., channels, *spatial)``.
        outmaps: number of output maps.
        kernel: lengths of the window along the spatial axes.
        r: number of outer products, at least 1.
        pad: zeros at both ends of each spatial axis.
        stride: steps from window to window.
        dilation: steps from tap to tap.
        oik_init: the weight to be approximated, ``(outmaps, channels, *kernel)``; default
            Glorot-uniform.
        b_init: first value of ``b``; default 0.
        base_axis: number of batch axes, or the negative index of the channels.
        fix_parameters: whether no gradient flows to the parameters.
        rng: where a default weight and the start are drawn from.
        with_bias: whether to add ``b``.
        max_iter: number of passes of least squares, at most.
        stopping_criterion: passes end when the explained part of the weight's squared norm
            changes by less; if negative, never.
        lambda_reg: weight of the squared norm of the factor that is solved for.
        name: scope around the parameters.

    Returns:
        ``(batch..., outmaps, *places)``.

    Raises:
        ParameterError: ``r`` or ``max_iter`` is less than 1, or ``oik_init`` has another shape.
        ShapeError: a window does not fit in the padded axis.

    Gradient:
        To the input, all three factors and ``b``.

    Examples:
        >>> x = Variable((8, 16, 10, 10))
        >>> PF.cpd3_convolution(x, 32, (3, 3), r=4).shape
        (8, 32, 8, 8)
        >>> [nnl.get_parameters()[f"cpd3_conv/{factor}"].shape for factor in "IKO"]
        [(4, 16, 1, 1), (4, 3, 3), (32, 4, 1, 1)]

    Elsewhere:
        - nnabla: `cpd3_convolution`
        - PyTorch: none, three `torch.nn.Conv2d`
        - ONNX: none, three `Conv`
    """
    window = window_shape(kernel)
    ones = (1,) * len(window)
    channels = inp.shape[base_axis]

    def split() -> Sequence[Array]:
        shape, fans = (outmaps, channels, *window), (channels, outmaps, window)
        weight = _first_weight("cpd3_convolution", shape, oik_init, fans, rng)
        of_maps, of_channels, of_taps = cp_decomposition(
            weight.reshape(outmaps, channels, -1), r, max_iter=max_iter,
            stopping_criterion=stopping_criterion, lambda_reg=lambda_reg, rng=rng,
        )  # fmt: skip
        return of_channels.T, of_taps.T, of_maps

    shapes = {"I": (r, channels, *ones), "K": (r, *window), "O": (outmaps, r, *ones)}
    with layer_scope("cpd3_conv", name):
        i, k, o = _factors(shapes, split, fix_parameters)
        b = bias((outmaps,), b_init, with_bias, fix_parameters)
        y = F.convolution(inp, i, None, base_axis)
        y = F.depthwise_convolution(y, k, None, base_axis, pad, stride, dilation)
        return F.convolution(y, o, b, base_axis)
