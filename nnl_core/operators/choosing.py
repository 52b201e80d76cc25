"""Elements chosen at random from populations, by weight."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import wholes
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.stochastic import generator_of, random_key

__all__ = ["random_choice"]


@defop("nnl::random_choice", save=("places",), outputs=("y", "places"))
def random_choice_operator(
    x: Array, w: Array, key: Array, *, shape: tuple[int, ...], replace: bool
) -> tuple[Array, Array]:
    """Choose from each population along the last axis; return also where in ``x`` that was."""
    weights = w.astype(np.float64).reshape(-1, w.shape[-1])
    _check_weights(weights)
    count = math.prod(shape)
    chosen = (_with_replacement if replace else _without_replacement)(
        weights, count, generator_of(key)
    )
    at = chosen + w.shape[-1] * np.arange(len(chosen))[:, None]
    at = at.astype(np.int64).reshape((*x.shape[:-1], *shape))
    return (x.reshape(-1)[at] if at.size else np.empty(at.shape, x.dtype)), at


def _check_weights(weights: Array) -> None:
    if not (weights >= 0).all():
        value = weights[~(weights >= 0)].flat[0]
        raise OperatorError(f"random_choice: weight {value} must be a number of at least 0")
    totals = weights.sum(axis=1)
    if not (totals > 0).all() or np.isinf(totals).any():
        raise OperatorError(
            f"random_choice: the weights of a population sum to {totals.min()}; each sum must be "
            "positive and finite"
        )


def _with_replacement(weights: Array, count: int, generator: np.random.Generator) -> Array:
    """Look numbers below each population's total up among its running totals."""
    totals = weights.cumsum(axis=1)
    numbers = generator.random((len(weights), count)) * totals[:, -1:]
    # Rounding can reach the total, behind which nothing is.
    numbers = np.minimum(numbers, np.nextafter(totals[:, -1:], 0))
    found = [
        np.searchsorted(ends, row, side="right") for ends, row in zip(totals, numbers, strict=True)
    ]
    return np.array(found, np.int64).reshape(len(weights), count)


def _without_replacement(weights: Array, count: int, generator: np.random.Generator) -> Array:
    """Let each element wait for a time of rate ``w``: they arrive in the order of such draws.

    Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006.
    """
    available = (weights > 0).sum(axis=1)
    if (available < count).any():
        raise OperatorError(
            f"random_choice: {count} draws without replacement need as many positive weights, and "
            f"a population has {available.min()}"
        )
    waits = generator.exponential(size=weights.shape)
    with np.errstate(divide="ignore"):
        arrivals = np.where(weights > 0, waits / weights, np.inf)
    if not 0 < count < weights.shape[1]:
        return np.argsort(arrivals, axis=1)[:, :count]
    first = np.argpartition(arrivals, count - 1, axis=1)[:, :count]
    order = np.argsort(np.take_along_axis(arrivals, first, axis=1), axis=1)
    return np.take_along_axis(first, order, axis=1)


@random_choice_operator.infer
def random_choice_infer(
    x: Spec, w: Spec, key: Spec, *, shape: tuple[int, ...], replace: bool
) -> tuple[Spec, Spec]:
    """``shape`` in place of the last axis."""
    if x.shape != w.shape or not x.ndim:
        raise ShapeError("x and w must have the same shape, of at least one axis")
    if not x.shape[-1]:
        raise ShapeError("there is nothing to choose from: the last axis has length 0")
    if not replace and math.prod(shape) > x.shape[-1]:
        raise ShapeError(
            f"without replacement {math.prod(shape)} draws exceed the population of {x.shape[-1]}"
        )
    drawn = (*x.shape[:-1], *shape)
    return x.with_shape(drawn), Spec(drawn, np.dtype(np.int64))


@random_choice_operator.vjp(surrogate=True)
def random_choice_vjp(
    g: Any, y: Any, x: Any, w: Any, key: Any, *, shape: tuple[int, ...], replace: bool
) -> tuple[Any, ...]:
    """To the elements that were chosen, and the same to their weights."""
    sums = F.gather_adjoint(
        F.reshape(g[0], (-1,)), F.reshape(y[1], (-1,)), size=x.size, axis=0, batch_dims=0
    )
    dx = F.reshape(sums, x.shape)
    return dx, dx if dx.dtype == w.dtype else F.cast(dx, w.dtype), None


@random_choice_operator.samples
def random_choice_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """One population and many; one draw, some, none; with and without replacement."""
    for population, shape in (((5,), (3,)), ((5,), ()), ((2, 4), (2, 2)), ((3, 2, 3), (1,)),
                              ((0, 3), (2,)), ((2, 3), (0,))):  # fmt: skip
        for replace in (True, False):
            yield Sample(
                rng.normal(size=population), rng.uniform(1, 2, size=population),
                rng.integers(0, 2**63, size=2, dtype=np.uint64), shape=shape, replace=replace,
            )  # fmt: skip


def random_choice(
    x: Operand, w: Operand, shape: Sequence[int] = (), replace: bool = True, seed: int = -1
) -> Variable:
    """Choose from each population along the last axis of ``x``, by the weights ``w``.

    With replacement, an element comes with probability ``w / sum(w)`` at each draw. Without, no
    place of the population comes twice: each draw is from those that are left, in proportion to
    their weights. An element of weight 0 never comes.

    Args:
        x: populations ``(..., elements)``, of any dtype.
        w: a weight for each element, of the shape of ``x``, not negative.
        shape: shape of what is drawn from each population; by default ``(1,)``.
        replace: whether elements may be drawn more than once.
        seed: at least 0 for a sequence of its own; -1 for the one that ``nnl.seed`` begins.

    Returns:
        ``(..., *shape)`` of the dtype of ``x``.

    Raises:
        ShapeError: shapes differ, or more is drawn without replacement than there is.
        OperatorError: at the run, a weight is negative, a population's sum is not positive, or
            there are fewer positive weights than draws without replacement.

    Gradient:
        To the elements that were chosen, the sum over their draws. The weights are given the same
        (a surrogate: choices have no slope).

    Examples:
        >>> F.random_choice(np.array([[1, 2, 3], [4, 5, 6]]), np.array([[0, 1, 0], [0, 0, 2]])).d
        array([[2],
               [6]])
        >>> sorted(F.random_choice(np.arange(3), np.ones(3), (3,), replace=False).d.tolist())
        [0, 1, 2]

    Elsewhere:
        - nnabla: `random_choice`
        - PyTorch: `torch.multinomial`, which returns positions; `num_samples` for `shape`
        - ONNX: `Multinomial`, from logarithms of probabilities, positions only
    """
    drawn = wholes(shape, "shape") or (1,)
    if any(length < 0 for length in drawn):
        raise OperatorError(f"random_choice: shape {drawn} has a negative length")
    given = [value if isinstance(value, Variable) else Variable.constant(value) for value in (x, w)]
    y: Variable = random_choice_operator(
        *given, random_key(seed), shape=drawn, replace=bool(replace)
    )[0]
    return y
