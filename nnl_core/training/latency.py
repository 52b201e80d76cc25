"""How long inference takes: percentiles over many runs of a compiled program, and its memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import NamedTuple

import numpy as np

from nnl_core.data.source import Array
from nnl_core.graph.array import State
from nnl_core.graph.backend import current_backend
from nnl_core.graph.dtypes import is_floating
from nnl_core.graph.execute import ForwardPlan
from nnl_core.graph.structure import topological
from nnl_core.graph.variable import Variable


class Latency(NamedTuple):
    """What runs of one batch size took."""

    batch_size: int
    first_ms: float
    """the first run: compiling, and preparing what follows from parameters alone"""
    p50_ms: float
    p90_ms: float
    p99_ms: float
    samples_per_second: float
    working_bytes: int
    """memory for intermediates while the program runs"""
    prepared_bytes: int
    """memory for what follows from parameters alone, kept from run to run"""
    parameter_bytes: int
    """what is read besides inputs"""


class Inference(NamedTuple):
    """Outputs to compute for one batch, and the values of the inputs that they depend on."""

    outputs: Sequence[Variable]
    inputs: Mapping[Variable, Array]

    @classmethod
    def of(cls, outputs: Sequence[Variable]) -> Inference:
        """Find the inputs: leaves that are no parameters and no constants.

        They keep the elements they have; of those that nobody gave any, floating ones become
        normally distributed, others zero.
        """
        generator = np.random.default_rng(0)
        inputs: dict[Variable, Array] = {}
        for node in topological(outputs):
            for variable in node.inputs:
                if variable is None or variable.parent is not None or variable in inputs:
                    continue
                if not (variable.is_constant or variable.is_steady):
                    if variable.data.state is State.EMPTY and is_floating(variable.dtype):
                        variable.data.write(generator.standard_normal(variable.shape))
                    inputs[variable] = variable.data.read().copy()
        return cls(outputs, inputs)

    def measure(self, batch_size: int, *, runs: int, warm_up: int) -> Latency:
        """Time runs on the backend in use, each from writing the inputs to having the outputs.

        Nothing is kept but the outputs, so that the backend may fuse all it can.
        """
        start = perf_counter()
        plan = ForwardPlan(self.outputs, current_backend(), "asked", optimize=True)
        first = perf_counter() - start + self._seconds(plan.run)
        for _ in range(warm_up):
            self._seconds(plan.run)
        taken = np.array([self._seconds(plan.run) for _ in range(runs)])
        p50, p90, p99 = np.percentile(taken, (50, 90, 99)) * 1e3
        memory = plan.memory
        return Latency(
            batch_size=batch_size,
            first_ms=first * 1e3,
            p50_ms=float(p50),
            p90_ms=float(p90),
            p99_ms=float(p99),
            samples_per_second=float(batch_size * runs / taken.sum()),
            working_bytes=memory.peak,
            prepared_bytes=memory.prepared,
            parameter_bytes=memory.leaves - sum(array.nbytes for array in self.inputs.values()),
        )

    def _seconds(self, run: Callable[[], None]) -> float:
        start = perf_counter()
        for variable, array in self.inputs.items():
            variable.data.write(array)
        run()
        for output in self.outputs:
            output.data.read()
        return perf_counter() - start
