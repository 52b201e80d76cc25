"""Whole training steps: the losses and parameters that NumPy comes to, run for run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, F, S, Variable

Arrays = dict[str, np.ndarray]


def perceptron(x):
    h = F.dropout(F.relu(PF.affine(x, 16, name="a")), 0.2)
    return PF.affine(F.gelu(PF.affine(h, 12, name="b")), 5, name="c")


def convolutional(x):
    h = F.reshape(x, (-1, 2, 6, 6))
    h = PF.convolution(h, 6, (3, 3), pad=(1, 1), name="c1")
    h = F.relu(PF.batch_normalization(h, batch_stat=True, name="n1"))
    h = F.max_pooling(h, (2, 2))
    h = h + PF.convolution(h, 6, (3, 3), pad=(1, 1), group=3, with_bias=False, name="c2")
    h = F.leaky_relu(PF.deconvolution(h, 4, (2, 2), stride=(2, 2), name="d"))
    return PF.affine(F.average_pooling(h, (3, 3)), 5, name="out")


def attentive(x):
    h = F.reshape(x, (-1, 6, 12))
    q, k, v = (PF.affine(h, 8, base_axis=2, name=name) for name in "qkv")
    weights = F.softmax(F.batch_matmul(q, k, transpose_b=True) * 0.35)
    h = PF.layer_normalization(F.batch_matmul(weights, v) + q, batch_axis=(0, 1), name="n")
    return PF.affine(F.mean(F.swish(h), axis=1), 5, name="out")


def recurrent(x):
    steps = F.transpose(F.reshape(x, (-1, 6, 12)), (1, 0, 2))
    zeros = nnl.Variable.from_numpy_array(np.zeros((1, 1, x.shape[0], 7), np.float32))
    h, _, _ = PF.lstm(steps, zeros, zeros, name="r")
    return PF.affine(h[-1], 5, name="out")


MODELS: dict[str, Callable[[Variable], Variable]] = {
    "perceptron": perceptron,
    "convolutional": convolutional,
    "attentive": attentive,
    "recurrent": recurrent,
}


def trained(backend: str, model, make_solver, batch: int = 9, steps: int = 6) -> Arrays:
    """Return the losses and all parameters after some steps."""
    rng = np.random.default_rng(5)
    with nnl.backend_scope(backend), nnl.parameter_scope("", {}):
        nnl.seed(3)
        x = Variable.from_numpy_array(np.zeros((batch, 72), np.float32))
        y = Variable.from_numpy_array(np.zeros((batch, 1), np.int64))
        loss = F.mean(F.softmax_cross_entropy(model(x), y))
        solver = make_solver()
        solver.set_parameters(nnl.get_parameters())
        step = nnl.compile_step(loss, solver)
        losses = []
        for _ in range(steps):
            x.d = rng.normal(size=x.shape)
            y.d = rng.integers(0, 5, size=y.shape)
            step.run()
            losses.append(float(loss.d))
        values = {k: v.d.copy() for k, v in nnl.get_parameters(grad_only=False).items()}
    return {"losses": np.array(losses), **values}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_training_comes_to_what_numpy_comes_to(model):
    expected = trained("numpy", model, lambda: S.Momentum(0.05))
    found = trained("native", model, lambda: S.Momentum(0.05))
    assert expected["losses"][0] != expected["losses"][-1]
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("rule", ["Adam", "AdamW", "RMSprop", "Lars", "Nesterov", "AdaBelief"])
def test_every_kind_of_update_comes_to_what_numpy_comes_to(rule):
    make = getattr(S, rule)
    expected = trained("numpy", perceptron, make, steps=3)
    found = trained("native", perceptron, make, steps=3)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=2e-3, atol=2e-4, err_msg=name)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_seed_fixes_the_bits(model):
    first, second = (trained("native", model, S.Adam, steps=3) for _ in range(2))
    for name, values in first.items():
        np.testing.assert_array_equal(second[name], values, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_parameters_that_the_loss_does_not_depend_on_get_gradient_zero(dtype):
    used, unused = (
        Variable.from_numpy_array(np.full(3, number, dtype), need_grad=True) for number in (1, 2)
    )
    solver = S.Sgd(0.25)
    solver.set_parameters({"used": used, "unused": unused})
    nnl.compile_step(F.sum(used * used), solver).run()
    np.testing.assert_array_equal(unused.g, np.zeros(3))
    np.testing.assert_array_equal(used.g, np.full(3, 2))
    np.testing.assert_array_equal(used.d, np.full(3, 0.5))


@pytest.mark.parametrize("batch", [0, 1])
def test_batches_of_nothing_and_of_one_train(batch):
    found = trained("native", perceptron, S.Sgd, batch=batch, steps=1)
    expected = trained("numpy", perceptron, S.Sgd, batch=batch, steps=1)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-6, err_msg=name)
