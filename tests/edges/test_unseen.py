"""What does not count: ignored labels, masked keys, statistics of one value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import PF, F, Variable

Differentiate = Callable[..., tuple[np.ndarray, ...]]
NAN, INF = np.nan, np.inf

# Ignored labels ----------------------------------------------------------------------------------

SCORES = np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
BROKEN = np.array([[NAN, INF, -INF], [NAN, NAN, NAN]])
NOBODY = np.array([[-1], [-1]])
LOSSES: dict[str, Callable[..., Any]] = {
    "softmax_cross_entropy": F.softmax_cross_entropy,
    "smoothed": lambda x, t, **o: F.softmax_cross_entropy(x, t, label_smoothing=0.1, **o),
    "weighted": lambda x, t, **o: F.softmax_cross_entropy(x, t, weight=np.array([1.0, 2, 3]), **o),
    "categorical_cross_entropy": lambda x, t: F.categorical_cross_entropy(x, t),
    "nll_loss": F.nll_loss,
}
each_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
with_ignore_index = pytest.mark.parametrize(
    "loss",
    [LOSSES[name] for name in LOSSES if name != "categorical_cross_entropy"],
    ids=[name for name in LOSSES if name != "categorical_cross_entropy"],
)


@each_loss
@pytest.mark.parametrize("scores", [SCORES, BROKEN], ids=["numbers", "not numbers"])
def test_without_a_label_that_counts_loss_and_gradient_are_zero(
    loss: Callable[..., Any], scores: np.ndarray, differentiate: Differentiate
) -> None:
    y, dx = differentiate(lambda x: loss(x, NOBODY), scores)
    np.testing.assert_array_equal(y, np.zeros((2, 1)))
    np.testing.assert_array_equal(dx, np.zeros((2, 3)))


@with_ignore_index
@pytest.mark.parametrize("index", [0, 2, 255, -100])
def test_the_index_to_ignore_need_name_no_class(
    loss: Callable[..., Any], index: int, differentiate: Differentiate
) -> None:
    y, dx = differentiate(lambda x: loss(x, np.array([[index]] * 2), ignore_index=index), BROKEN)
    np.testing.assert_array_equal(y, np.zeros((2, 1)))
    np.testing.assert_array_equal(dx, np.zeros((2, 3)))


@each_loss
def test_a_mean_over_labels_that_count_is_the_user_s_and_finite(
    loss: Callable[..., Any], differentiate: Differentiate
) -> None:
    """Divided by the number of those, of which there are none, but at least by one."""
    counted = max(1, int((NOBODY >= 0).sum()))
    y, dx = differentiate(lambda x: F.sum(loss(x, NOBODY)) / counted, BROKEN)
    assert y == 0 and (dx == 0).all()


@each_loss
def test_a_row_that_is_ignored_changes_no_other(
    loss: Callable[..., Any], differentiate: Differentiate
) -> None:
    alone, alone_dx = differentiate(lambda x: loss(x, np.array([[2]])), SCORES[1:])
    both = np.concatenate([BROKEN[:1], SCORES[1:]])
    y, dx = differentiate(lambda x: loss(x, np.array([[-1], [2]])), both)
    np.testing.assert_array_equal(y, [[0], alone[0]])
    np.testing.assert_array_equal(dx, [[0, 0, 0], alone_dx[0]])


def test_ignored_labels_train_nothing() -> None:
    nnl.clear_parameters()
    x = Variable.from_numpy_array(np.ones((2, 3), np.float32))
    loss = F.mean(F.softmax_cross_entropy(PF.affine(x, 3), NOBODY))
    before = {name: p.d.copy() for name, p in nnl.get_parameters().items()}
    solver = nnl.S.Adam(1.0)
    solver.set_parameters(nnl.get_parameters())
    nnl.compile_step(loss, solver).run()
    for name, parameter in nnl.get_parameters().items():
        np.testing.assert_array_equal(parameter.d, before[name])
    nnl.clear_parameters()


# Masked keys -------------------------------------------------------------------------------------

QUERY, KEY = np.ones((1, 2, 2)), np.ones((1, 2, 2))
VALUE = np.array([[[1.0, 2.0], [3.0, 4.0]]])
MASKS = {
    "truths": np.array([[False, False], [True, False]]),
    "integers": np.array([[0, 0], [1, 0]]),
    "minus infinities": np.array([[-INF, -INF], [0.0, -INF]]),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_a_query_that_sees_no_key_gets_zero_and_passes_no_gradient(
    mask: np.ndarray, differentiate: Differentiate
) -> None:
    y, dq, dk, dv = differentiate(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask=mask), QUERY, KEY, VALUE
    )
    np.testing.assert_array_equal(y, [[[0, 0], [1, 2]]])  # the other sees the first key alone
    np.testing.assert_array_equal(dq, np.zeros((1, 2, 2)))
    np.testing.assert_array_equal(dk, np.zeros((1, 2, 2)))
    np.testing.assert_array_equal(dv, [[[1, 1], [0, 0]]])


def test_keys_that_are_all_padding_give_zero(differentiate: Differentiate) -> None:
    x, eye = np.ones((2, 1, 2)), np.eye(2)
    y, dx = differentiate(
        lambda x: F.multi_head_attention(
            x, x, x, 1, eye, eye, eye, eye, key_padding_mask=np.ones((1, 2))
        ),
        x,
    )
    assert (y == 0).all() and (dx == 0).all()


def test_a_causal_query_never_sees_what_comes_after_it(differentiate: Differentiate) -> None:
    later = np.array([[[1.0, 1.0], [5.0, -7.0]]])
    y, _, dk, dv = differentiate(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, causal=True)[:, :1],
        QUERY,
        later,
        VALUE,
    )
    np.testing.assert_array_equal(y, [[[1, 2]]])
    assert (dk[0, 1] == 0).all() and (dv[0, 1] == 0).all()


def test_a_row_of_minus_infinities_is_zero_for_a_masked_softmax_alone(
    differentiate: Differentiate,
) -> None:
    row = np.full((1, 3), -INF)
    y, dx = differentiate(F.masked_softmax, row)
    assert (y == 0).all() and (dx == 0).all()
    assert np.isnan(F.softmax(row).d).all()


# Statistics of one value -------------------------------------------------------------------------


def normalisations() -> dict[str, Callable[..., Any]]:
    def sync(*a: Any, **o: Any) -> Any:
        return F.sync_batch_normalization(*a, None, **o)

    return {
        "batch_normalization": F.batch_normalization,
        "sync_batch_normalization": sync,
        "fused_batch_normalization": lambda *a, **o: F.fused_batch_normalization(
            *a, nonlinearity="relu", **o
        ),
    }


each_batch = pytest.mark.parametrize(
    "normalize", normalisations().values(), ids=list(normalisations())
)


@each_batch
@pytest.mark.parametrize("shape", [(1, 2), (1, 2, 1, 1)])
def test_one_value_per_channel_gives_beta_and_no_gradient(
    normalize: Callable[..., Any], shape: tuple[int, ...], differentiate: Differentiate
) -> None:
    """It is its own mean: the variance is 0, and eps keeps the quotient 0."""
    channels = (1, 2, *(1,) * (len(shape) - 2))
    beta, gamma = (np.array(v).reshape(channels) for v in ([7.0, 8.0], [9.0, 10.0]))
    y, dx, dbeta, dgamma = differentiate(
        lambda x, b, g: normalize(x, b, g, None, None),
        np.array([3.0, -1e6]).reshape(shape),
        beta,
        gamma,
    )
    np.testing.assert_array_equal(y.ravel(), [7, 8])
    np.testing.assert_array_equal(dx.ravel(), [0, 0])
    np.testing.assert_array_equal(dbeta.ravel(), [1, 1])
    np.testing.assert_array_equal(dgamma.ravel(), [0, 0])


@each_batch
@pytest.mark.parametrize("shape", [(1, 2), (0, 2)], ids=["one", "none"])
def test_statistics_that_run_over_one_value_or_none_stay_finite(
    normalize: Callable[..., Any], shape: tuple[int, int]
) -> None:
    """One value has no unbiased variance: its variance is 0. None changes nothing."""
    mean, variance = (Variable.from_numpy_array(np.full((1, 2), v)) for v in (4.0, 6.0))
    x = Variable.from_numpy_array(np.full(shape, 8.0))
    y = normalize(x, None, None, mean, variance, decay_rate=0.5)
    y.forward()
    np.testing.assert_array_equal(mean.d, [[6, 6]] if shape[0] else [[4, 4]])
    np.testing.assert_array_equal(variance.d, [[3, 3]] if shape[0] else [[6, 6]])


@pytest.mark.parametrize(
    "normalize",
    [
        lambda x: F.layer_normalization(x, None, None),
        lambda x: F.instance_normalization(x, None, None),
        lambda x: F.group_normalization(x, None, None, 2),
        lambda x: F.tensor_normalization(x, (1, 2)),
        lambda x: F.weight_standardization(x, channel_axis=1),
        lambda x: F.batch_normalization(x, None, None, None, None),
    ],
    ids=["layer", "instance", "group", "tensor", "weight", "batch"],
)
def test_what_does_not_vary_is_normalised_to_zero(
    normalize: Callable[..., Any], differentiate: Differentiate
) -> None:
    y, dx = differentiate(normalize, np.full((1, 2, 1), 1e8))
    np.testing.assert_array_equal(y, np.zeros((1, 2, 1)))
    np.testing.assert_array_equal(dx, np.zeros((1, 2, 1)))


def test_the_variance_of_one_value_is_zero_and_has_no_unbiased_form() -> None:
    x = np.array([3.0])
    assert F.var(x).d == F.std(x).d == 0
    with pytest.raises(nnl.errors.ShapeError, match="ddof 1"):
        F.var(x, ddof=1)


def test_a_batch_of_one_trains_with_finite_numbers() -> None:
    nnl.clear_parameters()
    x = Variable.from_numpy_array(np.ones((1, 3), np.float32))
    h = F.relu(PF.batch_normalization(PF.affine(x, 4)))
    loss = F.mean(F.squared_error(PF.affine(h, 2, name="out"), np.ones((1, 2), np.float32)))
    solver = nnl.S.Adam(0.1)
    solver.set_parameters(nnl.get_parameters())
    step = nnl.compile_step(loss, solver)
    for _ in range(3):
        step.run()
    assert np.isfinite(loss.d)
    for parameter in nnl.get_parameters(grad_only=False).values():
        assert np.isfinite(parameter.d).all()
    nnl.clear_parameters()


# Equal vectors, and vectors of nothing -----------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "value"),
    [
        (lambda x, y: F.norm(x - y, axis=1), 0),
        (lambda x, y: F.contrastive_loss(x, y, np.zeros(1)), 0.5),
        (lambda x, y: F.contrastive_loss(x, y, np.ones(1)), 0),
        (lambda x, y: F.triplet_loss(x, y, y), 1),
        (lambda x, y: F.triplet_loss(x, y, y, swap=True), 1),
        (lambda x, y: F.triplet_loss(x, y, y, p=1.0), 1),
        (lambda x, y: F.absolute_error(x, y)[:, 0], 0),
        (lambda x, y: F.std(F.concatenate(x, y, axis=0), axis=0)[:1], 0),
    ],
    ids=["norm", "apart", "alike", "triplet", "swapped", "of p 1", "absolute error", "std"],
)
def test_no_distance_has_no_direction(
    build: Callable[..., Any], value: float, differentiate: Differentiate
) -> None:
    y, dx, dy = differentiate(build, np.array([[1.0, 2.0]]), np.array([[1.0, 2.0]]))
    np.testing.assert_array_equal(y, [value])
    np.testing.assert_array_equal(dx, [[0, 0]])
    np.testing.assert_array_equal(dy, [[0, 0]])


def test_zero_vectors_are_similar_to_nothing(differentiate: Differentiate) -> None:
    zero = np.zeros((1, 2))
    y, dx, dy = differentiate(F.cosine_similarity, zero, zero)
    assert y == 0 and np.isfinite(dx).all() and np.isfinite(dy).all()
