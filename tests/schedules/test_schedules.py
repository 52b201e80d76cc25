"""Learning rates over steps, in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from nnl_core.errors import SolverError
from nnl_core.schedules import (
    CosineRestartScheduler,
    CosineScheduler,
    ExponentialScheduler,
    LinearWarmupScheduler,
    OneCycleScheduler,
    PlateauScheduler,
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


def test_step_every_so_many():
    np.testing.assert_allclose(
        rates(StepScheduler(8.0, 0.5, 3), [0, 2, 3, 5, 6, 9]), [8, 8, 4, 4, 2, 1]
    )


def test_cosine_restarts_in_equal_cycles():
    np.testing.assert_allclose(
        rates(CosineRestartScheduler(3.0, 4, min_lr=1.0), range(9)),
        [3, 2 + 0.5**0.5, 2, 2 - 0.5**0.5, 3, 2 + 0.5**0.5, 2, 2 - 0.5**0.5, 3],
    )


def test_cosine_restarts_in_longer_and_longer_cycles():
    schedule = CosineRestartScheduler(1.0, 2, T_mult=2)
    # cycles begin at 0, 2, 6 and 14, and are half done at 1, 4 and 10
    np.testing.assert_allclose(rates(schedule, [0, 2, 6, 14]), 1)
    np.testing.assert_allclose(rates(schedule, [1, 4, 10]), 0.5)
    assert rates(schedule, [1_000_000_000])[0] <= 1


@pytest.mark.parametrize("anneal", ["linear", "cos"])
def test_one_cycle_goes_up_and_down(anneal):
    schedule = OneCycleScheduler(1.0, 21, 5 / 21, 10.0, 10.0, anneal)
    # the top is at step 4, the end at step 20; halfway both ways are in the middle
    np.testing.assert_allclose(
        rates(schedule, [0, 2, 4, 12, 20, 21, 99]), [0.1, 0.55, 1, 0.505, 0.01, 0.01, 0.01]
    )
    quarter = {"linear": 0.25, "cos": (1 - 0.5**0.5) / 2}[anneal]
    np.testing.assert_allclose(rates(schedule, [1, 8]), [0.1 + 0.9 * quarter, 1 - 0.99 * quarter])


@pytest.mark.parametrize("part", [0.0, 1.0])
def test_one_cycle_may_go_one_way_alone(part):
    values = rates(OneCycleScheduler(1.0, 5, part, anneal_strategy="linear"), range(4))
    assert values == sorted(values, reverse=part == 0)


def told(schedule, *values):
    """Return the rate after each epoch."""
    rates = []
    for count in range(1, len(values) + 1):
        schedule.observe(values[:count])
        rates.append(schedule.get_learning_rate(0))
    return rates


def test_a_plateau_lowers_the_rate_after_patience():
    schedule = PlateauScheduler(1.0, factor=0.5, patience=1)
    assert schedule.get_learning_rate(0) == 1
    assert told(schedule, 5, 4, 4, 4, 3, 3, 3, 3, 3) == [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125]


def test_a_plateau_ignores_what_is_hardly_better():
    schedule = PlateauScheduler(1.0, factor=0.5, patience=0, threshold=0.1)
    assert told(schedule, 10, 9.5, 8.9) == [1, 0.5, 0.5]


def test_a_plateau_rests_after_a_fall():
    schedule = PlateauScheduler(1.0, factor=0.5, patience=0, cooldown=2)
    assert told(schedule, 1, 1, 1, 1, 1) == [1, 0.5, 0.5, 0.5, 0.25]


def test_a_plateau_of_what_shall_be_large_and_its_least_rate():
    schedule = PlateauScheduler(1.0, factor=0.1, patience=0, min_lr=0.05, mode="max")
    assert told(schedule, 0.5, 0.6, 0.6, 0.6, 0.9) == [1, 1, 0.1, 0.05, 0.05]


def test_what_is_not_a_number_is_no_better():
    assert told(PlateauScheduler(1.0, factor=0.5, patience=0), 1, float("nan")) == [1, 0.5]


def test_a_plateau_forgets_what_it_is_not_told_again():
    schedule = PlateauScheduler(1.0, factor=0.5, patience=0)
    schedule.observe([1, 1, 1])
    schedule.observe([1])
    assert schedule.get_learning_rate(0) == 1


def test_warm_up_in_front_of_a_plateau_lets_it_watch():
    schedule = LinearWarmupScheduler(PlateauScheduler(1.0, "test/loss", 0.5, 0), warmup_iter=2)
    assert schedule.metric == "test/loss"
    schedule.observe([1, 1])
    assert rates(schedule, range(4)) == [0.5, 1, 0.5, 0.5]
    assert LinearWarmupScheduler(CosineScheduler(1.0, 5), 1).metric is None


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
        lambda: StepScheduler(1.0, 0.5, 0),
        lambda: CosineRestartScheduler(1.0, 0),
        lambda: CosineRestartScheduler(1.0, 5, 0),
        lambda: OneCycleScheduler(1.0, 0),
    ],
)
def test_lengths_must_be_positive(make):
    with pytest.raises(SolverError, match="less than 1"):
        make()


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: OneCycleScheduler(1.0, 5, pct_start=1.5), "pct_start=1.5"),
        (lambda: OneCycleScheduler(1.0, 5, anneal_strategy="cosine"), "anneal_strategy='cosine'"),
        (lambda: PlateauScheduler(1.0, factor=1.0), "factor=1.0"),
        (lambda: PlateauScheduler(1.0, mode="less"), "mode='less'"),
    ],
)
def test_arguments_without_meaning_are_errors(make, named):
    with pytest.raises(SolverError, match=named):
        make()


@pytest.mark.parametrize("bad", ["0.1", None, float("nan"), (0.1,)], ids=repr)
@pytest.mark.parametrize(
    "make",
    [
        lambda bad: PolynomialScheduler(bad, 10),
        lambda bad: PolynomialScheduler(0.1, bad),
        lambda bad: PolynomialScheduler(0.1, 10, bad),
        lambda bad: CosineScheduler(bad, 10),
        lambda bad: ExponentialScheduler(0.1, bad),
        lambda bad: CosineRestartScheduler(0.1, 10, min_lr=bad),
        lambda bad: StepScheduler(0.1, bad, 3),
        lambda bad: PlateauScheduler(0.1, patience=bad),
        lambda bad: PlateauScheduler(0.1, factor=bad),
    ],
)
def test_what_is_no_number_is_refused_when_a_schedule_is_made(make, bad):
    with pytest.raises(SolverError, match="is not a number"):
        make(bad)
