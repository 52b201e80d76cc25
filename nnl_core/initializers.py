"""``I``: first values of parameters, under nnabla's names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from nnl_core import random
from nnl_core.errors import ParameterError
from nnl_core.graph.operator import Array
from nnl_core.graph.spec import DEFAULT_DTYPE
from nnl_core.graph.variable import Variable

RandomSource: TypeAlias = np.random.Generator | np.random.RandomState


class Initializer(Protocol):
    """Makes the first value of a parameter of a given shape."""

    def __call__(self, shape: Sequence[int]) -> npt.ArrayLike:
        """Return an array of that shape."""


class BaseInitializer:
    """Base class of initializers: subclasses define ``__call__(shape)``.

    ``rng`` is where random ones draw from; without it, `nnl_core.random.prng` at the time of the
    call, which ``nnl.seed`` sets.
    """

    def __init__(self, rng: RandomSource | None = None) -> None:
        self.rng = rng

    @property
    def generator(self) -> RandomSource:
        """What random numbers are drawn from now."""
        return random.prng if self.rng is None else self.rng

    def __call__(self, shape: Sequence[int]) -> Array:
        """Return an array of that shape."""
        raise ParameterError(
            f"{type(self).__name__} defines no __call__(shape), so it cannot initialise a parameter"
        )

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={value!r}" for name, value in vars(self).items() if name != "rng"
        )
        return f"{type(self).__name__}({shown})"


class ConstantInitializer(BaseInitializer):
    """The same value everywhere."""

    def __init__(self, value: float = 0) -> None:
        super().__init__()
        self.value = value

    def __call__(self, shape: Sequence[int]) -> Array:
        """Return an array of that shape."""
        return np.full(tuple(shape), self.value, DEFAULT_DTYPE)


class NormalInitializer(BaseInitializer):
    """Normally distributed with mean 0 and standard deviation ``sigma``."""

    def __init__(self, sigma: float = 1.0, rng: RandomSource | None = None) -> None:
        super().__init__(rng)
        self.sigma = sigma

    def __call__(self, shape: Sequence[int]) -> Array:
        """Return an array of that shape."""
        return _single(self.generator.normal(0.0, self.sigma, tuple(shape)))


class UniformInitializer(BaseInitializer):
    """Uniformly distributed in the half-open interval ``lim``."""

    def __init__(self, lim: tuple[float, float] = (-1, 1), rng: RandomSource | None = None) -> None:
        super().__init__(rng)
        self.lim = lim

    def __call__(self, shape: Sequence[int]) -> Array:
        """Return an array of that shape."""
        return _single(self.generator.uniform(*self.lim, tuple(shape)))


class UniformIntInitializer(BaseInitializer):
    """Integers, uniformly distributed from ``lim[0]`` up to, and without, ``lim[1]``."""

    def __init__(self, lim: tuple[int, int] = (0, 10), rng: RandomSource | None = None) -> None:
        super().__init__(rng)
        self.lim = lim

    def __call__(self, shape: Sequence[int]) -> Array:
        """Return an array of that shape."""
        generator = self.generator
        if isinstance(generator, np.random.Generator):
            return generator.integers(*self.lim, tuple(shape))
        return np.asarray(generator.randint(*self.lim, tuple(shape)))


class RangeInitializer(BaseInitializer):
    """``start + step * i`` along the last axis, the same along all others."""

    def __init__(self, start: float = 0, step: float = 1) -> None:
        super().__init__()
        self.start = start
        self.step = step

    def __call__(self, shape: Sequence[int]) -> Array:
        """Return an array of that shape, which has at least one axis."""
        if not shape:
            raise ParameterError("RangeInitializer needs a shape with at least one axis")
        return np.broadcast_to(
            _single(self.start + self.step * np.arange(shape[-1])), tuple(shape)
        ).copy()


class OrthogonalInitializer(BaseInitializer):
    """Orthogonal rows or columns (all axes but the first taken as one), times ``gain``.

    Saxe et al., "Exact solutions to the nonlinear dynamics of learning in deep linear neural
    networks", 2014.
    """

    def __init__(self, gain: float = 1.0, rng: RandomSource | None = None) -> None:
        super().__init__(rng)
        self.gain = gain

    def __call__(self, shape: Sequence[int]) -> Array:
        """Return an array of that shape, which has at least two axes."""
        if len(shape) < 2:
            raise ParameterError(
                f"OrthogonalInitializer needs a shape with at least two axes, not {tuple(shape)}"
            )
        flat = (shape[0], math.prod(shape[1:]))
        left, _, right = np.linalg.svd(self.generator.normal(0.0, 1.0, flat), full_matrices=False)
        orthogonal = left if left.shape == flat else right
        return _single(orthogonal.reshape(tuple(shape)) * self.gain)


class WeightNormalizationScaleInitializer(BaseInitializer):
    """The norm of each slice of ``w`` along axis ``dim``: weight normalisation starts at ``w``."""

    def __init__(self, w: Variable, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        self.w = w.get_unlinked_variable()
        self.dim = dim
        self.eps = eps

    def __call__(self, shape: Sequence[int]) -> Array:
        """Return one norm for each index along ``dim``."""
        kept = self.dim % self.w.ndim
        axes = tuple(axis for axis in range(self.w.ndim) if axis != kept)
        return _single(np.sqrt(np.sum(self.w.d.astype(np.float64) ** 2, axis=axes) + self.eps))


def calc_normal_std_he_forward(inmaps: int, outmaps: int, kernel: Sequence[int] = (1, 1)) -> float:
    """Return ``sqrt(2 / (inmaps K))`` for a kernel of K elements.

    He et al., "Delving deep into rectifiers", 2015: the variance of what is passed on is kept.
    """
    return _root_of_ratio(2, math.prod(kernel) * inmaps)


def calc_normal_std_he_backward(inmaps: int, outmaps: int, kernel: Sequence[int] = (1, 1)) -> float:
    """Return ``sqrt(2 / (outmaps K))`` for a kernel of K elements.

    He et al., "Delving deep into rectifiers", 2015: the variance of gradients is kept.
    """
    return _root_of_ratio(2, math.prod(kernel) * outmaps)


def calc_normal_std_glorot(inmaps: int, outmaps: int, kernel: Sequence[int] = (1, 1)) -> float:
    """Return ``sqrt(2 / (inmaps K + outmaps))`` for a kernel of K elements.

    Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks",
    2010; for kernels as nnabla computes it.
    """
    return _root_of_ratio(2, math.prod(kernel) * inmaps + outmaps)


def calc_uniform_lim_glorot(
    inmaps: int, outmaps: int, kernel: Sequence[int] = (1, 1)
) -> tuple[float, float]:
    """Return ``(-b, b)`` with ``b = sqrt(6 / (inmaps K + outmaps))`` for a kernel of K elements.

    See `calc_normal_std_glorot`.
    """
    limit = _root_of_ratio(6, math.prod(kernel) * inmaps + outmaps)
    return -limit, limit


def _root_of_ratio(numerator: float, connections: int) -> float:
    if connections <= 0:
        raise ParameterError(f"a layer with {connections} connections cannot be initialised")
    return math.sqrt(numerator / connections)


def _single(values: npt.ArrayLike) -> Array:
    return np.asarray(values, DEFAULT_DTYPE)
