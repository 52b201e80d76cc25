"""Calls of the operators ``onn::`` that their kernels and gradients are checked on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from nnl_core import Sample
from nnl_core.errors import NnlError, OperatorError
from nnl_core.graph.operator import Array
from nnl_onn.connections import Connections, Lengths
from nnl_onn.nodal import BUILT_IN as NODAL
from nnl_onn.nodal import Nodal, find_nodal
from nnl_onn.pools import BUILT_IN as POOLS


class Case(NamedTuple):
    """Shapes of data and weight, and how the kernel moves."""

    x: Lengths
    w: Lengths
    stride: Lengths
    dilation: Lengths
    groups: int = 1


CASES = (
    Case((1, 2, 5), (2, 2, 3), (1,), (1,)),
    Case((2, 1, 4, 3), (1, 1, 2, 2), (1, 1), (1, 1)),
    Case((1, 2, 6, 4), (2, 1, 2, 2), (2, 1), (1, 2), 2),
    Case((1, 1, 3, 2, 3), (2, 1, 2, 1, 2), (1, 1, 1), (1, 1, 1)),
    Case((1, 4, 7), (4, 2, 3), (2,), (2,), 2),
    Case((1, 1, 4, 4), (1, 1, 3, 3), (1, 1), (1, 1)),
    Case((1, 2, 2, 3), (3, 2, 1, 1), (1, 1), (1, 1)),
    Case((0, 2, 4), (2, 2, 3), (1,), (1,)),
)
"""1 to 3 axes, strides with a remainder, dilation, groups, even kernels, 1 x 1, an empty batch."""

STEEPEST = 50.0
"""How much faster than its size a nodal operator may change where it is sampled."""

NEAREST = 0.02
"""How far a selected tap is from all others, in parts of the largest value."""


class Drawn(NamedTuple):
    """Data, weight, and factors in the shapes of output, data and weight."""

    x: Array
    w: Array
    g: Array
    a: Array
    b: Array
    options: dict[str, Any]


def draw(nodal: str, pool: str, case: Case, rng: np.random.Generator) -> Drawn:
    """Draw what differences can tell derivatives of: moderate slopes, and no two taps that tie.

    Raises `OperatorError` where the nodal operator is such that there is nothing of the kind.
    """
    scale = _scale(find_nodal(nodal))
    options = {"nodal": nodal, "pool": pool, **case._asdict()}
    shapes = [options.pop(name) for name in ("x", "w")]
    for _ in range(1000):
        x, w = (scale * rng.uniform(0.2, 1, s) * rng.choice((-1, 1), s) for s in shapes)
        connections = Connections(
            x, w, case.stride, case.dilation, case.groups, nodal, pool, ""
        )  # fmt: skip
        if _are_apart(connections):
            outputs = (case.x[0], case.w[0], *connections.places)
            g, a, b = (rng.uniform(-1, 1, shape) for shape in (outputs, *shapes))
            return Drawn(x, w, g, a, b, options)
    raise OperatorError(
        f"nodal operator {nodal!r}: pool {pool!r} finds nearly equal taps in all that is drawn"
    )


def _scale(nodal: Nodal) -> float:
    """Return the largest range of ``x`` and ``w`` in which the operator is not too steep."""
    values = np.linspace(0.2, 1, 9)
    values = np.concatenate((-values, values))
    for scale in (1.0, 0.5, 0.2, 0.1, 0.05, 0.02):
        x, w = scale * values[:, np.newaxis], scale * values
        size = np.abs(nodal.function()(x, w)).max()
        try:
            slopes = [np.abs(nodal.function(path)(x, w)).max() for path in "xw"]
        except NnlError:  # it has no gradient
            slopes = [0]
        if max(slopes) <= STEEPEST * max(size, 1e-3):
            break
    return scale


def _are_apart(connections: Connections) -> bool:
    """Whether no tap comes near the one that is selected."""
    for block in connections.blocks():
        values, chosen = connections.values(block)
        if chosen is None:
            continue
        gaps = np.abs(values - np.take_along_axis(values, chosen, -1))
        np.put_along_axis(gaps, chosen, np.inf, -1)
        if gaps.size and gaps.min() < NEAREST * np.abs(values).max():
            return False
    return True


def operate_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Every nodal operator and pool; with factors, as gradients of gradients have them."""
    for d in _library(rng):
        yield Sample(d.x, d.w, **d.options)
    for d in _of_second_order(rng):
        yield Sample(d.x, d.w, d.a, d.b, derivative="xw", **d.options)
        yield Sample(d.x, d.w, d.a, None, derivative="x", **d.options)
        yield Sample(d.x, d.w, None, d.b, derivative="w", **d.options)


def operate_data_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Every nodal operator, by turns with each pool; with factors, as in second order."""
    for d in _each_nodal(rng):
        yield Sample(d.g, d.x, d.w, **d.options)
    for d in _of_second_order(rng):
        yield Sample(d.g, d.x, d.w, d.b, derivative="xw", **d.options)


def operate_weight_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Every nodal operator, by turns with each pool; with factors, as in second order."""
    for d in _each_nodal(rng):
        yield Sample(d.g, d.x, d.w, **d.options)
    for d in _of_second_order(rng):
        yield Sample(d.g, d.x, d.w, d.a, derivative="xw", **d.options)


def operate_gradients_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Every nodal operator, by turns with each pool."""
    for d in _each_nodal(rng):
        yield Sample(d.g, d.x, d.w, **d.options)


def _library(rng: np.random.Generator) -> Iterator[Drawn]:
    for index, (nodal, pool) in enumerate(itertools.product(NODAL, POOLS)):
        yield draw(nodal, pool, CASES[index % len(CASES)], rng)


def _each_nodal(rng: np.random.Generator) -> Iterator[Drawn]:
    for index, (nodal, pool) in enumerate(zip(NODAL, itertools.cycle(POOLS), strict=False)):
        yield draw(nodal, pool, CASES[index % len(CASES)], rng)


def _of_second_order(rng: np.random.Generator) -> Iterator[Drawn]:
    for index, pool in enumerate(POOLS):
        yield draw("sine", pool, CASES[index + 1], rng)
