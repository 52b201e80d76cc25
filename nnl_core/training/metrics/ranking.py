"""The area under the receiver operating characteristic: how well scores rank."""

from __future__ import annotations

from typing import Literal, Self, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from nnl_core import functions as F
from nnl_core.errors import ModelError
from nnl_core.graph.variable import Variable
from nnl_core.training.metrics.base import Metric, Table
from nnl_core.training.metrics.classes import has_one_logit
from nnl_core.training.metrics.shapes import alike, class_labels, where

RankAverage: TypeAlias = Literal["macro", "weighted", "each"]


class RocAuc(Metric):
    """How often a sample of a class scores higher than one that is not of it; ties count half.

    Exact, for which all scores are kept: four bytes for each, and for each label. The output and
    its target are those of `ClassScore`; of two classes that exclude one another, the result is
    that of class 1, of more it is one class against the rest, ranked by ``softmax``.

    Parameters
    ----------
    average
        over classes that have samples and do not have all: ``"macro"`` is their mean,
        ``"weighted"`` that over samples; ``"each"`` is a table, with NaN for all other classes
    """

    def __init__(self, average: RankAverage = "macro") -> None:
        if average not in get_args(RankAverage):
            choices = ", ".join(get_args(RankAverage))
            raise ModelError(f"average = {average!r}: choose one of {choices}")
        super().__init__()
        self.average = average

    def measure(
        self, output: Variable, target: Variable, counts: Variable | None = None
    ) -> Variable:
        """Return, for each sample and class, its score and whether it is so (or -1: ignored)."""
        if has_one_logit(output) or output.shape == target.shape:
            is_so = F.cast(F.greater_scalar(alike(output, target), 0.5), np.float32)
            return F.stack(_rows(output), _rows(where(counts, is_so, -1)), axis=1)
        labels, classes = _rows(class_labels(output, target, counts)), output.shape[1]
        scores, chosen = _odds(_rows(output)), np.arange(classes)
        if classes == 2:
            scores, chosen = _rows(output[:, 1:] - output[:, :1]), chosen[1:]
        is_so = F.cast(F.equal(labels, chosen), np.float32)
        ignored = F.broadcast(F.less_scalar(labels, 0), is_so.shape)
        return F.stack(scores, F.where(ignored, -1.0, is_so), axis=1)

    def reset(self) -> None:
        """Forget all batches."""
        self.state = self._room = np.zeros((0, 2, 0), np.float32)

    def add(self, measured: npt.NDArray[np.generic], count: int) -> None:
        """Keep a batch's scores and truths."""
        begin, end = len(self.state), len(self.state) + len(measured)
        if self.state.base is not self._room or end > len(self._room):
            self._room = np.empty((2 * end, *measured.shape[1:]), np.float32)
            if begin:
                self._room[:begin] = self.state
        self._room[begin:end] = measured
        self.state = self._room[:end]

    def merge(self, other: Self) -> None:
        """Keep the scores and truths of another one, too."""
        if len(other.state):
            self.add(other.state, len(other.state))

    def value(self) -> float | Table:
        """Return the area; NaN where no class has samples and does not have all."""
        areas, weights = [], []
        for scores, truths in np.moveaxis(np.asarray(self.state, np.float32), 2, 0).swapaxes(1, 2):
            is_so = truths[truths >= 0] > 0
            areas.append(area(scores[truths >= 0], is_so))
            weights.append(1.0 if self.average == "macro" else float(is_so.sum()))
        each = np.array(areas)
        if self.average == "each":
            return each
        defined = ~np.isnan(each)
        weight = np.array(weights)[defined]
        return float(each[defined] @ weight / weight.sum()) if len(weight) else float("nan")


def area(scores: npt.NDArray[np.float32], is_so: npt.NDArray[np.bool_]) -> float:
    """Return the share of pairs of a true and another sample that scores put in order.

    A pair that ties is half in order. NaN where there is no pair, or a score is NaN.
    """
    true = int(is_so.sum())
    pairs = true * (len(is_so) - true)
    if not pairs or np.isnan(scores).any():
        return float("nan")
    _, place, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(sizes) - (sizes - 1) / 2  # equal scores share the mean of their ranks
    return float((ranks[place[is_so]].sum() - true * (true + 1) / 2) / pairs)


def _odds(x: Variable) -> Variable:
    """Return the logarithms of the odds of each class, ``p / (1 - p)``, for logits in rows.

    They rank as probabilities do, but near 1, too, they are told apart.
    """
    log_p = F.log_softmax(x, axis=1)
    p = F.exp(log_p)
    is_top = F.equal(F.argmax(x, axis=1, keepdims=True), np.arange(x.shape[1]))
    below_top = F.log(F.sum(F.where(is_top, 0.0, p), axis=1, keepdims=True))
    return log_p - F.where(is_top, F.broadcast(below_top, x.shape), F.log1p(-p))


def _rows(x: Variable) -> Variable:
    """Return an array with the classes, axis 1, as its last of two axes."""
    if x.ndim < 2:
        return F.reshape(x, (-1, 1))
    order = (0, *range(2, x.ndim), 1)
    return F.reshape(F.transpose(x, order), (-1, x.shape[1]))
