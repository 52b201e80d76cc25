"""From a graph to pieces: who computes each instruction, and what is a view of what."""

from __future__ import annotations

from typing import NamedTuple

from nnl_core.codegen.expressions import IN_PLACE_OF_EXPRESSIONS, OF_INTEGERS
from nnl_core.codegen.fuse import is_sum
from nnl_core.gpu.device import Device
from nnl_core.gpu.families.elementwise import emit_group
from nnl_core.gpu.families.sums import emit_sums
from nnl_core.gpu.foreign import emit_foreign
from nnl_core.gpu.kernel import Call, Emission, Kernel, Launch, find_emitter
from nnl_core.graph.ir import ABSENT, Graph, Instruction
from nnl_core.graph.spec import Spec

RESHAPES = frozenset(("nnl::reshape", "nnl::expand_dims", "nnl::squeeze"))
"""Operators that see the elements of a value, in order, in another shape."""
PACK = "nnl::pack"  # copies into one block, of which the memory plan says what is there already


class Piece(NamedTuple):
    """How one instruction is computed.

    By an emission; by nothing, where its result is a view; by the program, where it packs; else
    (``emission`` is ``None``) by NumPy.
    """

    instruction: Instruction
    emission: Emission | None
    is_view: bool = False

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels that it launches."""
        steps = () if self.emission is None else self.emission.steps
        return [step.kernel for step in steps if isinstance(step, Launch)]

    @property
    def packs(self) -> bool:
        """Whether it is left to the program, which knows what is in its place."""
        operator = self.instruction.operator
        return operator is not None and operator.name == PACK

    @property
    def on_host(self) -> bool:
        """Whether NumPy computes it."""
        return self.emission is None and not self.is_view and not self.packs


def lower_pieces(graph: Graph, device: Device) -> tuple[list[Piece], dict[int, int]]:
    """Return the pieces in order, and the views: value -> value in whose memory it is."""
    views = _views(graph)
    pieces = []
    for instruction in graph.instructions:
        if instruction.outputs[0] in views:
            pieces.append(Piece(instruction, None, is_view=True))
        else:
            pieces += _pieces(instruction, graph.specs, device)
    return pieces, views


def _pieces(instruction: Instruction, specs: list[Spec], device: Device) -> list[Piece]:
    """Return one piece, or those of a group's members where it cannot be one kernel."""
    operator = instruction.operator
    members = instruction.members
    if not members and operator is not None:
        if operator.name == PACK:
            return [Piece(instruction, None)]
        own = _emit(instruction, specs, device)
        if own is not None:
            return [Piece(instruction, own)]
        name = operator.name
        if operator.is_elementwise or name in IN_PLACE_OF_EXPRESSIONS or name in OF_INTEGERS:
            members = (instruction,)
    if members:
        emission = _emit_members(members, instruction, specs, device)
        if emission is not None:
            return [Piece(instruction, emission)]
        if len(members) > 1:
            return [piece for member in members for piece in _pieces(member, specs, device)]
    return [Piece(instruction, None)]


def _emit_members(
    members: tuple[Instruction, ...], group: Instruction, specs: list[Spec], device: Device
) -> Emission | None:
    """Return one kernel for members that go over the same elements."""
    inputs, outputs, number = group.inputs, group.outputs, device.multiprocessors
    if any(map(is_sum, members)):
        return emit_sums(members, inputs, outputs, specs, number)
    return emit_group(members, inputs, outputs, lambda value: specs[value], specs, number)


def _emit(instruction: Instruction, specs: list[Spec], device: Device) -> Emission | None:
    operator = instruction.operator
    assert operator is not None
    call = Call(
        operator,
        instruction.attributes,
        tuple(None if v == ABSENT else specs[v] for v in instruction.inputs),
        tuple(specs[v] for v in instruction.outputs),
        device,
    )
    foreign = emit_foreign(call)
    if foreign is not None:
        return foreign
    emit = find_emitter(operator)
    return None if emit is None else emit(call)


def _views(graph: Graph) -> dict[int, int]:
    """Let a value in another shape be in the memory of what it shows.

    What is asked for is a copy, and so is what shows a leaf that this run writes.
    """
    written = {graph.aliases[leaf] for leaf in graph.updates.values()}
    pairs = zip(graph.leaves, graph.aliases, strict=True)
    overwritten = {value for value, alias in pairs if alias in written}
    outputs = set(graph.outputs)
    views: dict[int, int] = {}
    for instruction in graph.instructions:
        operator = instruction.operator
        if operator is None or operator.name not in RESHAPES or graph.observed:
            continue
        target, source = instruction.outputs[0], instruction.inputs[0]
        root = source
        while root in views:
            root = views[root]
        if target not in outputs and root not in overwritten:
            views[target] = source
    return views
