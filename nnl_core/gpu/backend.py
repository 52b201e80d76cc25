"""Backend ``cuda``: programs of captured kernels; an operator alone is a program of one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from nnl_core.errors import BackendError
from nnl_core.gpu.compiler import Compiler
from nnl_core.gpu.device import DeviceBuffer, device
from nnl_core.gpu.prefetch import Prefetcher
from nnl_core.gpu.probe import probe
from nnl_core.gpu.program import CudaProgram
from nnl_core.graph.ir import ABSENT, Graph, Instruction
from nnl_core.graph.operator import Array, Operator
from nnl_core.graph.spec import Spec

PROGRAMS = 4096  # single operators whose programs are kept


class CudaBackend:
    """Computes on one GPU; what it has no kernel for, NumPy computes on the host.

    Work is enqueued and not waited for: reading a value waits. Raises `BackendError` with the
    probe's reason where it cannot be used here, or there is no such device.
    """

    on_host = False

    def __init__(self, index: int = 0) -> None:
        problem = probe()
        if problem is not None:
            raise BackendError(f"backend 'cuda' cannot be used here: {problem}")
        self.name = f"cuda:{index}" if index else "cuda"
        self.device = device(index)
        self.compiler = Compiler(self.device)
        self._calls: OrderedDict[tuple[object, ...], CudaProgram] = OrderedDict()

    @property
    def allow_tf32(self) -> bool:
        """As that of the device: `nnl_core.allow_tf32` sets it."""
        return self.device.allow_tf32

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        self.device.allow_tf32 = allowed

    def allocate(self, spec: Spec) -> DeviceBuffer:
        """Return uninitialised memory on the device."""
        return self.device.buffer(spec)

    def to_host(self, buffer: DeviceBuffer) -> Array:
        """Wait for what was enqueued, and return a new array of the elements."""
        return self.device.read(buffer)

    def from_host(self, array: Array, buffer: DeviceBuffer | None = None) -> DeviceBuffer:
        """Enqueue a copy of the array to the device."""
        spec = Spec.of(array)
        if buffer is None or buffer.spec != spec:
            buffer = self.device.buffer(spec)
        self.device.write(buffer, array)
        return buffer

    def part(self, buffer: DeviceBuffer, start: int, spec: Spec) -> DeviceBuffer:
        """Return a place in a flat buffer, from an element on, as a buffer that shares memory."""
        return buffer.part(start * spec.dtype.itemsize, spec)

    def prefetcher(self) -> Prefetcher:
        """Return what copies batches to the device while it computes."""
        return Prefetcher(self.device)

    def fetch(self, buffers: Sequence[DeviceBuffer]) -> Callable[[], list[Array]]:
        """Begin to copy buffers to the host; what is returned waits for them."""
        return self.device.fetch(buffers)

    def run(
        self,
        operator: Operator,
        inputs: Sequence[DeviceBuffer | None],
        attributes: Mapping[str, object],
        outputs: Sequence[Spec],
    ) -> tuple[DeviceBuffer, ...]:
        """Run one operator now."""
        given = [None if buffer is None else buffer.spec for buffer in inputs]
        return self.bind(operator, given, attributes, outputs)(inputs)

    def bind(
        self,
        operator: Operator,
        inputs: Sequence[Spec | None],
        attributes: Mapping[str, object],
        outputs: Sequence[Spec],
    ) -> Callable[[Sequence[DeviceBuffer | None]], tuple[DeviceBuffer, ...]]:
        """Return what runs an operator on buffers of these specs."""
        key = (
            operator,
            tuple(inputs),
            tuple(map(repr, attributes.values())),  # 0.0 and -0.0 differ, and so do 1 and True
        )
        program = self._calls.get(key)
        if program is None:
            program = self._calls[key] = self._single(operator, inputs, attributes, outputs)
            while len(self._calls) > PROGRAMS:
                self._calls.popitem(last=False)
        specs = tuple(outputs)
        chosen = program

        def call(buffers: Sequence[DeviceBuffer | None]) -> tuple[DeviceBuffer, ...]:
            results = tuple([self.device.buffer(spec) for spec in specs])
            chosen.run([one for one in buffers if one is not None], results)
            return results

        return call

    def _single(
        self,
        operator: Operator,
        inputs: Sequence[Spec | None],
        attributes: Mapping[str, object],
        outputs: Sequence[Spec],
    ) -> CudaProgram:
        graph = Graph()
        given = tuple(ABSENT if spec is None else graph.add_leaf(spec) for spec in inputs)
        results = tuple(graph.new_value(spec) for spec in outputs)
        graph.instructions = [Instruction(operator, given, results, dict(attributes))]
        graph.outputs = list(results)
        return self.compile(graph)

    def compile(self, graph: Graph) -> CudaProgram:
        """Choose kernels, compile what is new, and plan memory."""
        return CudaProgram(graph, self.device, self.compiler)
