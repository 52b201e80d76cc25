"""A graph compiled to a table of steps in memory planned ahead, run by one call of C."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Sequence
from mmap import mmap
from typing import Any, NamedTuple

import numpy as np

from nnl_core.cpu.calls import select_call
from nnl_core.errors import NnlError, OperatorError
from nnl_core.graph.flat import layout as flat_layout
from nnl_core.graph.ir import ABSENT, Graph, Instruction
from nnl_core.graph.operator import Array
from nnl_core.graph.passes.memory import plan_memory
from nnl_core.graph.program import Observer
from nnl_native.compiler import CompileError, kernel_name, load_functions
from nnl_native.kernel import C_TYPES, CStep, Emission, Layout, Operand, PrimitiveStep, Step
from nnl_native.lowering import Lowering, Piece, constants_of
from nnl_native.memory import Block, borrow, give_back
from nnl_native.prologue import Prepared, split
from nnl_native.runtime import Argument, Memory, StepRecord, libraries, threads_in_use, walker

SHARED_FROM = 1 << 15  # elements that a step touches from which on threads share it
SHARED_ARENAS = 1 << 20  # bytes of an arena from which on programs use one in turn

Slots = np.ndarray[tuple[int], np.dtype[np.uint64]]
Call = Callable[["Frame"], None]


class Segment(NamedTuple):
    """Steps that C walks at once, or a call of Python between such."""

    begin: int
    end: int
    call: Call | None
    piece: Piece | None = None


class BoundStep(NamedTuple):
    """A step with the slots of its operands."""

    step: Step
    slots: tuple[int, ...]
    piece: Piece


class Frame:
    """What one run at a time uses: an arena, the addresses of values, primitives' arguments."""

    def __init__(self, program: NativeProgram) -> None:
        self.block: Block | None = None
        self.moved = False
        self.slots: Slots = np.zeros(len(program.graph.specs) + 1, np.uint64)
        self.slots_address = self.slots.ctypes.data
        self.given: list[Array | None] = [None] * len(program.places)
        self.arrays: dict[int, Array] = {}
        self.copies: dict[int, Array] = {}  # of what was handed in with gaps, by place
        self.prepared = -1  # the number of what its slots point to
        for value, array in program.constants.items():
            self.slots[value] = array.ctypes.data
        if not program.shares:
            self.settle(program, Block(program.plan.arena_bytes))
        self.records, self._kept = program.step_records()
        self.records_address = ctypes.addressof(self.records)

    def settle(self, program: NativeProgram, block: Block) -> None:
        """Have intermediates in a block from now on."""
        if block is not self.block:
            self.block = block
            self.slots[program.placed] = np.uint64(block.address) + program.offsets
            self.moved = True


class NativeProgram:
    """Runs a graph by generated C and oneDNN, intermediates in one arena.

    Programs of equal graphs are one, so several threads may run it, or a hook from within a run:
    whoever finds no frame free makes another.
    """

    def __init__(self, graph: Graph) -> None:
        self.threads = threads_in_use()
        self._lowering = lowering = Lowering(graph, self.threads)
        self.graph = lowering.graph
        self.constants = constants_of(self.graph)
        self.prologue = split(lowering)
        self.steady = self.prologue.steady
        self.spare: list[tuple[Array, mmap | None]] = []  # memory for a prologue's results
        self.plan = plan_memory(
            self.graph,
            {value: source for value, (source, _) in lowering.views.items()},
            lowering.same_place,
            self.prologue.offsets.keys(),
        )
        self.memory = self.plan.report
        offsets = self.plan.offsets
        self.placed: Array = np.fromiter(offsets, np.intp, len(offsets))
        self.offsets: Array = np.fromiter(offsets.values(), np.uint64, len(offsets))
        # An observer may keep what it is shown; and small arenas cost less than looking for one.
        self.shares = self.plan.arena_bytes >= SHARED_ARENAS and not graph.observed
        self._free: list[Frame] = []
        self._steps: list[BoundStep] = []
        self._segments: list[Segment] = []
        external = self.plan.external
        # Where each array that is handed in goes: leaves first, then outputs written directly.
        self.places = [*self.graph.leaves, *external]
        self._direct = list(external.values())
        written = set(external.values())
        self._copies = [
            (position, value)
            for position, value in enumerate(self.graph.outputs)
            if position not in written
        ]
        pieces = [self._packed(piece) for piece in lowering.pieces]
        self.is_native = all(piece.emission is not None for piece in pieces)
        functions, broken = self._compile(pieces)
        for piece in pieces:
            if piece.instruction.outputs[0] in broken:
                self._segments.append(Segment(0, 0, self._by_numpy(piece), piece))
            else:
                self._add(piece)
        self._addresses = functions
        self._merge()
        self._free.append(Frame(self))
        self.graph = lowering.described()

    # Compiling ---------------------------------------------------------------------------------

    def _compile(self, pieces: Sequence[Piece]) -> tuple[dict[str, int], set[int]]:
        """Compile all kernels in one library; return addresses, and first outputs of what fails."""
        texts: dict[str, str] = {}
        owners: dict[str, list[Piece]] = {}
        self._texts: dict[int, str] = {}
        for piece in pieces:
            for step in piece.emission.steps if piece.emission is not None else ():
                if isinstance(step, CStep):
                    text = function_text(step, piece, self._c_type)
                    name = kernel_name(text)
                    texts[name] = text
                    owners.setdefault(name, []).append(piece)
                    self._texts[id(step)] = name
        try:
            return load_functions(texts), set()
        except CompileError:
            pass
        functions: dict[str, int] = {}
        broken: set[int] = set()
        for name, text in texts.items():
            try:
                functions.update(load_functions({name: text}))
            except CompileError as error:
                for piece in owners[name]:
                    broken.add(piece.instruction.outputs[0])
                warnings.warn(
                    f"operator {owners[name][0].instruction.label!r} runs on NumPy: {error}",
                    RuntimeWarning,
                    stacklevel=2,
                )
        return functions, broken

    def _c_type(self, value: int) -> str:
        dtype = self._lowering.operand(value).dtype
        return C_TYPES.get(dtype.name, "char")

    def _add(self, piece: Piece) -> None:
        """Append the steps of an instruction."""
        instruction = piece.instruction
        if piece.emission is None:
            self._segments.append(Segment(0, 0, self._numpy_call(instruction), piece))
            return
        begin = len(self._steps)
        for step in piece.emission.steps:
            names = (
                step.operands
                if isinstance(step, CStep)
                else tuple(name for _, name, _ in step.arguments)
            )
            slots = tuple(_slot(name, piece) for name in names)
            self._steps.append(BoundStep(step, slots, piece))
        self._segments.append(Segment(begin, len(self._steps), None, piece))

    def _merge(self) -> None:
        """Let C walk neighbouring steps at once; ``_each`` keeps one segment an instruction."""
        self._each = list(self._segments)
        self._on_numpy = {
            segment.piece.instruction.outputs[0]
            for segment in self._each
            if segment.call is not None and segment.piece is not None
        }
        self._early = _merged(self._each[: self.prologue.length])
        self._segments = _merged(self._each[self.prologue.length :])

    def step_records(self) -> tuple[Any, list[object]]:
        """Return the table that C walks, for one frame, and what must live as long as it."""
        records = (StepRecord * max(1, len(self._steps)))()
        kept: list[object] = []
        for record, bound in zip(records, self._steps, strict=False):
            index = (ctypes.c_int32 * max(1, len(bound.slots)))(*bound.slots)
            record.index = ctypes.addressof(index)
            kept.append(index)
            step = bound.step
            if isinstance(step, PrimitiveStep):
                arguments = (Argument * len(step.arguments))()
                for argument, (name, _, descriptor) in zip(arguments, step.arguments, strict=True):
                    memory = Memory(descriptor)
                    argument.name, argument.memory = name, memory.pointer
                    kept.append(memory)
                record.function = step.primitive.pointer
                record.count = len(step.arguments)
                record.arguments = ctypes.addressof(arguments)
                kept.append(arguments)
                continue
            dims = (ctypes.c_int64 * max(1, len(step.dims)))(*step.dims)
            kept.append(dims)
            record.function = self._addresses[self._texts[id(step)]]
            record.d = ctypes.addressof(dims)
            record.units = step.units
            shared = step.cost >= SHARED_FROM and step.units > 1
            record.threads = min(step.units, self.threads) if shared else 1
        return records, kept

    def follow_views(self, slots: Slots) -> None:
        """Set the addresses of views, in the order in which they are made."""
        for value, (source, offset) in self._lowering.views.items():
            slots[value] = slots[source] + np.uint64(offset)

    # Running -----------------------------------------------------------------------------------

    def run(
        self,
        leaves: Sequence[Array],
        outputs: Sequence[Array],
        observer: Observer | None = None,
        prepared: Prepared | None = None,
    ) -> None:
        """Fill ``outputs`` from ``leaves``, and from what was prepared."""
        if prepared is None and self._early:
            prepared = self.prepare(leaves)
        frame = self._taken()
        try:
            self._bind(frame, leaves, outputs, prepared)
            for segment in self._segments if observer is None else self._each:
                self._run_segment(segment, frame, observer)
            if self._copies or frame.copies:
                self._finish(frame, outputs)
        finally:
            self._give_back(frame)

    def computed_by(self, instruction: Instruction) -> str:
        """Answer ``"native"``, or ``"numpy"`` where there is no kernel for the call."""
        value = instruction.outputs[0]
        return "numpy" if value in self._on_numpy else "native"

    def prepare(self, leaves: Sequence[Array]) -> Prepared:
        """Compute what follows from steady leaves and constants alone."""
        prepared = Prepared(self)
        frame = self._taken()
        try:
            self._bind(frame, leaves, (), prepared)
            for segment in self._early:
                self._run_segment(segment, frame, None)
        finally:
            self._give_back(frame)
        return prepared

    def _taken(self) -> Frame:
        try:
            frame = self._free.pop()
        except IndexError:
            frame = Frame(self)
        if self.shares:
            frame.settle(self, borrow(self.plan.arena_bytes, frame.block))
        return frame

    def _give_back(self, frame: Frame) -> None:
        if self.shares and frame.block is not None:
            give_back(frame.block)
        self._free.append(frame)

    def _bind(
        self,
        frame: Frame,
        leaves: Sequence[Array],
        outputs: Sequence[Array],
        prepared: Prepared | None,
    ) -> None:
        """Write the addresses of what is handed in, where it is not what it was last time."""
        given = frame.given
        changed, frame.moved = frame.moved, False
        if prepared is not None and frame.prepared != prepared.number:
            frame.slots[prepared.values] = prepared.addresses
            frame.prepared = prepared.number
            changed = True
        position = 0
        for array in leaves:
            if array is not given[position]:
                self._place(frame, position, array)
                changed = True
            position += 1
        for index in self._direct if outputs else ():
            array = outputs[index]
            if array is not given[position]:
                self._place(frame, position, array)
                changed = True
            position += 1
        if changed:
            for value, (block, start, _) in self.plan.packed.items():
                itemsize = self.graph.specs[block].dtype.itemsize
                frame.slots[value] = frame.slots[block] + np.uint64(start * itemsize)
            self.follow_views(frame.slots)
            frame.arrays.clear()

    def _place(self, frame: Frame, position: int, array: Array) -> None:
        if array.flags.c_contiguous:
            frame.given[position] = array
        else:
            frame.given[position] = None
            frame.copies[position] = array = np.ascontiguousarray(array)
        frame.slots[self.places[position]] = array.ctypes.data

    def _run_segment(self, segment: Segment, frame: Frame, observer: Observer | None) -> None:
        instruction = None if segment.piece is None else segment.piece.instruction
        if observer is not None and instruction is not None:
            inputs = [None if v == ABSENT else self.array(frame, v) for v in instruction.inputs]
            observer(instruction, inputs, None)
        if segment.call is not None:
            segment.call(frame)
        elif segment.end > segment.begin:
            failed = walker()(
                ctypes.addressof(libraries()),
                frame.records_address,
                segment.begin,
                segment.end,
                frame.slots_address,
                threads_in_use(),
            )
            if failed >= 0:
                self._explain(self._steps[failed], frame)
        if observer is not None and instruction is not None:
            results = [self.array(frame, value) for value in instruction.outputs]
            observer(instruction, inputs, results)

    def _explain(self, bound: BoundStep, frame: Frame) -> None:
        """Raise what NumPy raises for an instruction whose kernel refused its values."""
        self._by_numpy(bound.piece)(frame)
        raise OperatorError(
            f"operator {bound.piece.instruction.label!r} failed in native code, and not in NumPy"
        )

    def array(self, frame: Frame, value: int) -> Array:
        """Return a value as an array in its own memory."""
        known = frame.arrays.get(value)
        if known is None:
            operand = self._lowering.operand(value)
            if operand.layout.opaque is not None:  # the bytes, whatever they mean
                operand = Operand(self._lowering.graph.specs[value], Layout((1,)))
            known = array_at(int(frame.slots[value]), operand)
            frame.arrays[value] = known
        return known

    def _numpy_call(self, instruction: Instruction) -> Call:
        """Return what computes an instruction by NumPy."""
        operator = instruction.operator
        assert operator is not None
        specs = self.graph.specs
        given = [None if v == ABSENT else specs[v] for v in instruction.inputs]
        kernel = select_call(operator, given, instruction.attributes)
        attributes = instruction.attributes
        count = len(instruction.outputs)

        def call(frame: Frame) -> None:
            arrays = [None if v == ABSENT else self.array(frame, v) for v in instruction.inputs]
            out = tuple(self.array(frame, v) for v in instruction.outputs)
            try:
                with np.errstate(all="ignore"):
                    kernel(*arrays, out=out if count > 1 else out[0], **attributes)
            except NnlError:
                raise
            except Exception as error:
                raise OperatorError(f"operator {operator.name!r} failed: {error}") from error

        return call

    def _by_numpy(self, piece: Piece) -> Call:
        """Return what computes by NumPy an instruction that has steps which fail."""
        instruction = piece.instruction
        specs = self.graph.specs
        results = instruction.outputs[: len(instruction.outputs) - len(piece.scratch)]
        calls = []
        for member in instruction.members or (instruction,):
            assert member.operator is not None
            given = [None if v == ABSENT else specs[v] for v in member.inputs]
            calls.append((member, select_call(member.operator, given, member.attributes)))

        def call(frame: Frame) -> None:
            values = {v: self.array(frame, v) for v in instruction.inputs if v != ABSENT}
            for member, kernel in calls:
                arrays = [None if v == ABSENT else values[v] for v in member.inputs]
                try:
                    with np.errstate(all="ignore"):
                        made = kernel(*arrays, out=None, **member.attributes)
                except NnlError:
                    raise
                except Exception as error:
                    name = member.label
                    raise OperatorError(f"operator {name!r} failed: {error}") from error
                several = made if isinstance(made, tuple) else (made,)
                values.update(zip(member.outputs, several, strict=True))
            for value in results:
                if self._lowering.layouts[value].opaque is None:
                    np.copyto(self.array(frame, value), values[value], casting="unsafe")

        return call

    def _packed(self, piece: Piece) -> Piece:
        """Return the steps of a flat block: to fill its gaps, and places not computed there."""
        instruction = piece.instruction
        if instruction.operator is None or instruction.operator.name != "nnl::pack":
            return piece
        specs = self.graph.specs
        dtype = specs[instruction.outputs[0]].dtype
        if any(specs[value].dtype != dtype for value in instruction.inputs):
            return Piece(instruction, None)
        itemsize = dtype.itemsize
        places, length = flat_layout(specs[value].size for value in instruction.inputs)
        steps: list[Step] = []
        for k, (value, (start, stop)) in enumerate(zip(instruction.inputs, places, strict=True)):
            if self.plan.packed.get(value) != (instruction.outputs[0], start, stop):
                count = (stop - start) * itemsize
                body = f"memcpy((char *)out0 + d[0], in{k}, d[1]);"
                names = (f"in{k}", "out0")
                steps.append(CStep(body, names, (start * itemsize, count), 1, stop - start))
        ends = [stop for _, stop in places]
        starts = [start for start, _ in places[1:]] + [length]
        gaps = [(a * itemsize, (b - a) * itemsize) for a, b in zip(ends, starts, strict=True)]
        dims = tuple(number for gap in gaps if gap[1] for number in gap)
        if dims:
            body = (
                "for (int64_t k = begin; k < end; k++) "
                "memset((char *)out0 + d[2 * k], 0, d[2 * k + 1]);"
            )
            steps.append(CStep(body, ("out0",), dims, len(dims) // 2))
        return Piece(instruction, Emission(tuple(steps)))

    def _finish(self, frame: Frame, outputs: Sequence[Array]) -> None:
        """Copy results that were not computed in place; updates read all before any is written."""
        moved = []
        for position, value in self._copies:
            source, target = self.array(frame, value), outputs[position]
            if source.ctypes.data == target.ctypes.data:
                continue
            if position in self.graph.updates and value in self.graph.leaves:
                source = source.copy()
            moved.append((target, source))
        for target, source in moved:
            np.copyto(target, source)
        first = len(self.graph.leaves)
        for position, copy in frame.copies.items():
            if position >= first:
                np.copyto(outputs[self._direct[position - first]], copy)
        frame.copies.clear()


def _merged(segments: Sequence[Segment]) -> list[Segment]:
    merged: list[Segment] = []
    for segment in segments:
        if segment.call is None and segment.begin == segment.end:
            continue
        if segment.call is None and merged and merged[-1].call is None:
            merged[-1] = Segment(merged[-1].begin, segment.end, None)
        else:
            merged.append(segment)
    return merged


def array_at(address: int, operand: Operand) -> Array:
    """Return an array on memory that somebody else keeps alive."""
    shape, dtype = operand.shape, operand.dtype
    if not operand.size:
        return np.empty(shape, dtype)
    strides = tuple(stride * dtype.itemsize for stride in operand.strides)
    extent = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + dtype.itemsize
    memory: Any = (ctypes.c_char * extent).from_address(address)
    return np.ndarray(shape, dtype, memory, 0, strides)


def _slot(name: str, piece: Piece) -> int:
    """Return the value that an operand of a step names."""
    name = name.partition(":")[0]
    kind = name.rstrip("0123456789")
    number = int(name[len(kind) :])
    instruction = piece.instruction
    if kind == "tmp":
        return piece.scratch[number]
    return (instruction.inputs if kind == "in" else instruction.outputs)[number]


def function_text(step: CStep, piece: Piece, c_type: Callable[[int], str]) -> str:
    """Return the C function of a step; ``NAME`` stands for its name."""
    lines = []
    for position, operand in enumerate(step.operands):
        name, _, given = operand.partition(":")
        kind = given or ("float" if name.startswith("tmp") else c_type(_slot(name, piece)))
        const = "const " if name.startswith("in") else ""
        lines.append(f"{const}{kind} *{name} = ({const}{kind} *)slots[index[{position}]];")
    return (
        f"{step.support}\n"
        "void NAME(char *const *slots, const int32_t *index, const int64_t *d, int64_t begin, "
        "int64_t end, int thread, int32_t *failure) {\n" + "\n".join([*lines, step.body]) + "\n}"
    )
