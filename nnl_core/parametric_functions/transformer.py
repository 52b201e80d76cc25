"""Transformers: layers of attention with a small network for each position."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.variable import Variable
from nnl_core.initializers import RandomSource
from nnl_core.parametric_functions.attention import multi_head_attention
from nnl_core.parametric_functions.common import layer_scope
from nnl_core.parametric_functions.linear import affine
from nnl_core.parametric_functions.normalization import layer_normalization

Activation: TypeAlias = Callable[[Variable], Variable]


def transformer(
    src: Variable,
    tgt: Variable,
    embed_dim: int = 512,
    num_heads: int = 8,
    num_encoder_layers: int = 6,
    num_decoder_layers: int = 6,
    dim_feedforward: int = 2048,
    dropout: float = 0.1,
    activation: Activation | None = None,
    src_additive_mask: Variable | None = None,
    tgt_additive_mask: Variable | None = None,
    memory_additive_mask: Variable | None = None,
    src_key_padding_mask: Variable | None = None,
    tgt_key_padding_mask: Variable | None = None,
    memory_key_padding_mask: Variable | None = None,
    rng: RandomSource | None = None,
    add_attn_bias: bool = False,
    fix_parameters: bool = False,
    name: str | None = None,
) -> Variable:
    """Encode a source, and decode a target that attends to it (Vaswani et al. 2017).

    Layers normalise after each residual sum; there is no embedding, no position encoding, and no
    normalisation at the end.

    Parameters ``transformer/encoder00/transformer_encode/...`` and
    ``transformer/decoder00/transformer_decode/...``, counted from 00: those of
    `transformer_encode` and `transformer_decode`.

    Args:
        src: the source, ``(sources, batch, embed_dim)``.
        tgt: the target, ``(targets, batch, embed_dim)``.
        embed_dim: features of a position.
        num_heads: subspaces of the attention, which divide ``embed_dim``.
        num_encoder_layers: how many layers encode.
        num_decoder_layers: how many layers decode.
        dim_feedforward: hidden features of the network of each position.
        dropout: share that is dropped after each part of a layer; 0 for evaluation.
        activation: of the hidden features, by default ``F.relu``.
        src_additive_mask: added to the scores of source by source, ``(sources, sources)``.
        tgt_additive_mask: of target by target, ``(targets, targets)``.
        memory_additive_mask: of target by encoded source, ``(targets, sources)``.
        src_key_padding_mask: 1 for sources that are ignored, ``(batch, sources)``.
        tgt_key_padding_mask: 1 for targets that are ignored, ``(batch, targets)``.
        memory_key_padding_mask: 1 for encoded sources that are ignored, ``(batch, sources)``.
        rng: where initial values are drawn from.
        add_attn_bias: whether attention has one more key and value, which are trained.
        fix_parameters: whether no parameter gets a gradient.
        name: a scope for the parameters; ``None`` for the current one.

    Returns:
        ``(targets, batch, embed_dim)``.

    Raises:
        ShapeError: source and target are not of one batch, or not of ``embed_dim`` features.

    Gradient:
        To both inputs, and all parameters.

    Examples:
        >>> src, tgt = Variable((5, 2, 8)), Variable((3, 2, 8))
        >>> PF.transformer(src, tgt, 8, num_heads=2, num_encoder_layers=1).shape
        (3, 2, 8)

    Elsewhere:
        - nnabla: `transformer`, where `rng` and `fix_parameters` do not reach the layers
        - PyTorch: `torch.nn.Transformer`, which normalises once more at the end of both stacks
        - ONNX: none, a subgraph of attention, `MatMul`, `Add` and `LayerNormalization`
    """
    for label, x in (("src", src), ("tgt", tgt)):
        if x.ndim != 3 or x.shape[1] != src.shape[1] or x.shape[2] != embed_dim:
            raise ShapeError(
                f"transformer: {label} has shape {x.shape}; with embed_dim {embed_dim} it must be "
                f"(length, {src.shape[1] if src.ndim > 1 else 'batch'}, {embed_dim})"
            )
    with layer_scope("transformer", name):
        memory = src
        for layer in range(num_encoder_layers):
            memory = transformer_encode(
                memory, embed_dim, num_heads, dim_feedforward, dropout, activation,
                src_additive_mask, src_key_padding_mask, rng, add_attn_bias, fix_parameters,
                name=f"encoder{layer:02d}",
            )  # fmt: skip
        output = tgt
        for layer in range(num_decoder_layers):
            output = transformer_decode(
                output, memory, embed_dim, num_heads, dim_feedforward, dropout, activation,
                tgt_additive_mask, memory_additive_mask, tgt_key_padding_mask,
                memory_key_padding_mask, rng, add_attn_bias, fix_parameters,
                name=f"decoder{layer:02d}",
            )  # fmt: skip
        return output


def transformer_encode(
    src: Variable,
    embed_dim: int,
    num_heads: int,
    dim_feedforward: int = 2048,
    dropout: float = 0.1,
    activation: Activation | None = None,
    src_additive_mask: Variable | None = None,
    src_key_padding_mask: Variable | None = None,
    rng: RandomSource | None = None,
    add_attn_bias: bool = False,
    fix_parameters: bool = False,
    name: str | None = None,
) -> Variable:
    """Apply one encoder layer: attention of the source to itself, then a network of each position.

    ``h = norm1(x + drop(attention(x, x, x)))`` and
    ``y = norm2(h + drop(affine2(drop(activation(affine1(h))))))``.

    Parameters under ``transformer_encode``: ``src_self_attn/multi_head_attention/...``,
    ``enc_affine1/affine/...`` and ``enc_affine2``,
    ``enc_layer_norm1/layer_normalization/...`` and ``enc_layer_norm2``.

    Args:
        src: ``(sources, batch, embed_dim)``.
        embed_dim: features of a position.
        num_heads: subspaces of the attention, which divide ``embed_dim``.
        dim_feedforward: hidden features of the network of each position.
        dropout: share that is dropped after each part; 0 for evaluation.
        activation: of the hidden features, by default ``F.relu``.
        src_additive_mask: added to the scores, ``(sources, sources)``.
        src_key_padding_mask: 1 for sources that are ignored, ``(batch, sources)``.
        rng: where initial values are drawn from.
        add_attn_bias: whether attention has one more key and value, which are trained.
        fix_parameters: whether no parameter gets a gradient.
        name: a scope for the parameters; ``None`` for the current one.

    Gradient:
        To the input, and all parameters.

    Examples:
        >>> PF.transformer_encode(Variable((5, 2, 8)), 8, num_heads=2).shape
        (5, 2, 8)

    Elsewhere:
        - nnabla: `transformer_encode`, where `rng` and `fix_parameters` are not used
        - PyTorch: `torch.nn.TransformerEncoderLayer`
        - ONNX: none, a subgraph of attention, `MatMul`, `Add` and `LayerNormalization`
    """
    with layer_scope("transformer_encode", name):
        attended = multi_head_attention(
            src, src, src, num_heads, rng=rng, add_attn_bias=add_attn_bias,
            additive_mask=src_additive_mask, key_padding_mask=src_key_padding_mask,
            fix_parameters=fix_parameters, name="src_self_attn",
        )[0]  # fmt: skip
        hidden = _residual(src, attended, dropout, fix_parameters, "enc_layer_norm1")
        y = _feed_forward(hidden, embed_dim, dim_feedforward, dropout, activation, rng,
                          fix_parameters, "enc")  # fmt: skip
        return _residual(hidden, y, dropout, fix_parameters, "enc_layer_norm2")


def transformer_decode(
    tgt: Variable,
    memory: Variable,
    embed_dim: int,
    num_heads: int,
    dim_feedforward: int = 2048,
    dropout: float = 0.1,
    activation: Activation | None = None,
    tgt_additive_mask: Variable | None = None,
    memory_additive_mask: Variable | None = None,
    tgt_key_padding_mask: Variable | None = None,
    memory_key_padding_mask: Variable | None = None,
    rng: RandomSource | None = None,
    add_attn_bias: bool = False,
    fix_parameters: bool = False,
    name: str | None = None,
) -> Variable:
    """Apply one decoder layer: attention to the target itself, to the memory, then a network.

    ``a = norm1(x + drop(attention(x, x, x)))``, ``h = norm2(a + drop(attention(a, m, m)))`` and
    ``y = norm3(h + drop(affine2(drop(activation(affine1(h))))))``.

    Parameters under ``transformer_decode``: ``tgt_self_attn/multi_head_attention/...`` and
    ``tgt_memory_attn``, ``dec_affine1/affine/...`` and ``dec_affine2``,
    ``dec_layer_norm1/layer_normalization/...`` to ``dec_layer_norm3``.

    Args:
        tgt: ``(targets, batch, embed_dim)``.
        memory: the encoded source, ``(sources, batch, embed_dim)``.
        embed_dim: features of a position.
        num_heads: subspaces of the attention, which divide ``embed_dim``.
        dim_feedforward: hidden features of the network of each position.
        dropout: share that is dropped after each part; 0 for evaluation.
        activation: of the hidden features, by default ``F.relu``.
        tgt_additive_mask: added to the scores of target by target, ``(targets, targets)``.
        memory_additive_mask: of target by memory, ``(targets, sources)``.
        tgt_key_padding_mask: 1 for targets that are ignored, ``(batch, targets)``.
        memory_key_padding_mask: 1 for places of the memory that are ignored, ``(batch, sources)``.
        rng: where initial values are drawn from.
        add_attn_bias: whether attention has one more key and value, which are trained.
        fix_parameters: whether no parameter gets a gradient.
        name: a scope for the parameters; ``None`` for the current one.

    Gradient:
        To both inputs, and all parameters.

    Examples:
        >>> PF.transformer_decode(Variable((3, 2, 8)), Variable((5, 2, 8)), 8, num_heads=2).shape
        (3, 2, 8)

    Elsewhere:
        - nnabla: `transformer_decode`, where `rng` and `fix_parameters` are not used
        - PyTorch: `torch.nn.TransformerDecoderLayer`
        - ONNX: none, a subgraph of attention, `MatMul`, `Add` and `LayerNormalization`
    """
    with layer_scope("transformer_decode", name):
        attended = multi_head_attention(
            tgt, tgt, tgt, num_heads, rng=rng, add_attn_bias=add_attn_bias,
            additive_mask=tgt_additive_mask, key_padding_mask=tgt_key_padding_mask,
            fix_parameters=fix_parameters, name="tgt_self_attn",
        )[0]  # fmt: skip
        own = _residual(tgt, attended, dropout, fix_parameters, "dec_layer_norm1")
        attended = multi_head_attention(
            own, memory, memory, num_heads, rng=rng, add_attn_bias=add_attn_bias,
            additive_mask=memory_additive_mask, key_padding_mask=memory_key_padding_mask,
            fix_parameters=fix_parameters, name="tgt_memory_attn",
        )[0]  # fmt: skip
        hidden = _residual(own, attended, dropout, fix_parameters, "dec_layer_norm2")
        y = _feed_forward(hidden, embed_dim, dim_feedforward, dropout, activation, rng,
                          fix_parameters, "dec")  # fmt: skip
        return _residual(hidden, y, dropout, fix_parameters, "dec_layer_norm3")


def _feed_forward(
    x: Variable,
    features: int,
    hidden: int,
    dropout: float,
    activation: Activation | None,
    rng: RandomSource | None,
    fix_parameters: bool,
    prefix: str,
) -> Variable:
    """Apply the network of each position."""
    y = affine(
        x, hidden, 2, fix_parameters=fix_parameters, rng=rng, name=f"{prefix}_affine1"
    )  # fmt: skip
    y = _dropped((F.relu if activation is None else activation)(y), dropout)
    return affine(
        y, features, 2, fix_parameters=fix_parameters, rng=rng, name=f"{prefix}_affine2"
    )  # fmt: skip


def _residual(
    x: Variable, change: Variable, dropout: float, fix_parameters: bool, name: str
) -> Variable:
    """Add what a part of the layer gave, and normalise each position."""
    y: Variable = layer_normalization(
        x + _dropped(change, dropout), batch_axis=(0, 1), fix_parameters=fix_parameters, name=name
    )
    return y


def _dropped(x: Variable, dropout: float) -> Variable:
    if not dropout:
        return x
    dropped = F.dropout(x, dropout)
    assert isinstance(dropped, Variable)
    return dropped
