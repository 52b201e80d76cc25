"""Synaptic plasticity: which operator sets' neurons make their outgoing weights grow apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nnl_core.errors import FileError, OperatorError, ShapeError
from nnl_core.graph.operator import Array
from nnl_onn.search.log import TrialLog


class Change(NamedTuple):
    """What a training did to a layer: each neuron's operator set, and its plasticity."""

    sets: Sequence[int]
    plasticity: Sequence[float]


def plasticity(before: Array, after: Array, maps: int, axis: int = 1) -> Array:
    """Return by how much the variance of each neuron's outgoing weights has grown.

    ``before`` and ``after`` are the next layer's weight before and after a training. The neuron's
    weights lie at its place along ``axis``: 1 in a convolution's weight, 0 in that of a
    deconvolution, and in that of an affine layer, where each neuron has as many rows in a row as
    its output map has elements.

    Raises `ShapeError` where the weight is not of so many neurons.
    """
    if before.shape != after.shape or before.ndim < 2 or before.shape[axis] % max(1, maps):
        raise ShapeError(
            f"weights of shapes {before.shape} and {after.shape} are not of {maps} neurons along "
            f"axis {axis}"
        )
    variances = [
        np.moveaxis(w, axis, 0).astype(np.float64).reshape(maps, -1).var(axis=1)
        for w in (before, after)
    ]
    return np.asarray(variances[1] - variances[0])


def rank(changes: Iterable[Change], choices: int) -> list[tuple[int, float]]:
    """Return operator sets and their health, the healthiest first.

    Health (Kiranyaz et al., "Exploiting heterogeneity in operational neural networks by synaptic
    plasticity", 2021) is the mean plasticity over all neurons that had the set, in all trainings.
    A set that no neuron had comes last, with NaN; of equal ones the first comes first.
    """
    found: list[list[float]] = [[] for _ in range(choices)]
    for change in changes:
        for number, value in zip(change.sets, change.plasticity, strict=True):
            found[number].append(value)
    health = [math.fsum(values) / len(values) if values else math.nan for values in found]
    order = sorted(range(choices), key=lambda n: math.inf if math.isnan(health[n]) else -health[n])
    return [(number, health[number]) for number in order]


def elite(ranked: Sequence[tuple[int, float]], maps: int, count: int) -> list[int]:
    """Return an operator set for each neuron: of the healthiest ``count``, by their health.

    Each gets as many neurons as its share of their health, rounded down; the healthiest gets the
    rest, and all of them where no set is healthy, which is where its variances have not grown.
    """
    if not ranked or count < 1 or maps < 1:
        raise OperatorError(
            f"{count} of {len(ranked)} operator sets do not make a layer of {maps} neurons"
        )
    top = [(number, health if health > 0 else 0.0) for number, health in ranked[:count]]
    total = math.fsum(health for _, health in top)
    shares = [math.floor(maps * health / total) if total > 0 else 0 for _, health in top]
    shares[0] += maps - sum(shares)
    return [number for (number, _), share in zip(top, shares, strict=True) for _ in range(share)]


def monitor(
    train: Callable[[list[list[int]], int], Sequence[Sequence[float]]],
    log: TrialLog,
    maps: Sequence[int],
    choices: int,
    runs: int = 1,
    seed: int = 0,
) -> list[list[Change]]:
    """Train with random operator sets, and return each layer's changes, those of all trainings.

    Args:
        train: trains with an operator set for each neuron of each layer, and a seed; returns the
            `plasticity` of each layer's neurons.
        log: what was trained before, and where trainings are written down.
        maps: how many neurons each layer has.
        choices: how many operator sets there are.
        runs: how many trainings, with this seed and those after it.
        seed: the first seed, which the operator sets are drawn from, too.
    """
    known = {record.get("seed"): record for record in log.records}
    for number in range(seed, seed + runs):
        if number not in known:
            rng = np.random.default_rng(number)
            sets = [_drawn(rng, count, choices) for count in maps]
            found = train(sets, number)
            record = {
                "seed": number,
                "sets": sets,
                "plasticity": [list(map(float, of_layer)) for of_layer in found],
            }
            log.add(record)
            known[number] = log.records[-1]
    return [
        [_change(known[number], layer, log) for number in range(seed, seed + runs)]
        for layer in range(len(maps))
    ]


def _drawn(rng: np.random.Generator, maps: int, choices: int) -> list[int]:
    """Draw a set for each neuron, each of them about as often."""
    spread = rng.permutation(choices)[np.arange(maps) % choices]
    return list(map(int, rng.permutation(spread)))


def _change(record: Mapping[str, Any], layer: int, log: TrialLog) -> Change:
    try:
        sets, values = record["sets"][layer], record["plasticity"][layer]
        numbers = [math.nan if value is None else float(value) for value in values]
        return Change(list(map(int, sets)), numbers)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise FileError(f"{log.path}: {record} is no training of neurons") from error
