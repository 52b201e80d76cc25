"""Normalisation by mean and variance, by norms, and clipped gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.cpu.kernels import normalization as kernels
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.autodiff import grad
from nnl_core.graph.modes import auto_forward
from nnl_core.graph.operator import lookup
from nnl_core.graph.variable import Variable


def value(variable: Variable) -> np.ndarray:
    variable.forward()
    return np.array(variable.d)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(1, 2, size=shape)


def leaf(array: Any) -> Variable:
    return Variable.from_numpy_array(np.asarray(array, np.float64), need_grad=True)


def standard(x: np.ndarray, axes: tuple[int, ...], eps: float = 1e-5) -> np.ndarray:
    """Return the definition: zero mean and (nearly) unit variance over the axes."""
    return (x - x.mean(axis=axes, keepdims=True)) / np.sqrt(x.var(axis=axes, keepdims=True) + eps)


# Batches ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [[1], 1, (0,), [-1], [0, 2], [1, 2, 3], [0, 1, 2, 3]])
def test_batch_statistics_are_over_all_axes_but_those_named(axes: Any) -> None:
    x = numbers(4, 3, 2, 5)
    kept = {axis % 4 for axis in ([axes] if isinstance(axes, int) else axes)}
    over = tuple(axis for axis in range(4) if axis not in kept)
    y, mean, variance = F.batch_normalization(x, None, None, None, None, axes, output_stat=True)
    np.testing.assert_allclose(value(y), standard(x, over), atol=1e-12)
    np.testing.assert_allclose(value(mean), x.mean(axis=over, keepdims=True))
    np.testing.assert_allclose(value(variance), x.var(axis=over, keepdims=True), atol=1e-12)


def test_gain_and_shift_follow() -> None:
    x, gamma, beta = numbers(4, 3), numbers(1, 3, seed=1), numbers(1, 3, seed=2)
    y = F.batch_normalization(x, beta, gamma, None, None)
    np.testing.assert_allclose(value(y), standard(x, (0,)) * gamma + beta, atol=1e-12)


@pytest.mark.parametrize("dynamic", [False, True])
def test_running_statistics_after_several_steps(dynamic: bool) -> None:
    decay, steps = 0.75, 3
    mean, variance = leaf(np.zeros((1, 3))), leaf(np.ones((1, 3)))
    x = Variable((5, 3), dtype=np.float64)
    batches = [numbers(5, 3, seed=seed) for seed in range(steps)]
    if dynamic:
        for batch in batches:
            with auto_forward():
                F.batch_normalization(
                    Variable.from_numpy_array(batch), None, None, mean, variance, decay_rate=decay
                )
    else:
        y = F.batch_normalization(x, None, None, mean, variance, decay_rate=decay)
        for batch in batches:
            x.d = batch
            y.forward()
    shares = [(1 - decay) * decay ** (steps - 1 - step) for step in range(steps)]
    expected_mean = sum(s * b.mean(axis=0) for s, b in zip(shares, batches, strict=True))
    expected_variance = decay**steps + sum(
        s * b.var(axis=0, ddof=1) for s, b in zip(shares, batches, strict=True)
    )
    np.testing.assert_allclose(mean.d[0], expected_mean)
    np.testing.assert_allclose(variance.d[0], expected_variance)


def test_backward_does_not_update_running_statistics_again() -> None:
    mean, variance = leaf([[0.0]]), leaf([[1.0]])
    x = leaf([[2.0], [4.0]])
    y = F.batch_normalization(x, None, None, mean, variance, decay_rate=0.5)
    y.forward()
    y.backward()
    assert mean.d.item() == 1.5


def test_one_running_statistic_may_be_kept_alone() -> None:
    mean = leaf([[1.0]])
    F.batch_normalization(np.array([[3.0], [5]]), None, None, mean, None, decay_rate=0.5).forward()
    assert mean.d.item() == 2.5


def test_running_statistics_keep_their_dtype() -> None:
    x = numbers(4, 2).astype(np.float32)
    mean, variance = leaf(np.zeros((1, 2))), leaf(np.ones((1, 2)))
    y = F.batch_normalization(x, None, None, mean, variance)
    y.forward()
    assert (y.dtype, mean.dtype) == (np.float32, np.float64)
    np.testing.assert_allclose(mean.d[0], 0.1 * x.mean(axis=0), rtol=1e-6)


def test_without_batch_statistics_the_running_ones_normalize_and_stay() -> None:
    x, mean, variance = numbers(4, 3), leaf([[1.0, 2, 3]]), leaf([[4.0, 9, 16]])
    y = F.batch_normalization(x, None, None, mean, variance, eps=0.0, batch_stat=False)
    np.testing.assert_allclose(value(y), (x - [1, 2, 3]) / [2, 3, 4], atol=1e-12)
    np.testing.assert_array_equal(mean.d, [[1, 2, 3]])


def test_gradient_through_running_statistics_reaches_them() -> None:
    x, mean, variance = leaf([[3.0]]), leaf([[1.0]]), leaf([[4.0]])
    y = F.batch_normalization(x, None, None, mean, variance, eps=0.0, batch_stat=False)
    dx, dmean, dvariance = grad(y, [x, mean, variance])
    # d/dv (x - m) v^-1/2 = -(x - m) / (2 v^3/2)
    assert [value(v).item() for v in (dx, dmean, dvariance)] == pytest.approx([0.5, -0.5, -0.125])


def test_statistics_that_are_put_out_are_differentiable() -> None:
    x = leaf([[1.0], [2.0], [6.0]])
    _, mean, variance = F.batch_normalization(x, None, None, None, None, output_stat=True)
    (dx,) = grad([mean, variance], x)
    np.testing.assert_allclose(value(dx)[:, 0], 1 / 3 + 2 / 3 * (np.array([1, 2, 6]) - 3))


def test_gradient_of_a_normalized_batch_is_orthogonal_to_shift_and_scale() -> None:
    x, g = leaf(numbers(6, 2, 3)), numbers(6, 2, 3, seed=1)
    y = F.batch_normalization(x, None, None, None, None, eps=0.0)
    y.forward()
    y.backward(g)
    np.testing.assert_allclose(x.g.sum(axis=(0, 2)), 0, atol=1e-10)
    np.testing.assert_allclose((x.g * x.d).sum(axis=(0, 2)), 0, atol=1e-10)


def test_one_value_per_channel_gives_the_shift_and_no_gradient() -> None:
    x, beta = leaf([[3.0, 5.0]]), leaf([[0.5, -1.0]])
    mean, variance = leaf([[0.0, 0.0]]), leaf([[1.0, 1.0]])
    y = F.batch_normalization(x, beta, None, mean, variance, decay_rate=0.5)
    np.testing.assert_array_equal(value(y), [[0.5, -1]])
    y.backward()
    np.testing.assert_array_equal(x.g, [[0, 0]])
    np.testing.assert_array_equal(variance.d, [[0.5, 0.5]])


def test_empty_batch_leaves_running_statistics_alone() -> None:
    x, mean, variance = leaf(np.zeros((0, 2, 3))), leaf([[[1.0], [2]]]), leaf([[[3.0], [4]]])
    gamma = leaf(np.ones((1, 2, 1)))
    y = F.batch_normalization(x, None, gamma, mean, variance)
    y.forward()
    y.backward()
    assert y.shape == (0, 2, 3)
    np.testing.assert_array_equal(mean.d, [[[1], [2]]])
    np.testing.assert_array_equal(variance.d, [[[3], [4]]])
    np.testing.assert_array_equal(gamma.g, np.zeros((1, 2, 1)))


def test_variance_is_exact_far_from_zero() -> None:
    x = (np.arange(4, dtype=np.float32) + 2**22)[:, None]
    _, _, variance = F.batch_normalization(x, None, None, None, None, output_stat=True)
    assert value(variance).item() == 1.25


def test_half_precision_does_not_overflow() -> None:
    x = np.array([[-300], [300]], np.float16)  # of variance 90000, beyond float16
    y = F.batch_normalization(x, None, None, None, None)
    assert y.dtype == np.float16
    np.testing.assert_array_equal(value(y), [[-1], [1]])


@given(
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple),
    data=st.data(),
    block=st.sampled_from([1, 100, 1 << 18]),
)
@settings(max_examples=40, deadline=None)
def test_moments_kernel_agrees_with_numpy(shape: tuple[int, ...], data: Any, block: int) -> None:
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1)))))
    x = numbers(*shape)
    kernel = lookup("nnl::moments").kernels["numpy"]
    assert callable(kernel)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "BLOCK_BYTES", block)
        mean, variance = kernel(x, axes=axes, out=None)
    count = int(np.prod([shape[axis] for axis in axes]))
    expected = (
        [x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)]
        if count
        else [np.zeros(mean.shape)] * 2
    )
    np.testing.assert_allclose(mean, expected[0], atol=1e-12)
    np.testing.assert_allclose(variance, expected[1], atol=1e-12)


# Fused, layers, instances, groups -----------------------------------------------------------------


def test_fused_normalization_adds_the_residual_before_the_rectifier() -> None:
    x, z = numbers(5, 3), numbers(5, 3, seed=1)
    y = F.fused_batch_normalization(x, None, None, None, None, z)
    np.testing.assert_allclose(value(y), np.maximum(standard(x, (0,)) + z, 0), atol=1e-12)
    y, mean, _ = F.fused_batch_normalization(x, None, None, None, None, output_stat=True)
    np.testing.assert_allclose(value(y), np.maximum(standard(x, (0,)), 0), atol=1e-12)
    np.testing.assert_allclose(value(mean), x.mean(axis=0, keepdims=True))


def test_fused_normalization_updates_running_statistics() -> None:
    mean, variance = leaf([[0.0]]), leaf([[1.0]])
    x = np.array([[2.0], [4.0]])
    F.fused_batch_normalization(x, None, None, mean, variance, decay_rate=0.5).forward()
    assert (mean.d.item(), variance.d.item()) == (1.5, 1.5)


@pytest.mark.parametrize(
    ("batch_axis", "over"), [(0, (1, 2, 3)), ([0, 2], (1, 3)), ([0, -1], (1, 2)), (-4, (1, 2, 3))]
)
def test_layer_normalization_is_over_all_but_the_batch(
    batch_axis: Any, over: tuple[int, ...]
) -> None:
    x = numbers(2, 3, 4, 5)
    gamma, beta = numbers(1, 3, 4, 5, seed=1), numbers(5, seed=2)
    y = F.layer_normalization(x, beta, gamma, batch_axis)
    np.testing.assert_allclose(value(y), standard(x, over) * gamma + beta, atol=1e-12)


def test_instance_normalization_is_by_example_and_channel() -> None:
    x, gamma = numbers(2, 3, 4, 5), numbers(1, 3, 1, 1, seed=1)
    y, mean, variance = F.instance_normalization(x, None, gamma, output_stat=True)
    np.testing.assert_allclose(value(y), standard(x, (2, 3)) * gamma, atol=1e-12)
    assert mean.shape == variance.shape == (2, 3, 1, 1)


@pytest.mark.parametrize(
    ("channel_axis", "batch_axis"), [(1, 0), (-3, 0), (3, 0), (2, [0, 1]), (1, [0, -1])]
)
def test_group_normalization_is_by_example_and_group(channel_axis: int, batch_axis: Any) -> None:
    x = numbers(4, 4, 6, 6)
    axis = channel_axis % 4
    kept = {b % 4 for b in ([batch_axis] if isinstance(batch_axis, int) else batch_axis)}
    gain_shape = [n if place == axis else 1 for place, n in enumerate(x.shape)]
    gamma, beta = numbers(*gain_shape, seed=1), numbers(*gain_shape, seed=2)
    y = F.group_normalization(x, beta, gamma, 2, channel_axis, batch_axis)
    half = x.shape[axis] // 2
    expected = np.empty_like(x)
    for part in (slice(0, half), slice(half, None)):
        at = tuple(part if place == axis else slice(None) for place in range(4))
        expected[at] = standard(x[at], tuple(set(range(4)) - kept))
    np.testing.assert_allclose(value(y), expected * gamma + beta, atol=1e-12)


def test_group_statistics_have_the_channel_axis_divided() -> None:
    _, mean, _ = F.group_normalization(np.zeros((2, 6, 3)), None, None, 2, output_stat=True)
    assert mean.shape == (2, 2, 1, 1)


def test_weight_standardization_is_by_output_channel() -> None:
    w = numbers(4, 3, 2)
    np.testing.assert_allclose(value(F.weight_standardization(w)), standard(w, (1, 2)), atol=1e-12)
    y, mean, _ = F.weight_standardization(w, channel_axis=2, output_stat=True)
    np.testing.assert_allclose(value(y), standard(w, (0, 1)), atol=1e-12)
    assert mean.shape == (1, 1, 2)


# Norms --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [None, 1, 1.5, 3])
@pytest.mark.parametrize("axes", [None, 0, (0, 2)])
def test_norm_normalization_gives_norm_one(p: float | None, axes: Any) -> None:
    x = numbers(2, 3, 4)
    y = value(F.norm_normalization(x, p, axes))
    order = 2 if p is None else p
    norm = (np.abs(x) ** order).sum(axis=axes, keepdims=True) ** (1 / order)
    np.testing.assert_allclose(y, x / norm, rtol=1e-9)


def test_norm_normalization_of_zero_is_zero_with_a_finite_gradient() -> None:
    x = leaf(np.zeros(3))
    y = F.norm_normalization(x)
    np.testing.assert_array_equal(value(y), np.zeros(3))
    y.backward()
    np.testing.assert_allclose(x.g, 1e6)  # 1 / sqrt(eps)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_weight_normalization_gives_each_slice_its_norm(dim: int) -> None:
    w = numbers(3, 4, 5)
    g = np.abs(numbers(w.shape[dim], seed=1))
    y = value(F.weight_normalization(w, g, dim))
    others = tuple(axis for axis in range(3) if axis != dim % 3)
    np.testing.assert_allclose(np.sqrt((y * y).sum(axis=others)), g, rtol=1e-9)


def test_spectral_norm_gives_the_largest_singular_value_one() -> None:
    w = numbers(3, 4, 5)
    u = leaf(np.ones(4))
    y = F.spectral_norm(w, u, dim=1, itr=100)
    matrix = value(y).transpose(1, 0, 2).reshape(4, 15)
    assert np.linalg.norm(matrix, 2) == pytest.approx(1)
    left = np.linalg.svd(matrix)[0][:, 0]
    np.testing.assert_allclose(abs(u.d @ left), 1)


def test_spectral_norm_takes_one_step_a_pass_and_none_in_a_test() -> None:
    w, u = leaf(np.diag([2.0, 1.0])), leaf([1.0, 1.0])
    y, before = F.spectral_norm(w, u, output_u=True)
    value(y)
    # W W^T (1, 1) is (4, 1).
    np.testing.assert_allclose(u.d, np.array([4, 1]) / np.sqrt(17))
    value(F.spectral_norm(w, u, test=True))
    np.testing.assert_allclose(u.d, np.array([4, 1]) / np.sqrt(17))
    np.testing.assert_allclose(value(before), u.d)


def test_gradient_of_spectral_norm_takes_the_singular_vectors_as_constant() -> None:
    w, u = leaf(np.diag([2.0, 1.0])), leaf([1.0, 0.0])
    y = F.spectral_norm(w, u)
    value(y)
    g = np.array([[1.0, 2], [3, 4]])
    y.backward(g)
    first = np.array([[1.0, 0], [0, 0]])
    np.testing.assert_allclose(w.g, (g - (g * y.d).sum() * first) / 2)


def test_rms_norm_divides_by_the_root_of_the_mean_square() -> None:
    x, gamma = np.array([[3.0, 4], [0, 2]]), np.array([1.0, 10])
    y = F.rms_norm(x, gamma, eps=0.0)
    expected = x / np.sqrt([[12.5], [2.0]]) * gamma
    np.testing.assert_allclose(value(y), expected)


def test_mean_subtraction_keeps_the_mean_of_all_batches() -> None:
    x, mean, t = (
        Variable((2, 3), dtype=np.float64),
        leaf(np.zeros(3)),
        Variable((1,), dtype=np.int64),
    )
    y = F.mean_subtraction(x, mean, t)
    seen = []
    for seed in range(3):
        seen.append(numbers(2, 3, seed=seed))
        x.d = seen[-1]
        y.forward()
        np.testing.assert_allclose(mean.d, np.concatenate(seen).mean(axis=0))
        np.testing.assert_allclose(y.d, seen[-1] - mean.d)
    assert t.d.item() == 3
    kept = F.mean_subtraction(x, mean, None, update_running_mean=False)
    np.testing.assert_allclose(value(kept), x.d - mean.d)


# Clipped gradients --------------------------------------------------------------------------------


def test_gradient_is_clipped_by_value() -> None:
    x = leaf([1.0, 2, 3])
    y = F.clip_grad_by_value(x, -0.5, np.array([1.0, 1, 9]))
    np.testing.assert_array_equal(value(y), [1, 2, 3])
    y.backward(np.array([-2.0, 3, 4]))
    np.testing.assert_array_equal(x.g, [-0.5, 1, 4])


@pytest.mark.parametrize(
    ("axes", "expected"),
    [(None, [[0.6, 0.8], [0, 0]]), (1, [[0.6, 0.8], [0, 0]]), ((), [[1, 1], [0, 0]])],
)
def test_gradient_is_scaled_to_the_norm_and_zero_stays_zero(
    axes: Any, expected: list[list[float]]
) -> None:
    x = leaf(np.ones((2, 2)))
    y = F.clip_grad_by_norm(x, 2.0, axes)
    y.forward()
    y.backward(np.array([[3.0, 4], [0, 0]]))
    np.testing.assert_allclose(x.g, 2 * np.array(expected))


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "error", "sentence"),
    [
        ((np.ones((1, 2)), None, None, None), {}, ShapeError, r"beta has shape \(1, 2\)"),
        ((None, np.ones(3), None, None), {}, ShapeError, r"gamma has shape \(3,\)"),
        ((None, None, None, None), {"batch_stat": False}, OperatorError, "one is None"),
        (
            (None, None, np.zeros((1, 3)), np.ones((1, 3))),
            {"batch_stat": False, "output_stat": True},
            OperatorError,
            "output_stat=True",
        ),
        ((None, None, None, None), {"axes": (1, 1)}, ShapeError, "twice"),
        ((None, None, None, None), {"axes": 2}, ShapeError, "out of range"),
    ],
)
def test_what_does_not_fit_batch_normalization_is_said(
    arguments: Any, options: Any, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        F.batch_normalization(np.zeros((4, 3)), *arguments, **options)


def test_running_statistics_cannot_be_computed_and_updated() -> None:
    mean = leaf(np.zeros((1, 3))) + 1
    with pytest.raises(OperatorError, match="mean is computed by"):
        F.batch_normalization(np.zeros((4, 3)), None, None, mean, None)


def test_other_misfits_are_said() -> None:
    with pytest.raises(OperatorError, match="nonlinearity 'tanh'"):
        F.fused_batch_normalization(np.zeros((2, 2)), *[None] * 4, nonlinearity="tanh")
    with pytest.raises(ShapeError, match="4 groups do not divide the 6 channels"):
        F.group_normalization(np.zeros((2, 6)), None, None, 4)
    with pytest.raises(ShapeError, match="does not broadcast"):
        F.layer_normalization(np.zeros((2, 3)), np.zeros(4), None)
    with pytest.raises(ShapeError, match="one number for each of the 3 slices"):
        F.weight_normalization(np.zeros((3, 2)), np.zeros(2))
    with pytest.raises(OperatorError, match="p is 0"):
        F.norm_normalization(np.zeros(3), 0)
    with pytest.raises(ShapeError, match=r"mean has shape \(2,\)"):
        F.mean_subtraction(np.zeros((2, 3)), leaf(np.zeros(2)), None)
    with pytest.raises(ShapeError, match="each of the 2 rows"):
        F.spectral_norm(np.zeros((2, 3)), leaf(np.zeros(3)))
    with pytest.raises(OperatorError, match="u is computed"):
        F.spectral_norm(np.zeros((2, 3)), leaf(np.zeros(2)) + 1)
    with pytest.raises(OperatorError, match="without history"):
        F.mean_subtraction(np.zeros((2, 3)), leaf(np.zeros(3)), None)
