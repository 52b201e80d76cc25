"""What a trained model makes of samples: outputs, losses one by one, and mistaken classes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nnl_core import functions as F
from nnl_core.data import Batch, DataSource
from nnl_core.errors import DataError
from nnl_core.graph.execute import forward_all
from nnl_core.graph.variable import Variable
from nnl_core.training.feeding import feed
from nnl_core.training.metrics import LOSSES
from nnl_core.training.model import Model, Network

BATCH = 256
Array = npt.NDArray[Any]


class Examination(NamedTuple):
    """The first samples of a data set, as a model sees them, one row for each.

    ``target`` is ``None`` where the data has none, ``losses`` where the loss is no number for each
    sample. ``predicted`` and ``labels`` are numbers of classes, where the model tells classes
    apart, of which there are ``classes``.
    """

    output: Array
    target: Array | None
    losses: npt.NDArray[np.float64] | None
    predicted: npt.NDArray[np.int64] | None
    labels: npt.NDArray[np.int64] | None
    classes: int

    def worst(self, count: int) -> npt.NDArray[np.int64]:
        """Return the numbers of the samples with the largest losses, the largest first."""
        if self.losses is None:
            return np.zeros(0, np.int64)
        order = np.argsort(np.nan_to_num(-self.losses, nan=-np.inf), kind="stable")
        return order[:count]

    def confusion(self) -> npt.NDArray[np.int64] | None:
        """Return how often each label (row) was taken for each class (column)."""
        if self.predicted is None or self.labels is None:
            return None
        counted = self.labels >= 0  # negative labels are those that losses ignore
        counts = np.zeros((self.classes, self.classes), np.int64)
        np.add.at(counts, (self.labels[counted], self.predicted[counted]), 1)
        return counts


def examine(model: Model, data: DataSource, limit: int) -> Examination:
    """Run a model on the first ``limit`` samples of a data set."""
    networks: dict[int, tuple[Network, Variable, Variable | None]] = {}
    outputs: list[Array] = []
    targets: list[Array] = []
    losses: list[Array] = []
    count = min(limit, len(data))
    for start in range(0, count, BATCH):
        ids = np.arange(start, min(start + BATCH, count))
        batch = Batch(data.take(ids), ids)
        if len(ids) not in networks:
            network = model.build(data.fields, len(ids), training=False)
            networks[len(ids)] = network, _output(network), _losses(model, network, len(ids))
            shape = networks[len(ids)][1].shape
            if shape[:1] != (len(ids),):
                raise DataError(
                    f"the model's output has shape {shape} for {len(ids)} samples, not a row for "
                    "each: there is nothing to say of single samples"
                )
        network, output, loss = networks[len(ids)]
        feed(network, batch)
        forward_all([output] if loss is None else [output, loss], clear_buffer=True)
        outputs.append(np.array(output.d))
        if model.target in network.inputs:
            targets.append(np.array(network.inputs[model.target].d))
        if loss is not None:
            losses.append(np.array(loss.d, np.float64))
    output_rows = np.concatenate(outputs)
    target_rows = np.concatenate(targets) if targets else None
    predicted, labels, classes = _classes(model, output_rows, target_rows)
    return Examination(
        output_rows,
        target_rows,
        np.concatenate(losses) if losses else None,
        predicted,
        labels,
        classes,
    )


def _output(network: Network) -> Variable:
    return network.outputs.get("output", next(iter(network.outputs.values())))


def _losses(model: Model, network: Network, count: int) -> Variable | None:
    """Return the loss of each sample, the mean over what it has several of."""
    target = network.inputs.get(model.target)
    if model.loss is not None and target is not None:
        loss = model.loss(_output(network), target)
    elif "loss" in network.outputs:
        loss = network.outputs["loss"]
    else:
        return None
    if loss.shape[:1] != (count,):
        return None
    return F.mean(F.reshape(loss, (count, -1)), axis=1)


def _classes(
    model: Model, output: Array, target: Array | None
) -> tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.int64] | None, int]:
    """Return predicted classes, labels and the number of classes, where that is what they are."""
    if target is None or target.size != len(output) or not np.array_equal(target, np.rint(target)):
        return None, None, 0
    labels = target.reshape(-1).astype(np.int64)
    if output.ndim == 2 and output.shape[1] > 1 and np.issubdtype(target.dtype, np.integer):
        if labels.max(initial=0) >= output.shape[1]:
            return None, None, 0
        return output.argmax(axis=1), labels, output.shape[1]
    if (
        output.size == len(output)
        and model.loss is LOSSES["sigmoid_cross_entropy"]
        and np.isin(labels, (-1, 0, 1)).all()
    ):
        return (output.reshape(-1) > 0).astype(np.int64), labels, 2
    return None, None, 0
