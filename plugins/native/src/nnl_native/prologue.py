"""What a program computes once for as long as parameters stay: the beginning of its steps.

Weights in oneDNN's layouts, batch normalisation folded into weights, large constants: whatever
follows from steady leaves and constants alone. It is kept in memory of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nnl_core.graph.ir import ABSENT
from nnl_core.graph.operator import Array
from nnl_core.graph.passes.memory import ALIGNMENT
from nnl_native.memory import allocate

if TYPE_CHECKING:
    from nnl_native.lowering import Lowering, Piece
    from nnl_native.program import NativeProgram

GROWTH = 4  # what is this much larger than what it is made of is not kept, but made in each run
SMALL = 1 << 16  # bytes that may be kept in any case


class Prologue(NamedTuple):
    """The first ``length`` pieces of a program, and what the others read of their results.

    ``steady`` has the positions of the leaves that they read; it is ``None`` where there is
    nothing to compute. ``offsets`` says where each value is in a block of ``nbytes``.
    """

    length: int
    steady: tuple[int, ...] | None
    offsets: dict[int, int]
    nbytes: int


NOTHING = Prologue(0, None, {}, 0)


def split(lowering: Lowering) -> Prologue:
    """Move what follows from steady leaves and constants to the beginning of a lowered graph."""
    graph = lowering.graph
    if graph.observed:
        return NOTHING
    early, late = _parted(lowering)
    if not any(piece.emission is None or piece.emission.steps for piece in early):
        return NOTHING
    read = {value for piece in early for value in piece.instruction.inputs}
    made = {value for piece in early for value in piece.instruction.outputs}
    offsets: dict[int, int] = {}
    end = 0
    for value in (value for piece in late for value in piece.instruction.inputs):
        while value in lowering.views:
            value = lowering.views[value][0]
        if value in made and value not in offsets:
            offsets[value] = end
            end += -(-graph.specs[value].nbytes // ALIGNMENT) * ALIGNMENT
    steady = tuple(position for position in graph.steady if graph.leaves[position] in read)
    if not steady and end <= SMALL:  # a few small constants: to hold them costs as much
        return NOTHING
    lowering.pieces[:] = [*early, *late]
    graph.instructions = [piece.instruction for piece in lowering.pieces]
    return Prologue(len(early), steady, offsets, end)


def _parted(lowering: Lowering) -> tuple[list[Piece], list[Piece]]:
    """Return the pieces that follow from what is steady and known, and the others."""
    graph = lowering.graph
    known = {ABSENT, *graph.constants, *(graph.leaves[position] for position in graph.steady)}
    asked = set(graph.outputs)
    early: list[Piece] = []
    late: list[Piece] = []

    def nbytes(values: Sequence[int]) -> int:
        return sum(graph.specs[value].nbytes for value in values if value != ABSENT)

    for piece in lowering.pieces:
        inputs, outputs = piece.instruction.inputs, piece.instruction.outputs
        results = outputs[: len(outputs) - len(piece.scratch)]
        if (
            known.issuperset(inputs)
            and asked.isdisjoint(results)
            and (
                all(value in lowering.views for value in results)
                or nbytes(results) <= GROWTH * nbytes(inputs) + SMALL
            )
        ):
            early.append(piece)
            known.update(results)
        else:
            late.append(piece)
    return early, late


_numbers = itertools.count()


class Prepared:
    """A program with the results of its prologue; ``number`` tells it from all others."""

    def __init__(self, program: NativeProgram) -> None:
        self.number = next(_numbers)
        self._program = program
        spare = program.spare
        try:
            self._memory = spare.pop()
        except IndexError:
            self._memory = allocate(program.prologue.nbytes)
        offsets = program.prologue.offsets
        self.values: Array = np.fromiter(offsets, np.intp, len(offsets))
        self.addresses: Array = np.fromiter(offsets.values(), np.uint64, len(offsets))
        self.addresses += np.uint64(self._memory[0].ctypes.data)

    def __del__(self) -> None:
        if hasattr(self, "_memory") and not self._program.spare:
            self._program.spare.append(self._memory)  # for whoever prepares next

    def run(self, leaves: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Compute the rest."""
        self._program.run(leaves, outputs, prepared=self)
