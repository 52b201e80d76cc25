"""Random numbers, as pure functions of a key: a seed, and which draw from it this is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nnl_core import random
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.checks import real, whole, wholes
from nnl_core.graph.dtypes import is_floating
from nnl_core.graph.modes import auto_forward, recompute
from nnl_core.graph.node import add_effects
from nnl_core.graph.operator import Array, Operator, Sample, defop
from nnl_core.graph.spec import DEFAULT_DTYPE, Spec
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import add_scalar, cast

__all__ = [
    "dropout",
    "rand",
    "rand_beta",
    "rand_binomial",
    "rand_gamma",
    "randint",
    "randn",
    "random_key",
]


# Keys --------------------------------------------------------------------------------------------


def generator_of(key: Array) -> np.random.Generator:
    """Return the generator that a key stands for: Philox, counting from 0."""
    return np.random.Generator(np.random.Philox(key=key))


@defop("nnl::random_key")
def random_key_operator(start: Array, counter: Array) -> Array:
    """Return ``(start[0], counter - start[1])``, wrapping: the seed and the number of this draw."""
    return np.concatenate([start[:1], counter.reshape(1) - start[1:]])


@random_key_operator.infer
def random_key_infer(start: Spec, counter: Spec) -> Spec:
    """Two integers."""
    if start.shape != (2,) or counter.shape != ():
        raise ShapeError("start must hold two numbers, and counter one")
    if not start.dtype == counter.dtype == np.uint64:
        raise ShapeError(f"keys are uint64, not {start.dtype} and {counter.dtype}")
    return start


@random_key_operator.samples
def random_key_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Counted from 0, from later, and round the end."""
    for start, counter in (((7, 0), 3), ((2**64 - 1, 5), 9), ((0, 9), 5)):
        yield Sample(np.array(start, np.uint64), np.array(counter, np.uint64))


def random_key(seed: int = -1) -> Variable:
    """Return the key of a new random node: an input that is another one at each run.

    All that draw in one run share one step of `nnl.random.counter`. Whoever writes an operator that
    draws takes a key as an input.

    Args:
        seed: that of the node; -1 for the global sequence.

    Gradient:
        None: nothing goes in.

    Examples:
        >>> F.random_key().dtype
        dtype('uint64')

    Elsewhere:
        - nnabla: none, its functions draw from hidden generators
        - PyTorch: `torch.Generator`
        - ONNX: none, its operators have a seed
    """
    if seed is not None and seed < -1:
        raise OperatorError(f"seed {seed} must be at least 0, or -1 for the global sequence")
    start = random.start_of_node(None if seed is None or seed == -1 else whole(seed, "seed"))
    # A backward pass that computes the draw again must find the key of the forward pass, when the
    # counter has moved on: so the key itself is never recomputed and never released.
    with recompute(False):
        key: Variable = random_key_operator(start, random.counter)
    key._persistent = True  # no plan knows the new node: none is out of date
    # In a dynamic graph each node has a key of its own, and the counter need not move.
    with auto_forward(False):
        add_effects(key, [(random.counter, add_scalar(random.counter, 1))], at_end=True)
    return key


# Draws -------------------------------------------------------------------------------------------


@defop("nnl::rand")
def rand_operator(
    key: Array, *, shape: tuple[int, ...], low: float = 0.0, high: float = 1.0
) -> Array:
    """Numbers uniform in [low, high)."""
    numbers = generator_of(key).random(shape, np.float32) * np.float32(high - low) + np.float32(low)
    # Rounding can reach `high`, which does not belong to the range.
    return np.asarray(np.minimum(numbers, np.nextafter(np.float32(high), np.float32(low))))


@defop("nnl::randn")
def randn_operator(
    key: Array, *, shape: tuple[int, ...], mu: float = 0.0, sigma: float = 1.0
) -> Array:
    """Numbers from the normal distribution of mean ``mu`` and standard deviation ``sigma``."""
    numbers = generator_of(key).standard_normal(shape, np.float32)
    return np.asarray(numbers * np.float32(sigma) + np.float32(mu))


@defop("nnl::randint")
def randint_operator(key: Array, *, shape: tuple[int, ...], low: int = 0, high: int = 1) -> Array:
    """Integers uniform in [low, high)."""
    return np.asarray(generator_of(key).integers(low, high, shape, np.int32))


@defop("nnl::rand_binomial")
def rand_binomial_operator(
    key: Array, *, shape: tuple[int, ...], n: int = 1, p: float = 0.5
) -> Array:
    """Numbers of successes in ``n`` trials that succeed with probability ``p``."""
    return np.asarray(generator_of(key).binomial(n, p, shape), np.float32)


@defop("nnl::rand_beta")
def rand_beta_operator(
    key: Array, *, shape: tuple[int, ...], alpha: float = 0.5, beta: float = 0.5
) -> Array:
    """Numbers from the beta distribution."""
    return np.asarray(generator_of(key).beta(alpha, beta, shape), np.float32)


@defop("nnl::rand_gamma")
def rand_gamma_operator(
    key: Array, *, shape: tuple[int, ...], k: float = 0.5, theta: float = 1.0
) -> Array:
    """Numbers from the gamma distribution of shape ``k`` and scale ``theta``."""
    return np.asarray(generator_of(key).gamma(k, theta, shape), np.float32)


def _complete(operator: Operator, dtype: np.dtype, **example: float) -> None:
    """Attach to a draw what all have in common: its shape is given, and nothing has a gradient."""
    operator.infer(lambda key, *, shape, **attributes: Spec(shape, dtype))

    def samples(rng: np.random.Generator) -> Iterator[Sample]:
        for shape in ((), (3, 5), (0, 2)):
            key = rng.integers(0, 2**63, size=2, dtype=np.uint64)
            yield Sample(key, shape=shape)
            yield Sample(key, shape=shape, **example)

    operator.samples(samples)


_complete(rand_operator, DEFAULT_DTYPE, low=-3.0, high=-1.0)
_complete(randn_operator, DEFAULT_DTYPE, mu=5.0, sigma=0.5)
_complete(randint_operator, np.dtype(np.int32), low=-4, high=9)
_complete(rand_binomial_operator, DEFAULT_DTYPE, n=9, p=0.25)
_complete(rand_beta_operator, DEFAULT_DTYPE, alpha=2.0, beta=3.0)
_complete(rand_gamma_operator, DEFAULT_DTYPE, k=2.0, theta=3.0)


def rand(low: float = 0, high: float = 1, shape: Sequence[int] = (), seed: int = -1) -> Variable:
    """Draw ``float32`` numbers uniform in [low, high) at each run.

    Args:
        low: the least.
        high: what none reaches.
        shape: the lengths of the axes.
        seed: a seed of its own; -1 for the global sequence (`nnl.seed`).

    Gradient:
        None: nothing goes in.

    Examples:
        >>> y = F.rand(2, 3, shape=(100,))
        >>> bool(y.d.min() >= 2), bool(y.d.max() < 3)
        (True, True)

    Elsewhere:
        - nnabla: `rand`
        - PyTorch: `torch.rand`, of [0, 1)
        - ONNX: `RandomUniform`
    """
    _require("rand", low <= high, f"low {low} must not exceed high {high}")
    return _draw(rand_operator, shape, seed, low=real(low, "low"), high=real(high, "high"))


def randn(mu: float = 0, sigma: float = 1, shape: Sequence[int] = (), seed: int = -1) -> Variable:
    """Draw ``float32`` normal numbers at each run.

    Args:
        mu: their mean.
        sigma: their standard deviation.
        shape: the lengths of the axes.
        seed: a seed of its own; -1 for the global sequence (`nnl.seed`).

    Gradient:
        None: nothing goes in.

    Examples:
        >>> y = F.randn(10, 0.1, shape=(1000,))
        >>> round(float(y.d.mean()))
        10

    Elsewhere:
        - nnabla: `randn`
        - PyTorch: `torch.normal`
        - ONNX: `RandomNormal`
    """
    _require("randn", sigma >= 0, f"sigma {sigma} must not be negative")
    return _draw(randn_operator, shape, seed, mu=real(mu, "mu"), sigma=real(sigma, "sigma"))


def randint(low: int = 0, high: int = 1, shape: Sequence[int] = (), seed: int = -1) -> Variable:
    """Draw ``int32`` numbers uniform in [low, high) at each run.

    Args:
        low: the least.
        high: what none reaches.
        shape: the lengths of the axes.
        seed: a seed of its own; -1 for the global sequence (`nnl.seed`).

    Gradient:
        None: nothing goes in.

    Examples:
        >>> sorted(set(F.randint(0, 3, shape=(100,)).d.tolist()))
        [0, 1, 2]

    Elsewhere:
        - nnabla: `randint`
        - PyTorch: `torch.randint`
        - ONNX: none, `RandomUniform` and `Floor`
    """
    _require("randint", low < high, f"low {low} must be less than high {high}")
    _require("randint", -(2**31) <= low and high <= 2**31, "the bounds must fit 32 bits")
    return _draw(randint_operator, shape, seed, low=whole(low, "low"), high=whole(high, "high"))


def rand_binomial(
    n: int = 1, p: float = 0.5, shape: Sequence[int] = (), seed: int = -1
) -> Variable:
    """Draw numbers of successes, as ``float32``, at each run.

    Args:
        n: how many trials.
        p: the probability of success in each.
        shape: the lengths of the axes.
        seed: a seed of its own; -1 for the global sequence (`nnl.seed`).

    Gradient:
        None: nothing goes in.

    Examples:
        >>> sorted(set(F.rand_binomial(2, 0.5, shape=(100,)).d.tolist()))
        [0.0, 1.0, 2.0]

    Elsewhere:
        - nnabla: `rand_binomial`
        - PyTorch: `torch.binomial`
        - ONNX: `Bernoulli`, of one trial
    """
    _require("rand_binomial", n >= 0, f"n {n} must not be negative")
    _require("rand_binomial", 0 <= p <= 1, f"p {p} must be in [0, 1]")
    return _draw(rand_binomial_operator, shape, seed, n=whole(n, "n"), p=real(p, "p"))


def rand_beta(
    alpha: float = 0.5, beta: float = 0.5, shape: Sequence[int] = (), seed: int = -1
) -> Variable:
    """Draw ``float32`` numbers from the beta distribution at each run.

    Args:
        alpha: its first parameter.
        beta: its second parameter.
        shape: the lengths of the axes.
        seed: a seed of its own; -1 for the global sequence (`nnl.seed`).

    Gradient:
        None: nothing goes in.

    Examples:
        >>> y = F.rand_beta(2, 2, shape=(100,))
        >>> bool(y.d.min() > 0), bool(y.d.max() < 1)
        (True, True)

    Elsewhere:
        - nnabla: `rand_beta`
        - PyTorch: `torch.distributions.Beta`
        - ONNX: none, there is no such operator
    """
    _require("rand_beta", alpha > 0 and beta > 0, f"alpha {alpha} and beta {beta} must be positive")
    return _draw(
        rand_beta_operator, shape, seed, alpha=real(alpha, "alpha"), beta=real(beta, "beta")
    )


def rand_gamma(
    k: float = 0.5, theta: float = 1, shape: Sequence[int] = (), seed: int = -1
) -> Variable:
    """Draw ``float32`` numbers from the gamma distribution at each run.

    Args:
        k: its shape.
        theta: its scale; the mean is ``k theta``.
        shape: the lengths of the axes.
        seed: a seed of its own; -1 for the global sequence (`nnl.seed`).

    Gradient:
        None: nothing goes in.

    Examples:
        >>> bool(F.rand_gamma(2, 2, shape=(100,)).d.min() > 0)
        True

    Elsewhere:
        - nnabla: `rand_gamma`
        - PyTorch: `torch.distributions.Gamma`, whose rate is one over the scale
        - ONNX: none, there is no such operator
    """
    _require("rand_gamma", k > 0 and theta > 0, f"k {k} and theta {theta} must be positive")
    return _draw(rand_gamma_operator, shape, seed, k=real(k, "k"), theta=real(theta, "theta"))


def _draw(operator: Operator, shape: Sequence[int], seed: int, **attributes: float) -> Variable:
    lengths = wholes(shape, "shape")
    _require(operator.__name__, all(n >= 0 for n in lengths), f"shape {lengths} is negative")
    return operator(random_key(seed), shape=lengths, **attributes)


def _require(name: str, holds: bool, sentence: str) -> None:
    if not holds:
        raise OperatorError(f"{name}: {sentence}")


# Dropout -----------------------------------------------------------------------------------------


@defop("nnl::dropout", save=("mask",), outputs=("y", "mask"))
def dropout_operator(x: Array, key: Array, *, p: float) -> tuple[Array, Array]:
    """Set elements to 0 with probability ``p``, and divide the others by ``1 - p``.

    The mask is true where an element stays.
    """
    mask = generator_of(key).random(x.shape, np.float32) >= np.float32(p)
    return x * mask * x.dtype.type(1 / (1 - p)), np.asarray(mask)


@dropout_operator.infer
def dropout_infer(x: Spec, key: Spec, *, p: float) -> tuple[Spec, Spec]:
    """The input's shape."""
    if not is_floating(x.dtype):
        raise ShapeError(f"dropout is for floating numbers, not {x.dtype}")
    return x, x.with_dtype(bool)


@dropout_operator.vjp
def dropout_vjp(g: Any, y: Any, x: Any, key: Any, *, p: float) -> tuple[Any, ...]:
    """Drop the same elements of the gradient."""
    if g[0] is None:
        return None, None
    return g[0] * cast(y[1], x.dtype) * (1 / (1 - p)), None


@dropout_operator.samples
def dropout_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Nothing, half and most dropped; 0-d; empty."""
    for p in (0.0, 0.5, 0.9):
        for shape in ((), (7, 3), (0, 2)):
            key = rng.integers(0, 2**63, size=2, dtype=np.uint64)
            yield Sample(rng.normal(size=shape), key, p=p)


def dropout(
    x: Operand, p: float = 0.5, seed: int = -1, output_mask: bool = False
) -> Variable | tuple[Variable, Variable]:
    """Set elements to 0 with probability ``p`` at each run, and divide the others by ``1 - p``.

    Srivastava et al., 2014, scaled while training.

    Args:
        x: any shape, floating.
        p: the probability, below 1.
        seed: a seed of its own; -1 for the global sequence (`nnl.seed`).
        output_mask: return also what is 1 where an element stays, and 0 elsewhere.

    Raises:
        OperatorError: ``p`` is not in [0, 1).

    Gradient:
        ``dy / (1 - p)`` where an element stays, else 0.

    Examples:
        >>> y = F.dropout(np.ones(1000), p=0.5)
        >>> sorted(set(y.d.tolist()))
        [0.0, 2.0]

    Elsewhere:
        - nnabla: `dropout`
        - PyTorch: `torch.nn.functional.dropout`
        - ONNX: `Dropout`
    """
    p = real(p, "p")
    _require("dropout", 0 <= p < 1, f"p {p} must be in [0, 1)")
    y, mask = dropout_operator(x, random_key(seed), p=p)
    return (y, cast(mask, y.dtype)) if output_mask else y
