"""Mean and variance, and what is normalised by them: the operators behind the functions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec, normalize_axes, promote
from nnl_core.operators.arithmetic import unbroadcast
from nnl_core.operators.axes import count, kept_shape
from nnl_core.operators.dtypes import wide


@defop("nnl::moments", save=("x", "mean"), outputs=("mean", "variance"), precision="full")
def moments(x: Array, *, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Mean and biased variance over ``axes``, which stay with length 1; of nothing, both are 0."""
    values = wide(x)
    count = max(1, math.prod(x.shape[axis] for axis in axes))
    mean = values.sum(axis=axes, keepdims=True) / values.dtype.type(count)
    variance = np.square(values - mean).sum(axis=axes, keepdims=True) / values.dtype.type(count)
    return np.array(mean.astype(x.dtype)), np.asarray(variance.astype(x.dtype, copy=False))


@moments.infer
def moments_infer(x: Spec, *, axes: tuple[int, ...]) -> tuple[Spec, Spec]:
    """Length 1 along the axes."""
    over = normalize_axes(axes, x.ndim)
    spec = x.with_shape(tuple(1 if axis in over else n for axis, n in enumerate(x.shape)))
    return spec, spec


@moments.vjp
def moments_vjp(g: Any, y: Any, x: Any, *, axes: tuple[int, ...]) -> tuple[Any, ...]:
    """``dx = (g_mean + 2 (x - mean) g_variance) / count``."""
    g_mean, g_variance = g
    share = 1 / max(1, math.prod(x.shape[axis] for axis in axes))
    if g_variance is None:
        return (F.broadcast_to(g_mean * share, x.shape),)
    dx = (x - y[0]) * (g_variance * (2 * share))
    return (dx if g_mean is None else dx + g_mean * share,)


@moments.samples
def moments_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Leading, trailing, all and no axes; one value; 0-d; empty."""
    for shape, axes in [
        ((4, 3, 5), (0, 2)),
        ((3, 7), (1,)),
        ((2, 3, 2, 2), (0, 1, 2, 3)),
        ((3, 2), ()),
        ((1, 5), (0,)),
        ((), ()),
        ((0, 3, 2), (0, 2)),
        ((0, 3), (1,)),
    ]:
        yield Sample(rng.normal(1, 2, size=shape), axes=axes)


@defop("nnl::normalize", save=("x", "mean", "variance", "gamma"), precision="full")
def normalize(
    x: Array, mean: Array, variance: Array, gamma: Array, beta: Array, *, eps: float = 1e-5
) -> Array:
    """``(x - mean) / sqrt(variance + eps) * gamma + beta``; all others broadcast to ``x``."""
    scale = wide(gamma) / np.sqrt(wide(variance) + wide(variance).dtype.type(eps))
    y = (wide(x) - wide(mean)) * scale + wide(beta)
    return np.asarray(y.astype(x.dtype, copy=False))


normalize.elementwise("(x - mean) / sqrtf(variance + eps) * gamma + beta")


@normalize.infer
def normalize_infer(
    x: Spec, mean: Spec, variance: Spec, gamma: Spec, beta: Spec, *, eps: float
) -> Spec:
    """That of ``x``."""
    for name, spec in (("mean", mean), ("variance", variance), ("gamma", gamma), ("beta", beta)):
        ends = zip(reversed(spec.shape), reversed(x.shape), strict=False)
        if spec.ndim > x.ndim or any(n not in (1, m) for n, m in ends):
            raise ShapeError(f"{name} of shape {spec.shape} does not broadcast to {x.shape}")
    return x.with_dtype(promote(x.dtype, mean.dtype, variance.dtype, gamma.dtype, beta.dtype))


@normalize.vjp
def normalize_vjp(
    g: Any, y: Any, x: Any, mean: Any, variance: Any, gamma: Any, beta: Any, *, eps: float
) -> tuple[Any, ...]:
    """The rule of a product; where all others have one shape, their sums are shared."""
    standard = normalize(x, mean, variance, 1.0, 0.0, eps=eps)
    inverse = (variance + eps) ** -0.5
    d_beta, d_gamma = unbroadcast(g, beta), unbroadcast(g * standard, gamma)
    if mean.shape == variance.shape == gamma.shape == beta.shape:
        scale = gamma * inverse
        d_mean = d_beta * scale * -1.0
        d_variance = d_gamma * scale * inverse * -0.5
        return g * scale, d_mean, d_variance, d_gamma, d_beta
    dx = g * gamma * inverse
    d_mean = unbroadcast(dx, mean) * -1.0
    d_variance = unbroadcast(dx * standard, variance) * inverse * -0.5
    return dx, d_mean, d_variance, d_gamma, d_beta


@normalize.samples
def normalize_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """By channel, by row with another gain, plain numbers, 0-d, empty."""
    for x, stat, gain in [
        ((4, 3, 5), (1, 3, 1), (1, 3, 1)),
        ((3, 7), (3, 1), (1, 7)),
        ((2, 3, 4), (2, 1, 1), ()),
        ((), (), ()),
        ((0, 3), (1, 3), (1, 3)),
    ]:
        yield Sample(
            rng.normal(size=x),
            rng.normal(size=stat),
            rng.uniform(0.5, 2, size=stat),
            rng.normal(size=gain),
            rng.normal(size=gain),
            eps=1e-3,
        )


@defop("nnl::running_statistic", outputs=("z",), precision="full")
def running_statistic(
    running: Array, value: Array, x: Array, *, decay: float, unbiased: bool = False
) -> Array:
    """``decay * running + (1 - decay) * value``, where ``value`` is a statistic of ``x``.

    ``unbiased`` corrects a variance for the mean having been taken from the same values. One
    value has no unbiased variance, and counts as it is; of none, ``running`` stays.
    """
    count = x.size // max(1, value.size)
    if not count:
        return running.copy()
    share = (1 - decay) * _correction(count, unbiased)
    mixed = decay * wide(running) + share * wide(value)
    return np.asarray(mixed.astype(running.dtype, copy=False))


def _correction(count: int, unbiased: bool) -> float:
    return count / (count - 1) if unbiased and count > 1 else 1.0


@running_statistic.infer
def running_statistic_infer(
    running: Spec, value: Spec, x: Spec, *, decay: float, unbiased: bool
) -> Spec:
    """That of the running value."""
    if running.shape != value.shape:
        raise ShapeError(f"running value of shape {running.shape} does not fit {value.shape}")
    return running


@running_statistic.vjp
def running_statistic_vjp(
    g: Any, z: Any, running: Any, value: Any, x: Any, *, decay: float, unbiased: bool
) -> tuple[Any, ...]:
    """The two shares."""
    count = math.prod(x.shape) // max(1, math.prod(value.shape))
    if not count:
        return g, None, None
    share = (1 - decay) * _correction(count, unbiased)
    return g * decay, unbroadcast(g * share, value), None


@running_statistic.samples
def running_statistic_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """A mean, a variance, one value, none."""
    for shape, unbiased in [
        ((4, 3, 2), False),
        ((4, 3, 2), True),
        ((1, 3, 1), True),
        ((0, 3), True),
    ]:
        stat = tuple(n if axis == 1 else 1 for axis, n in enumerate(shape))
        yield Sample(
            rng.normal(size=stat), rng.normal(size=stat), rng.normal(size=shape),
            decay=0.75, unbiased=unbiased,
        )  # fmt: skip


# Examples normalised by themselves ---------------------------------------------------------------


@defop(
    "nnl::standardize",
    save=("x", "gamma", "mean", "variance"),
    outputs=("y", "mean", "variance"),
    precision="full",
)
def standardize(
    x: Array, gamma: Array, beta: Array, *, axes: tuple[int, ...], eps: float = 1e-5
) -> tuple[Array, Array, Array]:
    """Normalise by the moments over ``axes``, which it returns, too."""
    mean, variance = moments.reference(x, axes=axes)
    return normalize.reference(x, mean, variance, gamma, beta, eps=eps), mean, variance


@standardize.infer
def standardize_infer(
    x: Spec, gamma: Spec, beta: Spec, *, axes: tuple[int, ...], eps: float
) -> tuple[Spec, Spec, Spec]:
    """That of ``x``, and length 1 along the axes."""
    mean, variance = moments_infer(x, axes=axes)
    return normalize_infer(x, mean, variance, gamma, beta, eps=eps), mean, variance


@standardize.vjp
def standardize_vjp(
    g: Any, y: Any, x: Any, gamma: Any, beta: Any, *, axes: tuple[int, ...], eps: float
) -> tuple[Any, ...]:
    """Through the result in one operator; through the moments as they have it."""
    g_y, *g_moments = g
    _, mean, variance = y
    dx = d_gamma = d_beta = None
    if g_y is not None:
        dx = standardize_gradient(g_y, x, mean, variance, gamma, axes=axes, eps=eps)
        standard = normalize(x, mean, variance, 1.0, 0.0, eps=eps)
        d_gamma, d_beta = unbroadcast(g_y * standard, gamma), unbroadcast(g_y, beta)
    if any(one is not None for one in g_moments):
        (more,) = moments_vjp(g_moments, (mean, variance), x, axes=axes)
        dx = more if dx is None else dx + more
    return dx, d_gamma, d_beta


@defop("nnl::standardize_gradient", save=("g", "x", "mean", "variance", "gamma"), precision="full")
def standardize_gradient(
    g: Array,
    x: Array,
    mean: Array,
    variance: Array,
    gamma: Array,
    *,
    axes: tuple[int, ...],
    eps: float = 1e-5,
) -> Array:
    """``(h - M(h) - s M(h s)) / d`` with ``h = g gamma``, ``d = sqrt(variance + eps)``.

    ``s = (x - mean) / d``, and ``M`` is the mean over ``axes``.
    """
    inverse = 1 / np.sqrt(variance + x.dtype.type(eps))
    s, h = (x - mean) * inverse, g * gamma
    number = x.dtype.type(max(1, count(x.shape, axes)))
    along, level = (one.sum(axis=axes, keepdims=True) / number for one in (h * s, h))
    return np.asarray((h - level - s * along) * inverse)


@standardize_gradient.infer
def standardize_gradient_infer(
    g: Spec,
    x: Spec,
    mean: Spec,
    variance: Spec,
    gamma: Spec,
    *,
    axes: tuple[int, ...],
    eps: float,
) -> Spec:
    """That of ``x``."""
    spec, _ = moments_infer(x, axes=axes)
    if not g.shape == x.shape or not mean.shape == variance.shape == spec.shape:
        raise ShapeError("the gradient or the moments do not have the shape of the result")
    return normalize_infer(x, mean, variance, gamma, g, eps=eps)


@standardize_gradient.vjp
def standardize_gradient_vjp(
    k: Any,
    dx: Any,
    g: Any,
    x: Any,
    mean: Any,
    variance: Any,
    gamma: Any,
    *,
    axes: tuple[int, ...],
    eps: float,
) -> tuple[Any, ...]:
    """It is its own adjoint in ``h``; ``s`` and ``d`` are what ``x``, mean and variance make."""

    def mean_of(z: Any) -> Any:
        return F.mean(z, axes, keepdims=True) if count(x.shape, axes) else F.sum(z, axes, True)

    inverse = (variance + eps) ** -0.5
    h, s = g * gamma, normalize(x, mean, variance, 1.0, 0.0, eps=eps)
    dh = standardize_gradient(k, x, mean, variance, 1.0, axes=axes, eps=eps)
    along_h, along_k = mean_of(h * s), mean_of(k * s)
    ds = (k * along_h + h * along_k) * inverse * -1.0
    d_inverse = F.sum(k * (h - mean_of(h) - s * along_h) + ds * s / inverse, axes, keepdims=True)
    d_mean = F.sum(ds, axes, keepdims=True) * inverse * -1.0
    d_variance = d_inverse * inverse**3 * -0.5
    return dh * gamma, ds * inverse, d_mean, d_variance, unbroadcast(dh * g, gamma)


def _standardize_shapes() -> Iterator[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """Yield shapes of examples, of gains, and axes."""
    yield (3, 7), (1, 7), (1,)
    yield (2, 3, 4), (3, 1), (1, 2)
    yield (2, 3, 4), (), (2,)
    yield (2, 3, 2), (2, 3, 1), (2,)
    yield (2, 3), (3,), (0,)
    yield (2, 3), (), ()
    yield (), (), ()
    yield (0, 3), (1, 3), (1,)
    yield (2, 0), (1, 1), (1,)


@standardize.samples
def standardize_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Gains by element, by channel, plain, by example; one value; 0-d; empty."""
    for shape, gain, axes in _standardize_shapes():
        x, gamma, beta = (rng.normal(1, 2, size=size) for size in (shape, gain, gain))
        yield Sample(x, gamma, beta, axes=axes, eps=0.1)


@standardize_gradient.samples
def standardize_gradient_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """As of the operator it belongs to; the moments are not those of ``x``."""
    for shape, gain, axes in _standardize_shapes():
        moment = kept_shape(shape, axes)
        g, x, mean = (rng.normal(size=size) for size in (shape, shape, moment))
        variance = rng.uniform(0.5, 2, size=moment)
        yield Sample(g, x, mean, variance, rng.normal(size=gain), axes=axes, eps=0.1)
