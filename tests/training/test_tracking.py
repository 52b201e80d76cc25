from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnl_core.errors import TrainingError
from nnl_core.training import MetricHistory
from nnl_core.training.tracking import Point

NAN = float("nan")


def history_of(values, name="test/accuracy", **options):
    history = MetricHistory(**options)
    for epoch, value in enumerate(values, 1):
        history.record({name: value}, epoch=epoch, step=10 * epoch)
    return history


def test_points_say_when_a_metric_had_which_value():
    history = history_of([0.5, 0.75])
    assert history.points("test/accuracy") == [Point(0.5, 1, 10), Point(0.75, 2, 20)]


@given(st.lists(st.floats(-9, 9), min_size=1), st.booleans())
def test_the_best_is_the_first_extreme(values, rises):
    history = history_of(values, higher_is_better={"accuracy": rises})
    extreme = max(values) if rises else min(values)
    assert history.best("test/accuracy") == Point(
        extreme, values.index(extreme) + 1, 10 * values.index(extreme) + 10
    )


@given(st.lists(st.sampled_from([1.0, 2.0, 3.0, NAN]), min_size=1))
def test_the_latest_is_best_where_it_beats_all_before_it(values):
    expected = not np.isnan(values[-1]) and all(not values[-1] <= value for value in values[:-1])
    assert history_of(values).is_best("test/accuracy") == expected


@given(st.lists(st.floats(-9, 9), min_size=1), st.integers(1, 4))
def test_the_top_are_the_best_in_order(values, count):
    found = [point.value for point in history_of(values).top("test/accuracy", count)]
    assert found == sorted(values, reverse=True)[:count]


def test_no_number_is_worse_than_any():
    assert history_of([NAN, -5.0]).best("test/accuracy").value == -5.0
    assert history_of([NAN, 5.0], name="loss").best("loss").value == 5.0


def test_a_loss_is_better_where_it_is_lower():
    assert history_of([3.0, 1.0, 2.0], name="test/loss").best("test/loss").epoch == 2


def test_the_direction_of_one_name_goes_before_that_of_its_last_part():
    directions = {"size": True, "test/size": False}
    assert not MetricHistory(directions).rises("test/size")
    assert MetricHistory(directions).rises("train/size")


def test_whoever_asks_may_choose_the_direction():
    history = history_of([3.0, 1.0])
    assert history.best("test/accuracy", higher_is_better=False).value == 1.0
    assert history.is_best("test/accuracy", higher_is_better=False)


def test_a_part_of_an_epoch_that_was_measured_again_is_forgotten():
    history = MetricHistory()
    for step in (10, 20, 30, 20):
        history.record({"loss": float(step)}, epoch=1, step=step)
    assert [point.step for point in history.points("loss")] == [10, 20]


def test_the_latest_tables_are_kept():
    history = MetricHistory()
    history.record({}, {"test/confusion_matrix": np.eye(2)}, epoch=1, step=1)
    history.record({}, {"test/confusion_matrix": np.zeros((2, 2))}, epoch=2, step=2)
    assert history.tables["test/confusion_matrix"].tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("kept", [lambda array: array, lambda array: array.tolist()])
def test_it_goes_on_from_arrays_and_from_the_lists_that_older_checkpoints_hold(kept):
    first = history_of([0.5, 0.25])
    first.record({}, {"table": np.eye(2)}, epoch=2, step=20)
    second = MetricHistory()
    second.set_state(
        {
            key: {name: kept(a) for name, a in part.items()}
            for key, part in first.get_state().items()
        }
    )
    assert second.points("test/accuracy") == [Point(0.5, 1, 10), Point(0.25, 2, 20)]
    assert [type(number) for number in second.points("test/accuracy")[0]] == [float, int, int]
    assert second.tables["table"].tolist() == [[1, 0], [0, 1]]
    assert second.summary() == first.summary()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("test/acuracy", "did not measure 'test/acuracy'; did you mean 'test/accuracy'"),
        ("x", "did not measure 'x'; it measured test/accuracy"),
    ],
)
def test_a_metric_that_was_not_measured_is_named(name, message):
    with pytest.raises(TrainingError, match=message):
        history_of([0.5]).best(name)


def test_where_nothing_was_measured_that_is_said():
    with pytest.raises(TrainingError, match="it measured no metric so far"):
        MetricHistory().is_best("loss")
