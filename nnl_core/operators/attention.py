"""Attention: weighted means of values, the weights from how well queries and keys match.

Composed of matrix products and `masked_softmax`: a query that may see no key gets 0, and passes no
gradient on.
"""

from __future__ import annotations

import math

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.dtypes import is_floating
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import same_dtype
from nnl_core.operators.dtypes import floating

__all__ = ["multi_head_attention", "scaled_dot_product_attention"]


def scaled_dot_product_attention(
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout_p: float = 0.0,
) -> Variable:
    """Attend: ``softmax(scale query key^T + mask) value``.

    Leading axes broadcast. A query whose keys are all hidden gets 0 (Vaswani et al., 2017).

    Args:
        query: ``(..., queries, channels)``.
        key: ``(..., keys, channels)``.
        value: ``(..., keys, value channels)``.
        mask: broadcasts to ``(..., queries, keys)``; booleans and integers say which keys a query
            sees, floats are added to the scores, minus infinity hiding a key.
        causal: whether a query sees only the keys up to its own position.
        scale: factor of the scores; ``None`` for one over the square root of the channels.
        dropout_p: share of the weights that is dropped at each run.

    Raises:
        ShapeError: shapes do not fit.

    Gradient:
        That of the formula; 0 through rows whose keys are all hidden.

    Examples:
        >>> query, key = np.zeros((1, 2, 4)), np.zeros((1, 2, 4))
        >>> F.scaled_dot_product_attention(query, key, np.array([[[1.0], [3.0]]]), causal=True).d
        array([[[1.],
                [2.]]])

    Elsewhere:
        - nnabla: none, `multi_head_attention`
        - PyTorch: `torch.nn.functional.scaled_dot_product_attention`, `mask` is `attn_mask`,
          `causal` is `is_causal`
        - ONNX: `Attention`
    """
    query, key = same_dtype(floating(query), key)
    key, value = same_dtype(key, value)
    query, value = same_dtype(query, value)
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise _misfit("query, key and value need (..., length, channels)", query, key, value)
    if query.shape[-1] != key.shape[-1]:
        raise _misfit("query and key have different channels", query, key, value)
    if key.shape[-2] != value.shape[-2]:
        raise _misfit("key and value have different lengths", query, key, value)
    if scale is None:
        scale = 1 / math.sqrt(max(query.shape[-1], 1))
    scores = F.batch_matmul(query * float(scale), key, transpose_b=True)
    if causal:
        scores = _hide(scores, Variable.constant(np.tri(*scores.shape[-2:], dtype=bool)))
    if mask is not None:
        given = mask if isinstance(mask, Variable) else Variable.constant(mask)
        if is_floating(given.dtype):
            scores = scores + F.cast(given, scores.dtype)
        else:
            scores = _hide(scores, given)
    return F.batch_matmul(_weights(scores, dropout_p), value)


def _misfit(text: str, query: Variable, key: Variable, value: Variable) -> ShapeError:
    return ShapeError(
        f"scaled_dot_product_attention: {text}: query {query.shape}, key {key.shape}, value "
        f"{value.shape}"
    )


def _hide(scores: Variable, visible: Variable) -> Variable:
    """Put minus infinity where ``visible`` is 0."""
    if visible.ndim > scores.ndim:
        raise ShapeError(
            f"attention: mask {visible.shape} has more axes than scores {scores.shape}"
        )
    aligned = F.reshape(visible, (*(1,) * (scores.ndim - visible.ndim), *visible.shape))
    return F.where(aligned, scores, -math.inf)


def _weights(scores: Variable, dropout_p: float) -> Variable:
    weights = F.masked_softmax(scores)
    if not dropout_p:
        return weights
    dropped = F.dropout(weights, p=dropout_p)
    assert isinstance(dropped, Variable)
    return dropped


def multi_head_attention(
    query: Operand,
    key: Operand,
    value: Operand,
    num_heads: int,
    q_weight: Operand,
    k_weight: Operand,
    v_weight: Operand,
    out_weight: Operand,
    q_bias: Operand | None = None,
    k_bias: Operand | None = None,
    v_bias: Operand | None = None,
    out_bias: Operand | None = None,
    attn_bias_k: Operand | None = None,
    attn_bias_v: Operand | None = None,
    dropout: float = 0.0,
    additive_mask: Operand | None = None,
    key_padding_mask: Operand | None = None,
) -> tuple[Variable, Variable]:
    """Attend in several subspaces at once, with projections before and after.

    Args:
        query: ``(queries, batch, channels)``.
        key: ``(keys, batch, channels)``, with channels of its own.
        value: ``(keys, batch, channels)``, with channels of its own.
        num_heads: subspaces, which divide the embedding.
        q_weight: ``(channels, embedding)``.
        k_weight: ``(channels, embedding)``.
        v_weight: ``(channels, value embedding)``.
        out_weight: ``(value embedding, outputs)``.
        q_bias: one for each column of the weight, or ``None``; so are the next three.
        k_bias: of the keys.
        v_bias: of the values.
        out_bias: of the outputs.
        attn_bias_k: ``(embedding,)``: one more key, for all.
        attn_bias_v: ``(value embedding,)``: its value.
        dropout: share of the weights that is dropped at each run.
        additive_mask: ``(queries, keys)``: added to the scores.
        key_padding_mask: ``(batch, keys)``: a key is ignored where this is not 0.

    Returns:
        The output ``(queries, batch, outputs)`` and the weights ``(batch * num_heads, queries,
        keys)``.

    Raises:
        ShapeError: shapes do not fit.

    Gradient:
        That of its parts.

    Examples:
        >>> x, weight = np.ones((3, 2, 4)), np.eye(4)
        >>> y, weights = F.multi_head_attention(x, x, x, 2, weight, weight, weight, weight)
        >>> y.shape, weights.shape
        ((3, 2, 4), (4, 3, 3))

    Elsewhere:
        - nnabla: `multi_head_attention`
        - PyTorch: `torch.nn.functional.multi_head_attention_forward`
        - ONNX: none, `Attention` and `MatMul`
    """
    query, key, value = floating(query), floating(key), floating(value)
    _check_heads(query, key, value, num_heads, q_weight, k_weight, v_weight)
    length, batch = query.shape[:2]
    embedding, value_embedding = q_weight.shape[1], v_weight.shape[1]
    q = F.affine(query, q_weight, q_bias, base_axis=2) * ((embedding // num_heads) ** -0.5)
    k = F.affine(key, k_weight, k_bias, base_axis=2)
    v = F.affine(value, v_weight, v_bias, base_axis=2)
    if (attn_bias_k is None) != (attn_bias_v is None):
        raise ShapeError("multi_head_attention: give both attn_bias_k and attn_bias_v, or neither")
    if attn_bias_k is not None and attn_bias_v is not None:
        k, v = _with_row(k, attn_bias_k), _with_row(v, attn_bias_v)
        if additive_mask is not None:
            additive_mask = F.pad(additive_mask, (0, 1))
        if key_padding_mask is not None:
            key_padding_mask = F.pad(key_padding_mask, (0, 1))
    q, k, v = (_heads(x, batch * num_heads) for x in (q, k, v))
    scores = F.batch_matmul(q, k, transpose_b=True)
    if additive_mask is not None:
        scores = scores + F.cast(additive_mask, scores.dtype)
    if key_padding_mask is not None:
        keys = scores.shape[-1]
        visible = F.reshape(F.equal(key_padding_mask, 0), (batch, 1, 1, keys))
        apart = F.reshape(scores, (batch, num_heads, length, keys))
        scores = F.reshape(_hide(apart, visible), scores.shape)
    weights = _weights(scores, dropout)
    means = F.transpose(F.batch_matmul(weights, v), (1, 0, 2))
    joined = F.reshape(means, (length, batch, value_embedding))
    return F.affine(joined, out_weight, out_bias, base_axis=2), weights


def _check_heads(
    query: Variable,
    key: Variable,
    value: Variable,
    num_heads: int,
    q_weight: Operand,
    k_weight: Operand,
    v_weight: Operand,
) -> None:
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim != 3:
            raise ShapeError(
                f"multi_head_attention: {name} has shape {x.shape}, not (length, batch, channels)"
            )
    if key.shape[:2] != value.shape[:2] or query.shape[1] != key.shape[1]:
        raise ShapeError(
            f"multi_head_attention: query {query.shape}, key {key.shape} and value {value.shape} "
            "must agree in batch, key and value in length"
        )
    if q_weight.shape[1] != k_weight.shape[1]:
        raise ShapeError(
            f"multi_head_attention: q_weight {q_weight.shape} and k_weight {k_weight.shape} must "
            "embed in the same number of channels"
        )
    for name, width in (("embedding", q_weight.shape[1]), ("value embedding", v_weight.shape[1])):
        if num_heads < 1 or width % num_heads:
            raise ShapeError(
                f"multi_head_attention: the {name} of {width} channels is not divisible by "
                f"{num_heads} heads"
            )


def _with_row(x: Variable, row: Operand) -> Variable:
    """Append a position that is the same throughout the batch."""
    repeated = F.broadcast_to(F.reshape(row, (1, 1, x.shape[2])), (1, *x.shape[1:]))
    return F.concatenate(x, repeated, axis=0)


def _heads(x: Variable, count: int) -> Variable:
    """Return ``(batch * heads, length, channels of a head)``."""
    channels = x.shape[1] * x.shape[2] // count if count else 0
    return F.transpose(F.reshape(x, (x.shape[0], count, channels)), (1, 0, 2))
