"""NaN, infinities, signed zeros and denormal numbers, through every family of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnl_core import F, Variable
from nnl_core.graph.execute import forward_all

NAN, INF = np.nan, np.inf
TINY = np.float64(5e-324)  # the smallest number above 0


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape)


def whole(*shape: int, value: int = 0) -> np.ndarray:
    return np.full(shape, value, np.int64)


def filled(value: float, *shape: int) -> Variable:
    return Variable.from_numpy_array(np.full(shape, value))


# NaN taints what reads it, and nothing else ------------------------------------------------------

Build = Callable[[Variable], Any]
POSITIONS = np.array([[0, 1], [0, 1]])
SAME_PLACES = [[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]

READING: dict[str, tuple[Build, tuple[int, ...]]] = {
    # pictures
    "interpolate to the same size": (lambda x: F.interpolate(x, output_size=(3, 4)), (1, 1, 3, 4)),
    "interpolate by nearest": (
        lambda x: F.interpolate(x, output_size=(5, 7), mode="nearest"),
        (1, 1, 3, 4),
    ),
    "interpolate cubically to the same size": (
        lambda x: F.interpolate(x, output_size=(4, 3), mode="cubic"),
        (1, 1, 4, 3),
    ),
    "interpolate between pixels": (
        lambda x: F.interpolate(x, output_size=(6, 6), half_pixel=True),
        (1, 1, 3, 3),
    ),
    "onnx_resize": (lambda x: F.onnx_resize(x, sizes=(1, 1, 6, 6), mode="linear"), (1, 1, 3, 3)),
    "warp_by_grid": (lambda x: F.warp_by_grid(x, 0.4 * drawn(1, 3, 3, 2)), (1, 2, 4, 4)),
    "warp_by_grid, nearest": (
        lambda x: F.warp_by_grid(x, 0.4 * drawn(1, 3, 3, 2), mode="nearest"),
        (1, 2, 4, 4),
    ),
    "warp_by_grid, the same places": (
        lambda x: F.warp_by_grid(
            x, F.affine_grid(np.array(SAME_PLACES), (4, 4), align_corners=True), align_corners=True
        ),
        (1, 1, 4, 4),
    ),
    "warp_by_flow": (lambda x: F.warp_by_flow(x, 0.4 * drawn(1, 2, 4, 4)), (1, 1, 4, 4)),
    "warp_by_flow, no flow": (lambda x: F.warp_by_flow(x, np.zeros((1, 2, 4, 4))), (1, 1, 4, 4)),
    "roi_align": (
        lambda x: F.roi_align(x, np.array([[0, 0.3, 0.3, 3.0, 3.0]]), (2, 2)),
        (1, 1, 5, 5),
    ),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (1, 4, 2, 1)),
    "unpooling": (lambda x: F.unpooling(x, (2, 2)), (1, 1, 2, 2)),
    # windows
    "convolution": (lambda x: F.convolution(x, drawn(2, 2, 2, 2)), (1, 2, 4, 4)),
    "convolution in groups": (
        lambda x: F.convolution(x, drawn(2, 1, 3, 3), group=2, pad=(1, 1), stride=(2, 2)),
        (1, 2, 4, 4),
    ),
    "deconvolution": (lambda x: F.deconvolution(x, drawn(2, 2, 2, 2)), (1, 2, 3, 3)),
    "deformable_convolution": (
        lambda x: F.deformable_convolution(x, drawn(2, 2, 2, 2), 0.3 * drawn(1, 8, 3, 3)),
        (1, 2, 4, 4),
    ),
    "adaptive_separable_convolution": (
        lambda x: F.adaptive_separable_convolution(x, drawn(1, 2, 3, 3), drawn(1, 2, 3, 3)),
        (1, 1, 4, 4),
    ),
    "patch_correlation": (lambda x: F.patch_correlation(x, drawn(1, 2, 3, 3)), (1, 2, 3, 3)),
    "max_pooling": (
        lambda x: F.max_pooling(x, (3, 3), stride=(1, 1), pad=(1, 1)),
        (1, 1, 4, 4),
    ),
    "average_pooling": (
        lambda x: F.average_pooling(x, (2, 2), stride=(1, 1), pad=(1, 1)),
        (1, 1, 4, 4),
    ),
    "sum_pooling": (lambda x: F.sum_pooling(x, (3, 2), stride=(2, 1)), (1, 1, 5, 4)),
    "global_average_pooling": (F.global_average_pooling, (1, 2, 2, 2)),
    "unfold": (lambda x: F.unfold(x, (2, 2)), (1, 1, 3, 3)),
    "fold": (lambda x: F.fold(x, (3, 3), (2, 2)), (1, 4, 4)),
    "pad": (lambda x: F.pad(x, (1, 1), mode="reflect"), (2, 3)),
    "shift": (lambda x: F.shift(x, (1,)), (2, 3)),
    # sequences
    "rnn": (lambda x: F.rnn(x, drawn(1, 1, 2, 3), drawn(1, 3, 5)), (3, 2, 2)),
    "gru": (lambda x: F.gru(x, drawn(1, 1, 2, 3), drawn(1, 3, 3, 5)), (3, 2, 2)),
    "lstm": (
        lambda x: F.lstm(x, drawn(1, 1, 2, 3), drawn(1, 1, 2, 3), drawn(1, 4, 3, 5)),
        (3, 2, 2),
    ),
    "pack_padded_sequence": (
        lambda x: F.pack_padded_sequence(x, np.array([3, 1])),
        (3, 2, 1),
    ),
    "cumsum": (F.cumsum, (5,)),
    "cumsum of those behind": (lambda x: F.cumsum(x, exclusive=True, reverse=True), (5,)),
    "cumprod": (F.cumprod, (5,)),
    "cummax": (F.cummax, (5,)),
    "cummin from behind": (lambda x: F.cummin(x, reverse=True), (5,)),
    "logcumsumexp": (F.logcumsumexp, (5,)),
    "logcumsumexp of those behind": (
        lambda x: F.logcumsumexp(x, exclusive=True, reverse=True),
        (5,),
    ),
    "fft": (lambda x: F.fft(x, 1), (2, 5, 2)),
    "ifft": (lambda x: F.ifft(x, 1), (2, 5, 2)),
    "rfft": (lambda x: F.rfft(x, 1), (2, 5)),
    "irfft": (lambda x: F.irfft(x, 1), (2, 3, 2)),
    "stft": (lambda x: F.stft(x, 4, 2, 4, center=False, window_type=None), (1, 8)),
    "attention, query": (
        lambda x: F.scaled_dot_product_attention(x, drawn(1, 4, 3), drawn(1, 4, 2)),
        (1, 3, 3),
    ),
    "attention, key": (
        lambda x: F.scaled_dot_product_attention(drawn(1, 3, 3), x, drawn(1, 4, 2)),
        (1, 4, 3),
    ),
    "attention, value": (
        lambda x: F.scaled_dot_product_attention(drawn(1, 3, 3), drawn(1, 4, 3), x),
        (1, 4, 2),
    ),
    "ctc_loss": (
        lambda x: F.ctc_loss(
            F.log_softmax(x, axis=2), whole(2, 1, value=1), np.array([3, 2]), whole(2, value=1)
        ),
        (3, 2, 3),
    ),
    # normalisation
    "batch_normalization": (
        lambda x: F.batch_normalization(x, None, None, None, None),
        (4, 3),
    ),
    "layer_normalization": (lambda x: F.layer_normalization(x, None, None), (4, 3)),
    "group_normalization": (lambda x: F.group_normalization(x, None, None, 2), (2, 4, 3)),
    "instance_normalization": (lambda x: F.instance_normalization(x, None, None), (2, 3, 3)),
    "rms_norm": (F.rms_norm, (2, 3)),
    "weight_standardization": (F.weight_standardization, (2, 3)),
    "weight_normalization": (lambda x: F.weight_normalization(x, np.ones(2)), (2, 3)),
    "norm_normalization": (lambda x: F.norm_normalization(x, axes=1), (2, 3)),
    "softmax": (lambda x: F.softmax(x, axis=1), (2, 3)),
    "masked_softmax": (lambda x: F.masked_softmax(x, axis=1), (2, 3)),
    "var": (lambda x: F.var(x, axis=1), (2, 3)),
    "norm": (lambda x: F.norm(x, p=3, axis=1), (2, 3)),
    # products
    "matmul": (lambda x: F.matmul(x, drawn(3, 2)), (2, 3)),
    "einsum": (lambda x: F.einsum("ij,jk->ki", x, drawn(3, 2)), (2, 3)),
    "batch_det": (F.batch_det, (2, 3, 3)),
    "batch_inv": (F.batch_inv, (2, 3, 3)),
    # places
    "gather": (lambda x: F.gather(x, np.array([0, 2, 0]), axis=0), (3, 2)),
    "scatter_add": (lambda x: F.scatter_add(np.zeros((3, 2)), POSITIONS, x, axis=0), (2, 2)),
    **{
        f"scatter_elements, {how}": (
            lambda x, how=how: F.scatter_elements(
                np.full((3, 2), 0.5), POSITIONS, x, axis=0, reduction=how
            ),
            (2, 2),
        )
        for how in ("add", "mean", "mul", "max", "min")
    },
    # losses
    "cosine_similarity": (lambda x: F.cosine_similarity(x, drawn(2, 3)), (2, 3)),
    "contrastive_loss": (lambda x: F.contrastive_loss(x, drawn(2, 3), np.ones(2)), (2, 3)),
    "triplet_loss": (
        lambda x: F.triplet_loss(x, drawn(2, 3), -drawn(2, 3), margin=1e5),
        (2, 3),
    ),
    "info_nce": (lambda x: F.info_nce(x, drawn(3, 3)), (3, 3)),
    "hinge_loss": (lambda x: F.hinge_loss(x, np.ones(3)), (3,)),
    "margin_ranking_loss": (lambda x: F.margin_ranking_loss(x, drawn(3), np.ones(3)), (3,)),
    "huber_loss": (lambda x: F.huber_loss(x, drawn(3)), (3,)),
    "epsilon_insensitive_loss": (lambda x: F.epsilon_insensitive_loss(x, drawn(3), 0.1), (3,)),
    "focal_loss": (lambda x: F.focal_loss(x, np.ones(3)), (3,)),
    "kl_divergence": (lambda x: F.kl_divergence(x, np.full(3, 0.3)), (3,)),
    "poisson_nll_loss": (lambda x: F.poisson_nll_loss(x, np.ones(3)), (3,)),
    "gaussian_nll_loss": (lambda x: F.gaussian_nll_loss(x, drawn(3), np.ones(3)), (3,)),
    # quantization
    "fixed_point_quantize": (lambda x: F.fixed_point_quantize(x, n=16, delta=2**-8), (3,)),
    "pow2_quantize": (F.pow2_quantize, (3,)),
    "min_max_quantize": (
        lambda x: F.min_max_quantize(
            x, filled(-2000, 1), filled(2000, 1), filled(0, 1), filled(65535, 1)
        ),
        (3,),
    ),
    "binary_sigmoid": (F.binary_sigmoid, (3,)),
    "binary_tanh": (F.binary_tanh, (3,)),
    "mod2": (lambda x: F.mod2(x, np.full(3, 2.0)), (3,)),
}


def values(build: Build, x: np.ndarray) -> list[np.ndarray]:
    result = build(Variable.from_numpy_array(x))
    outputs = list(result) if isinstance(result, (list, tuple)) else [result]
    forward_all(outputs)
    return [y.d.copy() for y in outputs if y.dtype.kind == "f"]


@pytest.mark.parametrize(("build", "shape"), READING.values(), ids=READING)
def test_nan_reaches_exactly_what_reads_it(build: Build, shape: tuple[int, ...]) -> None:
    """Whatever changes with an element reads it."""
    x = np.random.default_rng(3).normal(size=shape)
    before = values(build, x)
    for place in range(x.size):
        reads = [np.zeros(y.shape, bool) for y in before]
        for value in (-700.0, 700.0, 0.3, -1.7, NAN):
            other = x.copy()
            other.flat[place] = value
            after = values(build, other)
            if not np.isnan(value):
                reads = [r | (a != b) for r, a, b in zip(reads, after, before, strict=True)]
        for read, y, old in zip(reads, after, before, strict=True):
            np.testing.assert_array_equal(y, np.where(read, NAN, old))


@pytest.mark.parametrize(
    "build",
    [
        lambda x: F.topk(x, 2)[0],
        lambda x: F.top_k_data(F.reshape(x, (1, 4)), 2),
        lambda x: F.sort(x, reverse=True)[:2],
        lambda x: F.stack(F.max(x), F.min(x)),
        lambda x: F.cummax(x)[1:3],
        lambda x: F.gather(x, F.topk(x, 2)[1], axis=0),
    ],
    ids=["topk", "top_k_data", "sort", "max and min", "cummax", "places of topk"],
)
def test_nan_ranks_first(build: Build, evaluate: Any) -> None:
    assert np.isnan(evaluate(lambda: build(Variable.from_numpy_array([1, NAN, 3, NAN])))).all()


def test_nan_is_sorted_behind_infinity_and_stays_in_order(evaluate: Any) -> None:
    x = np.array([NAN, INF, -INF, NAN, 0.0])
    np.testing.assert_array_equal(evaluate(lambda: F.sort(x)), [-INF, 0, INF, NAN, NAN])
    places = evaluate(lambda: F.sort(x, only_index=True))
    np.testing.assert_array_equal(places, [2, 4, 1, 0, 3])


def test_nan_is_searched_behind_all_numbers(evaluate: Any) -> None:
    result = evaluate(lambda: F.searchsorted(np.array([1.0, 2.0]), np.array([NAN, INF, -INF])))
    np.testing.assert_array_equal(result, [2, 2, 0])


def test_nan_is_not_zero(evaluate: Any) -> None:
    np.testing.assert_array_equal(evaluate(lambda: F.nonzero(np.array([0.0, NAN]))), [[1]])


def test_nan_and_both_zeros_are_each_one_value() -> None:
    x = np.array([1.0, NAN, -0.0, NAN, 0.0])
    y, counts = F.unique(x, with_counts=True)
    forward_all([y, counts])
    np.testing.assert_array_equal(y.d, [0, 1, NAN])
    np.testing.assert_array_equal(counts.d, [2, 1, 2])


def test_nan_is_never_pruned(evaluate: Any) -> None:
    result = evaluate(lambda: F.prune(np.array([1.0, NAN, 3.0, 0.1]), 0.5))
    np.testing.assert_array_equal(np.isnan(result), [False, True, False, False])


# Infinities --------------------------------------------------------------------------------------

ENDS: dict[str, tuple[float, float]] = {
    "sigmoid": (0, 1),
    "tanh": (-1, 1),
    "softplus": (0, INF),
    "log_sigmoid": (-INF, 0),
    "relu": (0, INF),
    "relu6": (0, 6),
    "leaky_relu": (-INF, INF),
    "elu": (-1, INF),
    "hard_sigmoid": (0, 1),
    "hard_tanh": (-1, 1),
    "tanh_shrink": (-INF, INF),
    "softsign": (-1, 1),
    "silu": (0, INF),
    "gelu": (0, INF),
    "mish": (0, INF),
    "erf": (-1, 1),
    "exp": (0, INF),
    "expm1": (-1, INF),
    "sinh": (-INF, INF),
    "cosh": (INF, INF),
    "asinh": (-INF, INF),
    "atan": (-np.pi / 2, np.pi / 2),
    "abs": (INF, INF),
    "square": (INF, INF),
    "sign": (-1, 1),
    "round": (-INF, INF),
    "floor": (-INF, INF),
    "ceil": (-INF, INF),
    "binary_sigmoid": (0, 1),
    "binary_tanh": (-1, 1),
    "fixed_point_quantize": (-127 / 16, 127 / 16),
}


@pytest.mark.parametrize(("name", "ends"), ENDS.items(), ids=ENDS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_at_infinity_is_the_limit(
    name: str, ends: tuple[float, float], dtype: str, evaluate: Any
) -> None:
    result = evaluate(lambda: getattr(F, name)(np.array([-INF, INF], dtype)))
    np.testing.assert_allclose(
        result, np.array(ends, dtype), rtol=1e-3 if dtype[-2] == "1" else 1e-6
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["silu", "gelu", "exact gelu", "mish", "softsign"])
def test_slopes_at_infinity_are_the_limits(name: str, dtype: str, differentiate: Any) -> None:
    def build(x: Variable) -> Any:
        return F.gelu(x, approximate="none") if name == "exact gelu" else getattr(F, name)(x)

    y, slope = differentiate(build, np.array([-INF, -1000.0, 1000.0, INF], dtype))
    ends = [-1, 1] if name == "softsign" else [0, INF]
    np.testing.assert_array_equal(y[[0, 3]], ends)
    np.testing.assert_allclose(
        slope, [0, 0, 0, 0] if name == "softsign" else [0, 0, 1, 1], atol=2e-6
    )


@pytest.mark.parametrize("name", ["sin", "cos", "tan", "asin", "acos", "atanh"])
def test_where_there_is_no_limit_infinity_gives_nan(name: str, evaluate: Any) -> None:
    assert np.isnan(evaluate(lambda: getattr(F, name)(np.array([-INF, INF])))).all()


@pytest.mark.parametrize(
    ("build", "expected", "gradient"),
    [
        (F.logsumexp, 0, [0, 0, 1]),
        (lambda x: F.logcumsumexp(x), [-INF, -INF, 0], [0, 0, 1]),
        (lambda x: F.log_softmax(x)[2], 0, [0, 0, 0]),
        (lambda x: F.softmax(x), [0, 0, 1], [0, 0, 0]),
        (lambda x: F.masked_softmax(x), [0, 0, 1], [0, 0, 0]),
        (F.max, 0, [0, 0, 1]),
        (F.cummax, [-INF, -INF, 0], [2, 0, 1]),
    ],
    ids=["logsumexp", "logcumsumexp", "log_softmax", "softmax", "masked", "max", "cummax"],
)
def test_what_is_impossible_weighs_nothing(
    build: Build, expected: Any, gradient: Any, differentiate: Any
) -> None:
    """The logarithm of a probability of 0 is minus infinity."""
    y, dx = differentiate(build, np.array([-INF, -INF, 0.0]))
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(dx, gradient)


def test_a_sum_of_nothing_possible_is_impossible_and_passes_no_gradient(differentiate: Any) -> None:
    for build in (F.logsumexp, F.logcumsumexp):
        y, dx = differentiate(build, np.full(2, -INF))
        assert (y == -INF).all() and (dx == 0).all()


def test_infinite_elements_share_the_gradient_of_a_sum(differentiate: Any) -> None:
    """The limit, as they grow together."""
    for x, share in (([INF, 1.0], [1, 0]), ([2.0, INF, -INF, INF], [0, 0.5, 0, 0.5])):
        y, dx = differentiate(F.logsumexp, np.array(x))
        assert y == INF
        np.testing.assert_array_equal(dx, share)
    y, dx = differentiate(F.logcumsumexp, np.array([INF, 1.0]))
    np.testing.assert_array_equal(dx, [2, 0])
    y, dx = differentiate(F.logcumsumexp, np.array([2.0, INF, -INF, INF, 1.0]))
    np.testing.assert_array_equal(y, [2, INF, INF, INF, INF])
    np.testing.assert_array_equal(dx, [1, 3, 0, 1, 0])
    y, dx = differentiate(
        lambda x: F.logcumsumexp(x, exclusive=True, reverse=True), np.array([5.0, INF, INF, 2.0])
    )
    np.testing.assert_array_equal(y, [INF, INF, 2, -INF])
    np.testing.assert_array_equal(dx, [0, 0.5, 1.5, 1])


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize(
    ("dtype", "size"), [("float32", 1e30), ("float32", 1e-30), ("float64", 1e200)]
)
def test_norms_overflow_and_underflow_where_their_values_do(
    dtype: str, size: float, p: int, differentiate: Any
) -> None:
    y, dx = differentiate(lambda x: F.norm(x, p), np.array([3 * size, -4 * size], dtype))
    total = 3**p + 4**p
    np.testing.assert_allclose(y, size * total ** (1 / p), rtol=1e-6)
    slope = [3 ** (p - 1), -(4 ** (p - 1))] / np.float64(total ** (1 - 1 / p))
    np.testing.assert_allclose(dx, slope, rtol=1e-6)


@pytest.mark.parametrize("size", [1e20, 1e-7])
def test_the_cosine_of_huge_vectors_is_that_of_their_directions(
    size: float, differentiate: Any
) -> None:
    x, y = size * np.array([3, 4], np.float32), size * np.array([4, 3], np.float32)
    cosine, dx, dy = differentiate(F.cosine_similarity, x, y)
    np.testing.assert_allclose(cosine, 24 / 25, rtol=1e-6)
    np.testing.assert_allclose(size * dx, [4 * 7 / 625, -3 * 7 / 625], rtol=1e-5)
    np.testing.assert_allclose(size * dy, [-3 * 7 / 625, 4 * 7 / 625], rtol=1e-5)


def test_logarithms_of_sums_are_finite_at_a_thousand(differentiate: Any) -> None:
    y, dx = differentiate(F.logcumsumexp, np.array([-1000.0, 1000.0, 1000.0]))
    np.testing.assert_allclose(y, [-1000, 1000, 1000 + np.log(2)], rtol=1e-14)
    np.testing.assert_allclose(dx, [1, 1.5, 0.5], rtol=1e-12)


def test_padding_never_wins_a_window_of_minus_infinities(evaluate: Any) -> None:
    x = np.full((1, 1, 2, 2), -INF)
    for pad in ((0, 0), (1, 1)):
        assert (evaluate(lambda pad=pad: F.max_pooling(x, (2, 2), pad=pad)) == -INF).all()


def test_infinity_is_infinitely_far_and_larger_than_all(evaluate: Any) -> None:
    x = np.array([1.0, INF, -INF])
    assert evaluate(lambda: F.norm(x)) == INF
    assert evaluate(lambda: F.norm(x, p=INF)) == INF
    assert evaluate(lambda: F.argmax(x)) == 1 and evaluate(lambda: F.argmin(x)) == 2
    np.testing.assert_array_equal(evaluate(lambda: F.clip(x, -2, 2)), [1, 2, -2])


def test_a_probability_of_zero_costs_nothing_where_nothing_is_expected(differentiate: Any) -> None:
    y, dx = differentiate(
        lambda x: F.kl_divergence(x, np.array([0.0, 0.5])), np.array([-INF, -1.0])
    )
    np.testing.assert_allclose(y, [0, 0.5 * (np.log(0.5) + 1)])
    np.testing.assert_array_equal(dx, [0, -0.5])


def test_an_impossible_alignment_costs_infinity_and_teaches_nothing(differentiate: Any) -> None:
    def loss(x: Variable, zero_infinity: bool = False) -> Any:
        """Two steps cannot hold a label, a blank and the label again."""
        two = np.array([2])
        return F.ctc_loss(F.log_softmax(x, axis=2), np.array([[1, 1]]), two, two, 0, zero_infinity)

    y, dx = differentiate(loss, np.zeros((2, 1, 3)))
    assert y == INF and (dx == 0).all()
    y, dx = differentiate(lambda x: loss(x, True), np.zeros((2, 1, 3)))
    assert y == 0 and (dx == 0).all()


def test_what_comes_after_the_end_of_a_sequence_reaches_no_loss(differentiate: Any) -> None:
    one = np.array([1])
    y, dx = differentiate(
        lambda x: F.ctc_loss(x, np.array([[1]]), one, one), np.array([[[-0.5, -0.7]], [[NAN, NAN]]])
    )
    np.testing.assert_array_equal(y, [0.7])
    np.testing.assert_array_equal(dx, [[[0, -1]], [[0, 0]]])


# Zeros with a sign, and denormal numbers ---------------------------------------------------------

ODD = (
    "sin sinh asin asinh atan atanh tan tanh erf expm1 log1p hard_tanh neg round leaky_relu".split()
)


@pytest.mark.parametrize("name", ODD)
def test_an_odd_function_keeps_the_sign_of_zero(name: str, evaluate: Any) -> None:
    result = evaluate(lambda: getattr(F, name)(np.array([-0.0, 0.0])))
    assert (np.signbit(result) == ([False, True] if name == "neg" else [True, False])).all()


def test_both_zeros_are_equal_and_the_first_is_the_extreme(evaluate: Any) -> None:
    for x in (np.array([0.0, -0.0]), np.array([-0.0, 0.0])):
        assert evaluate(lambda x=x: F.equal(x, x[::-1].copy())).all()
        assert evaluate(lambda x=x: F.argmax(x)) == evaluate(lambda x=x: F.argmin(x)) == 0
        np.testing.assert_array_equal(evaluate(lambda x=x: F.sort(x, only_index=True)), [0, 1])


@pytest.mark.parametrize("name", ["floor", "ceil", "round"])
def test_roundings_of_denormal_numbers(name: str, evaluate: Any) -> None:
    result = evaluate(lambda: getattr(F, name)(np.array([TINY, -TINY])))
    np.testing.assert_array_equal(result, {"floor": [0, -1], "ceil": [1, 0], "round": [0, 0]}[name])


@pytest.mark.parametrize(
    "name", ["identity", "relu", "tanh", "sin", "asinh", "expm1", "log1p", "abs", "elu", "softsign"]
)
def test_denormal_numbers_are_not_flushed_to_zero(name: str, evaluate: Any) -> None:
    assert evaluate(lambda: getattr(F, name)(np.array([TINY])))[0] == TINY
    tiny = np.float32(1e-45)
    assert evaluate(lambda: getattr(F, name)(np.array([tiny])))[0] == tiny


def test_sums_and_comparisons_of_denormal_numbers_are_exact(evaluate: Any) -> None:
    x = np.array([TINY, TINY, 0.0])
    assert evaluate(lambda: F.sum(x)) == 2 * TINY
    assert evaluate(lambda: F.argmax(x)) == 0
    np.testing.assert_array_equal(evaluate(lambda: F.greater(x, np.zeros(3))), [True, True, False])
    assert evaluate(lambda: F.log(x))[0] == np.log(TINY)
