"""Which operator set for which layer: greedy iterative search, and trying them all."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import numpy as np

from nnl_core.errors import FileError, OperatorError
from nnl_onn.search.log import TrialLog

Assignment: TypeAlias = tuple[int, ...]
"""For each layer, which of the operator sets it has, by number."""

Score: TypeAlias = Callable[[Assignment], float]
Objective: TypeAlias = Callable[[Assignment, int], float]


class Found(NamedTuple):
    """An assignment, and how good it is: lower is better."""

    assignment: Assignment
    score: float


class Trials:
    """How good assignments are: the best of some short trainings of each, none made twice.

    Args:
        objective: trains with an assignment and a seed, and returns what is to be made low; NaN is
            worse than any number.
        log: what was tried before, and where trials are written down.
        runs: how many trainings of each assignment, with this seed and those after it.
        seed: the first seed.
    """

    def __init__(self, objective: Objective, log: TrialLog, runs: int = 1, seed: int = 0) -> None:
        if runs < 1:
            raise OperatorError(f"{runs} runs of an assignment are too few: at least 1")
        self._objective = objective
        self._log = log
        self._seeds = range(seed, seed + runs)
        self._known = dict(_read(record, log) for record in log.records)

    def __call__(self, assignment: Assignment) -> float:
        """Return the best score of an assignment, after what trainings it still needs."""
        return min(self._score(assignment, seed) for seed in self._seeds)

    def _score(self, assignment: Assignment, seed: int) -> float:
        key = (assignment, seed)
        if key not in self._known:
            score = _number(self._objective(assignment, seed))
            self._log.add({"assignment": list(assignment), "seed": seed, "score": score})
            self._known[key] = score
        return self._known[key]


def _number(score: float) -> float:
    return score if math.isfinite(score) else math.inf


def _read(record: dict[str, object], log: TrialLog) -> tuple[tuple[Assignment, int], float]:
    assignment, seed, score = (record.get(key) for key in ("assignment", "seed", "score"))
    if (
        not isinstance(assignment, list)
        or not all(isinstance(one, int) for one in assignment)
        or not isinstance(seed, int)
        or not isinstance(score, int | float | None)
    ):
        raise FileError(f"{log.path}: {record} is no trial of an assignment")
    return (tuple(assignment), seed), math.inf if score is None else float(score)


def greedy_search(score: Score, layers: int, choices: int, sweeps: int = 2, seed: int = 0) -> Found:
    """Search greedily, layer by layer, from random operator sets.

    In each sweep, the layers come one after another, and each keeps of all sets the one with which
    the network, its other layers as they are, has the lowest score: of equal ones the first. It
    ends before its last sweep where one changes nothing. (Kiranyaz et al., "Operational neural
    networks", 2020.)

    Args:
        score: what is to be made low, such as `Trials`. It may be asked more than once of the same.
        layers: how many layers.
        choices: how many operator sets there are for each.
        sweeps: how often the layers are gone through.
        seed: of the operator sets that are the start.
    """
    _check(layers, choices)
    if sweeps < 1:
        raise OperatorError(f"{sweeps} sweeps are too few: at least 1")
    current = tuple(map(int, np.random.default_rng(seed).integers(choices, size=layers)))
    lowest = math.inf
    for _ in range(sweeps):
        before = current
        for layer in range(layers):
            tried = [(*current[:layer], n, *current[layer + 1 :]) for n in range(choices)]
            current, lowest = _best(tried, score)
        if current == before:
            break
    return Found(current, lowest)


def exhaustive_search(score: Score, layers: int, choices: int) -> Found:
    """Try all ``choices ** layers`` assignments; of equal ones the first stays."""
    _check(layers, choices)
    return _best(itertools.product(range(choices), repeat=layers), score)


def _best(tried: Iterable[Assignment], score: Score) -> Found:
    scored = (Found(one, score(one)) for one in tried)
    return min(scored, key=lambda found: _number(found.score))


def _check(layers: int, choices: int) -> None:
    if layers < 1 or choices < 1:
        raise OperatorError(
            f"there are {layers} layers and {choices} operator sets to search: at least 1 each"
        )
