"""Weight decay, clipping and checks of gradients."""

from __future__ import annotations

import numpy as np
import pytest

from nnl_core import S
from nnl_core.errors import SolverError
from nnl_core.parameters import Parameter


@pytest.fixture
def parameters():
    result = {"a": Parameter((2,)), "b": Parameter((3,))}
    result["a"].d, result["a"].g = [1, 2], [3, -4]
    result["b"].d, result["b"].g = [0, 1, -1], [0, 12, 0]
    return result


@pytest.fixture
def solver(parameters):
    result = S.Sgd()
    result.set_parameters(parameters)
    return result


def test_weight_decay_adds_a_part_of_the_parameters(solver, parameters):
    solver.weight_decay(0.5)
    np.testing.assert_array_equal(parameters["a"].g, [3.5, -3])
    np.testing.assert_array_equal(parameters["b"].g, [0, 12.5, -0.5])


def test_fused_weight_decay_counts_for_one_update_and_leaves_gradients(parameters):
    solver = S.AdamW(0.0, wd=0.0)
    solver.set_parameters(parameters)
    assert solver.weight_decay_is_fused()
    solver.weight_decay(0.5)
    np.testing.assert_array_equal(parameters["a"].g, [3, -4])
    solver.update()
    solver.update()
    np.testing.assert_array_equal(parameters["a"].d, [0.5, 1])


def test_scaling(solver, parameters):
    solver.scale_grad(0.5)
    np.testing.assert_array_equal(parameters["a"].g, [1.5, -2])


def test_clipping_by_value(solver, parameters):
    parameters["b"].g = [np.nan, 12, -np.inf]
    solver.clip_grad_by_value(3.5)
    np.testing.assert_array_equal(parameters["a"].g, [3, -3.5])
    np.testing.assert_array_equal(parameters["b"].g, [np.nan, 3.5, -3.5])


def test_clipping_by_norm_looks_at_each_parameter(solver, parameters):
    solver.clip_grad_by_norm(6)
    np.testing.assert_array_equal(parameters["a"].g, [3, -4])  # of norm 5
    np.testing.assert_allclose(parameters["b"].g, [0, 6, 0], rtol=1e-6)


def test_clipping_by_global_norm_keeps_the_direction_and_returns_the_norm(solver, parameters):
    assert solver.clip_grad_by_global_norm(6.5) == 13  # of 3, 4, 12
    np.testing.assert_allclose(parameters["a"].g, [1.5, -2], rtol=1e-6)
    np.testing.assert_allclose(parameters["b"].g, [0, 6, 0], rtol=1e-6)
    assert solver.clip_grad_by_global_norm(100) == pytest.approx(6.5)
    np.testing.assert_allclose(parameters["a"].g, [1.5, -2], rtol=1e-6)


def test_norms_do_not_overflow_in_half_precision():
    w = Parameter((4,), dtype=np.float16)
    w.g = [30000.0] * 4
    solver = S.Sgd()
    solver.set_parameters({"w": w})
    assert solver.clip_grad_by_global_norm(1.0) == 60000
    np.testing.assert_allclose(w.g, [0.5] * 4, rtol=1e-3)


@pytest.mark.parametrize("limit", [-1, float("nan")])
def test_a_limit_without_meaning_is_an_error(solver, limit):
    with pytest.raises(SolverError, match="cannot be clipped"):
        solver.clip_grad_by_norm(limit)


@pytest.mark.parametrize(
    ("value", "infinite", "nan"),
    [(1.0, False, False), (np.inf, True, False), (-np.inf, True, False), (np.nan, False, True)],
)
def test_checks_find_what_is_not_finite(solver, parameters, value, infinite, nan):
    parameters["b"].g = [0, value, 0]
    assert solver.check_inf_grad() is infinite
    assert solver.check_nan_grad() is nan
    assert solver.check_inf_or_nan_grad() is (infinite or nan)


def test_zero_grad_makes_all_gradients_zero(solver, parameters):
    solver.zero_grad()
    assert not any(parameter.g.any() for parameter in parameters.values())
    solver.update()
    np.testing.assert_array_equal(parameters["a"].d, [1, 2])
