"""A graph compiled for NumPy: one closure per instruction over a table of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnl_core.cpu.calls import Call, select_call
from nnl_core.cpu.group import compile_group
from nnl_core.errors import NnlError, OperatorError
from nnl_core.graph.ir import ABSENT, Graph, Instruction
from nnl_core.graph.operator import Array, Operator
from nnl_core.graph.passes.memory import plan_memory
from nnl_core.graph.program import Observer
from nnl_core.graph.spec import Spec

Slots = list[Any]  # value number -> array; the last entry is None, for absent inputs
Step = Callable[[Slots], None]


class NumpyProgram:
    """Runs a graph on host arrays, intermediates in one arena that is kept between runs.

    Programs of equal graphs are one, so several threads may run it, or a hook from within a run:
    whoever finds no arena free makes another.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.plan = plan_memory(graph)
        self.memory = self.plan.report
        self._scratch: dict[int, Spec] = {}
        self._free: list[Slots] = []  # tables of values outside, with an arena each
        self._steps = [self._compile(instruction) for instruction in graph.instructions]
        external = self.plan.external
        self._direct = [(value, position) for value, position in external.items()]
        written = set(external.values())
        self._copies = [
            (position, value)
            for position, value in enumerate(graph.outputs)
            if position not in written
        ]

    def run(
        self,
        leaves: Sequence[Array],
        outputs: Sequence[Array],
        observer: Observer | None = None,
    ) -> None:
        """Fill ``outputs`` from ``leaves``."""
        try:
            template = self._free.pop()
        except IndexError:
            template = self._allocate()
        try:
            self._run(template.copy(), leaves, outputs, observer)
        finally:
            self._free.append(template)

    def computed_by(self, instruction: Instruction) -> str:
        """Answer ``"numpy"``."""
        return "numpy"

    def _run(
        self,
        slots: Slots,
        leaves: Sequence[Array],
        outputs: Sequence[Array],
        observer: Observer | None,
    ) -> None:
        for value, leaf in zip(self.graph.leaves, leaves, strict=True):
            slots[value] = leaf
        for value, position in self._direct:
            slots[value] = outputs[position]
        for value, (block, start, stop) in self.plan.packed.items():
            slots[value] = slots[block][start:stop].reshape(self.graph.specs[value].shape)
        with np.errstate(all="ignore"):
            if observer is None:
                for step in self._steps:
                    step(slots)
            else:
                self._observed(slots, observer)
        self._finish(slots, outputs)

    def _observed(self, slots: Slots, observer: Observer) -> None:
        for instruction, step in zip(self.graph.instructions, self._steps, strict=True):
            inputs = [slots[value] for value in instruction.inputs]
            observer(instruction, inputs, None)
            step(slots)
            observer(instruction, inputs, [slots[value] for value in instruction.outputs])

    def _finish(self, slots: Slots, outputs: Sequence[Array]) -> None:
        """Copy results that were not computed in place; updates read all before any is written."""
        moved = []
        for position, value in self._copies:
            source, target = slots[value], outputs[position]
            if source is target:
                continue
            if position in self.graph.updates and value in self.graph.leaves:
                source = source.copy()
            moved.append((target, source))
        for target, source in moved:
            np.copyto(target, source)

    def _allocate(self) -> Slots:
        plan, specs = self.plan, self.graph.specs
        # One allocation, aligned by hand: NumPy promises 16 bytes, vector code likes 64.
        raw = np.empty(plan.arena_bytes + 64, np.uint8)
        shift = -raw.ctypes.data % 64
        arena = raw[shift : shift + plan.arena_bytes]
        slots: Slots = [None] * (len(specs) + 1)
        for value, array in self.graph.constants.items():
            slots[value] = array
        for value, offset in plan.offsets.items():
            spec = specs[value]
            slots[value] = arena[offset : offset + spec.nbytes].view(spec.dtype).reshape(spec.shape)
        for value, spec in self._scratch.items():
            slots[value] = np.empty(spec.shape, spec.dtype)
        return slots

    def _compile(self, instruction: Instruction) -> Step:
        if instruction.members:
            step, scratch = compile_group(instruction, self.graph.specs)
            self._scratch.update(scratch)
            return _named(step, instruction.label)
        operator = instruction.operator
        assert operator is not None
        inputs = instruction.inputs
        output = instruction.outputs[0]
        attributes = instruction.attributes
        if output in self.plan.viewed:
            return _view_step(operator, inputs, output, attributes)
        specs = self.graph.specs
        given = [None if v == ABSENT else specs[v] for v in inputs]
        call = select_call(operator, given, attributes)
        return _call_step(operator, call, inputs, instruction.outputs, attributes)


def _view_step(
    operator: Operator, inputs: tuple[int, ...], output: int, attributes: dict[str, Any]
) -> Step:
    # A view operator's NumPy kernel without `out` gives the view; its reference gives a copy.
    kernel = operator.kernels["numpy"]
    assert callable(kernel)

    def step(slots: Slots) -> None:
        slots[output] = kernel(*[slots[value] for value in inputs], out=None, **attributes)

    return _named(step, operator.name)


def _call_step(
    operator: Operator,
    call: Call,
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    attributes: dict[str, Any],
) -> Step:
    if len(outputs) > 1:

        def several(slots: Slots) -> None:
            out = tuple(slots[value] for value in outputs)
            call(*[slots[value] for value in inputs], out=out, **attributes)

        return _named(several, operator.name)
    output = outputs[0]
    if len(inputs) == 1 and not attributes:
        single = inputs[0]

        def unary(slots: Slots) -> None:
            call(slots[single], out=slots[output])

        return _named(unary, operator.name)

    def step(slots: Slots) -> None:
        call(*[slots[value] for value in inputs], out=slots[output], **attributes)

    return _named(step, operator.name)


def _named(step: Step, name: str) -> Step:
    """Name the operator in the error of a step that fails."""

    def named(slots: Slots) -> None:
        try:
            step(slots)
        except NnlError:
            raise
        except Exception as error:
            raise OperatorError(f"operator {name!r} failed: {error}") from error

    return named
