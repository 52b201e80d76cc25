"""A graph as a list of instructions on numbered values: what passes change and backends compile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnl_core.graph.operator import Array, Operator
from nnl_core.graph.spec import Spec

FOLDABLE = 64  # elements of the largest constant that programs compute with beforehand
ABSENT = -1  # the value number of an optional input that is not given


class Instruction:
    """Apply an operator: ``outputs = operator(inputs, attributes)``, all values by number.

    A fused group has ``members``, in order, and no operator; its inputs and outputs are what
    crosses its border. ``source`` is the position, in the list of nodes that was lowered, of the
    node it came from. Instructions with different ``epoch`` are never merged into one
    (recomputation).
    """

    __slots__ = ("attributes", "epoch", "inputs", "members", "operator", "outputs", "source")

    def __init__(
        self,
        operator: Operator | None,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        attributes: dict[str, Any],
        source: int = 0,
        epoch: int = 0,
        members: tuple[Instruction, ...] = (),
    ) -> None:
        self.operator = operator
        self.inputs = inputs
        self.outputs = outputs
        self.attributes = attributes
        self.source = source
        self.epoch = epoch
        self.members = members

    @property
    def identity(self) -> tuple[object, ...]:
        """What tells its attributes from those of another: ``1``, ``1.0`` and ``True`` differ.

        To Python they are equal, but not to an operator; nor are 0.0 and -0.0. NaN is NaN here.
        """
        return tuple(
            (name, None if isinstance(value, float) else value, repr(value))
            for name, value in self.attributes.items()
        )

    @property
    def label(self) -> str:
        """Name for people."""
        if self.members:
            return "+".join(member.label for member in self.members)
        return self.operator.__name__ if self.operator is not None else "?"

    def __repr__(self) -> str:
        return f"{self.outputs} = {self.label}{self.inputs}"


class Graph:
    """Instructions in an order that can be run, on values that are numbered from 0.

    Attributes
    ----------
    specs
        shape and dtype of each value
    leaves
        values given at each run
    aliases
        for each leaf, a number that leaves sharing memory have in common
    steady
        positions in ``leaves`` of those that seldom change from run to run, as parameters do, and
        that a run does not itself write
    constants
        values known now
    outputs
        values asked for
    updates
        position in ``outputs`` -> position of a leaf in the same memory: the output is written
        after everything that reads the leaf or its aliases
    observed
        whether somebody looks at each instruction's results, so that no memory is used twice
    """

    def __init__(self) -> None:
        self.specs: list[Spec] = []
        self.leaves: list[int] = []
        self.aliases: list[int] = []
        self.steady: list[int] = []
        self.constants: dict[int, Array] = {}
        self.instructions: list[Instruction] = []
        self.outputs: list[int] = []
        self.updates: dict[int, int] = {}
        self.observed = False

    def new_value(self, spec: Spec) -> int:
        """Number a new value."""
        self.specs.append(spec)
        return len(self.specs) - 1

    def add_leaf(self, spec: Spec, alias: int | None = None) -> int:
        """Number a value that is given at each run."""
        value = self.new_value(spec)
        self.leaves.append(value)
        self.aliases.append(len(self.aliases) if alias is None else alias)
        return value

    def add_constant(self, array: Array) -> int:
        """Number a value that is known now."""
        value = self.new_value(Spec.of(array))
        self.constants[value] = array
        return value

    def rewrite(
        self, instructions: Sequence[Instruction], replaced: dict[int, int] | None = None
    ) -> Graph:
        """Return a graph with other instructions, ``outputs`` following ``replaced``."""
        graph = Graph()
        graph.specs = self.specs
        graph.leaves, graph.aliases, graph.steady = self.leaves, self.aliases, self.steady
        graph.constants = self.constants
        graph.instructions = list(instructions)
        graph.outputs = (
            [replaced.get(value, value) for value in self.outputs] if replaced else self.outputs
        )
        graph.updates = self.updates
        graph.observed = self.observed
        return graph

    def signature(self) -> tuple[object, ...]:
        """Return what makes two graphs the same program: structure, shapes, dtypes, constants."""
        return (
            tuple(self.specs),
            tuple(self.leaves),
            tuple(self.aliases),
            tuple(self.steady),
            tuple(self.outputs),
            tuple(sorted(self.updates.items())),
            tuple((v, a.tobytes()) for v, a in self.constants.items()),
            tuple(
                (i.operator, i.inputs, i.outputs, i.epoch, i.identity) for i in self.instructions
            ),
        )

    def last_uses(self) -> dict[int, int]:
        """Return for each value the index of the last instruction that reads it.

        A value that is an output is read by the end (one past the last index).
        """
        last = {
            value: index
            for index, instruction in enumerate(self.instructions)
            for value in (*instruction.inputs, *instruction.outputs)
            if value != ABSENT
        }
        end = len(self.instructions)
        last.update((value, end) for value in self.outputs)
        return last

    def __str__(self) -> str:
        lines = [f"leaves {self.leaves} constants {sorted(self.constants)}"]
        lines += [
            f"  {instruction!r}  -> {[tuple(self.specs[v]) for v in instruction.outputs]}"
            for instruction in self.instructions
        ]
        lines.append(f"outputs {self.outputs} updates {self.updates}")
        return "\n".join(lines)
