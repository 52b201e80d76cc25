"""Running a model without training it: metrics of a data set, and predictions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnl_core.data import Batch, DataIterator, DataSource
from nnl_core.data.source import Array
from nnl_core.errors import DataError
from nnl_core.graph.execute import forward_all
from nnl_core.graph.spec import Spec
from nnl_core.graph.variable import Variable
from nnl_core.hooks import EvaluationEnd, EvaluationStart
from nnl_core.session import Session, current_session
from nnl_core.training.feeding import feed
from nnl_core.training.metrics import Metric, Table, values_of
from nnl_core.training.model import Model, Network
from nnl_core.training.outcomes import begin_reading, lateness


class Networks:
    """A model's networks for the batch sizes that occur: the full one, and the last one's."""

    def __init__(self, model: Model, fields: Mapping[str, Spec]) -> None:
        self._model = model
        self._fields = fields
        self._built: dict[int, Network] = {}

    def fed(self, batch: Batch) -> Network:
        """Return the network for a batch, its inputs filled."""
        network = self.of(len(batch))
        feed(network, batch)
        return network

    def of(self, batch_size: int) -> Network:
        """Return the network for batches of a size."""
        if batch_size not in self._built:
            self._built[batch_size] = self._model.build(self._fields, batch_size, training=False)
        return self._built[batch_size]


class Evaluator:
    """Computes a model's loss and metrics over a data set, in batches.

    ``name`` is what its results are reported under. ``tables`` has those metrics of the last run
    that are no single numbers, such as a confusion matrix.
    """

    def __init__(
        self,
        model: Model,
        data: DataSource,
        *,
        batch_size: int = 256,
        name: str = "evaluation",
        session: Session | None = None,
    ) -> None:
        self.model = model
        self.name = name
        self.session = session or current_session()
        self.tables: dict[str, Table] = {}
        self.iterator = DataIterator(data, batch_size, shuffle=False)
        self._networks = Networks(model, data.fields)

    def prepare(self) -> None:
        """Make the networks of all batch sizes now, not when the first batch comes."""
        for size in self.iterator.sizes:
            self._networks.of(size)

    def run(self) -> dict[str, float]:
        """Evaluate, as plugins have it or else by `run_loop`, and return the numbers by name."""
        events = self.session.events
        self.tables = {}
        if events.evaluation_start is not None:
            events.evaluation_start(EvaluationStart(self))
        metrics = self.session.manager.run_evaluation(self)
        if events.evaluation_end is not None:
            events.evaluation_end(EvaluationEnd(self, metrics))
        return metrics

    def run_loop(self) -> dict[str, float]:
        """Evaluate in this process: fill `tables`, and return the numbers by name."""
        numbers, self.tables = values_of(self.measure())
        return numbers

    def measure(self) -> dict[str, Metric]:
        """Return the metrics, fed with all samples: those of several processes can be merged."""
        metrics: dict[str, Metric] | None = None
        waiting: deque[tuple[Callable[[], dict[str, Array]], int]] = deque()

        def settle(metrics: Mapping[str, Metric], behind: int = 0) -> None:
            while len(waiting) > behind:
                read, count = waiting.popleft()
                for name, array in read().items():
                    metrics[name].add(array, count)

        for batch in self.iterator.epoch():
            network = self._networks.fed(batch)
            if not network.measured:
                raise DataError(
                    f"{self.iterator.source.name}: there is nothing to measure; the model needs a "
                    f"loss or metrics, and the data the field {self.model.target!r}"
                )
            metrics = metrics or self.model.new_metrics(network)
            forward_all(list(network.measured.values()), clear_buffer=True)
            waiting.append((begin_reading(network), len(batch)))
            settle(metrics, lateness())
        settle(metrics or {})
        return metrics or {}


class Predictor:
    """Computes a model's outputs for a data set, in batches.

    ``outputs`` names those that are wanted (default: all but the loss).
    """

    def __init__(
        self, model: Model, *, batch_size: int = 256, outputs: Sequence[str] | None = None
    ) -> None:
        self.model = model
        self.batch_size = batch_size
        self.outputs = outputs

    def run(self, data: DataSource) -> dict[str, npt.NDArray[Any]]:
        """Return the outputs of all samples, by name.

        Raises DataError where an output does not have one row for each sample.
        """
        networks = Networks(self.model, data.fields)
        parts: dict[str, list[npt.NDArray[Any]]] = {}
        for batch in DataIterator(data, self.batch_size, shuffle=False).epoch():
            wanted = self._wanted(networks.fed(batch).outputs)
            forward_all(list(wanted.values()), clear_buffer=True)
            for name, variable in wanted.items():
                if variable.shape[:1] != (len(batch),):
                    raise DataError(
                        f"output {name!r} of model {self.model.name!r} has shape {variable.shape}, "
                        f"not one row for each of {len(batch)} samples; choose other outputs"
                    )
                parts.setdefault(name, []).append(np.array(variable.d))
        return {name: np.concatenate(arrays) for name, arrays in parts.items()}

    def _wanted(self, outputs: Mapping[str, Variable]) -> dict[str, Variable]:
        if self.outputs is None:
            return {name: variable for name, variable in outputs.items() if name != "loss"}
        for name in self.outputs:
            if name not in outputs:
                raise DataError(
                    f"model {self.model.name!r} has no output {name!r}; it has {', '.join(outputs)}"
                )
        return {name: outputs[name] for name in self.outputs}
