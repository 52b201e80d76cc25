"""Searches for operator sets, with cheap objectives."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from nnl_core.errors import FileError, OperatorError
from nnl_onn.search import (
    Change,
    TrialLog,
    Trials,
    elite,
    exhaustive_search,
    greedy_search,
    monitor,
    plasticity,
    rank,
)

LAYERS, CHOICES = 3, 4


@pytest.fixture(params=range(5))
def table(request):
    """A score for each assignment of 4 sets to 3 layers."""
    return np.random.default_rng(request.param).normal(size=(CHOICES,) * LAYERS)


def test_exhaustive_search_finds_the_lowest_of_all(table):
    found = exhaustive_search(lambda one: table[one], LAYERS, CHOICES)
    assert found.assignment == np.unravel_index(table.argmin(), table.shape)
    assert found.score == table.min()


def test_exhaustive_search_tries_each_assignment_once():
    tried = []
    exhaustive_search(lambda one: tried.append(one) or 0.0, LAYERS, CHOICES)
    assert tried == list(itertools.product(range(CHOICES), repeat=LAYERS))


@pytest.mark.parametrize("sweeps", [1, 2, 5])
def test_greedy_search_takes_the_best_set_of_each_layer_in_turn(table, sweeps):
    found = greedy_search(lambda one: table[one], LAYERS, CHOICES, sweeps, seed=3)
    current = list(np.random.default_rng(3).integers(CHOICES, size=LAYERS))
    for _ in range(sweeps):
        for layer in range(LAYERS):
            row = [*current]
            row[layer] = slice(None)
            current[layer] = table[tuple(row)].argmin()
    assert found.assignment == tuple(current)
    assert found.score == table[tuple(current)]


def test_greedy_search_finds_the_best_where_layers_do_not_depend_on_each_other():
    costs = np.random.default_rng(0).normal(size=(LAYERS, CHOICES))

    def score(assignment):
        return float(sum(costs[layer, n] for layer, n in enumerate(assignment)))

    assert greedy_search(score, LAYERS, CHOICES, 1) == exhaustive_search(score, LAYERS, CHOICES)


def test_an_assignment_that_diverges_is_the_worst():
    found = exhaustive_search(lambda one: math.nan if one == (0,) else 1e300, 1, 2)
    assert found.assignment == (1,)


def test_the_best_run_of_an_assignment_counts():
    scores = {5: 3.0, 6: math.nan, 7: 1.0}
    trials = Trials(lambda assignment, seed: scores[seed], TrialLog(None, {}), runs=3, seed=5)
    assert trials((0, 1)) == 1.0


def test_no_assignment_is_trained_twice():
    trained = []

    def objective(assignment, seed):
        trained.append((assignment, seed))
        return float(sum(assignment))

    trials = Trials(objective, TrialLog(None, {}), runs=2)
    greedy_search(trials, LAYERS, CHOICES, sweeps=4)
    assert len(trained) == len(set(trained))


@pytest.mark.parametrize(("layers", "choices", "sweeps"), [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_nothing_to_search_is_an_error(layers, choices, sweeps):
    with pytest.raises(OperatorError, match="at least 1"):
        greedy_search(lambda one: 0.0, layers, choices, sweeps)


# Going on -----------------------------------------------------------------------------------------


class KilledError(Exception):
    """What ends a search in the middle."""


def searched(path, table, budget=10**6):
    """Search with a log; return what was found, and how many trainings it took."""
    count = 0

    def objective(assignment, seed):
        nonlocal count
        if count == budget:
            raise KilledError
        count += 1
        return float(table[assignment])

    log = TrialLog(path, {"sets": ["a", "b"]})
    try:
        return greedy_search(Trials(objective, log), LAYERS, CHOICES), count
    finally:
        log.close()


@pytest.mark.parametrize("budget", [0, 1, 5])
def test_a_search_that_was_killed_goes_on_to_the_same_log(tmp_path, table, budget):
    whole, needed = searched(tmp_path / "whole", table)
    with pytest.raises(KilledError):
        searched(tmp_path / "parts", table, budget)
    assert searched(tmp_path / "parts", table) == (whole, needed - budget)
    assert (tmp_path / "parts").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize("cut", [1, 7, 30])
def test_a_line_that_was_cut_short_is_tried_again(tmp_path, table, cut):
    path = tmp_path / "log"
    whole, _ = searched(path, table)
    complete = path.read_bytes()
    path.write_bytes(complete[:-cut])
    assert searched(path, table) == (whole, 1)
    assert path.read_bytes() == complete


def test_each_trial_is_a_line_with_its_score(tmp_path):
    log = TrialLog(tmp_path / "log", {"sets": ["a", "b"]})
    Trials(lambda assignment, seed: math.nan if seed else 2.5, log, runs=2)((1, 0))
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "log").read_text("utf-8").splitlines()]
    assert lines == [
        {"format": 1, "sets": ["a", "b"]},
        {"assignment": [1, 0], "seed": 0, "score": 2.5},
        {"assignment": [1, 0], "seed": 1, "score": None},
    ]


def test_the_log_of_another_search_is_refused_by_what_differs(tmp_path):
    TrialLog(tmp_path / "log", {"settings": {"train": {"epochs": 3}}}).close()
    with pytest.raises(FileError, match=r"its settings\.train\.epochs is 3, not 5"):
        TrialLog(tmp_path / "log", {"settings": {"train": {"epochs": 5}}})


@pytest.mark.parametrize(("line", "complaint"), [("{oops}", "no JSON"), ("[1]", "no object")])
def test_a_broken_line_is_named(tmp_path, line, complaint):
    path = tmp_path / "log"
    TrialLog(path, {}).close()
    path.write_text(path.read_text("utf-8") + line + "\n", "utf-8")
    with pytest.raises(FileError, match=f"line 2: this is {complaint}"):
        TrialLog(path, {})


def test_a_line_that_is_no_trial_is_named(tmp_path):
    path = tmp_path / "log"
    TrialLog(path, {}).close()
    path.write_text(path.read_text("utf-8") + '{"assignment": 3}\n', "utf-8")
    log = TrialLog(path, {})
    with pytest.raises(FileError, match="no trial"):
        Trials(lambda assignment, seed: 0.0, log)
    log.close()


# Plasticity ---------------------------------------------------------------------------------------


def test_plasticity_is_the_growth_of_the_variance_of_outgoing_weights():
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(2, 5, 4, 3, 3))
    expected = [after[:, n].var() - before[:, n].var() for n in range(4)]
    np.testing.assert_allclose(plasticity(before, after, 4), expected, rtol=1e-12)


def test_a_neuron_before_an_affine_layer_has_a_row_for_each_element_of_its_map():
    before, after = np.random.default_rng(0).normal(size=(2, 3 * 4, 2))
    expected = [after[4 * n : 4 * n + 4].var() - before[4 * n : 4 * n + 4].var() for n in range(3)]
    np.testing.assert_allclose(plasticity(before, after, 3, axis=0), expected, rtol=1e-12)


def test_health_is_the_mean_over_all_neurons_of_a_set():
    changes = [Change([0, 1, 1], [1.0, 5.0, 1.0]), Change([1, 0, 3], [3.0, 2.0, 7.0])]
    ranked = rank(changes, 4)
    assert ranked[:3] == [(3, 7.0), (1, 3.0), (0, 1.5)]
    assert ranked[3][0] == 2
    assert math.isnan(ranked[3][1])


def test_an_elite_has_neurons_by_health_and_the_best_gets_the_rest():
    ranked = [(2, 5.0), (0, 3.0), (1, 1.0), (3, 0.5)]
    assert elite(ranked, 10, 3) == [2] * 6 + [0] * 3 + [1]


def test_an_elite_of_sets_that_are_not_healthy_is_the_best_of_them():
    assert elite([(1, -0.5), (0, -2.0)], 3, 2) == [1, 1, 1]


def test_monitoring_goes_on_and_draws_all_sets(tmp_path):
    trained = []

    def train(sets, seed):
        trained.append(seed)
        return [[float(n) for n in of_layer] for of_layer in sets]

    def monitored(runs):
        log = TrialLog(tmp_path / "log", {})
        found = monitor(train, log, maps=(8, 6), choices=3, runs=runs, seed=4)
        log.close()
        return found

    monitored(2)
    changes = monitored(3)
    assert trained == [4, 5, 6]
    for of_layer, maps in zip(changes, (8, 6), strict=True):
        assert [len(change.sets) for change in of_layer] == [maps] * 3
        assert all(set(change.sets) == {0, 1, 2} for change in of_layer)
        assert rank(of_layer, 3) == [(2, 2.0), (1, 1.0), (0, 0.0)]
