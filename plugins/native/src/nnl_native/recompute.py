"""Compute again, right before it is read, what is cheap and would be kept over a peak of memory.

In a training step that is mostly what follows from other values that the backward pass needs
anyway: a normalised value, an activation that is not an exponential or the like. The same kernel on
the same values gives the same bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

import numpy as np

from nnl_core.codegen.expressions import IN_PLACE_OF_EXPRESSIONS
from nnl_core.graph.ir import ABSENT, Graph, Instruction
from nnl_native.kernel import viewer_of

LEAST = 16 << 20  # bytes of a peak below which nothing is done
WORTH = 1024  # what is a smaller part of the peak than this stays
SHARE = 0.03  # of what a run costs may be added to it
BYTES_PER_CALL = 32  # what an exponential or the like of one element costs
DEAREST = 8  # bytes moved for one that is saved
BYTES_PER_MULTIPLY_ADD = 0.25  # what one costs, in bytes that are moved
LONGEST = 4096  # instructions of a graph that is looked at
SMALL = 16  # what is so many times smaller than what it saves may live longer for it
SLOW = re.compile(r"\b(?:exp|log|log1p|tanh|erf|pow|sin|cos)f\(")


def recompute(graph: Graph) -> Graph:
    """Return the graph with values computed a second time where that lowers its peak of memory."""
    if graph.observed or len(graph.instructions) > LONGEST:
        return graph
    planner = _Planner(graph)
    while planner.lower_peak():
        pass
    return graph.rewrite(planner.instructions()) if planner.added else graph


class _Piece(NamedTuple):
    """Memory from one instruction to another, and what the values in it are called."""

    first: int
    last: int
    names: dict[int, int]


class _Recipe(NamedTuple):
    """What is to be computed before an instruction, and what else has to be kept until then."""

    cost: float
    makers: list[int]
    longer: list[int]


class _Planner:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.steps = list(graph.instructions)
        self.added: dict[int, list[Instruction]] = {}  # before which index
        self.maker = {v: n for n, i in enumerate(self.steps) for v in i.outputs}
        self.roots: dict[int, int] = {}
        self.uses: dict[int, set[int]] = {}  # of memory, by its owner
        self.pieces: dict[int, list[_Piece]] = {}
        self.live = np.zeros(len(self.steps) + 1, np.int64)
        for index, instruction in enumerate(self.steps):
            for value in instruction.outputs:
                source = instruction.inputs[0] if _is_view(instruction) else value
                self.roots[value] = self.roots.get(source, source)
            for value in (*instruction.inputs, *instruction.outputs):
                self.uses.setdefault(self.roots.get(value, value), set()).add(index)
        packed = {
            value
            for one in self.steps
            if one.operator is not None and one.operator.name == "nnl::pack"
            for value in one.inputs
        }
        # Whose memory is not the arena's, or has to be there at the end.
        self.elsewhere = {self.roots.get(value, value) for value in (*graph.outputs, *packed)}
        families: dict[int, dict[int, int]] = {}
        for value, root in self.roots.items():
            families.setdefault(root, {})[value] = value
        for root, names in families.items():
            if root in self.maker:
                first, last = self.maker[root], max(self.uses[root])
                if root in graph.outputs:
                    last = len(self.steps)
                self.pieces[root] = [_Piece(first, last, names)]
                if root not in self.elsewhere:
                    self.live[first : last + 1] += graph.specs[root].nbytes
        self.costs = [self._cost(instruction) for instruction in self.steps]
        self.budget = SHARE * sum(self.costs)
        self.candidates = self._candidates()

    def _candidates(self) -> list[tuple[float, int]]:
        """Return what may be computed again, the most bytes for the least cost first."""
        return sorted(
            (
                (self.graph.specs[root].nbytes / (self.costs[self.maker[root]] + 1), root)
                for root in self.pieces
                if root not in self.elsewhere and _is_repeatable(self.steps[self.maker[root]])
            ),
            reverse=True,
        )

    def lower_peak(self) -> bool:
        """Compute one of the values that are kept over the peak again; return whether there is."""
        time = int(self.live.argmax())
        peak = int(self.live[time])
        if peak < LEAST:
            return False
        best: tuple[float, int, int, int, _Recipe] | None = None
        for most, root in self.candidates:
            if best is not None and best[0] >= most:
                break
            piece, *again = self.pieces[root]
            nbytes = self.graph.specs[root].nbytes
            if again or not piece.first < time < piece.last or nbytes * WORTH < peak:
                continue
            before = max(use for use in self.uses[root] if use <= time)
            after = min(use for use in self.uses[root] if use >= time)
            recipe = self._recipe(root, after) if before < time < after else None
            if recipe is None or recipe.cost > min(self.budget, DEAREST * nbytes):
                continue
            gain = nbytes / (recipe.cost + 1)
            if best is None or gain > best[0]:
                best = gain, root, before, after, recipe
        if best is None:
            return False
        self._apply(*best[1:])
        return True

    def instructions(self) -> list[Instruction]:
        """Return all instructions in order."""
        return [
            one
            for index, step in enumerate(self.steps)
            for one in (*self.added.get(index, ()), step)
        ]

    # Recipes -----------------------------------------------------------------------------------

    def _recipe(self, root: int, time: int) -> _Recipe | None:
        """Say how to make a value, and the views of it that are read from then on, again."""
        makers: list[int] = []
        longer: list[int] = []
        nbytes = self.graph.specs[root].nbytes

        def provide(value: int) -> bool:
            own = self.roots.get(value, value)
            if value == ABSENT or own not in self.maker or self.maker[value] in makers:
                return True
            if own != root:
                if self._available(value, time) is not None:
                    return True
                if self.graph.specs[own].nbytes * SMALL <= nbytes:
                    longer.append(value)
                    return len(self.pieces[own]) == 1
            index = self.maker[value]
            if not _is_repeatable(self.steps[index]) or len(makers) > 8:
                return False
            if not all(provide(one) for one in self.steps[index].inputs):
                return False
            makers.append(index)
            return True

        if not all(provide(value) for value in self._read_from(root, time)):
            return None
        extra = sum(self._fresh_bytes(index) for index in makers) - nbytes
        if self.live[time] + extra >= self.live.max():
            return None
        return _Recipe(sum(self.costs[n] for n in makers), makers, longer)

    def _read_from(self, root: int, time: int) -> Iterable[int]:
        """Return the values in a memory that are read from then on."""
        family = self.pieces[root][0].names
        return dict.fromkeys(
            value
            for use in sorted(self.uses[root])
            if use >= time
            for step in (*self.added.get(use, ()), self.steps[use])
            for value in step.inputs
            if value in family
        )

    def _available(self, value: int, time: int) -> int | None:
        """Return what a value is called where it is in memory before an instruction."""
        for piece in self.pieces[self.roots[value]]:
            if piece.first < time <= piece.last and value in piece.names:
                name = piece.names[value]
                if name != value or self.maker[value] < time:
                    return name
        return None

    def _fresh_bytes(self, index: int) -> int:
        instruction = self.steps[index]
        if _is_view(instruction):
            return 0
        return sum(self.graph.specs[value].nbytes for value in instruction.outputs)

    def _cost(self, instruction: Instruction) -> float:
        """Estimate what an instruction costs, in bytes that are moved."""
        if _is_view(instruction):
            return 0
        specs = self.graph.specs
        moved = {v for v in (*instruction.inputs, *instruction.outputs) if v != ABSENT}
        work = sum(
            one.operator.count_multiply_adds(
                [None if v == ABSENT else specs[v] for v in one.inputs],
                [specs[v] for v in one.outputs],
                one.attributes,
            )
            for one in instruction.members or (instruction,)
            if one.operator is not None
        )
        calls = sum(
            len(SLOW.findall(one.operator.expression)) * specs[one.outputs[0]].size
            for one in instruction.members or (instruction,)
            if one.operator is not None and one.operator.expression is not None
        )
        moved_bytes = sum(specs[value].nbytes for value in moved)
        return moved_bytes + BYTES_PER_MULTIPLY_ADD * work + BYTES_PER_CALL * calls

    # Changes -----------------------------------------------------------------------------------

    def _apply(self, root: int, before: int, after: int, recipe: _Recipe) -> None:
        specs = self.graph.specs
        (piece,) = self.pieces[root]
        for value in recipe.longer:
            self._live_longer(self.roots[value], after)
        names: dict[int, int] = {}
        fresh: list[Instruction] = []
        needed = {value for index in recipe.makers for value in self.steps[index].inputs}
        needed.update(self._read_from(root, after))
        for index in recipe.makers:
            step = self.steps[index]
            given = dict(names)
            for value in step.inputs:
                if self.roots.get(value) in self.pieces and value not in names:
                    name = self._available(value, after)
                    assert name is not None
                    given[value] = name
                    self.uses[self.roots[value]].add(after)
            members = step.members or (step,)
            made = {
                value: self.graph.new_value(specs[value])
                for member in members
                for value in member.outputs
            }
            names |= {value: made[value] for value in step.outputs}
            fresh.append(_renamed(_without(step, needed), given | made))
        own = {v: name for v, name in names.items() if self.roots[v] == root}
        for use in self.uses[root]:
            if use >= after:
                self.added[use] = [_renamed(one, own) for one in self.added.get(use, ())]
                self.steps[use] = _renamed(self.steps[use], own)
        self.added[after] = [*fresh, *self.added[after]]
        self.pieces[root] = [
            _Piece(piece.first, before, piece.names),
            _Piece(after, piece.last, own),
        ]
        self.live[before + 1 : after] -= specs[root].nbytes
        self.live[after] += sum(self._fresh_bytes(n) for n in recipe.makers) - specs[root].nbytes
        self.budget -= recipe.cost

    def _live_longer(self, root: int, time: int) -> None:
        (piece,) = self.pieces[root]
        if piece.last < time:
            self.live[piece.last + 1 : time + 1] += self.graph.specs[root].nbytes
            self.pieces[root] = [_Piece(piece.first, time, piece.names)]


def _is_view(instruction: Instruction) -> bool:
    operator = instruction.operator
    return operator is not None and viewer_of(operator.name) is not None


def _is_repeatable(instruction: Instruction) -> bool:
    if instruction.epoch:
        return False
    return all(
        one.operator is not None
        and (
            one.operator.is_elementwise
            or one.operator.name in IN_PLACE_OF_EXPRESSIONS
            or _is_view(one)
        )
        for one in instruction.members or (instruction,)
    )


def _without(group: Instruction, needed: Set[int]) -> Instruction:
    """Return an instruction that, if it is a group, stores no more than what is needed."""
    if not group.members:
        return group
    outputs = tuple(value for value in group.outputs if value in needed)
    return Instruction(None, group.inputs, outputs, {}, group.source, group.epoch, group.members)


def _renamed(instruction: Instruction, names: Mapping[int, int]) -> Instruction:
    """Return an instruction on other values."""
    if names.keys().isdisjoint((*instruction.inputs, *instruction.outputs)):
        return instruction
    return Instruction(
        instruction.operator,
        tuple(names.get(value, value) for value in instruction.inputs),
        tuple(names.get(value, value) for value in instruction.outputs),
        instruction.attributes,
        instruction.source,
        instruction.epoch,
        tuple(_renamed(one, names) for one in instruction.members),
    )
