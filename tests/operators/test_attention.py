"""Attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.modes import auto_forward
from nnl_core.graph.variable import Variable


def leaf(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Variable:
    """Return random numbers, the gradient wanted."""
    values = np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)
    return Variable.from_numpy_array(values, need_grad=True)


def attend(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, scores: np.ndarray | float = 0.0
) -> np.ndarray:
    """Sum over the keys one by one, with ``scores`` added."""
    total = query @ np.swapaxes(key, -1, -2) / np.sqrt(query.shape[-1]) + scores
    weights = np.exp(total)
    norms = weights.sum(-1, keepdims=True)
    parts = (weights[..., n : n + 1] * value[..., n : n + 1, :] for n in range(key.shape[-2]))
    return np.asarray(sum(parts) / np.where(norms == 0, 1, norms))


@pytest.mark.parametrize("leading", [(), (2,), (2, 3)])
def test_values_are_averaged_by_the_softmax_of_the_scores(leading: tuple[int, ...]) -> None:
    q, k, v = leaf(*leading, 4, 5), leaf(*leading, 6, 5), leaf(*leading, 6, 7)
    y = F.scaled_dot_product_attention(q, k, v)
    np.testing.assert_allclose(y.d, attend(q.d, k.d, v.d))


def test_equal_keys_give_the_mean_of_the_values() -> None:
    v = leaf(3, 2)
    y = F.scaled_dot_product_attention(leaf(4, 5), np.ones((3, 5)), v)
    np.testing.assert_allclose(y.d, np.tile(v.d.mean(0), (4, 1)))


def test_leading_axes_broadcast() -> None:
    q, k, v = leaf(2, 1, 4, 5), leaf(3, 6, 5), leaf(3, 6, 2)
    np.testing.assert_allclose(F.scaled_dot_product_attention(q, k, v).d, attend(q.d, k.d, v.d))


def test_the_scale_may_be_given() -> None:
    q, k, v = leaf(4, 5), leaf(6, 5), leaf(6, 2)
    y = F.scaled_dot_product_attention(q, k, v, scale=0.3)
    np.testing.assert_allclose(y.d, attend(q.d * 0.3 * np.sqrt(5), k.d, v.d))


@pytest.mark.parametrize("dtype", [bool, np.int64])
def test_a_mask_says_which_keys_a_query_sees(dtype: Any) -> None:
    q, k, v = leaf(2, 3, 5), leaf(2, 4, 5), leaf(2, 4, 2)
    mask = np.array([[1, 0, 1, 1], [0, 0, 0, 1], [1, 1, 1, 1]], dtype)
    y = F.scaled_dot_product_attention(q, k, v, mask)
    hidden = np.where(mask.astype(bool), 0, -np.inf)
    np.testing.assert_allclose(y.d, attend(q.d, k.d, v.d, hidden))


def test_a_square_mask_is_for_queries_and_keys_whatever_the_leading_axes_are() -> None:
    q, k, v = leaf(2, 2, 2, 2, 5), leaf(2, 2, 2, 2, 5, seed=1), leaf(2, 2, 2, 2, 5, seed=2)
    mask = np.array([[True, False], [True, True]])
    y = F.scaled_dot_product_attention(q, k, v, mask)
    np.testing.assert_allclose(y.d, attend(q.d, k.d, v.d, np.where(mask, 0, -np.inf)))


def test_a_floating_mask_is_added_to_the_scores() -> None:
    q, k, v, mask = leaf(2, 3, 5), leaf(2, 4, 5), leaf(2, 4, 2), leaf(3, 4)
    y = F.scaled_dot_product_attention(q, k, v, mask)
    np.testing.assert_allclose(y.d, attend(q.d, k.d, v.d, mask.d))


def test_a_causal_query_sees_nothing_later() -> None:
    q, k, v = leaf(4, 5), leaf(4, 5, seed=1), leaf(4, 2)
    y = F.scaled_dot_product_attention(q, k, v, causal=True)
    for n in range(4):
        expected = attend(q.d[n : n + 1], k.d[: n + 1], v.d[: n + 1])
        np.testing.assert_allclose(y.d[n : n + 1], expected)


def test_a_causal_mask_and_a_given_one_both_hold() -> None:
    q, k, v = leaf(2, 5), leaf(2, 5, seed=1), leaf(2, 3)
    mask = np.array([[True, True], [False, True]])
    y = F.scaled_dot_product_attention(q, k, v, mask, causal=True)
    np.testing.assert_allclose(y.d, v.d)


@pytest.mark.parametrize("additive", [False, True])
def test_a_query_that_sees_nothing_gives_zero_and_gradient_zero(additive: bool) -> None:
    q, k, v = leaf(2, 3, 5), leaf(2, 4, 5), leaf(2, 4, 2)
    mask = np.ones((3, 4), bool)
    mask[1] = False
    given = np.where(mask, 0, -np.inf) if additive else mask
    y = F.scaled_dot_product_attention(q, k, v, given)
    y.forward()
    y.backward(np.random.default_rng(0).normal(size=y.shape))
    np.testing.assert_array_equal(y.d[:, 1], 0)
    np.testing.assert_array_equal(q.g[:, 1], 0)
    for x in (q, k, v):
        assert np.isfinite(x.g).all()
        assert x.g.any()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_gradient_agrees_with_differences(place: int) -> None:
    inputs = [leaf(2, 3, 5), leaf(2, 4, 5), leaf(2, 4, 2)]
    mask = np.tri(3, 4, 1)
    g = np.random.default_rng(0).normal(size=(2, 3, 2))
    y = F.scaled_dot_product_attention(*inputs, mask.astype(bool))
    y.forward()
    y.backward(g)
    direction = np.random.default_rng(1).normal(size=inputs[place].shape)

    def along(step: float) -> float:
        moved = [np.array(x.d) for x in inputs]
        moved[place] += step * direction
        return float((g * attend(*moved, np.where(mask, 0, -np.inf))).sum())

    numeric = (along(1e-5) - along(-1e-5)) / 2e-5
    np.testing.assert_allclose((inputs[place].g * direction).sum(), numeric, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_scores_of_a_thousand_pick_one_value(dtype: Any) -> None:
    q = Variable.from_numpy_array(np.array([[1000, 0]], dtype))
    k = np.array([[1, 0], [0, 1], [-1, 0]], dtype)
    v = np.array([[1], [2], [3]], dtype)
    y = F.scaled_dot_product_attention(q, k, v, scale=1.0)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y.d, [[1]])


def test_no_keys_give_zero() -> None:
    y = F.scaled_dot_product_attention(leaf(3, 5), leaf(0, 5), leaf(0, 2))
    np.testing.assert_array_equal(y.d, np.zeros((3, 2)))


def test_dropout_drops_weights_and_keeps_their_mean() -> None:
    # All weights are 1 / 1000 and all values 1: what remains of 1 is twice the share that stays.
    k, v = np.zeros((1000, 1)), np.ones((1000, 1))
    y = F.scaled_dot_product_attention(leaf(50, 1), k, v, dropout_p=0.5)
    kept = y.d[:, 0] / 2
    assert len(set(kept.round(9))) > 1
    np.testing.assert_allclose(kept.mean(), 0.5, atol=0.02)


@pytest.mark.parametrize(
    ("shapes", "sentence"),
    [
        (((4, 5), (6, 4), (6, 2)), "query and key have different channels"),
        (((4, 5), (6, 5), (3, 2)), r"different lengths: query \(4, 5\), key \(6, 5\), value \(3"),
        (((5,), (6, 5), (6, 2)), r"need \(..., length, channels\)"),
    ],
)
def test_shapes_that_do_not_fit_are_named(shapes: Any, sentence: str) -> None:
    with pytest.raises(ShapeError, match=sentence):
        F.scaled_dot_product_attention(*(leaf(*shape) for shape in shapes))


# Several heads -----------------------------------------------------------------------------------

LENGTH, KEYS, BATCH, HEADS = 4, 5, 3, 2


def heads_inputs() -> dict[str, Variable]:
    return {
        "query": leaf(LENGTH, BATCH, 6),
        "key": leaf(KEYS, BATCH, 3),
        "value": leaf(KEYS, BATCH, 7),
        "q_weight": leaf(6, 8),
        "k_weight": leaf(3, 8),
        "v_weight": leaf(7, 4),
        "out_weight": leaf(4, 9),
    }


def biases() -> dict[str, Variable]:
    lengths = {"q_bias": 8, "k_bias": 8, "v_bias": 4, "out_bias": 9}
    return {name: leaf(length, seed=n) for n, (name, length) in enumerate(lengths.items())}


def by_hand(inputs: dict[str, Variable], scores: np.ndarray | None = None) -> np.ndarray:
    """Attend head by head and sample by sample; ``scores`` are ``(batch, queries, keys)``."""
    x = {name: variable.d for name, variable in inputs.items()}
    q = x["query"] @ x["q_weight"] + x.get("q_bias", 0)
    k = x["key"] @ x["k_weight"] + x.get("k_bias", 0)
    v = x["value"] @ x["v_weight"] + x.get("v_bias", 0)
    if "attn_bias_k" in x:
        k = np.concatenate((k, np.broadcast_to(x["attn_bias_k"], (1, *k.shape[1:]))))
        v = np.concatenate((v, np.broadcast_to(x["attn_bias_v"], (1, *v.shape[1:]))))
    if scores is None:
        scores = np.zeros((BATCH, LENGTH, len(k)))
    samples = []
    for n in range(BATCH):
        parts = [
            attend(
                *(y[:, n, h * y.shape[2] // HEADS :][:, : y.shape[2] // HEADS] for y in (q, k, v)),
                scores[n],
            )
            for h in range(HEADS)
        ]
        samples.append(np.concatenate(parts, axis=1))
    return np.asarray(np.stack(samples, 1) @ x["out_weight"] + x.get("out_bias", 0))


def test_heads_attend_apart_and_are_joined() -> None:
    inputs = heads_inputs() | biases()
    y, weights = F.multi_head_attention(num_heads=HEADS, **inputs)
    np.testing.assert_allclose(y.d, by_hand(inputs))
    assert weights.shape == (BATCH * HEADS, LENGTH, KEYS)
    np.testing.assert_allclose(weights.d.sum(-1), 1)


def test_biases_may_be_left_out() -> None:
    inputs = heads_inputs()
    y, _ = F.multi_head_attention(num_heads=HEADS, **inputs)
    np.testing.assert_allclose(y.d, by_hand(inputs))


def test_masks_hide_keys_from_queries_and_from_samples() -> None:
    inputs = heads_inputs()
    additive = np.random.default_rng(0).normal(size=(LENGTH, KEYS))
    padding = np.zeros((BATCH, KEYS))
    padding[0, 3:] = padding[2, 1] = 1
    y, weights = F.multi_head_attention(
        num_heads=HEADS, additive_mask=additive, key_padding_mask=padding, **inputs
    )
    scores = additive + np.where(padding, -np.inf, 0)[:, None]
    np.testing.assert_allclose(y.d, by_hand(inputs, scores))
    np.testing.assert_array_equal(weights.d[:HEADS, :, 3:], 0)


def test_one_more_key_and_value_is_never_masked() -> None:
    inputs = heads_inputs() | {"attn_bias_k": leaf(1, 1, 8), "attn_bias_v": leaf(1, 1, 4)}
    padding = np.ones((BATCH, KEYS))
    padding[:, 0] = 0
    y, weights = F.multi_head_attention(
        num_heads=HEADS,
        additive_mask=np.zeros((LENGTH, KEYS)),
        key_padding_mask=padding,
        **inputs,
    )
    hidden = np.where(np.pad(padding, ((0, 0), (0, 1))), -np.inf, 0)
    scores = np.broadcast_to(hidden[:, None], (BATCH, LENGTH, KEYS + 1))
    np.testing.assert_allclose(y.d, by_hand(inputs, scores))
    assert (weights.d[..., -1] > 0).all()


def test_a_sample_of_padding_alone_gives_the_bias_and_finite_gradients() -> None:
    inputs = heads_inputs() | biases()
    padding = np.zeros((BATCH, KEYS))
    padding[1] = 1
    y, _ = F.multi_head_attention(num_heads=HEADS, key_padding_mask=padding, **inputs)
    y.forward()
    y.backward()
    np.testing.assert_allclose(y.d[:, 1], np.tile(inputs["out_bias"].d, (LENGTH, 1)))
    assert all(np.isfinite(x.g).all() for x in inputs.values())


def test_every_input_gets_a_gradient() -> None:
    inputs = heads_inputs() | biases()
    inputs |= {"attn_bias_k": leaf(8), "attn_bias_v": leaf(4)}
    y, _ = F.multi_head_attention(num_heads=HEADS, **inputs)
    y.forward()
    y.backward(np.random.default_rng(0).normal(size=y.shape))
    assert [name for name, x in inputs.items() if not x.g.any()] == []


def test_static_and_dynamic_graphs_agree() -> None:
    inputs = heads_inputs()
    static, _ = F.multi_head_attention(num_heads=HEADS, **inputs)
    with auto_forward():
        dynamic, _ = F.multi_head_attention(num_heads=HEADS, **inputs)
    np.testing.assert_array_equal(static.d, dynamic.d)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_heads": 3}, "embedding of 8 channels is not divisible by 3 heads"),
        ({"query": leaf(LENGTH, 6)}, r"query has shape \(4, 6\), not \(length, batch, channels\)"),
        ({"value": leaf(KEYS + 1, BATCH, 7)}, "key and value in length"),
        ({"k_weight": leaf(3, 6)}, r"q_weight \(6, 8\) and k_weight \(3, 6\)"),
        ({"attn_bias_k": leaf(8)}, "both attn_bias_k and attn_bias_v, or neither"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ShapeError, match=sentence):
        F.multi_head_attention(**({"num_heads": HEADS, **heads_inputs()} | changes))
