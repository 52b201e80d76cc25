"""First values of parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import I
from nnl_core.errors import ParameterError

RANDOM = [
    I.NormalInitializer,
    I.UniformInitializer,
    I.UniformIntInitializer,
    I.OrthogonalInitializer,
]


@pytest.mark.parametrize("kind", RANDOM, ids=lambda kind: kind.__name__)
def test_the_seed_fixes_what_is_drawn(kind):
    nnl.seed(5)
    first = kind()((4, 3))
    second = kind()((4, 3))
    nnl.seed(5)
    assert np.array_equal(kind()((4, 3)), first)
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])
@pytest.mark.parametrize("kind", RANDOM, ids=lambda kind: kind.__name__)
def test_a_generator_of_ones_own_is_used_and_the_common_one_left_alone(kind, make):
    nnl.seed(0)
    expected = nnl.random.prng.random()
    nnl.seed(0)
    first = kind(rng=make(3))((4, 3))
    assert np.array_equal(kind(rng=make(3))((4, 3)), first)
    assert nnl.random.prng.random() == expected


def test_normal_values_have_the_given_deviation():
    values = I.NormalInitializer(2.5, np.random.default_rng(0))((200, 200))
    assert values.dtype == np.float32
    assert abs(values.mean()) < 0.05
    assert values.std() == pytest.approx(2.5, rel=0.02)


def test_uniform_values_fill_the_interval():
    values = I.UniformInitializer((-3, 5), np.random.default_rng(0))((100, 100))
    assert -3 <= values.min() < -2.9
    assert 4.9 < values.max() < 5


def test_uniform_integers_leave_out_the_upper_limit():
    values = I.UniformIntInitializer((2, 5), np.random.default_rng(0))((100,))
    assert set(values.tolist()) == {2, 3, 4}


def test_a_constant():
    assert np.array_equal(I.ConstantInitializer(1.5)((2, 1)), [[1.5], [1.5]])
    assert I.ConstantInitializer()(()) == 0


def test_a_range_runs_along_the_last_axis():
    assert np.array_equal(I.RangeInitializer(1, 0.5)((2, 3)), [[1, 1.5, 2], [1, 1.5, 2]])


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4), (2, 3, 2)])
def test_orthogonal_rows_or_columns(shape):
    values = I.OrthogonalInitializer(2.0, np.random.default_rng(0))(shape)
    matrix = values.reshape(shape[0], -1).astype(np.float64)
    product = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(product, 4 * np.eye(min(matrix.shape)), atol=1e-5)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_weight_normalisation_starts_with_the_norms_of_the_weight(dim):
    w = nnl.Variable((3, 4))
    w.d = np.random.default_rng(0).normal(size=(3, 4))
    norms = I.WeightNormalizationScaleInitializer(w, dim)((w.shape[dim],))
    np.testing.assert_allclose(norms, np.linalg.norm(w.d, axis=1 - dim % 2), rtol=1e-6)


def test_deviations_and_limits_follow_the_papers():
    assert I.calc_normal_std_he_forward(8, 4, (3, 3)) == pytest.approx(math.sqrt(2 / 72))
    assert I.calc_normal_std_he_backward(8, 4, (3, 3)) == pytest.approx(math.sqrt(2 / 36))
    assert I.calc_normal_std_glorot(8, 4) == pytest.approx(math.sqrt(2 / 12))
    assert I.calc_uniform_lim_glorot(8, 4, (3, 3)) == pytest.approx(
        (-math.sqrt(6 / 76), math.sqrt(6 / 76))
    )


def test_no_connections_are_an_error():
    with pytest.raises(ParameterError, match="0 connections"):
        I.calc_uniform_lim_glorot(0, 0)


@pytest.mark.parametrize(
    ("initializer", "shape"), [(I.RangeInitializer(), ()), (I.OrthogonalInitializer(), (3,))]
)
def test_a_shape_that_does_not_fit_is_an_error(initializer, shape):
    with pytest.raises(ParameterError, match=r"axes|axis"):
        initializer(shape)


def test_initializers_show_their_arguments():
    assert repr(I.NormalInitializer(0.5)) == "NormalInitializer(sigma=0.5)"
