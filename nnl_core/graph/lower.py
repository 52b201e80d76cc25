"""From variables and nodes to a `Graph` of instructions, and the storages that it is run on."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

from nnl_core.graph.ir import ABSENT, FOLDABLE, Graph, Instruction
from nnl_core.graph.structure import topological

if TYPE_CHECKING:
    from nnl_core.graph.array import NdArray
    from nnl_core.graph.node import Effect, Node
    from nnl_core.graph.variable import Variable

Key = tuple[int, int, int]  # (id of node or storage, output index, epoch)


class Lowered:
    """A graph with the storage of each leaf and each output, and the nodes it came from.

    ``numbers`` gives the value number of an output of a node: by node, index and epoch.
    ``overwritten`` gives, for each node, the positions of inputs that a run itself replaces.
    """

    def __init__(self, graph: Graph | None = None) -> None:
        self.graph = Graph() if graph is None else graph
        self.leaves: list[NdArray] = []
        self.outputs: list[NdArray] = []
        self.nodes: list[Node] = []
        self.numbers: dict[tuple[Node, int, int], int] = {}
        self.overwritten: dict[Node, set[int]] = {}

    def read_leaves(self) -> set[int]:
        """Return ids of the storages whose value matters: not those that are only written."""
        read = {number for one in self.graph.instructions for number in one.inputs}
        read.update(self.graph.outputs)
        leaves = zip(self.graph.leaves, self.leaves, strict=True)
        return {id(storage) for number, storage in leaves if number in read}


class Timeline:
    """What a reader sees in place of a leaf: what the same run has assigned or computed before."""

    def __init__(self, outputs: Iterable[Variable]) -> None:
        self._outputs = outputs
        self._linked: set[Node] | None = None
        self._assigned: dict[int, list[Effect]] = {}  # by id of the target's storage

    def add(self, effects: Iterable[Effect]) -> None:
        """Add the assignments of the run."""
        for effect in sorted(effects, key=attrgetter("moment")):
            self._assigned.setdefault(id(effect.target._data), []).append(effect)

    def last(self) -> list[Effect]:
        """Return the last assignment to each target."""
        return [effects[-1] for effects in self._assigned.values()]

    def is_replaced(self, variable: Variable) -> bool:
        """Whether a variable is assigned to."""
        return variable.parent is None and id(variable._data) in self._assigned

    def assigned(self, variable: Variable, moment: float) -> Variable:
        """Return the variable whose value a reader of that moment finds assigned to another."""
        while variable.parent is None:
            effects = self._assigned.get(id(variable._data), ())
            earlier = [effect for effect in effects if effect.moment < moment]
            if not earlier:
                break
            variable, moment = earlier[-1].value, earlier[-1].moment
        return variable

    def linked(self, variable: Variable, moment: float) -> Variable:
        """Return the output that an unlinked variable was made of, where the run computes it."""
        producer = None if variable.parent is not None else variable._data.producer
        node = None if producer is None else producer()
        if node is None or node.sequence >= moment:
            return variable
        if self._linked is None:
            self._linked = set(topological(self._outputs))
        if node not in self._linked:
            return variable
        return next(
            node.output(index)
            for index, storage in enumerate(node.storages)
            if storage is variable._data
        )


def lower(
    outputs: Iterable[tuple[Variable, NdArray]],
    *,
    given: Callable[[Node, int], bool] = lambda node, index: False,
    is_backward: Callable[[Node], bool] = lambda node: False,
    effects: bool = True,
    updates: Iterable[tuple[Variable, NdArray]] = (),
    root: Variable | None = None,
) -> Lowered:
    """Turn what computes the outputs into a graph.

    Parameters
    ----------
    outputs
        variables to compute, with the storage each is written to
    given
        tells outputs of nodes whose value is at hand: they become leaves
    is_backward
        tells nodes of a gradient: what they read of a node marked ``recompute`` is computed a
        second time for them
    effects
        whether the assignments of the nodes on the way are part of the graph; those of a
        gradient's own nodes are in any case
    updates
        further outputs that overwrite a storage the graph reads; assignments to parts of it are
        seen by later readers, and not written besides
    root
        the output that these are gradients of: it tells what belongs to the graph
    """
    lowered = Lowered()
    graph = lowered.graph
    outputs, updates = list(outputs), list(updates)
    wanted = [variable for variable, _ in (*outputs, *updates)]
    timeline = Timeline(wanted if root is None else [root, *wanted])
    order = _schedule(wanted, given, is_backward, effects, timeline)
    values: dict[Key, int] = {}
    bases: dict[int, int] = {}
    steady: set[int] = set()

    def leaf(storage: NdArray) -> int:
        key = (id(storage), 0, -1)
        if key not in values:
            base = storage.base_identity()
            values[key] = graph.add_leaf(storage.spec, bases.setdefault(base, len(bases)))
            lowered.leaves.append(storage)
        return values[key]

    def value_of(variable: Variable, epoch: int) -> int:
        node = variable.parent
        if node is None:
            if variable.is_constant and variable.size <= FOLDABLE:
                key = (id(variable._data), 0, -1)
                if key not in values:
                    values[key] = graph.add_constant(variable._data.read())
                return values[key]
            number = leaf(variable._data)
            if variable.is_steady or variable.is_constant:
                steady.add(number)
            return number
        if given(node, variable._index) and not (epoch and node.recompute):
            return leaf(variable._data)
        return values[id(node), variable._index, epoch if node.recompute else 0]

    def read(variable: Variable, epoch: int, moment: float) -> int:
        seen = timeline.assigned(variable, moment)
        if seen is not variable:
            return value_of(seen, 0)
        return value_of(timeline.linked(variable, moment), epoch)

    last = {id(effect.target._data): effect.value for effect in timeline.last()}
    for node, epoch in order:
        inner = 1 if epoch or is_backward(node) else 0
        numbers = tuple(graph.new_value(spec) for spec in node.specs)
        inputs = tuple(ABSENT if v is None else read(v, inner, node.moment) for v in node.inputs)
        for position, variable in enumerate(node.inputs):
            if variable is not None and timeline.is_replaced(variable):
                if timeline.assigned(variable, node.moment) is not last[id(variable._data)]:
                    lowered.overwritten.setdefault(node, set()).add(position)
        for index, number in enumerate(numbers):
            values[id(node), index, epoch] = number
            lowered.numbers[node, index, epoch] = number
        graph.instructions.append(
            Instruction(node.operator, inputs, numbers, node.attributes, len(lowered.nodes), epoch)
        )
        lowered.nodes.append(node)
    for variable, storage in outputs:
        graph.outputs.append(value_of(variable, 1 if _reads_backward(variable, is_backward) else 0))
        lowered.outputs.append(storage)
    updated = {storage.base_identity() for _, storage in updates}
    assigned = [
        (read(e.value, 0, e.moment), e.target._data)
        for e in timeline.last()
        if e.target._data.base_identity() not in updated
    ]
    for result, storage in (*assigned, *((value_of(v, 0), storage) for v, storage in updates)):
        graph.updates[len(graph.outputs)] = graph.leaves.index(leaf(storage))
        graph.outputs.append(result)
        lowered.outputs.append(storage)
    # An output in the same memory as a leaf must wait until the leaf has been read.
    first_leaf = {alias: position for position, alias in reversed([*enumerate(graph.aliases)])}
    for position, storage in enumerate(lowered.outputs):
        alias = bases.get(storage.base_identity())
        if alias is not None:
            graph.updates.setdefault(position, first_leaf[alias])
    written = {graph.aliases[position] for position in graph.updates.values()}
    graph.steady = [
        position
        for position, number in enumerate(graph.leaves)
        if number in steady and graph.aliases[position] not in written
    ]
    return lowered


def _reads_backward(variable: Variable, is_backward: Callable[[Node], bool]) -> bool:
    return variable.parent is not None and is_backward(variable.parent)


def _schedule(
    outputs: list[Variable],
    given: Callable[[Node, int], bool],
    is_backward: Callable[[Node], bool],
    effects: bool,
    timeline: Timeline,
) -> list[tuple[Node, int]]:
    """Return (node, epoch) in the order the nodes were made, as far as dependence allows.

    Their assignments are added to the timeline. Epoch 1 is the second computation of a
    ``recompute`` node, put right before its first use.
    """
    consumers: dict[tuple[Node, int], list[tuple[Node, int]]] = {}
    waiting: dict[tuple[Node, int], int] = {}
    rank: dict[tuple[Node, int], tuple[int, int]] = {}
    found: list[tuple[Node, int]] = []

    def need(variable: Variable | None, epoch: int) -> tuple[Node, int] | None:
        node = None if variable is None else variable.parent
        if node is None or variable is None:
            return None
        use = (node, 1 if epoch and node.recompute else 0)
        if not use[1] and given(node, variable._index):
            return None
        if use not in waiting:
            waiting[use] = 0
            found.append(use)
        return use

    for output in outputs:
        need(output, 1 if _reads_backward(output, is_backward) else 0)
    assignments: list[Effect] = []
    while found:
        node, epoch = found.pop()
        inner = 1 if epoch or is_backward(node) else 0
        for variable in node.inputs:
            if variable is not None:
                need(timeline.linked(variable, node.moment), inner)
        if (effects or is_backward(node)) and not epoch:
            assignments += node.effects
            for effect in node.effects:
                need(effect.value, 0)
    timeline.add(assignments)
    for use in waiting:
        node, epoch = use
        inner = 1 if epoch or is_backward(node) else 0
        sources = set()
        for variable in node.inputs:
            if variable is not None:
                seen = timeline.assigned(variable, node.moment)
                if seen is not variable:
                    sources.add(need(seen, 0))
                else:
                    sources.add(need(timeline.linked(variable, node.moment), inner))
        for source in sources - {None}:
            assert source is not None
            waiting[use] += 1
            consumers.setdefault(source, []).append(use)
    for node, epoch in waiting:
        rank[node, epoch] = (node.sequence, 0)
    _rank_recomputed(rank, consumers)
    uses = {(*rank[use], position): use for position, use in enumerate(waiting)}
    ready = [key for key, use in uses.items() if not waiting[use]]
    heapq.heapify(ready)
    keys = {use: key for key, use in uses.items()}
    order: list[tuple[Node, int]] = []
    while ready:
        use = uses[heapq.heappop(ready)]
        order.append(use)
        for consumer in consumers.get(use, ()):
            waiting[consumer] -= 1
            if not waiting[consumer]:
                heapq.heappush(ready, keys[consumer])
    return order


def _rank_recomputed(
    rank: dict[tuple[Node, int], tuple[int, int]],
    consumers: dict[tuple[Node, int], list[tuple[Node, int]]],
) -> None:
    """Schedule second computations just before the first backward node that needs them."""
    again = sorted((use for use in rank if use[1]), key=lambda use: -use[0].sequence)
    for use in again:
        first = min(rank[consumer] for consumer in consumers[use])
        rank[use] = (first[0], first[1] - 1)
