"""A graph compiled for a device: launches in an arena, captured and launched again as one."""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from nnl_core.gpu.capture import CapturedGraph
from nnl_core.gpu.compiler import Compiler
from nnl_core.gpu.device import Device, DeviceBuffer
from nnl_core.gpu.fuse import fuse
from nnl_core.gpu.kernel import Address, Invocation, Launch
from nnl_core.gpu.lowering import Piece, lower_pieces
from nnl_core.graph.flat import layout
from nnl_core.graph.ir import ABSENT, Graph, Instruction
from nnl_core.graph.passes.memory import plan_memory
from nnl_core.graph.program import Observer
from nnl_core.graph.spec import Spec
from nnl_core.session import current_session

FRAMES = 8  # sets of addresses whose launches are kept
ALIGNMENT = 256  # bytes: scratch memory of a call begins at a multiple
ALIGNERS = {1: "b", 2: "h", 4: "i", 8: "q"}  # numbers of so many bytes, to `struct`

Enqueue = Callable[[], None]
Places = list[int]  # value number -> address; 0 where it has none
Table = Mapping[str, Sequence[int]]  # addresses of each kind that steps name


class Template:
    """A launch of which everything is known but addresses."""

    __slots__ = ("_function", "_launched", "_places", "_struct", "_values")

    def __init__(self, step: Launch, function: Any, stream: Any) -> None:
        codes = ""
        self._values: list[Any] = []
        self._places: list[tuple[int, Address]] = []
        for position, one in enumerate(step.arguments):
            if isinstance(one, Address):
                codes += "P"
                self._places.append((position, one))
                self._values.append(0)
            elif isinstance(one, np.void):
                codes += f"0{ALIGNERS[one.dtype.alignment]}{one.nbytes}s"
                self._values.append(one.tobytes())
            else:
                codes += one.dtype.char
                self._values.append(one.item())
        self._struct = struct.Struct(codes)
        self._function = function
        self._launched = step.grid, step.block, step.shared, stream

    def packed(self, table: Table) -> bytes:
        """Return the arguments, given the addresses of each kind."""
        values = self._values.copy()
        for position, (kind, number, offset) in self._places:
            base = table[kind][number]
            values[position] = base + offset if base else 0
        return self._struct.pack(*values)

    def launch(self, arguments: bytes) -> None:
        """Enqueue the kernel."""
        grid, block, shared, stream = self._launched
        self._function._launch_kernel(grid, block, arguments, shared, stream)


class Section(NamedTuple):
    """Steps that follow each other on the device, or one that the host computes."""

    enqueue: tuple[Enqueue, ...]
    on_host: bool
    graph: CapturedGraph | None


class Frame:
    """The steps of a program at given addresses."""

    def __init__(self, sections: list[Section], places: Places, held: list[DeviceBuffer]) -> None:
        self.sections = sections
        self.places = places
        self.held = held  # memory for intermediates
        self.runs = 0


class CudaProgram:
    """Runs a graph on a device: all that is between two steps of the host is one CUDA graph.

    The launches are bound to the addresses of leaves and outputs. Those that come a second time are
    captured; so variables that stay, as those of a training step, cost one call of the driver.
    """

    def __init__(self, graph: Graph, device: Device, compiler: Compiler) -> None:
        self.device, self._compiler = device, compiler
        self._fused = graph = fuse(graph)
        views = self._choose_kernels()
        pieces = self._pieces
        self.graph = graph.rewrite([piece.instruction for piece in pieces])
        plan = self.plan = plan_memory(self.graph, views)
        self.memory = plan.report
        self._constants = {
            value: _uploaded(device, array) for value, array in graph.constants.items()
        }
        self._arena: DeviceBuffer | None = None
        self._frames: OrderedDict[tuple[int, ...], Frame] = OrderedDict()
        self._on_host = {piece.instruction.outputs[0] for piece in pieces if piece.on_host}
        self._alone = self._find_alone()
        device.when_full(self)

    def _choose_kernels(self) -> dict[int, int]:
        """Choose and load what computes each instruction; return the views.

        Products are computed by other kernels where they may be rounded to tf32.
        """
        device, self._rounds = self.device, self.device.allow_tf32
        with device:
            self._pieces, views = lower_pieces(self._fused, device)
            self._compiler.load(kernel for piece in self._pieces for kernel in piece.kernels)
            self._steps = [self._templates(piece) for piece in self._pieces]
        self._scratch = max((_scratch(piece) for piece in self._pieces), default=0)
        return views

    def computed_by(self, instruction: Instruction) -> str:
        """Answer ``"cuda"``, or ``"numpy"`` for what the host computes."""
        return "numpy" if instruction.outputs[0] in self._on_host else "cuda"

    def run(
        self,
        leaves: Sequence[DeviceBuffer],
        outputs: Sequence[DeviceBuffer],
        observer: Observer | None = None,
    ) -> None:
        """Enqueue what fills ``outputs`` from ``leaves``."""
        addresses = tuple([one.address for one in (*leaves, *outputs)])
        if self.device.allow_tf32 != self._rounds:  # what was bound was released when that changed
            self._choose_kernels()
        with self.device:
            if self._alone is not None and observer is None:
                self._run_alone(self._alone, addresses)
                return
            frame = self._frame(addresses, leaves, outputs)
            if observer is None:
                _enqueue(frame)
            else:
                self._observed(frame, leaves, outputs, observer)

    def _find_alone(self) -> tuple[list[int], list[int]] | None:
        """Return where a single instruction finds its operands among leaves and outputs.

        Such a program, an operator of a dynamic graph, is called with other addresses each time,
        and not worth a frame. ``None`` where there is more than kernels to it.
        """
        graph, leaves = self.graph, self.graph.leaves
        if len(self._pieces) != 1 or self._pieces[0].emission is None:
            return None
        (instruction,) = graph.instructions
        known = {ABSENT, *leaves}
        if not known.issuperset(instruction.inputs) or graph.outputs != list(instruction.outputs):
            return None
        if len(self.plan.external) != len(graph.outputs):
            return None
        inputs = [-1 if v == ABSENT else leaves.index(v) for v in instruction.inputs]
        return inputs, [len(leaves) + position for position in range(len(graph.outputs))]

    def _run_alone(self, operands: tuple[list[int], list[int]], addresses: tuple[int, ...]) -> None:
        emission = self._pieces[0].emission
        assert emission is not None
        inputs, outputs = operands
        scratch: Sequence[int] = ()
        if emission.scratch:
            scratch = self._scratch_places(emission.scratch, self._memory().address)
        table: Table = {
            "in": [addresses[k] if k >= 0 else 0 for k in inputs],
            "out": [addresses[k] for k in outputs],
            "scratch": scratch,
            "null": (0,),
        }
        for step in self._steps[0]:
            if isinstance(step, Template):
                step.launch(step.packed(table))
            else:
                step.function(self.device, *[_resolved(one, table) for one in step.addresses])

    def release(self) -> None:
        """Give back the memory for intermediates, and what is bound to it."""
        self._frames.clear()
        self._arena = None

    # Binding ------------------------------------------------------------------------------------

    def _frame(
        self,
        addresses: tuple[int, ...],
        leaves: Sequence[DeviceBuffer],
        outputs: Sequence[DeviceBuffer],
    ) -> Frame:
        frame = self._frames.get(addresses)
        if frame is None:
            frame = self._bind(leaves, outputs)
            self._frames[addresses] = frame
            while len(self._frames) > FRAMES:
                self._frames.popitem(last=False)
        else:
            self._frames.move_to_end(addresses)
        return frame

    def _bind(self, leaves: Sequence[DeviceBuffer], outputs: Sequence[DeviceBuffer]) -> Frame:
        arena = self._memory()
        places = self._places(arena.address, leaves, outputs)
        steps = [
            (bound, piece.on_host)
            for piece, templates in zip(self._pieces, self._steps, strict=True)
            for bound in self._bound(piece, templates, places, arena.address)
        ]
        held = [arena]
        steps += [(bound, False) for bound in self._copies(places, outputs, held)]
        sections: list[Section] = []
        gathered: list[Enqueue] = []
        for bound, on_host in steps:
            if on_host:
                if gathered:
                    sections.append(Section(tuple(gathered), False, CapturedGraph(self.device)))
                    gathered = []
                sections.append(Section((bound,), True, None))
            else:
                gathered.append(bound)
        if gathered:
            sections.append(Section(tuple(gathered), False, CapturedGraph(self.device)))
        return Frame(sections, places, held)

    def _memory(self) -> DeviceBuffer:
        """Return the arena, with room for scratch memory behind it."""
        if self._arena is None:
            size = self.plan.arena_bytes + (ALIGNMENT + self._scratch if self._scratch else 0)
            self._arena = self.device.buffer(Spec((size,), np.dtype(np.uint8)))
        return self._arena

    def _places(
        self, arena: int, leaves: Sequence[DeviceBuffer], outputs: Sequence[DeviceBuffer]
    ) -> Places:
        """Return the address of each value."""
        plan, specs = self.plan, self.graph.specs
        places: Places = [0] * len(specs)
        for value, buffer in self._constants.items():
            places[value] = buffer.address
        for value, offset in plan.offsets.items():
            places[value] = arena + offset
        for value, leaf in zip(self.graph.leaves, leaves, strict=True):
            places[value] = leaf.address
        for value, position in plan.external.items():
            places[value] = outputs[position].address
        for value, (block, start, _) in plan.packed.items():
            places[value] = places[block] + start * specs[value].dtype.itemsize
        for value in plan.viewed:
            places[value] = places[plan.root(value)]
        return places

    def _bound(
        self,
        piece: Piece,
        steps: Sequence[Template | Invocation],
        places: Places,
        arena: int,
    ) -> list[Enqueue]:
        """Return what enqueues the steps of a piece."""
        instruction = piece.instruction
        if piece.is_view:
            return []
        if piece.packs:
            return self._packing(instruction, places)
        if piece.emission is None:
            return [self._host_step(instruction, places)]
        table: Table = {
            "in": [0 if v == ABSENT else places[v] for v in instruction.inputs],
            "out": [places[v] for v in instruction.outputs],
            "scratch": self._scratch_places(piece.emission.scratch, arena),
            "null": (0,),
        }
        bound: list[Enqueue] = []
        for step in steps:
            if isinstance(step, Template):
                bound.append(partial(step.launch, step.packed(table)))
            else:
                numbers = [_resolved(one, table) for one in step.addresses]
                bound.append(partial(step.function, self.device, *numbers))
        return bound

    def _scratch_places(self, sizes: Sequence[int], arena: int) -> list[int]:
        """Return the addresses of a call's scratch memory, which all calls share."""
        start = arena + self.plan.arena_bytes
        found: list[int] = []
        for size in sizes:
            start = -(-start // ALIGNMENT) * ALIGNMENT
            found.append(start)
            start += size
        return found

    def _templates(self, piece: Piece) -> list[Template | Invocation]:
        """Return the steps of a piece that do something."""
        steps = () if piece.emission is None else piece.emission.steps
        stream, function = self.device.stream, self._compiler.function
        return [
            Template(step, function(step.kernel, step.shared), stream)
            if isinstance(step, Launch)
            else step
            for step in steps
            if not (isinstance(step, Launch) and 0 in step.grid)
        ]

    def _packing(self, instruction: Instruction, places: Places) -> list[Enqueue]:
        """Return copies of what is not computed in its place of the block, and zeros between."""
        specs, device = self.graph.specs, self.device
        block = instruction.outputs[0]
        spec = specs[block]
        width = spec.dtype.itemsize
        parts, length = layout(specs[value].size for value in instruction.inputs)
        bound: list[Enqueue] = []
        ends = [start for start, _ in parts[1:]] + [length]
        for value, (start, stop), end in zip(instruction.inputs, parts, ends, strict=True):
            target = places[block] + start * width
            if places[value] != target:
                bound.append(partial(device.copy, target, places[value], specs[value].nbytes))
            if end > stop:
                gap = places[block] + stop * width
                bound.append(partial(device.zero, gap, (end - stop) * width))
        return bound

    def _copies(
        self, places: Places, outputs: Sequence[DeviceBuffer], temporary: list[DeviceBuffer]
    ) -> list[Enqueue]:
        """Return copies of results that were not computed in place.

        Updates read all leaves before any is written: by way of ``temporary`` memory.
        """
        graph, device = self.graph, self.device
        direct = set(self.plan.external.values())
        leaves = {places[value] for value in graph.leaves}
        first: list[Enqueue] = []
        then: list[Enqueue] = []
        for position, value in enumerate(graph.outputs):
            source, target = places[value], outputs[position].address
            if position in direct or source == target:
                continue
            size = graph.specs[value].nbytes
            if graph.updates and source in leaves and size:
                kept = device.buffer(graph.specs[value])
                first.append(partial(device.copy, kept.address, source, size))
                source = kept.address
                temporary.append(kept)
            then.append(partial(device.copy, target, source, size))
        return [*first, *then]

    # What the host computes ---------------------------------------------------------------------

    def _host_step(self, instruction: Instruction, places: Places) -> Enqueue:
        operator, specs, device = instruction.operator, self.graph.specs, self.device
        assert operator is not None
        numpy = current_session().backend("numpy")
        attributes = instruction.attributes
        results = [specs[value] for value in instruction.outputs]
        inputs = [
            None if v == ABSENT else DeviceBuffer(specs[v], places[v], None)
            for v in instruction.inputs
        ]
        outputs = [DeviceBuffer(specs[v], places[v], None) for v in instruction.outputs]

        def compute() -> None:
            arrays = [None if one is None else device.read(one) for one in inputs]
            computed = numpy.run(operator, arrays, attributes, results)
            for array, buffer in zip(computed, outputs, strict=True):
                device.write(buffer, array)

        return compute

    # Observing ----------------------------------------------------------------------------------

    def _observed(
        self,
        frame: Frame,
        leaves: Sequence[DeviceBuffer],
        outputs: Sequence[DeviceBuffer],
        observer: Observer,
    ) -> None:
        """Run piece by piece, waiting for each, so that times are its own."""
        specs, places, stream = self.graph.specs, frame.places, self.device.stream

        def buffer(value: int) -> DeviceBuffer | None:
            if value == ABSENT:
                return None
            return DeviceBuffer(specs[value], places[value], (frame.held, leaves, outputs))

        for piece, templates in zip(self._pieces, self._steps, strict=True):
            inputs = [buffer(value) for value in piece.instruction.inputs]
            stream.synchronize()
            observer(piece.instruction, inputs, None)
            for bound in self._bound(piece, templates, places, frame.held[0].address):
                bound()
            stream.synchronize()
            results = [buffer(value) for value in piece.instruction.outputs]
            observer(piece.instruction, inputs, results)
        for bound in self._copies(places, outputs, frame.held):
            bound()


def _enqueue(frame: Frame) -> None:
    frame.runs += 1
    for section in frame.sections:
        graph = section.graph
        if graph is None or frame.runs == 1 or len(section.enqueue) == 1:
            # The first run also loads what a library loads when first called.
            for bound in section.enqueue:
                bound()
            continue
        if frame.runs == 2:

            def all_of_it(steps: tuple[Enqueue, ...] = section.enqueue) -> None:
                for bound in steps:
                    bound()

            graph.capture(all_of_it)
        graph.launch()


def _resolved(address: Address, table: Table) -> int:
    base = table[address.kind][address.position]
    return base + address.offset if base else 0


def _scratch(piece: Piece) -> int:
    if piece.emission is None:
        return 0
    return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in piece.emission.scratch)


def _uploaded(device: Device, array: Any) -> DeviceBuffer:
    buffer = device.buffer(Spec.of(array))
    device.write(buffer, array)
    return buffer
