"""From a graph to steps: who computes each instruction, and in which layout values are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

import nnl_native.kernels  # noqa: F401 - registers the emitters
from nnl_core.codegen.expressions import IN_PLACE_OF_EXPRESSIONS
from nnl_core.codegen.fuse import SUMS, fuse
from nnl_core.graph.ir import ABSENT, Graph, Instruction
from nnl_core.graph.operator import Operator, lookup
from nnl_core.graph.spec import Spec
from nnl_native.folding import fold
from nnl_native.kernel import (
    Call,
    Emission,
    Entry,
    Layout,
    LayoutRequest,
    Operand,
    View,
    emitter_of,
    plain,
    viewer_of,
)
from nnl_native.kernels.elementwise import DIALECT, emit_group, group_layout
from nnl_native.kernels.foreign import foreign_entry
from nnl_native.kernels.mapreduce import SUMMED, emit_sums
from nnl_native.kernels.reorder import reorder
from nnl_native.recompute import recompute

MOVED = 4096  # elements from which on an input of a loop is brought to the layout of the others
RESHAPES = frozenset(("nnl::reshape", "nnl::expand_dims", "nnl::squeeze"))
"""Operators that see the elements of a value in order in another shape."""


class Piece(NamedTuple):
    """How one instruction is computed: by steps, by nothing (a view), or else by NumPy."""

    instruction: Instruction
    emission: Emission | None
    scratch: tuple[int, ...] = ()


class Lowering:
    """A graph whose instructions have steps, with reorders between layouts put in.

    Attributes
    ----------
    graph
        the instructions in order; values that the given graph has keep their numbers
    pieces
        how each is computed
    layouts
        where the elements of each value are
    views
        value -> value whose memory it is a view of, and how many bytes further on
    """

    def __init__(self, source: Graph, threads: int) -> None:
        source = recompute(fuse(fold(source), DIALECT, SUMMED))
        self.source, self.threads = source, threads
        self.graph = source.rewrite(())
        self.graph.specs = list(source.specs)
        self.pieces: list[Piece] = []
        self.layouts: dict[int, Layout] = {}
        self.views: dict[int, tuple[int, int]] = {}
        self._logical: dict[int, Spec] = {}  # what a value with an opaque layout stands for
        self._brought: dict[tuple[int, Layout], int] = {}
        self._asked = set(source.outputs)
        written = {source.aliases[leaf] for leaf in source.updates.values()}
        self._overwritten = {
            value
            for value, alias in zip(source.leaves, source.aliases, strict=True)
            if alias in written
        }
        for value in (*source.leaves, *source.constants):
            self.layouts[value] = plain(source.specs[value].shape)
        for instruction in source.instructions:
            self._add(instruction)
        self.graph.outputs = [self._plain(value) for value in source.outputs]
        self.graph.instructions = [piece.instruction for piece in self.pieces]

    def operand(self, value: int) -> Operand:
        """Return a value as kernels see it."""
        return Operand(self._logical.get(value, self.graph.specs[value]), self.layouts[value])

    def described(self) -> Graph:
        """Return the graph with the shapes and dtypes that opaque values stand for."""
        graph = self.graph.rewrite(self.graph.instructions)
        graph.specs = list(graph.specs)
        for value, spec in self._logical.items():
            graph.specs[value] = spec
        return graph

    def same_place(self, one: int, other: int) -> bool:
        """Whether elements of two values of one shape lie at the same places."""
        return self.layouts.get(one) == self.layouts.get(other)

    # Instructions ------------------------------------------------------------------------------

    def _add(self, instruction: Instruction) -> None:
        operator = instruction.operator
        if (
            operator is None
            or operator.is_elementwise
            or operator.name in IN_PLACE_OF_EXPRESSIONS
            or operator.name in SUMS
        ):
            done = self._add_group(instruction)
        elif operator.name == "nnl::pack":
            done = self._add_pack(instruction)
        else:
            done = self._add_view(instruction) or self._add_call(operator, instruction)
        if not done and instruction.members:
            for member in instruction.members:
                self._add(member)
        elif not done:
            self._add_numpy(instruction)

    def _add_group(self, instruction: Instruction) -> bool:
        """Add one loop over elementwise members; values that cross no border are not stored."""
        members = instruction.members or (instruction,)
        inputs = tuple(dict.fromkeys(v for v in instruction.inputs if v != ABSENT))
        if any(self.layouts[value].opaque is not None for value in inputs):
            return False
        specs = self.graph.specs
        has_sums = any(m.operator is not None and m.operator.name in SUMS for m in members)
        shape = specs[(members[0].inputs if has_sums else members[0].outputs)[0]].shape
        if has_sums:
            shape = max(
                (specs[v].shape for m in members for v in m.inputs if v != ABSENT), key=math.prod
            )
        layout = group_layout(shape, [self.operand(value) for value in inputs])
        # A loop over places that are far apart takes longer than a copy beside it.
        moved = {
            value: self._bring(value, layout)
            for value in inputs
            if specs[value].shape == shape
            and specs[value].size >= MOVED
            and 0 not in self.layouts[value].strides
            and not self._is(value, layout)
        }
        if moved:
            members = tuple(_on(member, moved) for member in members)
            inputs = tuple(moved.get(value, value) for value in inputs)
            instruction = _on(instruction, moved)
            if instruction.members:
                instruction.members = members
        for member in members:
            for value in member.outputs:
                is_whole = specs[value].shape == shape and value in instruction.outputs
                self.layouts[value] = layout if is_whole else plain(specs[value].shape)
        emit = emit_sums if has_sums else emit_group
        emission = emit(members, inputs, instruction.outputs, self.operand)
        if emission is None:
            return False
        self._append(instruction, inputs, instruction.outputs, emission)
        return True

    def _add_pack(self, instruction: Instruction) -> bool:
        """Add the flat block: what is not computed in its place there is copied, see `Program`."""
        inputs = tuple(self._plain(value) for value in instruction.inputs)
        self.layouts[instruction.outputs[0]] = plain(self.graph.specs[instruction.outputs[0]].shape)
        self._append(instruction, inputs, instruction.outputs, Emission(()))
        return True

    def _add_view(self, instruction: Instruction) -> bool:
        operator = instruction.operator
        assert operator is not None
        view = viewer_of(operator.name)
        if view is None or not self._asked.isdisjoint(instruction.outputs):
            return False
        source = root = instruction.inputs[0]
        while root in self.views:
            root = self.views[root][0]
        # What a run overwrites at its end must not be seen through; what it is asked for may be
        # written elsewhere.
        if root in self._overwritten or root in self._asked:
            return False
        if self.layouts[source].opaque is not None:
            return False
        seen = view(self._request(operator, instruction))
        if seen is None and operator.name in RESHAPES:
            # One copy in order serves all that reshape the value.
            source = self._plain(source)
            given = _on(instruction, {instruction.inputs[0]: source})
            seen = view(self._request(operator, given))
        if seen is None:
            return False
        views = (seen,) if isinstance(seen, View) else seen
        itemsize = self.graph.specs[source].dtype.itemsize
        for result, one in zip(instruction.outputs, views, strict=True):
            self.layouts[result] = Layout(one.strides)
            self.views[result] = (source, one.offset * itemsize)
        inputs = (source, *instruction.inputs[1:])
        self._append(instruction, inputs, instruction.outputs, Emission(()))
        return True

    def _add_call(self, operator: Operator, instruction: Instruction) -> bool:
        """Add what the operator brought along, else what is registered for it."""
        given = [None if v == ABSENT else self.graph.specs[v] for v in instruction.inputs]
        entries = (
            foreign_entry(operator, given, instruction.attributes),
            emitter_of(operator.name),
        )
        return any(entry and self._add_steps(entry, operator, instruction) for entry in entries)

    def _add_steps(self, entry: Entry, operator: Operator, instruction: Instruction) -> bool:
        request = self._request(operator, instruction)
        if any(one is not None and one.layout.opaque is not None for one in request.inputs):
            return False
        answer = entry.layouts(request)
        wanted = tuple(
            value if layout is None else self._as_wanted(value, layout)
            for value, layout in zip(instruction.inputs, answer.inputs, strict=True)
        )
        specs = self.graph.specs
        call = Call(
            operator,
            instruction.attributes,
            tuple(None if layout is None else layout for layout in map(self._seen_as, wanted)),
            tuple(
                Operand(specs[value], layout)
                for value, layout in zip(instruction.outputs, answer.outputs, strict=True)
            ),
            self.threads,
        )
        emission = entry.emit(call)
        if emission is None:
            return False
        inputs = tuple(value if isinstance(value, int) else self._bring(*value) for value in wanted)
        outputs = []
        for value, layout in zip(instruction.outputs, answer.outputs, strict=True):
            outputs.append(self._opaque_value(value, layout) if layout.opaque else value)
            self.layouts[outputs[-1]] = layout
        self._append(instruction, inputs, outputs, emission)
        for value, layout in zip(instruction.outputs, answer.outputs, strict=True):
            if layout.opaque is not None:  # the steps that read it know plain elements
                opaque = outputs[instruction.outputs.index(value)]
                self._reorder(opaque, value, plain(specs[value].shape))
        return True

    def _add_numpy(self, instruction: Instruction) -> None:
        for value in instruction.outputs:
            self.layouts[value] = plain(self.graph.specs[value].shape)
        self._append(instruction, instruction.inputs, instruction.outputs, None)

    # Layouts -----------------------------------------------------------------------------------

    def _as_wanted(self, value: int, layout: Layout) -> int | tuple[int, Layout]:
        """Return the value, or with the layout that it has to be brought to."""
        if value == ABSENT or self._is(value, layout):
            return value
        return value, layout

    def _seen_as(self, wanted: int | tuple[int, Layout]) -> Operand | None:
        if isinstance(wanted, int):
            return None if wanted == ABSENT else self.operand(wanted)
        value, layout = wanted
        return Operand(self.operand(value).spec, layout)

    def _is(self, value: int, layout: Layout) -> bool:
        """Whether a value's elements lie as a layout says, axes of length 1 aside."""
        own = self.layouts[value]
        if own.opaque is not None or layout.opaque is not None:
            return own == layout
        shape = self.graph.specs[value].shape
        return self.graph.specs[value].size == 0 or all(
            n == 1 or a == b for n, a, b in zip(shape, own.strides, layout.strides, strict=True)
        )

    def _plain(self, value: int) -> int:
        layout = plain(self.operand(value).shape)
        return value if self._is(value, layout) else self._bring(value, layout)

    def _bring(self, value: int, layout: Layout) -> int:
        """Return a value with the same elements in another layout, made once."""
        known = self._brought.get((value, layout))
        if known is not None:
            return known
        spec = self.operand(value).spec
        if layout.opaque is not None:
            result = self._opaque_value(value, layout)
        else:
            result = self.graph.new_value(spec)
        self._reorder(value, result, layout)
        self._brought[value, layout] = result
        return result

    def _opaque_value(self, value: int, layout: Layout) -> int:
        assert layout.opaque is not None
        bytes_ = Spec((layout.opaque.nbytes,), np.dtype(np.uint8))
        result = self.graph.new_value(bytes_)
        self._logical[result] = (
            self.operand(value).spec if value in self.layouts else (self.graph.specs[value])
        )
        self.layouts[result] = layout
        return result

    def _reorder(self, value: int, result: int, layout: Layout) -> None:
        self.layouts[result] = layout
        emission = reorder(self.operand(value), self.operand(result), self.threads)
        # Not elementwise to the memory plan: elements change places.
        copy = Instruction(lookup("nnl::transpose"), (value,), (result,), {"axes": ()})
        self._append(copy, (value,), (result,), emission)

    # Helpers -----------------------------------------------------------------------------------

    def _append(
        self,
        instruction: Instruction,
        inputs: Sequence[int],
        outputs: Sequence[int],
        emission: Emission | None,
    ) -> None:
        """Add an instruction on other values, its scratch memory as further outputs."""
        sizes = () if emission is None else emission.scratch
        scratch = tuple(self.graph.new_value(Spec((size,), np.dtype(np.uint8))) for size in sizes)
        for value in scratch:
            self.layouts[value] = plain(self.graph.specs[value].shape)
        added = Instruction(
            instruction.operator,
            tuple(inputs),
            (*outputs, *scratch),
            instruction.attributes,
            instruction.source,
            instruction.epoch,
            instruction.members,
        )
        self.pieces.append(Piece(added, emission, scratch))

    def _request(self, operator: Operator, instruction: Instruction) -> LayoutRequest:
        return LayoutRequest(
            operator,
            instruction.attributes,
            tuple(None if v == ABSENT else self.operand(v) for v in instruction.inputs),
            tuple(self.graph.specs[value] for value in instruction.outputs),
        )


def _on(instruction: Instruction, replaced: Mapping[int, int]) -> Instruction:
    """Return an instruction on other inputs."""
    return Instruction(
        instruction.operator,
        tuple(replaced.get(value, value) for value in instruction.inputs),
        instruction.outputs,
        instruction.attributes,
        instruction.source,
        instruction.epoch,
        instruction.members,
    )


def constants_of(graph: Graph) -> Mapping[int, np.ndarray]:
    """Return a graph's constants, contiguous."""
    return {value: np.ascontiguousarray(array) for value, array in graph.constants.items()}
