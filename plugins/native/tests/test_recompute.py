"""Cheap values are computed again where that lowers the peak of memory, to the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nnl_core as nnl
from nnl_core import PF, F, S, Variable
from nnl_native import recompute


@pytest.fixture
def eager(monkeypatch):
    """Let every value be computed again that can be."""
    monkeypatch.setattr(recompute, "LEAST", 1)
    monkeypatch.setattr(recompute, "WORTH", 10**9)
    monkeypatch.setattr(recompute, "SHARE", 100)
    monkeypatch.setattr(recompute, "DEAREST", 10**6)


def residual(x):
    h = F.reshape(x, (-1, 2, 16, 16))
    h = PF.convolution(h, 8, (3, 3), pad=(1, 1), name="first")
    for block in range(3):
        with nnl.parameter_scope(f"block{block}"):
            inner = F.relu(PF.batch_normalization(h, batch_stat=True, name="n1"))
            inner = PF.convolution(inner, 8, (3, 3), pad=(1, 1), name="c1")
            inner = F.relu(PF.batch_normalization(inner, batch_stat=True, name="n2"))
            h = h + PF.convolution(inner, 8, (3, 3), pad=(1, 1), name="c2")
    return PF.affine(F.average_pooling(F.leaky_relu(h), (4, 4)), 3, name="out")


def attentive(x):
    h = F.reshape(x, (-1, 32, 16))
    for block in range(2):
        with nnl.parameter_scope(f"block{block}"):
            seen = PF.layer_normalization(h, batch_axis=(0, 1), name="n1")
            qkv = F.reshape(PF.affine(seen, 48, base_axis=2, name="qkv"), (-1, 32, 3, 16))
            q, k, v = F.split(qkv, axis=2)
            h = h + F.scaled_dot_product_attention(q, k, v, causal=True)
            seen = PF.layer_normalization(h, batch_axis=(0, 1), name="n2")
            h = h + PF.affine(F.gelu(PF.affine(seen, 64, base_axis=2, name="a")), 16, 2, name="b")
    return PF.affine(F.mean(h, axis=1), 3, name="out")


def step_of(model):
    """Return a compiled step on a batch of numbers, its loss, and its parameters."""
    rng = np.random.default_rng(7)
    x = Variable.from_numpy_array(rng.normal(size=(4, 512)).astype(np.float32))
    y = Variable.from_numpy_array(rng.integers(0, 3, size=(4, 1)))
    nnl.seed(1)
    with nnl.parameter_scope("", {}):
        loss = F.mean(F.softmax_cross_entropy(model(x), y))
        parameters = nnl.get_parameters(grad_only=False)
        solver = S.Momentum(0.05)
        solver.set_parameters(nnl.get_parameters())
    return nnl.compile_step(loss, solver), loss, parameters


def trained(model):
    step, loss, parameters = step_of(model)
    losses = []
    for _ in range(3):
        step.run()
        losses.append(loss.d.copy())
    return [*losses, *(value.d.copy() for value in parameters.values())]


@pytest.mark.parametrize("model", [residual, attentive])
def test_training_comes_to_the_same_bits(model, request):
    wanted = trained(model)
    nnl.graph.program.clear_cache()
    request.getfixturevalue("eager")
    for found, right in zip(trained(model), wanted, strict=True):
        np.testing.assert_array_equal(found, right)


def test_the_peak_of_a_training_step_is_lower(request):
    kept = step_of(residual)[0].memory.peak
    nnl.graph.program.clear_cache()
    request.getfixturevalue("eager")
    assert step_of(residual)[0].memory.peak < 0.8 * kept


def labels(step):
    return [row.operator for row in step.profile(1)]


def test_small_programs_keep_what_they_have_computed():
    nnl.graph.program.clear_cache()
    step, _, _ = step_of(residual)
    normalised = [label for label in labels(step) if label.startswith("normalize+relu")]
    assert len(normalised) == 6


def test_each_value_is_computed_again_at_most_once(eager):
    nnl.graph.program.clear_cache()
    step, _, _ = step_of(residual)
    normalised = [label for label in labels(step) if label.startswith("normalize+relu")]
    assert 6 < len(normalised) <= 12


def test_nothing_random_is_drawn_again(eager):
    nnl.graph.program.clear_cache()
    x = Variable.from_numpy_array(np.ones((64, 64), np.float32), need_grad=True)
    h = x
    for _ in range(4):
        h = F.tanh(F.matmul(F.dropout(h, 0.5), x))
    solver = S.Sgd(0.1)
    solver.set_parameters({"x": x})
    assert sum("rand" in label for label in labels(nnl.compile_step(F.sum(h), solver))) == 4


STEPS = ["tanh", "relu", "layer", "scale", "residual", "turn", "product"]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(STEPS), min_size=4, max_size=12))
def test_any_chain_trains_to_the_same_bits(steps):
    rng = np.random.default_rng(len(steps))
    weights = rng.normal(size=(16, 16)).astype(np.float32) * np.float32(0.3)

    def gradient():
        nnl.graph.program.clear_cache()
        x = Variable.from_numpy_array(np.linspace(-1, 1, 256, dtype=np.float32).reshape(16, 16))
        w = Variable.from_numpy_array(weights, need_grad=True)
        h = kept = F.matmul(x, w)
        for step in steps:
            if step in ("tanh", "relu"):
                h = getattr(F, step)(h)
            elif step == "layer":
                h = F.layer_normalization(h, None, None, batch_axis=0)
            elif step == "scale":
                h = h * 1.5 + 0.1
            elif step == "residual":
                h, kept = h + kept, h
            elif step == "turn":
                h = F.transpose(h, (1, 0))
            else:
                h = F.matmul(h, w)
        solver = S.Sgd(0.1)
        solver.set_parameters({"w": w})
        nnl.compile_step(F.mean(h * h), solver).run()
        return w.g.copy()

    wanted = gradient()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recompute, "LEAST", 1)
        patch.setattr(recompute, "SHARE", 100)
        patch.setattr(recompute, "DEAREST", 10**6)
        np.testing.assert_array_equal(gradient(), wanted)
