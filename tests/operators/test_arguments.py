"""Arguments that no function can take are refused when it is called, and named."""

from __future__ import annotations

import numpy as np
import pytest

from nnl_core import F
from nnl_core.errors import NnlError, OperatorError, ShapeError

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
LABELS = np.zeros((2, 1, 4), np.int64)

FRACTIONS = {
    "softmax": lambda bad: F.softmax(X, axis=bad),
    "log_softmax": lambda bad: F.log_softmax(X, axis=bad),
    "concatenate": lambda bad: F.concatenate(X, X, axis=bad),
    "stack": lambda bad: F.stack(X, X, axis=bad),
    "split": lambda bad: F.split(X, axis=bad),
    "sort": lambda bad: F.sort(X, axis=bad),
    "cumsum": lambda bad: F.cumsum(X, axis=bad),
    "sum": lambda bad: F.sum(X, axis=bad),
    "max": lambda bad: F.max(X, axis=bad),
    "softmax_cross_entropy": lambda bad: F.softmax_cross_entropy(X, LABELS, axis=bad),
    "trilu": lambda bad: F.trilu(X, k=bad),
    "top_k_grad": lambda bad: F.top_k_grad(X, k=bad),
    "affine": lambda bad: F.affine(X, np.ones((12, 2), np.float32), base_axis=bad),
    "group_normalization": lambda bad: F.group_normalization(X, None, None, 1, bad),
    "slice": lambda bad: F.slice(X, (bad,), (2,), (1,)),
    "pooling, kernel": lambda bad: F.max_pooling(X, (bad, 2)),
    "pooling, pad": lambda bad: F.max_pooling(X, (2, 2), pad=(bad, 0)),
    "constant": lambda bad: F.constant(0, (bad, 2)),
    "pad": lambda bad: F.pad(X, (bad, 1)),
    "randn": lambda bad: F.randn(shape=(bad, 2)),
}


@pytest.mark.parametrize("call", FRACTIONS.values(), ids=FRACTIONS)
@pytest.mark.parametrize("bad", [1.5, float("nan"), "one"], ids=str)
def test_what_is_no_whole_number_is_not_rounded_to_one(call, bad):
    with pytest.raises(OperatorError, match=r"whole number"):
        call(bad)


@pytest.mark.parametrize("whole", [1, np.int64(1), np.uint8(1), np.array(1)], ids=repr)
def test_whole_numbers_of_numpy_are_as_good_as_those_of_python(whole):
    expected = np.exp(X) / np.exp(X).sum(1, keepdims=True)
    np.testing.assert_allclose(F.softmax(X, axis=whole).d, expected, rtol=1e-6)


NUMBERS = {
    "leaky_relu": lambda bad: F.leaky_relu(X, bad),
    "elu": lambda bad: F.elu(X, bad),
    "huber_loss": lambda bad: F.huber_loss(X, X, bad),
    "batch_normalization, eps": lambda bad: F.batch_normalization(
        X, None, None, None, None, eps=bad
    ),
    "layer_normalization": lambda bad: F.layer_normalization(X, None, None, eps=bad),
    "rms_norm": lambda bad: F.rms_norm(X, eps=bad),
    "dropout": lambda bad: F.dropout(X, bad),
    "norm": lambda bad: F.norm(X, bad),
}


@pytest.mark.parametrize("call", NUMBERS.values(), ids=NUMBERS)
@pytest.mark.parametrize("bad", [float("nan"), "one", (1, 2)], ids=str)
def test_what_is_no_real_number_is_refused(call, bad):
    with pytest.raises((NnlError, TypeError)):
        call(bad)


@pytest.mark.parametrize("function", ["add_scalar", "maximum_scalar", "reset_nan", "less_scalar"])
@pytest.mark.parametrize("bad", [None, "one", (1, 2)], ids=str)
def test_scalars_are_checked_when_the_graph_is_built(function, bad):
    with pytest.raises(OperatorError, match="is not a number"):
        getattr(F, function)(X, bad)


def test_rows_of_different_lengths_are_no_array():
    for function in (F.relu, F.sum, F.exp):
        with pytest.raises(ShapeError, match="this list is no array"):
            function([[1.0], [2.0, 3.0]])


def test_what_is_written_to_must_be_a_variable():
    with pytest.raises(OperatorError, match="must be variables"):
        F.mean_subtraction(X, X[0], 1)
    with pytest.raises(OperatorError, match="must be a variable"):
        F.spectral_norm(X[0], np.ones(3, np.float32))


@pytest.mark.parametrize("bad", [None, 3, ("ij",)], ids=str)
def test_an_equation_is_text(bad):
    with pytest.raises(OperatorError, match="einsum: equation"):
        F.einsum(X, equation=bad)


@pytest.mark.parametrize("n", [0, -1])
def test_top_n_error_counts_from_one(n):
    with pytest.raises(OperatorError, match="must be at least 1"):
        F.top_n_error(X, LABELS, 1, n)


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.constant("one", (2,)),
        lambda: F.arange(0, float("nan")),
        lambda: F.arange(0, float("inf")),
        lambda: F.arange("a", 3),
        lambda: F.bool_fill(X, np.ones(3), "one"),
        lambda: F.binary_connect_affine(X[0], X[0].T, X[0].T, quantize_zero_to="one"),
        lambda: F.depthwise_convolution(X[None], 1.0),
        lambda: F.depthwise_deconvolution(X[None], 1.0),
    ],
)
def test_numbers_that_are_none_are_named_when_the_function_is_called(call):
    with pytest.raises((OperatorError, ShapeError)):
        call()


def test_nan_and_arrays_without_axes_are_numbers_to_fill_with():
    assert np.isnan(F.bool_fill(X, np.zeros((2, 3, 4)), float("nan")).d).sum() == 0
    assert np.isnan(F.constant(float("nan"), (2,)).d).all()
    assert (F.constant(np.array(3.0), (2,)).d == 3).all()


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.broadcast_to(None, (2, 3)),
        lambda: F.dropout(X, seed=1.5),
        lambda: F.stft(X[0], 4, 1.5, 4),
        lambda: F.clip_grad_by_norm(X, "one"),
        lambda: F.depthwise_convolution(X[None], X, multiplier=0),
        lambda: F.depthwise_deconvolution(X[None], X, divisor=0),
        lambda: F.rnn(None, X[None], X),
        lambda: F.lstm(X, X[None], None, X[None]),
    ],
)
def test_what_is_missing_or_no_whole_number_is_named(call):
    with pytest.raises((OperatorError, ShapeError)):
        call()


def test_a_list_broadcasts_like_an_array():
    np.testing.assert_array_equal(F.broadcast_to([1.0, 2.0], (2, 2)).d, [[1, 2], [1, 2]])
