"""Backend ``native``: programs of generated C and oneDNN; single operators as small programs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np

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
        self._numpy = current_session().backend("numpy")
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
        """Run one operator now: as a program of one instruction, or by NumPy where it is small.

        Calling NumPy takes less time than a program's bookkeeping, and a dynamic graph's many
        shapes are not worth compiling for. The rule is one of shapes: results are repeatable.
        """
        if _is_small(inputs, outputs):
            return self._numpy.run(operator, inputs, attributes, outputs)
        key = (
            operator,
            tuple(None if a is None else (a.shape, a.dtype) for a in inputs),
            tuple(map(repr, attributes.values())),  # 0.0 and -0.0 differ, and so do 1 and True
        )
        try:
            program = self._calls[key]
        except KeyError:
            program = self._calls[key] = self._single(operator, inputs, attributes, outputs)
            while len(self._calls) > PROGRAMS:
                self._calls.popitem(last=False)
        if program is None:
            return self._numpy.run(operator, inputs, attributes, outputs)
        results = tuple(np.empty(spec.shape, spec.dtype) for spec in outputs)
        program.run([array for array in inputs if array is not None], results)
        return results

    def _single(
        self,
        operator: Operator,
        inputs: Sequence[Array | None],
        attributes: Mapping[str, object],
        outputs: Sequence[Spec],
    ) -> NativeProgram | None:
        graph = Graph()
        given = tuple(
            ABSENT if array is None else graph.add_leaf(Spec(array.shape, array.dtype))
            for array in inputs
        )
        results = tuple(graph.new_value(spec) for spec in outputs)
        graph.instructions = [Instruction(operator, given, results, dict(attributes))]
        graph.outputs = list(results)
        program = NativeProgram(graph)
        return program if program.is_native else None

    def compile(self, graph: Graph) -> NativeProgram:
        """Choose kernels and layouts, plan memory and compile what is new."""
        return NativeProgram(graph)


def _is_small(inputs: Sequence[Array | None], outputs: Sequence[Spec]) -> bool:
    # Plain loops: a dynamic graph asks this for each of its operators.
    for array in inputs:
        if array is not None and array.size >= SMALL:
            return False
    for spec in outputs:
        if spec.size >= SMALL:
            return False
    return True
