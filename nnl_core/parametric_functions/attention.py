"""Attention layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nnl_core import functions as F
from nnl_core.graph.variable import Variable
from nnl_core.initializers import (
    ConstantInitializer,
    RandomSource,
    UniformInitializer,
    calc_uniform_lim_glorot,
)
from nnl_core.parameters import Initial, get_parameter_or_create
from nnl_core.parametric_functions.common import layer_scope
from nnl_core.parametric_functions.low_rank import adapted, adapted_bias


def multi_head_attention(
    query: Variable,
    key: Variable,
    value: Variable,
    num_heads: int = 12,
    dropout: float = 0.0,
    k_embed_dim: int | None = None,
    v_embed_dim: int | None = None,
    out_dim: int | None = None,
    rng: RandomSource | None = None,
    with_bias: bool = True,
    add_attn_bias: bool = False,
    additive_mask: Variable | None = None,
    key_padding_mask: Variable | None = None,
    fix_parameters: bool = False,
    param_init: Mapping[str, Initial] | None = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Attend from each query to all keys, in several subspaces at once.

    Returns the output (targets, batch, out_dim) and the weights (batch * num_heads, targets,
    sources). Parameters ``multi_head_attention/q_weight, k_weight, v_weight, out_weight``, the
    biases ``q_bias`` and so on, and with ``add_attn_bias`` ``attn_bias_k`` and ``attn_bias_v``.

    Args:
        query: (targets, batch, features).
        key: (sources, batch, features).
        value: (sources, batch, features).
        num_heads: how many subspaces.
        dropout: share of the weights that is dropped at each run.
        k_embed_dim: length of projected queries and keys; by default the query's features.
        v_embed_dim: length of projected values; by default the value's features.
        out_dim: features of the output; by default the value's.
        rng: where the initial values come from; by default that of the library.
        with_bias: whether the projections have biases.
        add_attn_bias: whether there is one more key and value, for all, that is learned.
        additive_mask: (targets, sources): added to the scores.
        key_padding_mask: (batch, sources): a key is ignored where this is not 0.
        fix_parameters: whether the parameters are left out of training.
        param_init: initializers or arrays by the names of the parameters.
        name: a scope for the parameters; ``None`` for the current one.

    Gradient:
        That of `F.multi_head_attention`, for the input and the parameters.

    Examples:
        >>> x = Variable((5, 2, 8))
        >>> y, weights = PF.multi_head_attention(x, x, x, num_heads=4)
        >>> y.shape, weights.shape
        ((5, 2, 8), (8, 5, 5))

    Elsewhere:
        - nnabla: `multi_head_attention`
        - PyTorch: `torch.nn.MultiheadAttention`
        - ONNX: none, `Attention` and `MatMul`
    """
    k_size = query.shape[2] if k_embed_dim is None else k_embed_dim
    v_size = value.shape[2] if v_embed_dim is None else v_embed_dim
    out_size = v_size if out_dim is None else out_dim
    given = param_init or {}

    def make(label: str, shape: tuple[int, ...], default: Callable[[], Initial]) -> Variable:
        init = given[label] if label in given else default()
        return get_parameter_or_create(label, shape, init, True, not fix_parameters)

    def matrix(label: str, rows: int, columns: int, shape: tuple[int, ...] = ()) -> Variable:
        limits = calc_uniform_lim_glorot(rows, columns)
        w = make(label, shape or (rows, columns), lambda: UniformInitializer(limits, rng))
        return w if shape else adapted(label, w)

    def vector(label: str, size: int) -> Variable | None:
        if not with_bias:
            return None
        b = make(label, (size,), ConstantInitializer)
        return adapted_bias(label, b, label.replace("bias", "weight"))

    with layer_scope("multi_head_attention", name):
        weights = (
            matrix("q_weight", query.shape[2], k_size),
            matrix("k_weight", key.shape[2], k_size),
            matrix("v_weight", value.shape[2], v_size),
            matrix("out_weight", v_size, out_size),
        )
        biases = (
            vector("q_bias", k_size),
            vector("k_bias", k_size),
            vector("v_bias", v_size),
            vector("out_bias", out_size),
        )
        extra: tuple[Variable | None, Variable | None] = (None, None)
        if add_attn_bias:
            extra = (
                matrix("attn_bias_k", k_size, 1, (1, 1, k_size)),
                matrix("attn_bias_v", v_size, 1, (1, 1, v_size)),
            )
        return F.multi_head_attention(
            query,
            key,
            value,
            num_heads,
            *weights,
            *biases,
            *extra,
            dropout,
            additive_mask=additive_mask,
            key_padding_mask=key_padding_mask,
        )
