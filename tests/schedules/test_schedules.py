"""Learning rates over steps, in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from nnl_core.errors import SolverError
from nnl_core.schedules import (
    CosineScheduler,
    ExponentialScheduler,
    LinearWarmupScheduler,
    PolynomialScheduler,
    StepScheduler,
)


def rates(schedule, steps):
    return [schedule.get_learning_rate(step) for step in steps]


def test_polynomial():
    np.testing.assert_allclose(
        rates(PolynomialScheduler(2.0, 10, power=2.0), [0, 5, 10, 11]), [2.0, 0.5, 0, 0]
    )


def test_cosine():
    np.testing.assert_allclose(
        rates(CosineScheduler(2.0, 12), [0, 4, 6, 8, 12, 40]), [2, 1.5, 1, 0.5, 0, 0], atol=1e-15
    )


def test_exponential():
    np.testing.assert_allclose(
        rates(ExponentialScheduler(8.0, 0.5, iter_interval=3), [0, 2, 3, 8, 9]), [8, 8, 4, 2, 1]
    )


def test_step():
    np.testing.assert_allclose(
        rates(StepScheduler(1.0, 0.1, [2, 5]), [0, 1, 2, 4, 5, 99]), [1, 1, 0.1, 0.1, 0.01, 0.01]
    )


def test_warm_up_reaches_the_rate_and_hands_over():
    schedule = LinearWarmupScheduler(StepScheduler(1.0, 0.5, [1]), warmup_iter=4)
    np.testing.assert_allclose(rates(schedule, range(6)), [0.25, 0.5, 0.75, 1, 1, 0.5])


@pytest.mark.parametrize(
    "make",
    [
        lambda: CosineScheduler(1.0, 0),
        lambda: PolynomialScheduler(1.0, -1),
        lambda: ExponentialScheduler(1.0, 0.5, 0),
        lambda: LinearWarmupScheduler(CosineScheduler(1.0, 5), 0),
    ],
)
def test_lengths_must_be_positive(make):
    with pytest.raises(SolverError, match="less than 1"):
        make()
