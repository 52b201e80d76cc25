"""Sections about the model: its parameters, and what each of its nodes costs."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nnl_core.data import Batch
from nnl_core.graph.execute import forward_all
from nnl_core.hooks import NodeForwardEnd, NodeForwardStart
from nnl_core.io import load
from nnl_core.report.parts import ReportSection, table
from nnl_core.report.run import ReportedRun
from nnl_core.training.feeding import feed

if TYPE_CHECKING:
    from nnl_core.graph.node import Node

REPEATS = 5


def parameters(run: ReportedRun) -> ReportSection:
    """List the parameters with what their values look like."""
    rows: list[tuple[object, ...]] = []
    total = 0
    for name, stored in load(run.parameter_file).parameters.items():
        values = np.asarray(stored.array, np.float64)
        total += values.size
        numbers = (values.mean(), values.std(), np.sqrt(np.sum(values**2))) if values.size else ()
        rows.append(
            (
                name,
                "x".join(map(str, values.shape)) or "scalar",
                values.size,
                *(float(number) for number in numbers),
                "" if stored.need_grad else "not trained",
            )
        )
    head = ("name", "shape", "count", "mean", "deviation", "norm", "")
    text = f"{total:,} numbers in {len(rows)} parameters, from {run.parameter_file}."
    return ReportSection("Parameters", [text, table(head, rows)])


class NodeCost(NamedTuple):
    """What one node of a model costs, for one sample."""

    name: str
    shape: tuple[int, ...]
    multiply_adds: int
    parameters: int
    seconds: float


def layers(run: ReportedRun) -> ReportSection:
    """List the nodes of the model's graph in the order in which they run, for one sample."""
    found = node_costs(run)
    seconds = sum(node.seconds for node in found)
    rows = [
        (
            node.name,
            "x".join(map(str, node.shape)) or "scalar",
            node.multiply_adds,
            node.parameters or None,
            node.seconds * 1e3,
            f"{node.seconds / seconds:.0%}" if seconds else "",
        )
        for node in found
    ]
    sums = sum(node.multiply_adds for node in found)
    text = (
        f"{sums:,} multiply-adds and {seconds * 1e3:.3g} ms for one sample, node by node, when "
        "this page was made; a compiled program fuses some of them."
    )
    head = ("node", "output", "multiply-adds", "parameters", "ms", "%")
    return ReportSection("Layers", [text, table(head, rows)])


def node_costs(run: ReportedRun) -> list[NodeCost]:
    """Return the cost of each node that the model's outputs need, in the order they run."""
    network = run.model.build(run.data.fields, 1, training=False)
    ids = np.zeros(1, np.int64)
    feed(network, Batch(run.data.take(ids), ids))
    watch = _Watch()
    with run.session.listen(watch):
        for _ in range(REPEATS + 1):  # the first one warms up
            forward_all(list(network.outputs.values()))
    owned = {id(variable.data): variable.size for variable in run.model.parameters.values()}
    found = []
    for node, times in watch.times.items():
        arguments = [v for v in node.inputs if v is not None]
        found.append(
            NodeCost(
                node.name,
                node.specs[0].shape,
                node.operator.count_multiply_adds(
                    list(node.input_specs), list(node.specs), node.attributes
                ),
                sum(owned.pop(id(variable.data), 0) for variable in arguments),
                median(times[1:] or times),
            )
        )
    return found


class _Watch:
    """Measures how long nodes take."""

    def __init__(self) -> None:
        self.times: dict[Node, list[float]] = {}
        self._started = 0.0

    def nnl_on_node_forward_start(self, event: NodeForwardStart) -> None:
        """Note when a node begins."""
        self._started = time.perf_counter()

    def nnl_on_node_forward_end(self, event: NodeForwardEnd) -> None:
        """Note how long it took."""
        self.times.setdefault(event.node, []).append(time.perf_counter() - self._started)
