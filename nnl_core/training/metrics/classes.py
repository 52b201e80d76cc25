"""Metrics of classification: labels that are negative count nowhere, as in the loss."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import ModelError, ShapeError
from nnl_core.graph.variable import Variable
from nnl_core.training.metrics.base import CountedMean, Sums, Table, counted
from nnl_core.training.metrics.shapes import alike, class_labels, where

Average: TypeAlias = Literal["macro", "micro", "weighted", "binary", "each"]


def has_one_logit(output: Variable) -> bool:
    """Whether samples (or pixels) have one logit, of the class 1 against the class 0."""
    return output.ndim == 1 or output.shape[1] == 1


def as_classes(
    output: Variable, target: Variable, counts: Variable | None = None
) -> tuple[Variable, Variable]:
    """Return scores, whose axis 1 is that of classes, and labels; one logit becomes two scores."""
    if not has_one_logit(output):
        return output, class_labels(output, target, counts)
    logits = output if output.ndim > 1 else F.reshape(output, (*output.shape, 1))
    labels = F.cast(F.greater_scalar(alike(logits, target), 0.5), np.int32)
    return F.concatenate(F.zeros_like(logits), logits, axis=1), where(counts, labels, -1)


def where_counted(labels: Variable) -> Variable:
    """Return 1 where a label counts, else 0."""
    return F.cast(F.greater_equal_scalar(labels, 0), np.float32)


class TopNAccuracy(CountedMean):
    """How often the label's score is among the ``n`` largest; one that ties with the rest is not.

    Axis 1 of the output is that of classes.
    """

    def __init__(self, n: int = 5) -> None:
        super().__init__()
        if n < 1:
            raise ModelError(f"n = {n}: at least one class must count")
        self.n = n

    def measure(
        self, output: Variable, target: Variable, counts: Variable | None = None
    ) -> Variable:
        """Count right samples, and samples."""
        scores, labels = as_classes(output, target, counts)
        right = 1 - F.top_n_error(scores, labels, axis=1, n=self.n)
        return counted(right, where_counted(labels))


class Accuracy(TopNAccuracy):
    """How often the label's score is the largest."""

    def __init__(self) -> None:
        super().__init__(n=1)


top_5_accuracy = TopNAccuracy(5)


def binary_accuracy(output: Variable, target: Variable) -> Variable:
    """Return 1 where a logit has the sign that its target, 0 or 1, asks for, else 0."""
    is_right = F.equal(F.greater_scalar(output, 0), F.greater_scalar(alike(output, target), 0.5))
    return F.cast(is_right, np.float32)


class Perplexity(CountedMean):
    """The exponential of the mean cross entropy of logits along axis 1."""

    higher_is_better = False

    def measure(
        self, output: Variable, target: Variable, counts: Variable | None = None
    ) -> Variable:
        """Sum cross entropies, and count labels."""
        labels = class_labels(output, target, counts)
        return counted(F.softmax_cross_entropy(output, labels, axis=1), where_counted(labels))

    def value(self) -> float:
        """Return the perplexity; infinite where it is too large for a number."""
        with np.errstate(over="ignore"):
            return float(np.exp(super().value()))


class ConfusionMatrix(Sums):
    """How many samples of each class (row) got the highest score for which class (column)."""

    def measure(
        self, output: Variable, target: Variable, counts: Variable | None = None
    ) -> Variable:
        """Count pairs of classes."""
        scores, labels = as_classes(output, target, counts)
        return F.confusion_matrix(scores, labels, axis=1)

    def value(self) -> Table:
        """Return the table; of no batches, an empty one."""
        return np.array(self.state, np.float64) if self.state.ndim else np.zeros((0, 0))


class ClassScore(Sums):
    """What a class gets for samples that are rightly (or wrongly) said to be of it.

    Classes exclude one another where each sample has a label. Where targets are 0 and 1, in the
    output's shape, each logit along axis 1 decides on a class of its own, by its sign; a single
    logit decides on the class 1.

    Parameters
    ----------
    average
        ``"macro"`` is the mean over classes that occur or were chosen, ``"weighted"`` that over
        samples; ``"micro"`` does not tell classes apart; ``"binary"`` is that of class 1 of two;
        ``"each"`` is a table, with a number for each class
    """

    def __init__(self, average: Average = "macro") -> None:
        super().__init__()
        if average not in get_args(Average):
            raise ModelError(f"average = {average!r}: choose one of {', '.join(get_args(Average))}")
        self.average = average

    def measure(
        self, output: Variable, target: Variable, counts: Variable | None = None
    ) -> Variable:
        """Count, for each class, samples rightly said to be of it, said to be of it, and of it."""
        if self.average == "binary" and not has_one_logit(output) and output.shape[1] != 2:
            raise ShapeError(
                f"average = 'binary' is for two classes, but the output has shape {output.shape}; "
                "choose macro, micro, weighted or each"
            )
        if has_one_logit(output) or output.shape == target.shape:
            logits = output if output.ndim > 1 else F.reshape(output, (*output.shape, 1))
            said = where(counts, F.greater_scalar(logits, 0), 0)
            is_so = where(counts, F.greater_scalar(alike(logits, target), 0.5), 0)
            axes = (0, *range(2, logits.ndim))
            return F.stack(*(F.sum(x, axes) for x in (F.logical_and(said, is_so), said, is_so)))
        table = F.confusion_matrix(output, class_labels(output, target, counts), axis=1)
        return F.stack(F.matrix_diag_part(table), F.sum(table, 0), F.sum(table, 1))

    def value(self) -> float | Table:
        """Return the score; NaN where there were no samples."""
        if self.state.ndim == 0:
            return float("nan")
        counts = np.array(self.state, np.float64)
        if self.average == "micro":
            counts = counts.sum(axis=1, keepdims=True)
        if self.average == "binary":
            counts = counts[:, -1:]
        scores = self.score(*counts)
        if self.average == "each":
            return scores
        _, said, are = counts
        weights = are if self.average == "weighted" else (said + are > 0).astype(np.float64)
        return float(scores @ weights / weights.sum()) if weights.any() else float("nan")

    def score(self, right: Table, said: Table, are: Table) -> Table:
        """Return the score of each class from its three counts."""
        raise ModelError(f"metric {type(self).__name__} does not define its score")


class Precision(ClassScore):
    """The share of samples said to be of a class that are; 0 where there are none."""

    def score(self, right: Table, said: Table, are: Table) -> Table:
        """Return the share for each class."""
        return right / np.maximum(said, 1)


class Recall(ClassScore):
    """The share of a class's samples that are said to be of it; 0 where there are none."""

    def score(self, right: Table, said: Table, are: Table) -> Table:
        """Return the share for each class."""
        return right / np.maximum(are, 1)


class F1(ClassScore):
    """The harmonic mean of precision and recall."""

    def score(self, right: Table, said: Table, are: Table) -> Table:
        """Return the mean for each class."""
        return 2 * right / np.maximum(said + are, 1)
