"""Scopes: dynamic execution, no gradient, recomputation."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.errors import ClearedError


def leaf(values):
    return Variable.from_numpy_array(np.array(values, np.float64), need_grad=True)


def network(x, w):
    h = x
    for _ in range(4):
        h = F.tanh(F.affine(h, w))
    return F.sum(h * h)


@pytest.fixture
def inputs():
    rng = np.random.default_rng(5)
    return leaf(rng.normal(size=(6, 4))), leaf(rng.normal(size=(4, 4)))


def test_recomputed_gradients_are_the_same_bits(inputs):
    x, w = inputs
    plain = network(x, w)
    plain.forward()
    plain.backward()
    expected = w.g.copy()
    w.grad.zero()
    with nnl.recompute():
        saved_little = network(x, w)
    saved_little.forward(clear_no_need_grad=True)
    saved_little.backward(clear_buffer=True)
    np.testing.assert_array_equal(w.g, expected)


def test_recomputation_releases_what_it_will_compute_again(inputs):
    x, w = inputs
    with nnl.recompute():
        h = F.affine(x, w)
        t = F.tanh(h)
    y = F.sum(t)
    y.forward(clear_no_need_grad=True)
    with pytest.raises(ClearedError):
        _ = t.d
    y.backward()
    np.testing.assert_allclose(w.g, x.d.T @ (1 - np.tanh(x.d @ w.d) ** 2))


def test_recomputation_repeats_a_dropout_mask():
    x = leaf(np.ones(1000))
    with nnl.recompute():
        h = F.dropout(x * 1.0, p=0.5)
    y = F.sum(h * h)
    y.forward()
    kept = y.d.item()
    y.backward()
    np.testing.assert_allclose(x.g.sum(), 2 * kept)


def test_recomputation_does_not_repeat_side_effects():
    x = leaf(np.arange(6.0).reshape(3, 2))
    mean, var = Variable((1, 2), dtype="float64"), Variable((1, 2), dtype="float64")
    one = leaf(np.ones((1, 2)))
    with nnl.recompute():
        h = F.batch_normalization(x, one, one, mean, var, axes=(1,), decay_rate=0.5)
    y = F.sum(h * h)
    y.forward()
    after_forward = mean.d.copy()
    y.backward()
    np.testing.assert_array_equal(mean.d, after_forward)
    np.testing.assert_allclose(after_forward, 0.5 * x.d.mean(axis=0, keepdims=True))


def test_recomputation_in_a_training_step_gives_the_same_parameters():
    def train(scope):
        nnl.clear_parameters()
        nnl.seed(3)
        x = leaf(np.random.default_rng(0).normal(size=(8, 4)))
        with scope():
            h = F.tanh(nnl.PF.affine(x, 16, name="a"))
        loss = F.mean(nnl.PF.affine(h, 1, name="b") ** 2)
        solver = nnl.S.Sgd(0.1)
        solver.set_parameters(nnl.get_parameters())
        step = nnl.compile_step(loss, solver)
        for _ in range(3):
            step.run()
        return {name: p.d.copy() for name, p in nnl.get_parameters().items()}

    import contextlib

    plain, recomputed = train(contextlib.nullcontext), train(nnl.recompute)
    for name, value in plain.items():
        np.testing.assert_array_equal(value, recomputed[name])


def test_scopes_are_left_on_errors():
    with pytest.raises(ZeroDivisionError), nnl.auto_forward(), nnl.no_grad():
        raise ZeroDivisionError
    x = leaf([1.0])
    y = x * 2
    assert not y.data.has_value and y.need_grad


def test_scopes_belong_to_their_thread():
    seen = []

    def work():
        seen.append((leaf([1.0]) * 2).data.has_value)

    with nnl.auto_forward():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert seen == [False]


def test_auto_forward_may_be_switched_off_inside():
    with nnl.auto_forward(), nnl.auto_forward(False):
        assert not (leaf([1.0]) * 2).data.has_value
