"""Backend ``native``: programs of generated C and oneDNN; single operators as small programs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from nnl_core.cpu.backend import NumpyBackend
from nnl_core.graph.backend import BoundCall
from nnl_core.graph.ir import ABSENT, Graph, Instruction
from nnl_core.graph.operator import Array, Operator
from nnl_core.graph.spec import Spec
from nnl_core.session import current_session
from nnl_native.program import NativeProgram

SMALL = 1 << 14  # elements below which a single operator runs on NumPy
PROGRAMS = 4096  # single operators whose programs are kept


class NativeBackend:
    """Computes on host arrays; what it has no kernel for, NumPy computes."""

    name = "native"
    on_host = True

    def __init__(self) -> None:
        self._numpy = NumpyBackend()
        self._calls: OrderedDict[tuple[object, ...], NativeProgram | None] = OrderedDict()

    def allocate(self, spec: Spec) -> Array:
        """Return an uninitialised array."""
        return np.empty(spec.shape, spec.dtype)

    def to_host(self, buffer: Array) -> Array:
        """Return the array itself."""
        return buffer

    def from_host(self, array: Array, buffer: Array | None = None) -> Array:
        """Return the array itself."""
        return array

    def run(
        self,
        operator: Operator,
        inputs: Sequence[Array | None],
        attributes: Mapping[str, object],
        outputs: Sequence[Spec],
    ) -> tuple[Array, ...]:
        """Run one operator now, as `bind` says."""
        specs = [None if array is None else Spec.of(array) for array in inputs]
        return self.bind(operator, specs, attributes, outputs)(inputs)

    def bind(
        self,
        operator: Operator,
        inputs: Sequence[Spec | None],
        attributes: Mapping[str, object],
        outputs: Sequence[Spec],
    ) -> BoundCall:
        """Return what runs one operator: a program of one instruction, or NumPy where it is small.

        Calling NumPy takes less time than a program's bookkeeping, and a dynamic graph's many
        shapes are not worth compiling for. The rule is one of shapes: results are repeatable.
        """
        if all(spec is None or spec.size < SMALL for spec in (*inputs, *outputs)):
            return self._numpy.bind(operator, inputs, attributes, outputs)
        key = (
            current_session().graph_version,
            operator,
            tuple(inputs),
            tuple(map(repr, attributes.values())),  # 0.0 and -0.0 differ, and so do 1 and True
        )
        try:
            program = self._calls[key]
        except KeyError:
            program = self._calls[key] = self._single(operator, inputs, attributes, outputs)
            while len(self._calls) > PROGRAMS:
                self._calls.popitem(last=False)
        if program is None:
            return self._numpy.bind(operator, inputs, attributes, outputs)
        return partial(_run, program, outputs)

    def _single(
        self,
        operator: Operator,
        inputs: Sequence[Spec | None],
        attributes: Mapping[str, object],
        outputs: Sequence[Spec],
    ) -> NativeProgram | None:
        graph = Graph()
        given = tuple(ABSENT if spec is None else graph.add_leaf(spec) for spec in inputs)
        results = tuple(graph.new_value(spec) for spec in outputs)
        graph.instructions = [Instruction(operator, given, results, dict(attributes))]
        graph.outputs = list(results)
        program = NativeProgram(graph)
        return program if program.is_native else None

    def compile(self, graph: Graph) -> NativeProgram:
        """Choose kernels and layouts, plan memory and compile what is new."""
        return NativeProgram(graph)


def _run(
    program: NativeProgram, outputs: Sequence[Spec], inputs: Sequence[Array | None]
) -> tuple[Array, ...]:
    results = tuple([np.empty(spec.shape, spec.dtype) for spec in outputs])
    program.run([array for array in inputs if array is not None], results)
    return results
