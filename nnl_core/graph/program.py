"""A compiled graph, how one is made, and the cache of those made before."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import NamedTuple, Protocol, runtime_checkable

from nnl_core.graph.backend import Backend, Buffer
from nnl_core.graph.ir import ABSENT, Graph, Instruction
from nnl_core.graph.lower import Lowered
from nnl_core.graph.passes import STAGES, Pass
from nnl_core.graph.passes.memory import MemoryReport
from nnl_core.session import current_session

CACHE_SIZE = 512
CACHE_BYTES = 1 << 30  # of what they compute: inputs of many shapes must not fill the memory

Observer = Callable[[Instruction, Sequence[Buffer | None], Sequence[Buffer] | None], None]


class NodeProfile(NamedTuple):
    """Cost of one instruction of a program, of one run."""

    name: str
    operator: str
    seconds: float
    bytes: int
    multiply_adds: int
    shape: tuple[int, ...]
    computed_by: str  # the backend, or whom it left the instruction to


class Program(Protocol):
    """A graph that a backend has compiled."""

    graph: Graph
    memory: MemoryReport

    def run(
        self,
        leaves: Sequence[Buffer],
        outputs: Sequence[Buffer],
        observer: Observer | None = None,
    ) -> None:
        """Read the leaves and fill the outputs, both in the graph's order.

        ``observer`` is called before each instruction (with ``None`` for its results) and
        after it.
        """

    def computed_by(self, instruction: Instruction) -> str:
        """Name who computes an instruction of ``graph``: the backend, or whom it leaves it to."""


class Prepared(Protocol):
    """A program that has computed what follows from its steady leaves alone."""

    def run(self, leaves: Sequence[Buffer], outputs: Sequence[Buffer]) -> None:
        """Compute the rest: as `Program.run`, the steady leaves being what they were."""


@runtime_checkable
class Preparable(Protocol):
    """A program that need not compute in each run what follows from steady leaves alone.

    ``steady`` has the positions of the leaves that this depends on, which are among the graph's
    ``steady``; ``None`` means that there is nothing to prepare. Nobody has to prepare it: its own
    ``run`` computes everything.
    """

    steady: tuple[int, ...] | None

    def prepare(self, leaves: Sequence[Buffer]) -> Prepared:
        """Compute what follows from the steady leaves; it is used until they are written."""


class Request(NamedTuple):
    """What is asked of `compile_graph`."""

    graph: Graph
    backend: Backend
    optimize: bool


_cache: OrderedDict[tuple[object, ...], Program] = OrderedDict()
_cache_lock = threading.Lock()


def compile_graph(graph: Graph, backend: Backend, *, optimize: bool = True) -> Program:
    """Return a program for the graph, from the cache where an equal graph was compiled before.

    Equal means: the same structure, shapes, dtypes, constants, backend and passes.
    ``optimize=False`` runs no pass and keeps one instruction per node, for observers.
    """
    session = current_session()
    key = (backend, optimize, session.graph_version, graph.signature())
    with _cache_lock:
        program = _cache.get(key)
        if program is not None:
            _cache.move_to_end(key)
            return program
    program = session.compile_graph(Request(graph, backend, optimize))
    with _cache_lock:
        _cache[key] = program
        held = sum(_held(one) for one in _cache.values())
        while len(_cache) > CACHE_SIZE or (held > CACHE_BYTES and len(_cache) > 1):
            held -= _held(_cache.popitem(last=False)[1])
    return program


def _held(program: Program) -> int:
    return program.memory.peak + program.memory.prepared


def default_compile(request: Request) -> Program:
    """Run the core's passes, then the plugins' of the same stage, and let the backend compile."""
    graph = request.graph
    applied: list[str] = []
    extra = current_session().graph_passes()
    graph.observed = not request.optimize
    if request.optimize:
        for stage, passes in STAGES.items():
            for single in (*passes, *extra.get(stage, ())):
                graph = single(graph)
                applied.append(single.__name__)
    program = request.backend.compile(graph)
    current_session().graph_compiled(graph, program, tuple(applied))
    return program


def clear_cache() -> None:
    """Forget every compiled program."""
    _cache.clear()


class BoundProgram:
    """A program with the storages it reads and writes."""

    def __init__(
        self,
        lowered: Lowered,
        backend: Backend,
        *,
        optimize: bool = True,
        program: Program | None = None,  # of an equal graph; nothing is prepared for it
    ) -> None:
        self.lowered = lowered
        self.backend = backend
        self._preparable: Preparable | None = None
        if program is None:
            program = compile_graph(lowered.graph, backend, optimize=optimize)
            if isinstance(program, Preparable) and program.steady is not None:
                self._preparable = program
                self._steady = [lowered.leaves[position] for position in program.steady]
        self.program = program
        self._prepared: tuple[tuple[int, ...], Prepared] | None = None

    @property
    def memory(self) -> MemoryReport:
        """Bytes the program holds."""
        return self.program.memory

    def run(self, observer: Observer | None = None) -> None:
        """Run on what the storages hold now.

        Where it fails, what it was to write is as if never written, but for what it also reads.
        """
        backend = self.backend
        leaves = [storage.buffer(backend) for storage in self.lowered.leaves]
        outputs = [storage.writable_buffer(backend) for storage in self.lowered.outputs]
        try:
            if self._preparable is None or observer is not None:
                self.program.run(leaves, outputs, observer)
            else:
                self._prepare(self._preparable, leaves).run(leaves, outputs)
        except BaseException:
            read = {id(storage) for storage in self.lowered.leaves}
            for storage in self.lowered.outputs:
                if id(storage) not in read:
                    storage.forget()
            raise
        for storage in self.lowered.outputs:
            storage.mark_written(backend)

    def _prepare(self, program: Preparable, leaves: Sequence[Buffer]) -> Prepared:
        """Return what was prepared, anew where a steady leaf was written since."""
        versions = tuple([storage.version for storage in self._steady])
        known = self._prepared
        if known is not None and known[0] == versions:
            return known[1]
        known = self._prepared = None  # the new one may take over its memory
        prepared = program.prepare(leaves)
        self._prepared = versions, prepared
        return prepared

    def profile(self, repeats: int = 3) -> list[NodeProfile]:
        """Run ``repeats`` times and return each instruction's cost, in the order they run.

        Times are medians over the runs; a fused group is one row.
        """
        times: dict[int, list[float]] = {}
        started = 0.0

        def observe(instruction: Instruction, inputs: object, outputs: object) -> None:
            nonlocal started
            now = perf_counter()
            if outputs is None:
                started = now
            else:
                times.setdefault(instruction.outputs[0], []).append(now - started)

        for _ in range(repeats):
            self.run(observe)
        return [self._row(i, median(times[i.outputs[0]])) for i in self.program.graph.instructions]

    def _row(self, instruction: Instruction, seconds: float) -> NodeProfile:
        specs = self.program.graph.specs
        members = instruction.members or (instruction,)
        operations = 0
        for member in members:
            assert member.operator is not None
            operations += member.operator.count_multiply_adds(
                [None if v == ABSENT else specs[v] for v in member.inputs],
                [specs[v] for v in member.outputs],
                member.attributes,
            )
        moved = {v for v in (*instruction.inputs, *instruction.outputs) if v != ABSENT}
        return NodeProfile(
            name=self.lowered.nodes[instruction.source].name,
            operator=instruction.label,
            seconds=seconds,
            bytes=sum(specs[value].nbytes for value in moved),
            multiply_adds=operations,
            shape=specs[instruction.outputs[0]].shape,
            computed_by=self.program.computed_by(instruction),
        )


__all__ = [
    "BoundProgram",
    "NodeProfile",
    "Observer",
    "Pass",
    "Preparable",
    "Prepared",
    "Program",
    "Request",
    "clear_cache",
    "compile_graph",
    "default_compile",
]
