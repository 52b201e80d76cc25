"""Each metric against another library or its formula, for any division into batches and workers."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from skimage.metrics import peak_signal_noise_ratio, structural_similarity
from sklearn import metrics as sk

from nnl_core.errors import ModelError, ShapeError
from nnl_core.graph.variable import Variable
from nnl_core.training.metrics import (
    F1,
    Accuracy,
    ConfusionMatrix,
    Mean,
    Perplexity,
    Precision,
    Psnr,
    Recall,
    RocAuc,
    Snr,
    Ssim,
    Sums,
    TopNAccuracy,
    absolute_error,
    binary_accuracy,
    squared_error,
)

RULE = settings(max_examples=25, deadline=None)
SEEDS = st.integers(0, 2**32 - 1)


def variable(array):
    array = np.asarray(array)
    dtype = np.float32 if array.dtype.kind == "f" else np.int32
    return Variable.from_numpy_array(array.astype(dtype))


def fed(metric, output, target, cuts=()):
    """A fresh metric that was told of all samples, in batches that end at `cuts`."""
    metric = copy.copy(metric)
    metric.reset()
    for part in np.split(np.arange(len(output)), cuts):
        if len(part):
            measured = metric.measure(variable(output[part]), variable(target[part]))
            metric.add(measured.d, len(part))
    return metric


def value(metric, output, target, cuts=()):
    return fed(metric, np.asarray(output), np.asarray(target), cuts).value()


def cuts_of(draw, samples):
    return sorted(draw(st.lists(st.integers(0, samples), max_size=3)))


@st.composite
def classified(draw, classes=(2, 5), ignored=True):
    """Scores, no two of a sample alike, labels with some that are ignored, and cuts."""
    rng = np.random.default_rng(draw(SEEDS))
    samples, count = draw(st.integers(2, 30)), draw(st.integers(*classes))
    scores = rng.permuted(np.tile(np.arange(count), (samples, 1)), axis=1) * rng.uniform(0.5, 2)
    labels = rng.integers(-1 if ignored else 0, count, samples)
    labels[0] = 0
    return scores, labels, cuts_of(draw, samples)


@st.composite
def decided(draw, columns=(2, 4)):
    """Logits from few values, so that some tie, with targets 0 and 1 for each, and cuts."""
    rng = np.random.default_rng(draw(SEEDS))
    shape = draw(st.integers(2, 30)), draw(st.integers(*columns))
    logits = rng.integers(-3, 4, shape) + 0.5
    return logits, rng.integers(0, 2, shape), cuts_of(draw, shape[0])


# -------------------------------------------------------------------- classes


@RULE
@given(classified())
def test_accuracy_is_the_share_of_counted_labels_that_score_highest(case):
    scores, labels, cuts = case
    counts = labels >= 0
    expected = sk.accuracy_score(labels[counts], scores.argmax(1)[counts])
    assert value(Accuracy(), scores, labels, cuts) == pytest.approx(expected)


@RULE
@given(classified(classes=(3, 6), ignored=False), st.integers(1, 3))
def test_top_n_accuracy_counts_labels_among_the_n_highest(case, n):
    scores, labels, cuts = case
    rank = (scores > np.take_along_axis(scores, labels[:, None], 1)).sum(1)
    assert value(TopNAccuracy(n), scores, labels, cuts) == pytest.approx((rank < n).mean())


def test_a_label_that_ties_with_another_class_is_not_the_largest():
    assert value(Accuracy(), [[1.0, 1.0], [2.0, 1.0]], [0, 0]) == 0.5


def test_accuracy_of_one_logit_goes_by_its_sign():
    assert value(Accuracy(), [[2.0], [-1.0], [-3.0]], [1, 1, 0]) == pytest.approx(2 / 3)


def test_accuracy_of_pixels_counts_pixels():
    scores = np.array([[[[1.0, 0.0]], [[0.0, 1.0]]]])  # one image, two classes, one by two
    assert value(Accuracy(), scores, np.array([[[0, 0]]])) == 0.5
    assert value(Accuracy(), scores, np.array([[[0, -1]]])) == 1.0


@RULE
@given(decided())
def test_binary_accuracy_is_the_share_of_right_signs(case):
    logits, truths, cuts = case
    expected = ((logits > 0) == truths).mean()
    assert value(Mean(binary_accuracy), logits, truths, cuts) == pytest.approx(expected)


@RULE
@given(classified())
def test_a_confusion_matrix_counts_labels_and_choices(case):
    scores, labels, cuts = case
    counts, classes = labels >= 0, range(scores.shape[1])
    expected = sk.confusion_matrix(labels[counts], scores.argmax(1)[counts], labels=classes)
    np.testing.assert_array_equal(value(ConfusionMatrix(), scores, labels, cuts), expected)


def test_a_confusion_matrix_of_one_logit_has_two_classes():
    table = value(ConfusionMatrix(), [2.0, -1.0, -3.0, 1.0], [1, 1, 0, 0])
    assert table.tolist() == [[1, 1], [1, 1]]


SCORES = {
    Precision: sk.precision_score,
    Recall: sk.recall_score,
    F1: sk.f1_score,
}


@pytest.mark.parametrize("average", ["macro", "micro", "weighted", "each"])
@pytest.mark.parametrize("score", SCORES, ids=lambda score: score.__name__)
@RULE
@given(classified())
def test_scores_of_classes_that_exclude_one_another(score, average, case):
    scores, labels, cuts = case
    counts = labels >= 0
    each = {"average": None, "labels": range(scores.shape[1])}
    expected = SCORES[score](
        labels[counts],
        scores.argmax(1)[counts],
        zero_division=0,
        **(each if average == "each" else {"average": average}),
    )
    found = value(score(average), scores, labels, cuts)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("average", ["micro", "each"])
@pytest.mark.parametrize("score", SCORES, ids=lambda score: score.__name__)
@RULE
@given(decided())
def test_scores_of_classes_that_each_logit_decides_on(score, average, case):
    logits, truths, cuts = case
    named = None if average == "each" else average
    expected = SCORES[score](truths, logits > 0, average=named, zero_division=0)
    np.testing.assert_allclose(value(score(average), logits, truths, cuts), expected, rtol=1e-6)


@pytest.mark.parametrize("score", SCORES, ids=lambda score: score.__name__)
@RULE
@given(decided(columns=(1, 1)))
def test_one_logit_decides_on_the_class_1(score, case):
    logits, truths, cuts = case
    expected = SCORES[score](truths[:, 0], logits[:, 0] > 0, zero_division=0)
    is_empty = not (truths.any() or (logits > 0).any())
    for average in ("binary", "macro"):
        found = value(score(average), logits, truths, cuts)
        assert found == pytest.approx(expected) or (is_empty and np.isnan(found))


@RULE
@given(classified(classes=(2, 2)))
def test_binary_scores_are_those_of_class_1(case):
    scores, labels, cuts = case
    counts = labels >= 0
    if (labels == 1).any():
        expected = sk.f1_score(labels[counts], scores.argmax(1)[counts], zero_division=0)
        assert value(F1("binary"), scores, labels, cuts) == pytest.approx(expected)


@RULE
@given(classified())
def test_perplexity_is_the_exponential_of_the_mean_cross_entropy(case):
    scores, labels, cuts = case
    counts = labels >= 0
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    expected = np.exp(sk.log_loss(labels[counts], p[counts], labels=range(scores.shape[1])))
    assert value(Perplexity(), scores, labels, cuts) == pytest.approx(expected, rel=1e-4)


# -------------------------------------------------------------------- ranking


@RULE
@given(decided())
def test_the_area_under_the_curve_of_each_logit(case):
    logits, truths, cuts = case
    found = value(RocAuc("each"), logits, truths, cuts)
    for column, area in enumerate(found):
        if len(set(truths[:, column])) == 2:
            assert area == pytest.approx(sk.roc_auc_score(truths[:, column], logits[:, column]))
        else:
            assert np.isnan(area)


@RULE
@given(decided(columns=(1, 1)))
def test_the_area_under_the_curve_of_one_logit_counts_ties_half(case):
    logits, truths, cuts = case
    found = value(RocAuc(), logits, truths, cuts)
    if len(set(truths[:, 0])) == 2:
        assert found == pytest.approx(sk.roc_auc_score(truths[:, 0], logits[:, 0]))
    else:
        assert np.isnan(found)


@pytest.mark.parametrize("average", ["macro", "weighted"])
@RULE
@given(SEEDS, st.integers(3, 5))
def test_the_area_of_several_classes_is_one_against_the_rest(average, seed, classes):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(40, classes))
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, 40 - classes)])
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assume(np.diff(np.sort(p, axis=0), axis=0).min() > 1e-5)  # float32 keeps their order
    expected = sk.roc_auc_score(labels, p, multi_class="ovr", average=average)
    assert value(RocAuc(average), logits, labels, [7, 20]) == pytest.approx(expected)


@RULE
@given(SEEDS)
def test_the_area_of_two_classes_is_that_of_class_1(seed):
    rng = np.random.default_rng(seed)
    logits = rng.integers(-2, 3, (20, 2)).astype(float)
    labels = np.array([0, 1, -1, *rng.integers(-1, 2, 17)])
    counts = labels >= 0
    expected = sk.roc_auc_score(labels[counts], (logits[:, 1] - logits[:, 0])[counts])
    assert value(RocAuc(), logits, labels, [3, 4]) == pytest.approx(expected)


def test_confident_scores_are_told_apart():
    """Their probabilities would all be 1 in float32."""
    logits = [[0.0, 0, 40], [0, 0, 39], [0, 0, 41], [0, 0, 38]]
    assert value(RocAuc("each"), logits, [2, 1, 2, 0])[2] == 1.0


def test_scores_that_are_no_numbers_have_no_area():
    assert np.isnan(value(RocAuc(), [[np.nan], [1.0]], [0, 1]))


# -------------------------------------------------------------------- signals


@st.composite
def images(draw):
    rng = np.random.default_rng(draw(SEEDS))
    shape = draw(st.integers(1, 4)), draw(st.integers(1, 3)), 13, 16
    target = rng.uniform(size=shape)
    output = (target + rng.normal(scale=draw(st.sampled_from([0.01, 0.3])), size=shape)).clip(0, 1)
    return output.astype(np.float32), target.astype(np.float32), cuts_of(draw, shape[0])


@RULE
@given(images())
def test_errors_are_means_over_all_elements(case):
    output, target, cuts = case
    flat = target.ravel().astype(float), output.ravel().astype(float)
    assert value(Mean(squared_error), output, target, cuts) == pytest.approx(
        sk.mean_squared_error(*flat), rel=1e-5
    )
    assert value(Mean(absolute_error), output, target, cuts) == pytest.approx(
        sk.mean_absolute_error(*flat), rel=1e-5
    )


@RULE
@given(images(), st.sampled_from([1.0, 255.0]))
def test_the_peak_ratio_is_that_of_all_samples_or_the_mean_of_each(case, peak):
    output, target, cuts = case
    output, target = output * np.float32(peak), target * np.float32(peak)
    ratio = peak_signal_noise_ratio(target, output, data_range=peak)
    assert value(Psnr(peak), output, target, cuts) == pytest.approx(ratio, rel=1e-5)
    pairs = zip(target, output, strict=True)
    each = np.mean([peak_signal_noise_ratio(*pair, data_range=peak) for pair in pairs])
    assert value(Psnr(peak, each=True), output, target, cuts) == pytest.approx(each, rel=1e-5)


@RULE
@given(images())
def test_the_signal_ratio_compares_squares(case):
    output, target, cuts = case

    def ratio(y, x):
        y = y.astype(np.float64)
        return 10 * np.log10((y**2).sum() / ((y - x) ** 2).sum())

    assert value(Snr(), output, target, cuts) == pytest.approx(ratio(target, output), rel=1e-5)
    each = np.mean([ratio(*pair) for pair in zip(target, output, strict=True)])
    assert value(Snr(each=True), output, target, cuts) == pytest.approx(each, rel=1e-5)


@pytest.mark.parametrize("metric", [Psnr(), Psnr(each=True), Snr(), Snr(each=True)])
def test_equal_signals_have_an_infinite_ratio(metric):
    assert value(metric, np.ones((2, 3)), np.ones((2, 3))) == np.inf


def similarity(target, output, data_range):
    """The mean over images, by another library."""
    pairs = zip(target.astype(float), output.astype(float), strict=True)
    return np.mean(
        [
            structural_similarity(
                *pair,
                data_range=data_range,
                channel_axis=0,
                gaussian_weights=True,
                sigma=1.5,
                use_sample_covariance=False,
            )
            for pair in pairs
        ]
    )


@RULE
@given(images(), st.sampled_from([1.0, 255.0]))
def test_structural_similarity_is_that_of_the_paper(case, peak):
    output, target, cuts = case
    output, target = output * np.float32(peak), target * np.float32(peak)
    expected = similarity(target, output, peak)
    assert value(Ssim(peak), output, target, cuts) == pytest.approx(expected, abs=2e-5)


def test_structural_similarity_of_almost_flat_images_keeps_its_digits():
    rng = np.random.default_rng(0)
    target = (0.9 + rng.normal(scale=1e-3, size=(2, 1, 20, 20))).astype(np.float32)
    output = (target + rng.normal(scale=1e-3, size=target.shape)).astype(np.float32)
    assert value(Ssim(), output, target) == pytest.approx(similarity(target, output, 1), abs=1e-5)


# -------------------------------------------------------------------- all of them

ALL = [
    Accuracy(),
    TopNAccuracy(2),
    ConfusionMatrix(),
    Precision(),
    Recall("weighted"),
    F1("each"),
    RocAuc(),
    Perplexity(),
]
REAL = [Mean(squared_error), Psnr(), Psnr(each=True), Snr(), Ssim()]


def name_of(metric):
    return type(metric).__name__


@pytest.mark.parametrize("metric", ALL, ids=name_of)
@RULE
@given(classified(), st.data())
def test_workers_results_can_be_merged(metric, case, data):
    scores, labels, _ = case
    middle = data.draw(st.integers(0, len(labels)))
    first = fed(metric, scores[:middle], labels[:middle])
    first.merge(fed(metric, scores[middle:], labels[middle:], [1]))
    np.testing.assert_allclose(first.value(), value(metric, scores, labels), rtol=1e-6)


@pytest.mark.parametrize("metric", REAL, ids=name_of)
@RULE
@given(images(), st.data())
def test_workers_results_on_images_can_be_merged(metric, case, data):
    output, target, cuts = case
    middle = data.draw(st.integers(0, len(output)))
    first = fed(metric, output[:middle], target[:middle])
    first.merge(fed(metric, output[middle:], target[middle:]))
    assert first.value() == pytest.approx(value(metric, output, target, cuts), rel=1e-5)


@pytest.mark.parametrize("metric", [*ALL, *REAL], ids=name_of)
def test_of_no_samples_there_is_no_number(metric):
    metric = copy.copy(metric)
    metric.reset()
    found = np.asarray(metric.value())
    assert np.isnan(found).all()  # an empty table, too


@pytest.mark.parametrize("metric", [*ALL, *REAL], ids=name_of)
def test_a_metric_goes_on_from_its_state(metric):
    rng = np.random.default_rng(0)
    real = metric in REAL
    output = rng.normal(size=(6, 1, 11, 11) if real else (6, 3))
    target = rng.normal(size=(6, 1, 11, 11)) if real else np.array([0, 1, 2, 0, 1, 2])
    begun, other = fed(metric, output[:4], target[:4]), fed(metric, output[:1], target[:1])
    other.state = begun.state.copy()
    measured = other.measure(variable(output[4:]), variable(target[4:]))
    other.add(measured.d, 2)
    np.testing.assert_array_equal(other.value(), value(metric, output, target, [4]))


@pytest.mark.parametrize("metric", [*ALL, *REAL], ids=name_of)
@RULE
@given(st.integers(0, 6), SEEDS)
def test_what_fills_a_batch_does_not_count(metric, count, seed):
    rng = np.random.default_rng(seed)
    real = metric in REAL
    output = rng.normal(size=(6, 1, 11, 12) if real else (6, 3)).astype(np.float32)
    target = rng.normal(size=(6, 1, 11, 12)) if real else rng.integers(-1, 3, 6)
    counts = variable((np.arange(6) < count).astype(np.float32))
    padded = copy.copy(metric)
    padded.reset()
    padded.add(padded.measure(variable(output), variable(target), counts).d, count)
    alone = value(metric, output[:count], target[:count])
    found = padded.value()
    if count or np.ndim(found) == 0:  # of no samples, tables have whatever shape is known
        np.testing.assert_allclose(found, alone, rtol=1e-5)


@pytest.mark.parametrize("metric", [F1(), RocAuc(), ConfusionMatrix(), Mean(binary_accuracy)])
def test_what_fills_a_batch_of_single_logits_does_not_count(metric):
    logits, truths = np.array([2.0, -1, 3, -2, 1, 1]), np.array([1, 0, 0, 1, 1, 0])
    counts = variable(np.array([1.0, 1, 1, 1, 0, 0]))
    expected = value(metric, logits[:4], truths[:4])
    metric.reset()
    metric.add(metric.measure(variable(logits), variable(truths), counts).d, 4)
    np.testing.assert_allclose(metric.value(), expected)


def test_metrics_of_two_kinds_are_not_merged():
    with pytest.raises(ModelError, match="Accuracy cannot be merged with ConfusionMatrix"):
        Accuracy().merge(ConfusionMatrix())


def test_a_metric_keeps_nothing_of_a_batch():
    """The program of the next batch writes to the same memory."""
    for metric in (RocAuc(), ConfusionMatrix(), Mean(squared_error)):
        measured = np.ones((3, 2, 2), np.float32)
        metric.add(measured, 3)
        before = metric.state.copy()
        measured[:] = 7
        np.testing.assert_array_equal(metric.state, before)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TopNAccuracy(0), "n = 0: at least one class"),
        (lambda: F1("mean"), "average = 'mean': choose one of macro, micro, weighted, binary"),
        (lambda: RocAuc("micro"), "average = 'micro': choose one of macro, weighted, each"),
        (lambda: Psnr(0), "data_range = 0: say how far"),
        (lambda: Ssim(float("nan")), "data_range = nan: say how far"),
    ],
)
def test_arguments_without_sense_are_refused(make, message):
    with pytest.raises(ModelError, match=message):
        make()


@pytest.mark.parametrize(
    ("metric", "output", "target", "message"),
    [
        (Ssim(), (2, 1, 10, 20), (2, 1, 10, 20), r"\(2, 1, 10, 20\); images are .* at least 11"),
        (Ssim(), (2, 1, 20, 20), (2, 1, 20, 21), r"\(2, 1, 20, 20\), its target \(2, 1, 20, 21\)"),
        (F1("binary"), (4, 3), (4,), r"two classes, but the output has shape \(4, 3\); choose"),
        (ConfusionMatrix(), (4, 3), (5,), r"\(4, 3\).* not with a target of shape \(5,\)"),
        (RocAuc(), (4, 3), (4, 2), r"\(4, 3\).* not with a target of shape \(4, 2\)"),
        (Psnr(), (4, 3), (4, 4), "must be alike"),
    ],
)
def test_shapes_that_do_not_fit_are_named(metric, output, target, message):
    with pytest.raises(ShapeError, match=message):
        metric.measure(Variable(output), Variable(target))


def test_a_metric_that_only_sums_needs_a_measure():
    with pytest.raises(ModelError, match="metric Sums does not define measure"):
        Sums().measure(Variable((1,)), Variable((1,)))
