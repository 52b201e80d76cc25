"""Connectionist temporal classification, against the sum over all paths."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.autodiff import grad
from nnl_core.graph.variable import Variable


def logarithms(*shape: int, seed: int = 0, dtype: Any = np.float64) -> np.ndarray:
    """Log probabilities of classes on the last axis."""
    logits = np.random.default_rng([seed, *shape]).normal(size=shape)
    return (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype(dtype)


def spelled(path: tuple[int, ...], blank: int) -> list[int]:
    """Merge repeats, then drop blanks."""
    return [label for label, _ in itertools.groupby(path) if label != blank]


def paths(steps: int, classes: int, target: list[int], blank: int) -> list[tuple[int, ...]]:
    every = itertools.product(range(classes), repeat=steps)
    return [path for path in every if spelled(path, blank) == target]


def probability(log_probs: np.ndarray, path: tuple[int, ...]) -> float:
    return math.exp(sum(row[label] for row, label in zip(log_probs, path, strict=True)))


def loss_of(log_probs: np.ndarray, target: list[int], blank: int = 0) -> float:
    """Sum over all paths of one sequence ``(steps, classes)``."""
    steps, classes = log_probs.shape
    total = sum(probability(log_probs, p) for p in paths(steps, classes, target, blank))
    return -math.log(total) if total else math.inf


def ctc(log_probs: Any, targets: Any, inputs: Any, labels: Any, **options: Any) -> np.ndarray:
    return np.array(F.ctc_loss(log_probs, targets, inputs, labels, **options).d)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_the_loss_is_that_of_all_paths_that_spell_the_targets(data: st.DataObject) -> None:
    classes = data.draw(st.integers(2, 4))
    blank = data.draw(st.integers(0, classes - 1))
    labels = st.sampled_from([k for k in range(classes) if k != blank])
    targets = data.draw(st.lists(st.lists(labels, max_size=4), min_size=1, max_size=3))
    steps = data.draw(st.integers(1, 5))
    lengths = [data.draw(st.integers(0, steps)) for _ in targets]
    x = logarithms(steps, len(targets), classes, seed=data.draw(st.integers(0, 99)))
    width = max(map(len, targets))
    padded = np.array([t + [-1] * (width - len(t)) for t in targets]).reshape(len(targets), width)
    found = ctc(x, padded, lengths, [len(t) for t in targets], blank=blank)
    expected = [
        loss_of(x[:s, n], t, blank) for n, (s, t) in enumerate(zip(lengths, targets, strict=True))
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


TARGETS = np.array([[1, 2, 2], [2, 1, 0], [1, 0, 0], [0, 0, 0]])
INPUTS, LABELS = [5, 4, 3, 2], [3, 2, 1, 0]


def test_targets_may_be_joined() -> None:
    x = logarithms(5, 4, 3)
    joined = np.array([1, 2, 2, 2, 1, 1])
    np.testing.assert_array_equal(ctc(x, joined, INPUTS, LABELS), ctc(x, TARGETS, INPUTS, LABELS))


def test_labels_and_lengths_may_be_floats_and_variables() -> None:
    x = logarithms(5, 4, 3)
    given = [Variable.from_numpy_array(np.array(a, np.float32)) for a in (TARGETS, INPUTS, LABELS)]
    np.testing.assert_array_equal(ctc(x, *given), ctc(x, TARGETS, INPUTS, LABELS))


def test_what_comes_behind_the_lengths_does_not_matter() -> None:
    x = logarithms(5, 4, 3)
    other, targets = x.copy(), TARGETS.copy()
    for n, (steps, labels) in enumerate(zip(INPUTS, LABELS, strict=True)):
        other[steps:, n] = np.nan
        targets[n, labels:] = 99
    np.testing.assert_array_equal(
        ctc(other, targets, INPUTS, LABELS), ctc(x, TARGETS, INPUTS, LABELS)
    )


def test_no_labels_leave_blanks_at_every_step() -> None:
    x = logarithms(5, 1, 3)
    np.testing.assert_allclose(ctc(x, np.zeros((1, 0)), [5], [0]), [-x[:, 0, 0].sum()])


def test_repeated_labels_need_a_blank_between_them() -> None:
    x = logarithms(3, 1, 2)
    np.testing.assert_allclose(
        ctc(x, [[1, 1]], [3], [2]), [-(x[0, 0, 1] + x[1, 0, 0] + x[2, 0, 1])]
    )
    assert ctc(x, [[1, 1]], [2], [2]) == [np.inf]


def test_an_impossible_loss_is_infinite_or_zero_with_gradient_zero() -> None:
    x = Variable.from_numpy_array(logarithms(2, 2, 3), need_grad=True)
    for zero_infinity, expected in ((False, math.inf), (True, 0.0)):
        y = F.ctc_loss(x, [[1, 1], [1, 2]], [2, 2], [2, 2], zero_infinity=zero_infinity)
        y.forward()
        x.grad.zero()
        y.backward()
        assert y.d[0] == expected
        assert np.isfinite(y.d[1])
        np.testing.assert_array_equal(x.g[:, 0], 0)
        assert x.g[:, 1].any()


def test_an_empty_batch_works() -> None:
    x = Variable.from_numpy_array(np.zeros((4, 0, 3)), need_grad=True)
    y = F.ctc_loss(x, np.zeros((0, 2), int), np.zeros(0, int), np.zeros(0, int))
    y.forward()
    y.backward()
    assert y.shape == (0,)
    assert x.g.shape == (4, 0, 3)


def test_the_gradient_is_minus_the_share_of_paths_by_way_of_each_class() -> None:
    values = logarithms(5, 4, 3)
    x = Variable.from_numpy_array(values, need_grad=True)
    y = F.ctc_loss(x, TARGETS, INPUTS, LABELS)
    y.forward()
    weights = np.array([1.0, -2.0, 0.5, 3.0])
    y.backward(weights)
    expected = np.zeros_like(values)
    for n, (steps, labels) in enumerate(zip(INPUTS, LABELS, strict=True)):
        every = paths(steps, 3, TARGETS[n, :labels].tolist(), 0)
        shares = [probability(values[:steps, n], path) for path in every]
        for path, share in zip(every, shares, strict=True):
            for t, label in enumerate(path):
                expected[t, n, label] -= weights[n] * share / sum(shares)
    np.testing.assert_allclose(x.g, expected, rtol=1e-9, atol=1e-12)


def test_behind_log_softmax_gradients_of_the_logits_sum_to_zero() -> None:
    x = Variable.from_numpy_array(np.random.default_rng(0).normal(size=(5, 4, 3)), need_grad=True)
    y = F.ctc_loss(F.log_softmax(x, axis=2), TARGETS, INPUTS, LABELS)
    y.forward()
    y.backward()
    np.testing.assert_allclose(x.g.sum(2), 0, atol=1e-12)
    np.testing.assert_array_equal(x.g[2:, 3], 0)


def test_the_gradient_has_a_gradient() -> None:
    values = logarithms(5, 4, 3)
    x = Variable.from_numpy_array(values, need_grad=True)
    (first,) = grad(F.ctc_loss(x, TARGETS, INPUTS, LABELS), x)
    total = F.sum(first * first)
    (second,) = grad(total, x)
    direction = np.random.default_rng(1).normal(size=values.shape)

    def along(size: float) -> float:
        x.d = values + size * direction
        total.forward()
        x.d = values
        return float(total.d)

    numeric = (along(1e-5) - along(-1e-5)) / 2e-5
    second.forward()
    np.testing.assert_allclose((second.d * direction).sum(), numeric, rtol=1e-7)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_improbable_steps_and_long_sequences_stay_finite(dtype: Any) -> None:
    x = np.full((400, 1, 3), -100, dtype)
    x[:, :, 1] = 0
    values = Variable.from_numpy_array(x, need_grad=True)
    y = F.ctc_loss(values, [[1, 2, 1]], [400], [3])
    y.forward()
    y.backward()
    # All steps are at label 1 but one, at label 2: any of the 398 between the ends.
    assert y.dtype == dtype
    np.testing.assert_allclose(y.d, [100 - math.log(398)], rtol=1e-3)
    np.testing.assert_allclose(values.g[1:-1, 0, 2], -1 / 398, rtol=2e-2)


def test_a_class_of_probability_zero_is_no_path() -> None:
    x = np.log(np.full((2, 1, 2), 0.5))
    x[0, 0, 0] = -np.inf
    values = Variable.from_numpy_array(x, need_grad=True)
    y = F.ctc_loss(values, [[1]], [2], [1])
    y.forward()
    y.backward()
    np.testing.assert_allclose(y.d, [-math.log(0.5)])  # two paths of a quarter each
    np.testing.assert_allclose(values.g[:, 0], [[0, -1], [-0.5, -0.5]])


def test_a_step_that_is_not_a_number_makes_the_loss_none() -> None:
    x = logarithms(5, 4, 3)
    x[1, 0] = np.nan
    assert np.isnan(ctc(x, TARGETS, INPUTS, LABELS)).tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    ("targets", "inputs", "labels", "sentence"),
    [
        ([[1, 0]], [3], [2], "targets hold the blank, 0; leave it out"),
        ([[1, 3]], [3], [2], r"targets: index 3 is out of range \[0, 3\)"),
        ([[1.5]], [3], [1], "targets: index 1.5 is not a whole number"),
        ([[1, 2]], [4], [2], r"input_lengths: index 4 is out of range \[0, 4\)"),
        ([[1, 2]], [3], [3], r"target_lengths: index 3 is out of range \[0, 3\)"),
        ([1, 2, 1], [3], [2], "target_lengths sum to 2 for 3 targets"),
    ],
)
def test_labels_and_lengths_out_of_range_are_named(
    targets: Any, inputs: Any, labels: Any, sentence: str
) -> None:
    with pytest.raises(OperatorError, match=sentence):
        ctc(logarithms(3, 1, 3), targets, inputs, labels)


@pytest.mark.parametrize(
    ("shape", "targets", "inputs", "blank", "sentence"),
    [
        ((3, 3), [[1]], [3], 0, r"log_probs have shape \(3, 3\), not \(steps, batch, classes\)"),
        ((3, 2, 3), [[1]], [3, 3], 0, r"targets have shape \(1, 1\), not \(2, labels\)"),
        ((3, 1, 3), [[1]], [3, 3], 0, r"input_lengths have shape \(2,\), not \(1,\)"),
        ((3, 1, 3), [[1]], [3], 3, "blank 3 is none of the 3 classes"),
    ],
)
def test_shapes_that_do_not_fit_are_named(
    shape: Any, targets: Any, inputs: Any, blank: int, sentence: str
) -> None:
    labels = [1] * (shape[1] if len(shape) == 3 else 1)
    with pytest.raises(ShapeError, match=sentence):
        F.ctc_loss(np.zeros(shape), targets, inputs, labels, blank=blank)
