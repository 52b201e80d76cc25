"""Affine layers and embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnl_core import functions as F
from nnl_core.graph.variable import Variable
from nnl_core.initializers import RandomSource, UniformInitializer
from nnl_core.parameters import Initial, get_parameter_or_create
from nnl_core.parametric_functions.common import Applied, bias, layer_scope, lengths, weight
from nnl_core.parametric_functions.low_rank import (
    adapted_bias,
    factors_of,
    frozen,
    low_rank_adapters,
)


def affine(
    inp: Variable,
    n_outmaps: int | Sequence[int],
    base_axis: int = 1,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    fix_parameters: bool = False,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    apply_w: Applied | None = None,
    apply_b: Applied | None = None,
    name: str | None = None,
) -> Variable:
    """Apply a fully connected layer.

    Parameters ``affine/W`` of shape (inputs, *outputs) and ``affine/b`` of shape (*outputs).

    Args:
        inp: ``(*batch, *inputs)``.
        n_outmaps: how many outputs, or their shape.
        base_axis: first axis that is not a batch axis.
        w_init: an initializer or an array; by default uniform (Glorot and Bengio, 2010).
        b_init: an initializer or an array; by default 0.
        fix_parameters: whether the parameters are left out of training.
        rng: where the initial values come from; by default that of the library.
        with_bias: whether there is a bias.
        apply_w: a function of the weight, whose result is used in its place.
        apply_b: the same of the bias.
        name: a scope for the parameters; ``None`` for the current one.

    Gradient:
        That of `F.affine`, for the input and the parameters.

    Examples:
        >>> PF.affine(Variable((8, 784)), 10).shape
        (8, 10)
        >>> {name: value.shape for name, value in nnl.get_parameters().items()}
        {'affine/W': (784, 10), 'affine/b': (10,)}

    Elsewhere:
        - nnabla: `affine`
        - PyTorch: `torch.nn.Linear`, whose weight is transposed
        - ONNX: `Gemm`
    """
    outputs = lengths(n_outmaps, "n_outmaps")
    inputs = math.prod(inp.shape[base_axis:])
    with layer_scope("affine", name):
        fans = (inputs, math.prod(outputs), ())
        w = weight((inputs, *outputs), w_init, fans, fix_parameters, rng, apply_w)
        b = bias(outputs, b_init, with_bias, fix_parameters, apply_b)
        factors = factors_of("W", w) if apply_w is None else None
        if factors is None:
            return F.affine(inp, w, b, base_axis)
        b = None if b is None else adapted_bias("b", b, "W")
        y: Variable = F.affine(inp, frozen("W", w), b, base_axis) + factors.times(inp, base_axis)
        return y


def low_rank_affine(
    inp: Variable,
    n_outmaps: int | Sequence[int],
    rank: int,
    alpha: float | None = None,
    base_axis: int = 1,
    w_init: Initial | None = None,
    b_init: Initial | None = None,
    a_init: Initial | None = None,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    name: str | None = None,
) -> Variable:
    """Apply a fully connected layer whose weight stays, but for a product of two small factors.

    ``y = x W + b + alpha / rank x A B`` (Hu et al. 2021), where only ``A`` and ``B`` are trained.
    Parameters ``affine/W`` and ``affine/b`` are those of `affine`, so that a file of a trained
    model loads (load it first); ``affine/W_lora_A``, ``W_lora_B`` and ``W_lora_alpha`` are added.
    `low_rank_adapters` does the same to the layers of a whole model.

    Args:
        inp: the input.
        n_outmaps: how many outputs there are, or the lengths of several axes of them.
        rank: columns of ``A`` and rows of ``B``.
        alpha: strength, by default ``rank``.
        base_axis: the first axis that belongs to an example.
        w_init: first value of ``W`` where it is new, by default Glorot-uniform.
        b_init: of ``b``, by default 0.
        a_init: of ``A``, by default normal with standard deviation ``1 / sqrt(inputs)``; ``B``
            starts at 0.
        rng: where first values are drawn from.
        with_bias: whether there is a bias.
        name: a scope for the parameters; ``None`` for the current one.

    Gradient:
        To the input, ``A`` and ``B``; none to ``W`` and ``b``.

    Examples:
        >>> y = PF.low_rank_affine(np.ones((4, 3)), 2, rank=1, alpha=8)
        >>> y.shape
        (4, 2)
        >>> list(nnl.get_parameters())
        ['affine/W_lora_A', 'affine/W_lora_B']

    Elsewhere:
        - nnabla: none, `affine` with `apply_w` can add a product to its weight
        - PyTorch: none, `lora.Linear` of the package `loralib`
        - ONNX: none, `Gemm` with the product added to the weight
    """
    with low_rank_adapters(rank, alpha, a_init=a_init, rng=rng):
        return affine(
            inp, n_outmaps, base_axis, w_init, b_init, rng=rng, with_bias=with_bias, name=name
        )


def embed(
    inp: Variable,
    n_inputs: int,
    n_features: int,
    initializer: Initial | None = None,
    fix_parameters: bool = False,
    apply_w: Applied | None = None,
    name: str | None = None,
) -> Variable:
    """Look up a row for each index.

    Parameter ``embed/W`` of shape (n_inputs, n_features).

    Args:
        inp: indices below ``n_inputs``.
        n_inputs: how many rows.
        n_features: the length of a row.
        initializer: an initializer or an array; by default uniform with variance 1.
        fix_parameters: whether the parameters are left out of training.
        apply_w: a function of the table, whose result is used in its place.
        name: a scope for the parameters; ``None`` for the current one.

    Gradient:
        That of `F.embed`, for the input and the parameters.

    Examples:
        >>> PF.embed(Variable.from_numpy_array(np.array([[3, 1]])), 5, 16).shape
        (1, 2, 16)

    Elsewhere:
        - nnabla: `embed`
        - PyTorch: `torch.nn.Embedding`
        - ONNX: `Gather`
    """
    if initializer is None:
        initializer = UniformInitializer((-math.sqrt(3), math.sqrt(3)))
    with layer_scope("embed", name):
        w = get_parameter_or_create(
            "W", (n_inputs, n_features), initializer, True, not fix_parameters
        )
        return F.embed(inp, w if apply_w is None else apply_w(w))
