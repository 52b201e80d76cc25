"""Half precision: sums of many, squares of large and eps, which its range and digits do not hold.

``float16`` counts to 2048 in ones and ends at 65504; ``bfloat16`` counts to 256.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable

MANY = 4096
HALF = ["float16", "bfloat16"]
each_dtype = pytest.mark.parametrize("dtype", HALF)


def half(values: Any, dtype: str) -> Variable:
    """Return values in half precision; what it rounds is up to the caller."""
    x = Variable(np.shape(values), dtype=dtype)
    x.d = np.asarray(values)
    return x


Build = Callable[[Callable[..., Variable]], Any]
NO_PLACE = np.zeros(MANY, np.int64)

# What half precision cannot hold on the way, and what comes out. ``ones(*shape)`` are given.
COUNTS: dict[str, Build] = {
    "sum": lambda ones: F.sum(ones(MANY)),
    "sum along an axis": lambda ones: F.sum(ones(2, MANY), axis=1),
    "cumsum": lambda ones: F.cumsum(ones(MANY))[MANY - 1],
    "matmul": lambda ones: F.matmul(ones(1, MANY), ones(MANY, 1)),
    "batch_matmul": lambda ones: F.batch_matmul(ones(1, 1, MANY), ones(1, MANY, 1)),
    "affine": lambda ones: F.affine(ones(1, MANY), ones(MANY, 1)),
    "dot": lambda ones: F.dot(ones(MANY), ones(MANY)),
    "einsum": lambda ones: F.einsum("i,i->", ones(MANY), ones(MANY)),
    "einsum of three": lambda ones: F.einsum("i,i,i->", ones(MANY), ones(MANY), ones(MANY)),
    "sum_pooling": lambda ones: F.sum_pooling(ones(1, 1, 64, 64), (64, 64)),
    "convolution": lambda ones: F.convolution(ones(1, 64, 8, 8), ones(1, 64, 8, 8)),
    "deconvolution": lambda ones: F.deconvolution(ones(1, MANY, 1, 1), ones(MANY, 1, 1, 1)),
    "fft": lambda ones: F.fft(F.stack(ones(MANY), 0 * ones(MANY), axis=1), 1)[0, 0],
    "scatter_add": lambda ones: F.scatter_add(0 * ones(1), NO_PLACE, ones(MANY), axis=0),
    "scatter_elements": lambda ones: F.scatter_elements(
        0 * ones(1), NO_PLACE, ones(MANY), reduction="add"
    ),
    "scatter_nd": lambda ones: F.scatter_nd(ones(MANY), NO_PLACE[None], shape=(1,), add=True),
}


@each_dtype
@pytest.mark.parametrize("build", COUNTS.values(), ids=COUNTS)
def test_sums_count_further_than_their_dtype(build: Build, dtype: str, evaluate: Any) -> None:
    result = evaluate(lambda: build(lambda *shape: half(np.ones(shape), dtype)))
    assert result.dtype == half(0, dtype).dtype
    np.testing.assert_array_equal(result.astype(np.float64), np.full(result.shape, MANY))


GRADIENTS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "broadcast": (lambda x, ones: F.broadcast(x, (MANY,)), (1,)),
    "a broadcast operand": (lambda x, ones: x + ones(MANY), (1,)),
    "a bias": (lambda x, ones: F.affine(ones(MANY, 1), ones(1, 1), x), (1,)),
    "a weight": (lambda x, ones: F.matmul(ones(MANY, 1), x), (1, 1)),
    "a bias of a convolution": (
        lambda x, ones: F.convolution(ones(1, 1, 64, 64), ones(1, 1, 1, 1), x),
        (1,),
    ),
    "a weight of a convolution": (
        lambda x, ones: F.convolution(ones(1, 1, 64, 64), x),
        (1, 1, 1, 1),
    ),
    "beta": (
        lambda x, ones: F.batch_normalization(ones(MANY, 1), x, None, None, None),
        (1, 1),
    ),
    "gather": (lambda x, ones: F.gather(x, NO_PLACE, axis=0), (1,)),
    "embed": (lambda x, ones: F.embed(NO_PLACE, x), (1, 1)),
    "getitem": (lambda x, ones: x[NO_PLACE], (1,)),
    "tile": (lambda x, ones: F.tile(x, (MANY,)), (1,)),
    "unpooling": (lambda x, ones: F.unpooling(x, (64, 64)), (1, 1, 1, 1)),
    "interpolate": (lambda x, ones: F.interpolate(x, output_size=(64, 64)), (1, 1, 1, 1)),
}


@each_dtype
@pytest.mark.parametrize(("build", "shape"), GRADIENTS.values(), ids=GRADIENTS)
def test_gradients_count_further_than_their_dtype(
    build: Callable[..., Any], shape: tuple[int, ...], dtype: str
) -> None:
    x = half(np.ones(shape), dtype)
    x.need_grad = True
    (gradient,) = nnl.grad(F.sum(build(x, lambda *s: half(np.ones(s), dtype))), x)
    assert gradient.dtype == x.dtype
    np.testing.assert_array_equal(gradient.d.astype(np.float64), np.full(shape, MANY))


SIGNS = np.where(np.arange(1000) % 2, 300.0, -300.0)

# The square of 300 is more than float16 holds.
SQUARES: dict[str, tuple[Build, float]] = {
    "mean of what sums to more": (lambda of: F.mean(of(np.full(70000, 2.0))), 2),
    "sum past the range and back": (
        lambda of: F.sum(of(np.array([60000.0, 60000.0, -60000.0, -60000.0]))),
        0,
    ),
    "std": (lambda of: F.std(of(SIGNS)), 300),
    "norm": (lambda of: F.norm(of(np.full(4, 300.0))), 600),
    "norm of third powers": (lambda of: F.norm(of(np.full(8, 300.0)), p=3), 600),
    "batch_normalization": (
        lambda of: F.batch_normalization(of(SIGNS[:, None]), None, None, None, None)[1, 0],
        1,
    ),
    "layer_normalization": (lambda of: F.layer_normalization(of(SIGNS[None]), None, None)[0, 1], 1),
    "rms_norm": (lambda of: F.rms_norm(of(SIGNS[None]))[0, 1], 1),
    "norm_normalization": (lambda of: F.norm_normalization(of(np.full(4, 300.0))), 0.5),
    "weight_normalization": (
        lambda of: F.weight_normalization(of(np.full((1, 4), 300.0)), of(np.ones(1))),
        0.5,
    ),
    "clip_by_norm": (lambda of: F.clip_by_norm(of(np.full(4, 300.0)), 2.0), 1),
    "cosine_similarity": (lambda of: F.cosine_similarity(of(SIGNS), of(SIGNS)), 1),
    "prod past the range and back": (lambda of: F.prod(of(np.array([512.0, 512.0, 1 / 4096]))), 64),
    "logsumexp": (lambda of: F.logsumexp(of(np.zeros(MANY))), np.log(MANY)),
    "softmax": (lambda of: F.softmax(of(np.zeros(MANY))), 1 / MANY),
    "softmax_cross_entropy": (
        lambda of: F.softmax_cross_entropy(of(np.zeros((1, MANY))), np.zeros((1, 1), np.int64)),
        np.log(MANY),
    ),
    "global_average_pooling": (
        lambda of: F.global_average_pooling(of(np.full((1, 1, 64, 64), 30))),
        30,
    ),
    "average_pooling": (
        lambda of: F.average_pooling(of(np.full((1, 1, 64, 64), 30)), (64, 64)),
        30,
    ),
}


@each_dtype
@pytest.mark.parametrize(("build", "expected"), SQUARES.values(), ids=SQUARES)
def test_results_are_right_where_steps_on_the_way_overflow(
    build: Build, expected: float, dtype: str, evaluate: Any
) -> None:
    result = evaluate(lambda: build(lambda array: half(array, dtype)))
    assert result.dtype == half(0, dtype).dtype
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=4e-3, atol=1e-6)


# An eps of 1e-8 or 1e-12 is 0 in float16.
EPS: dict[str, Callable[[Variable], Any]] = {
    "norm_normalization": lambda x: F.norm_normalization(x, axes=1),
    "weight_normalization": lambda x: F.weight_normalization(x, np.ones(1, np.float16)),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x),
    "rms_norm": F.rms_norm,
    "layer_normalization": lambda x: F.layer_normalization(x, None, None, eps=1e-12),
    "batch_normalization": lambda x: F.batch_normalization(x, None, None, None, None, eps=1e-12),
    "weight_standardization": lambda x: F.weight_standardization(x, eps=1e-12),
    "poisson_nll_loss": lambda x: F.poisson_nll_loss(x, np.zeros((1, 4)), log_input=False),
    "kl_multinomial": lambda x: F.kl_multinomial(x, x),
}


@each_dtype
@pytest.mark.parametrize("build", EPS.values(), ids=EPS)
def test_an_eps_that_the_dtype_does_not_hold_keeps_zeros_finite(
    build: Callable[[Variable], Any], dtype: str, evaluate: Any
) -> None:
    result = evaluate(lambda: build(half(np.zeros((1, 4)), dtype)))
    np.testing.assert_array_equal(result.astype(np.float64), np.zeros(result.shape))


@each_dtype
def test_a_sum_that_the_dtype_cannot_hold_is_infinite_without_a_warning(
    dtype: str, evaluate: Any
) -> None:
    large = float(np.float32(3e38)) if dtype == "bfloat16" else 60000.0
    for build in (F.sum, lambda x: F.cumsum(x)[1], lambda x: x * 2, lambda x: F.prod(x)):
        x = half(np.full(2, large), dtype)
        assert evaluate(lambda build=build, x=x: build(x)).astype(np.float64).max() == np.inf


def test_a_count_that_float32_cannot_hold_is_right_in_float64(evaluate: Any) -> None:
    assert evaluate(lambda: F.sum(np.full(2**12, 2.0**30 + 1))) == 2**42 + 2**12


@each_dtype
def test_a_running_mean_goes_on_counting_where_half_precision_does_not(dtype: str) -> None:
    seen = 4095
    mean, t = Variable((1,)), Variable((1,))
    mean.d, t.d = 0, seen
    for step in range(2):
        F.mean_subtraction(half([[1.0], [3.0]], dtype), mean, t).forward()
        assert t.d == seen + step + 1
    np.testing.assert_allclose(mean.d, 4 / (seen + 2), rtol=1e-5)
