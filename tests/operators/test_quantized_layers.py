"""Layers with binary weights, and with weights that are fixed to powers of two in steps."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.modes import auto_forward
from nnl_core.graph.variable import Variable


def leaf(values, need_grad=True, dtype=np.float64):
    return Variable.from_numpy_array(np.asarray(values, dtype), need_grad=need_grad)


def zeros(*shape, dtype=np.float64):
    return Variable.from_numpy_array(np.zeros(shape, dtype))


X = np.array([[1.0, 10.0], [2.0, -3.0]])
W = np.array([[3.0, -0.5], [-1.0, 0.0]])


# Two values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_binary_layer_uses_and_stores_the_signs_of_its_weight(dynamic):
    kept = zeros(2, 2)
    with auto_forward(dynamic):
        y = F.binary_connect_affine(X, W, kept, np.array([0.5, 0.0]))
        y.forward()
    assert y.d.tolist() == (X @ [[1, -1], [-1, 1]] + [0.5, 0.0]).tolist()
    assert kept.d.tolist() == [[1.0, -1.0], [-1.0, 1.0]]


@pytest.mark.parametrize("zero", [-1.0, 0.0, 0.5])
def test_the_sign_of_zero_is_given(zero):
    kept, alpha = zeros(2, 2), zeros(2)
    F.binary_connect_affine(X, W, kept, quantize_zero_to=zero).forward()
    assert kept.d[1, 1] == zero
    F.binary_weight_affine(X, W, kept, alpha, quantize_zero_to=zero).forward()
    assert kept.d[1, 1] == zero


def test_the_gradient_of_the_signs_goes_straight_to_the_weight():
    w = leaf(W)
    y = F.binary_connect_affine(X, w, zeros(2, 2))
    y.forward()
    w.grad.zero()
    y.backward(np.ones((2, 2)))
    assert w.g.tolist() == (X.T @ np.ones((2, 2))).tolist()


def test_scaled_signs_have_the_mean_size_of_each_output():
    kept, alpha = zeros(2, 2), zeros(2)
    y = F.binary_weight_affine(X, W, kept, alpha)
    assert y.d.tolist() == (X @ ([[1, -1], [-1, 1]] * np.array([2.0, 0.25]))).tolist()
    assert (kept.d.tolist(), alpha.d.tolist()) == ([[1.0, -1.0], [-1.0, 1.0]], [2.0, 0.25])


def test_the_gradient_of_scaled_signs_goes_straight_to_the_weight():
    w = leaf(W)
    y = F.binary_weight_affine(X, w, zeros(2, 2), zeros(2))
    y.forward()
    w.grad.zero()
    y.backward(np.ones((2, 2)))
    assert w.g.tolist() == (X.T @ np.ones((2, 2))).tolist()


def test_scales_are_stored_in_any_shape_and_dtype():
    w = np.arange(-6.0, 6.0).reshape(2, 3, 2)
    alpha = Variable((6,), dtype=np.float32)
    y = F.binary_weight_affine(X, w, zeros(2, 3, 2), alpha)
    assert y.d.shape == (2, 3, 2)
    assert alpha.d.tolist() == np.abs(w).mean(0).reshape(-1).tolist()


def test_binary_convolutions_convolve_with_the_signs():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 4, 7, 6)), rng.normal(size=(6, 2, 3, 2))
    options = {"pad": (1, 0), "stride": (2, 1), "dilation": (1, 2), "group": 2}
    kept, alpha = zeros(*w.shape), zeros(6)
    y = F.binary_connect_convolution(x, w, kept, **options)
    np.testing.assert_allclose(y.d, F.convolution(x, np.sign(w), **options).d)
    scales = np.abs(w).mean((1, 2, 3))
    y = F.binary_weight_convolution(x, w, kept, alpha, **options)
    scaled = np.sign(w) * scales[:, None, None, None]
    np.testing.assert_allclose(y.d, F.convolution(x, scaled, **options).d)
    np.testing.assert_allclose(alpha.d, scales)
    assert (kept.d == np.sign(w)).all()


def test_an_empty_batch_goes_through():
    y = F.binary_weight_affine(np.zeros((0, 2)), W, zeros(2, 2), zeros(2))
    assert y.d.shape == (0, 2)


def test_places_that_do_not_fit_are_named():
    with pytest.raises(ShapeError, match=r"binary_weight has shape \(2, 3\) and weight \(2, 2\)"):
        F.binary_connect_affine(X, W, zeros(2, 3))
    with pytest.raises(ShapeError, match=r"alpha has shape \(3,\)"):
        F.binary_weight_affine(X, W, zeros(2, 2), zeros(3))
    with pytest.raises(OperatorError, match=r"binary_weight is computed by"):
        F.binary_connect_affine(X, W, zeros(2, 2) + 1)


# Powers of two, more and more of them ------------------------------------------------------------

ONES = np.ones((1, 2))


def fixed(w, **options):
    """The weight after one run that fixes all."""
    weight = leaf(w)
    marks = zeros(*weight.shape)
    y = F.inq_affine(np.ones((1, len(w))), weight, marks, inq_iterations=(0,), **options)
    y.forward()
    return weight.d.tolist()


def test_fixed_weights_are_powers_of_two_near_the_largest():
    # 1.4 is nearest to 1, so with 4 bits the powers are 1, 1/2, 1/4, 1/8, or 0 below 1/16.
    w = [[1.4, -0.75], [0.74, 0.3], [0.07, -0.05]]
    assert fixed(w) == [[1.0, -1.0], [0.5, 0.25], [0.125, 0.0]]


@pytest.mark.parametrize(("num_bits", "least"), [(2, 1.0), (3, 0.5), (4, 0.125), (5, 2.0**-7)])
def test_bits_count_the_powers_of_two(num_bits, least):
    assert fixed([[1.0], [0.51 * least], [0.49 * least]], num_bits=num_bits) == [
        [1.0], [least], [0.0],
    ]  # fmt: skip


def test_the_middle_between_powers_of_two_is_rounded_up():
    assert fixed([[1.5], [0.75], [-0.375]]) == [[2.0], [1.0], [-0.5]]


def test_weights_that_are_all_zero_stay_so():
    assert fixed([[0.0], [0.0]]) == [[0.0], [0.0]]


def test_half_of_the_free_weights_are_fixed_at_each_iteration():
    w = leaf([[1.4, -0.75, 0.3], [0.1, -0.02, 0.6]])
    marks = zeros(2, 3)
    y = F.inq_affine(ONES, w, marks, inq_iterations=(1, 3, 4))
    counts = []
    for _ in range(6):
        y.forward()
        counts.append(marks.d.sum())
    assert counts == [0, 3, 3, 4, 6, 6]  # of 3, half rounded down is 1


def test_the_largest_weights_are_fixed_first():
    w = leaf([[1.4, -0.75, 0.3], [0.1, -0.02, 0.6]])
    marks = zeros(2, 3)
    F.inq_affine(ONES, w, marks, inq_iterations=(0, 9)).forward()
    assert marks.d.tolist() == [[1, 1, 0], [0, 0, 1]]
    assert w.d.tolist() == [[1.0, -1.0, 0.3], [0.1, -0.02, 0.5]]


def test_a_fixed_weight_comes_back_whatever_is_written_to_it():
    w = leaf([[1.0], [0.3]])
    y = F.inq_affine(ONES, w, zeros(2, 1), inq_iterations=(0, 9))
    y.forward()
    w.d = [[7.0], [0.4]]
    y.forward()
    assert w.d.tolist() == [[1.0], [0.4]]
    assert y.d.tolist() == [[1.4]]


def test_weights_that_are_marked_at_first_are_fixed():
    w = leaf([[0.9], [0.3]])
    marks = Variable.from_numpy_array(np.array([[0], [1]]))
    F.inq_affine(ONES, w, marks).forward()
    assert w.d.tolist() == [[0.9], [0.25]]
    assert (marks.dtype, marks.d.tolist()) == (np.int64, [[0], [1]])


def test_a_random_choice_follows_its_seed():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, 200))

    def chosen(seed):
        marks = zeros(2, 200)
        options = {"selection_algorithm": "random", "seed": seed}
        F.inq_affine(ONES, leaf(values), marks, inq_iterations=(0, 9), **options).forward()
        return marks.d

    assert (chosen(3) == chosen(3)).all()
    assert (chosen(3) != chosen(4)).any()
    assert 140 < chosen(3).sum() < 260  # of 400 fair draws, six deviations around 200


def test_fixed_weights_have_a_gradient_like_the_others():
    w = leaf([[1.0], [0.3]])
    y = F.inq_affine(X, w, zeros(2, 1), inq_iterations=(0, 9))
    y.forward()
    w.grad.zero()
    y.backward(np.ones((2, 1)))
    assert w.g.tolist() == [[3.0], [7.0]]


def test_convolutions_are_fixed_alike():
    rng = np.random.default_rng(0)
    x, values = rng.normal(size=(2, 4, 7, 6)), rng.normal(size=(6, 2, 3, 2))
    options = {"pad": (1, 0), "stride": (2, 1), "dilation": (1, 2), "group": 2}
    w = leaf(values)
    y = F.inq_convolution(x, w, zeros(*w.shape), inq_iterations=(0,), **options)
    y.forward()
    assert np.isin(np.abs(w.d), [0, *2.0 ** np.arange(-5, 3)]).all()
    np.testing.assert_allclose(y.d, F.convolution(x, w.d, **options).d)


def test_impossible_choices_are_named():
    given = (ONES, leaf([[1.0], [0.3]]), zeros(2, 1))
    with pytest.raises(OperatorError, match=r"num_bits 1 must be 2 or more"):
        F.inq_affine(*given, num_bits=1)
    with pytest.raises(OperatorError, match=r"'smallest' must be 'largest_abs' or 'random'"):
        F.inq_affine(*given, selection_algorithm="smallest")
    with pytest.raises(ShapeError, match=r"indicator_fixedweights has shape \(1,\)"):
        F.inq_affine(ONES, given[1], zeros(1))
    with pytest.raises(OperatorError, match=r"weight is computed by"):
        F.inq_affine(ONES, given[1] * 2, zeros(2, 1))


# Training ----------------------------------------------------------------------------------------


def trained(layer, parameters, *, compiled, decay):
    """Losses and parameters of four steps of a layer that assigns to its parameters."""
    rng = np.random.default_rng(0)
    x, target = Variable((5, 3)), Variable((5, 2))
    loss = F.mean(F.squared_error(layer(x), target))
    solver = nnl.S.Momentum(0.3)
    solver.set_parameters(parameters)
    step = nnl.compile_step(loss, solver, weight_decay=decay) if compiled else None
    losses = []
    for _ in range(4):
        x.d, target.d = rng.normal(size=(5, 3)), rng.normal(size=(5, 2))
        if step is not None:
            step.run()
        else:
            loss.forward()
            solver.zero_grad()
            loss.backward()
            solver.weight_decay(decay)
            solver.update()
        losses.append(float(loss.d))
    return losses, {name: parameter.d.tolist() for name, parameter in parameters.items()}


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_a_compiled_step_updates_what_fixing_weights_has_left(decay):
    def run(compiled):
        w = leaf(np.random.default_rng(1).normal(size=(3, 2)), dtype=np.float32)
        b = leaf([0.5, -0.5], dtype=np.float32)
        marks = zeros(3, 2)

        def layer(x):
            return F.inq_affine(x, w, marks, b, inq_iterations=(1, 3))

        return trained(layer, {"w": w, "b": b}, compiled=compiled, decay=decay)

    (losses, values), (expected, wanted) = run(True), run(False)
    assert losses == pytest.approx(expected, rel=1e-5)
    for name, value in values.items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-5, atol=1e-6)


def test_a_compiled_step_updates_a_range_that_was_widened():
    def run(compiled):
        w = leaf(np.random.default_rng(1).normal(size=(3, 2)), dtype=np.float32)
        low, high = leaf([[-0.5]], dtype=np.float32), leaf([[0.25]], dtype=np.float32)
        levels = (np.zeros((1, 1)), np.full((1, 1), 7.0))

        def layer(x):
            return F.affine(x, F.min_max_quantize(w, low, high, *levels, eps=1.0))

        parameters = {"w": w, "low": low, "high": high}
        return trained(layer, parameters, compiled=compiled, decay=0.0)

    (losses, values), (expected, wanted) = run(True), run(False)
    assert losses == pytest.approx(expected, rel=1e-5)
    for name, value in values.items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-5, atol=1e-6)
