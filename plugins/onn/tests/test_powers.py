"""Powers of all elements, and sums of powers."""

from __future__ import annotations

import numpy as np
import pytest

from nnl_core import Variable
from nnl_core.errors import ShapeError
from nnl_core.testing import check_operator
from nnl_onn.powers import power_sum, powers


@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("operator", [powers, power_sum], ids=lambda one: one.name)
def test_the_kit_passes(operator, backend):
    check_operator(operator, backend)


def test_powers_are_those_of_numpy():
    x = np.random.default_rng(0).uniform(-1, 1, (2, 3, 4))
    y = powers(Variable.from_numpy_array(x), order=4, axis=1)
    expected = np.stack([x, x**2, x**3, x**4], 1)
    np.testing.assert_allclose(y.d, expected, rtol=1e-14)


def test_a_derivative_of_powers_is_that_of_a_polynomial():
    x = np.random.default_rng(0).uniform(-1, 1, (5,))
    y = powers(Variable.from_numpy_array(x), order=4, axis=0, derivative=2)
    expected = np.stack([0 * x, 2 + 0 * x, 6 * x, 12 * x**2])
    np.testing.assert_allclose(y.d, expected, rtol=1e-14)


def test_a_sum_of_powers_is_a_polynomial():
    rng = np.random.default_rng(0)
    g, x = rng.normal(size=(3, 5)), rng.uniform(-1, 1, (5,))
    y = power_sum(Variable.from_numpy_array(g), Variable.from_numpy_array(x), axis=0)
    polynomial = [np.polynomial.Polynomial([0, *g[:, k]])(x[k]) for k in range(5)]
    np.testing.assert_allclose(y.d, polynomial, rtol=1e-13)


@pytest.mark.parametrize("wrong", [{"order": 0, "axis": 0}, {"order": 2, "axis": 3}])
def test_an_order_or_axis_that_cannot_be_is_named(wrong):
    with pytest.raises(ShapeError, match="order"):
        powers(Variable((2, 3)), **wrong)
