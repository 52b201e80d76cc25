"""Graphs that nobody draws in a paper, and changes in the middle of training."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.errors import SolverError


def leaf(values, dtype=np.float64, need_grad=True):
    return Variable.from_numpy_array(np.array(values, dtype), need_grad=need_grad)


def parameter(values, dtype=np.float32):
    made = nnl.Parameter(np.shape(values), dtype=dtype)
    made.d = values
    return made


def trained(loss, rate=0.5, outputs=(), solver=None, **parameters):
    """Return a compiled step of gradient descent."""
    solver = solver or nnl.S.Sgd(rate)
    solver.set_parameters(parameters)
    return nnl.compile_step(loss, solver, outputs=outputs)


# Forms --------------------------------------------------------------------------------------------


def test_a_leaf_is_a_graph_of_its_own():
    x = leaf([1.0, 2.0])
    x.forward()
    x.backward()
    np.testing.assert_array_equal(x.g, [1, 1])
    x.backward(3)
    np.testing.assert_array_equal(x.g, [3, 3])  # a root's gradient is what it is given
    np.testing.assert_array_equal(nnl.grad(x, x)[0].d, [1, 1])
    np.testing.assert_array_equal(nnl.grad([x, x], x)[0].d, [2, 2])


def test_a_parameter_may_be_the_loss_and_an_output_twice():
    w = parameter([1.0, 2.0])
    trained(w, outputs=[w, w], w=w).run()
    np.testing.assert_array_equal([w.d, w.g], [[0.5, 1.5], [1, 1]])


def test_an_output_may_be_its_own_gradient():
    x = leaf([1.0, 2.0])
    y = x * x
    y.forward()
    y.backward(y)
    np.testing.assert_array_equal([x.g, y.g], [2 * x.d**3, x.d**2])


def test_outputs_and_inputs_of_a_gradient_may_be_named_twice():
    x = leaf([1.0, 2.0])
    y = x * x
    for gradient in nnl.grad([y, y], [x, x]):
        np.testing.assert_array_equal(gradient.d, 4 * x.d)


def test_gradients_reach_intermediates_and_the_output_itself():
    x = leaf([1.0, 2.0])
    hidden = x * 2
    y = F.sum(hidden * hidden + x)
    for gradient, expected in zip(nnl.grad(y, [hidden, x, y]), ([4, 8], [9, 17], 1), strict=True):
        np.testing.assert_array_equal(gradient.d, expected)


def test_one_output_of_several_may_be_used_or_all_or_one_twice():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    first, second = F.split(x, axis=0)
    for y, expected in [
        (F.sum(first * first), [[2, 4], [0, 0]]),
        (F.sum(first * second * second), [[9, 16], [6, 16]]),
    ]:
        x.g = 0
        y.forward()
        y.backward()
        np.testing.assert_array_equal(x.g, expected)


def test_thousands_of_inputs_of_one_node():
    xs = [leaf([float(n)]) for n in range(2000)]
    y = F.concatenate(*xs, axis=0)
    z = F.sum(y * y)
    z.forward()
    z.backward()
    assert z.d == sum(n * n for n in range(2000))
    assert xs[7].g == 14


def test_thousands_of_parameters():
    parameters = {f"p{n}": parameter([float(n), 1.0]) for n in range(1000)}
    loss = F.sum(F.add_n(*[p * p for p in parameters.values()]))
    trained(loss, 0.25, **parameters).run()
    for n, p in enumerate(parameters.values()):
        np.testing.assert_array_equal(p.d, [0.5 * n, 0.5])


def test_no_gradient_flows_through_a_part_without_gradients_that_is_recomputed():
    x = leaf([2.0])
    with nnl.recompute():
        square = x * x
        with nnl.no_grad():
            factor = square * 3
        product = square * factor
    y = F.sum(product * product)
    y.forward(clear_no_need_grad=True)
    y.backward(clear_buffer=True)
    np.testing.assert_array_equal([y.d, x.g[0]], [48**2, 2 * 48 * 12 * 4])


def test_static_and_dynamic_parts_may_nest():
    x = leaf([2.0])
    with nnl.auto_forward():
        y = x * x
        with nnl.auto_forward(False):
            z = y * 3
            assert not z.data.has_value
            with nnl.auto_forward():
                w = z * 2
        assert w.data.has_value and z.data.has_value
        w.backward()
    np.testing.assert_array_equal([w.d, x.g], [[24], [24]])


# Changes while training ---------------------------------------------------------------------------


def test_parameters_are_frozen_and_thawed_between_steps():
    w, v = parameter([1.0]), parameter([4.0])
    step = trained(F.sum(w * w + v * v), 0.25, w=w, v=v)
    step.run()
    v.need_grad = False
    step.run()
    np.testing.assert_array_equal([w.d, v.d], [[0.25], [2]])
    v.need_grad, w.need_grad = True, False
    step.run()
    np.testing.assert_array_equal([w.d, v.d], [[0.25], [1]])
    v.need_grad = False
    with pytest.raises(SolverError, match="parameters needs a gradient"):
        step.run()


def test_the_batch_may_change_its_size_between_steps():
    w = parameter([1.0, 2.0])
    x = Variable((3, 2))
    x.d = 1
    loss = F.mean(x * w)
    step = trained(loss, 1.0, w=w)
    step.run()
    np.testing.assert_array_equal([w.d, loss.d.repeat(2)], [[0.5, 1.5], [1.5, 1.5]])
    x.reset_shape((5, 2), force=True)
    x.d = 2
    step.run()
    np.testing.assert_array_equal([w.d, loss.d.repeat(2)], [[-0.5, 0.5], [2, 2]])


def test_a_graph_may_be_rewired_between_steps():
    w, v = parameter([1.0]), parameter([2.0])
    hidden = w * 2
    loss = F.sum(hidden * hidden)
    step = trained(loss, 0.125, w=w, v=v)
    step.run()
    np.testing.assert_array_equal([w.d, v.d], [[0], [2]])
    hidden.rewire_on(v * 3)
    step.run()
    np.testing.assert_array_equal([w.d, v.d, loss.d[None]], [[0], [2 - 36 / 8], [36]])


def test_a_parameter_may_get_another_storage_between_steps():
    w = parameter([1.0])
    loss = F.sum(w * w)
    step = trained(loss, w=w)
    step.run()
    w.data = nnl.NdArray.from_numpy_array(np.float32([3]))
    step.run()
    np.testing.assert_array_equal([w.d, w.g, loss.d[None]], [[0], [6], [9]])


def test_parameters_that_the_loss_does_not_depend_on_get_gradient_zero_in_their_dtype():
    w, v, u = (
        parameter([1.0], np.float64),
        parameter([2.0], np.float64),
        parameter([3.0], np.float16),
    )
    trained(F.sum(w * w), 0.25, w=w, v=v, u=u).run()
    assert (w.d, v.d, u.d) == (0.5, 2, 3)
    assert (v.g, u.g) == (0, 0) and u.dtype == np.float16


def test_gradients_that_are_nan_reach_the_parameter_and_are_found():
    w = parameter([1.0, np.nan])
    solver = nnl.S.Adam(0.1)
    step = trained(F.sum(w * w), solver=solver, w=w)
    step.run()
    np.testing.assert_array_equal(np.isnan(w.d), [False, True])
    assert solver.check_inf_or_nan_grad()


@pytest.mark.parametrize("scope", [contextlib.nullcontext, nnl.recompute], ids=["kept", "again"])
def test_two_solvers_with_a_parameter_in_common_train_as_they_do_uncompiled(scope):
    """As generator and discriminator do, each on a loss of its own."""

    def train(compiled):
        rng = np.random.default_rng(0)
        noise, real = (leaf(rng.normal(size=(8, n)), np.float32, False) for n in (3, 2))
        g, d, shared = (parameter(rng.normal(size=s)) for s in ((3, 2), (2, 4), (4,)))

        def judge(x):
            return F.mean(F.softplus(F.matmul(F.tanh(F.matmul(x, d)), shared)))

        with scope():
            made = F.tanh(F.matmul(noise, g))
            losses = judge(made) - judge(real), -judge(made)
        solvers = nnl.S.Adam(0.01), nnl.S.Momentum(0.01)
        owned = {"d": d, "shared": shared}, {"g": g, "shared": shared}
        steps = []
        for loss, solver, parameters in zip(losses, solvers, owned, strict=True):
            solver.set_parameters(parameters)
            steps.append(nnl.compile_step(loss, solver))
        for _ in range(4):
            noise.d = rng.normal(size=(8, 3))
            for loss, solver, step in zip(losses, solvers, steps, strict=True):
                if compiled:
                    step.run()
                    continue
                loss.forward(clear_no_need_grad=True)
                solver.zero_grad()
                loss.backward(clear_buffer=True)
                solver.update()
        return [p.d.copy() for p in (g, d, shared)]

    for one, two in zip(train(False), train(True), strict=True):
        np.testing.assert_array_equal(one, two)


# Dtypes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_network_trains_in_its_dtype_from_end_to_end(dtype):
    rng = np.random.default_rng(0)
    shapes = {"w": (5, 3, 3, 3), "b": (5,), "gain": (1, 5, 1, 1), "shift": (1, 5, 1, 1)}
    shapes |= {"out": (5, 4), "bias": (4,)}
    p = {name: parameter(rng.normal(size=shape) * 0.3, dtype) for name, shape in shapes.items()}
    mean, variance = (leaf(np.full((1, 5, 1, 1), v), dtype, False) for v in (0, 1))
    x = leaf(rng.normal(size=(4, 3, 6, 6)), dtype, need_grad=False)
    h = F.convolution(x, p["w"], p["b"], pad=(1, 1))
    h = F.relu(F.batch_normalization(h, p["shift"], p["gain"], mean, variance))
    h = F.average_pooling(F.gelu(F.max_pooling(h, (2, 2))), (3, 3))
    h = F.affine(F.reshape(h, (4, -1)), p["out"], p["bias"])
    loss = F.mean(F.softmax_cross_entropy(h, np.arange(4)[:, None]))
    step = trained(loss, solver=nnl.S.Adam(0.05), **p)
    losses = []
    for _ in range(20):
        step.run()
        losses.append(float(loss))
    everything = [h, loss, mean, variance, *p.values(), *(v.grad for v in p.values())]
    assert {thing.dtype for thing in everything} == {np.dtype(dtype)}
    assert losses[-1] < 0.5 * losses[0] and np.isfinite(losses).all()
