"""Plans of gradients: made from a graph, or after that of an equal graph."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from nnl_core.errors import GraphError
from nnl_core.graph.array import READY, ZERO, NdArray, Views
from nnl_core.graph.autodiff import flowing_nodes, gradient_table
from nnl_core.graph.backend import Backend
from nnl_core.graph.ir import FOLDABLE, Graph
from nnl_core.graph.lower import Lowered, lower
from nnl_core.graph.modes import auto_forward
from nnl_core.graph.node import Node
from nnl_core.graph.program import BoundProgram, Observer, Program
from nnl_core.graph.structure import topological
from nnl_core.graph.variable import Variable
from nnl_core.session import current_session

Read = tuple[Node, int]  # position of an input from 0, of an output from the end: -1, -2, ...
Place = tuple[int, int]  # (number of a node, index of an output), or (-1 - number of a leaf, 0)
Flow = list[tuple[Node, list[Variable | None], tuple[Any, ...]]]

SEED: Place = (-1, 1)  # what a gradient starts from
KEPT = 128  # patterns
KEPT_NODES = 1 << 16  # that they describe


class BackwardPlan(BoundProgram):
    """How the gradients of one variable are computed from what its forward pass kept.

    ``leaves`` have a storage each for a gradient that is added to what they hold. ``reads`` and
    ``given`` are what it takes of the forward pass; ``has_looked`` says that a gradient rule looked
    at elements, and so made it for these alone. ``program`` is that of an equal graph.
    """

    def __init__(
        self,
        lowered: Lowered,
        backend: Backend,
        *,
        seed: NdArray,
        leaves: list[tuple[Variable, NdArray]],
        reads: list[Read],
        given: list[NdArray],
        optimize: bool = True,
        program: Program | None = None,
    ) -> None:
        self.seed = seed
        self.leaves = leaves
        self.reads = reads
        self.given = given
        self.flow: Flow = []
        self.has_looked = False
        super().__init__(lowered, backend, optimize=optimize, program=program)

    @property
    def is_usable(self) -> bool:
        """Whether all that it takes from a forward pass is still there."""
        return all(storage.has_value for storage in self.given)

    def run(self, observer: Observer | None = None) -> None:
        """Compute all gradients and add those of leaves to what they hold."""
        added = []
        for position, (leaf, scratch) in enumerate(self.leaves):
            gradient = leaf.grad
            if gradient.state is ZERO:
                self.lowered.outputs[position] = gradient
            else:
                self.lowered.outputs[position] = scratch
                added.append((gradient, scratch))
        super().run(observer)
        for gradient, scratch in added:
            gradient.write(gradient.read() + scratch.read())


def plan_backward(
    root: Variable, backend: Backend, *, keep_intermediates: bool, optimize: bool
) -> BackwardPlan:
    """Return the plan of a variable's gradients.

    A dynamic graph is another one each time, and most of them are equal: only the first is
    differentiated.
    """
    session = current_session()
    if not optimize or session.events.node_created is not None:  # somebody looks at the nodes
        return _differentiate(
            root, backend, keep_intermediates=keep_intermediates, optimize=optimize
        )
    traced = TracedGraph(root)
    key = (traced.key, backend, keep_intermediates, session.graph_version)
    pattern = None if traced.key is None else _patterns.get(key)
    plan = None if pattern is None else pattern.plan(traced, backend)
    if plan is None:
        plan = _differentiate(root, backend, keep_intermediates=keep_intermediates, optimize=True)
        pattern = None if traced.key is None else Pattern.of(plan, traced)
        if pattern is not None:
            _keep(key, pattern)
    return plan


def _keep(key: tuple[object, ...], pattern: Pattern) -> None:
    with _patterns_lock:
        _patterns[key] = pattern
        held = sum(one.size for one in _patterns.values())
        while len(_patterns) > KEPT or held > KEPT_NODES:
            held -= _patterns.popitem(last=False)[1].size


def _differentiate(
    root: Variable, backend: Backend, *, keep_intermediates: bool, optimize: bool
) -> BackwardPlan:
    order = topological((root,))
    forward_nodes = set(order)
    seed = NdArray(root.spec)
    flow: Flow = []
    views = Views.count
    with auto_forward(False):
        table = gradient_table(
            (root,),
            (Variable.on(seed),),
            on_node=None if optimize else lambda *event: flow.append(event),
        )
    has_looked = Views.count != views
    leaves: list[tuple[Variable, NdArray]] = []
    outputs: list[tuple[Variable, NdArray]] = []
    kept: list[tuple[Variable, NdArray]] = []
    for (owner, index), gradient in table.items():
        if isinstance(owner, Variable):
            leaves.append((owner, NdArray(owner.spec)))
            outputs.append((gradient, leaves[-1][1]))
        elif owner is root.parent and index == root._index:
            continue
        elif keep_intermediates or owner.output(index).persistent:
            kept.append((gradient, owner.output(index).grad))
    if not leaves and not kept:
        check_wanted(root, order)
    lowered = lower(
        (*outputs, *kept),
        given=lambda node, index: (
            node in forward_nodes and node.storages[index].has_value and not node.recompute
        ),
        is_backward=lambda node: node not in forward_nodes,
        effects=False,
        root=root,
    )
    given = lowered.read_leaves()
    again = forward_nodes.intersection(lowered.nodes)
    plan = BackwardPlan(
        lowered,
        backend,
        seed=seed,
        leaves=leaves,
        reads=list(reads_of(flowing_nodes(order, None), again, given)),
        given=[s for node in order for s in node.storages if id(s) in given],
        optimize=optimize,
    )
    if optimize:
        # Nodes of the gradient lead back to the root; holding them would make a cycle.
        lowered.nodes, lowered.numbers = [], {}
    plan.flow, plan.has_looked = flow, has_looked
    return plan


def check_wanted(root: Variable, order: list[Node]) -> None:
    """Raise unless something needs a gradient, which is zero if only whole numbers depend on it."""
    wanted: set[Node | None] = set()
    for node in order:
        if not node.detached and any(
            v is not None and v._need_grad is not False and (v._need_grad or v.parent in wanted)
            for v in node.inputs
        ):
            wanted.add(node)
    if root.parent is not None and root.parent not in wanted:
        raise GraphError(
            f"nothing that {root.name or root.parent.name!r} depends on needs a gradient; set "
            "need_grad=True on a variable it is computed from"
        )


def reads_of(flowing: set[Node], again: set[Node], given: set[int]) -> Iterator[Read]:
    """Yield what gradients read of a forward pass, where its storage is among those ``given``.

    A node that is computed ``again`` reads all of its inputs.
    """
    for node in flowing | again:
        saved = node.operator.save
        for position, variable in enumerate(node.inputs):
            if variable is not None and id(variable._data) in given:
                if node in again or node.operator.input_name(position) in saved:
                    yield node, position
        for index, storage in enumerate(node.storages):
            if id(storage) in given and node.operator.output_name(index) in saved:
                yield node, index - len(node.storages)


# Equal graphs ------------------------------------------------------------------------------------


class TracedGraph:
    """What a variable is computed by, nodes and leaves numbered in an order of the structure alone.

    ``key`` is the same for graphs whose gradients are computed alike: of the same calls, linked
    in the same way, with the same needs of gradients and small constants. It is ``None`` where
    that is not all there is to it: results that are not there, or computed again, leaves that share
    storage or were made of results, calls that nobody keeps; or of a graph too large to keep.
    """

    def __init__(self, root: Variable) -> None:
        self.root = root
        self.nodes = topological((root,))
        self.leaves: list[Variable] = []
        self.numbers: dict[Node | Variable, int] = {}
        self.key = self._describe() if len(self.nodes) <= KEPT_NODES else None

    def _describe(self) -> tuple[object, ...] | None:
        parts: list[object] = [self.root._index]
        numbers = self.numbers
        storages: set[int] = set()
        for number, node in enumerate(self.nodes):
            call = node.call
            if node.recompute or not call.is_kept:
                return None
            parts.append(call)
            parts.append(node.detached)
            for variable, spec in zip(node.inputs, call.inputs, strict=True):
                if variable is None:
                    continue
                source = variable.parent
                if source is not None:
                    if source.output(variable._index) is not variable:
                        return None  # another stands for the output, too
                    parts.append((numbers[source], variable._index))
                    parts.append((variable._need_grad, variable._persistent))
                    continue
                known = numbers.get(variable)
                if known is None:
                    storage = variable._storage
                    if storage.producer is not None or id(storage) in storages:
                        return None
                    storages.add(id(storage))
                    known = numbers[variable] = -1 - len(self.leaves)
                    self.leaves.append(variable)
                    parts.append((variable._need_grad, variable.is_steady, variable.is_constant))
                    if variable.is_constant and variable.size <= FOLDABLE:
                        parts.append(storage.read().tobytes())
                if variable._storage.spec != spec:
                    return None
                parts.append(known)
            for storage in node.storages:
                if storage.state is not READY:
                    return None
            numbers[node] = number
        return tuple(parts)

    def storage(self, place: Place) -> NdArray:
        """Return what is at a place."""
        number, index = place
        return (
            self.leaves[-1 - number]._storage if number < 0 else self.nodes[number].storages[index]
        )


class Pattern:
    """What plans of equal graphs have in common; it holds none of them."""

    def __init__(self, graph: Graph, program: Program, size: int) -> None:
        self.graph = graph
        self.size = size
        self.program = weakref.ref(program)  # the cache of programs decides how long they are kept
        self.inputs: list[Place] = []
        self.leaves: list[int] = []
        self.kept: list[Place] = []
        self.reads: list[tuple[int, int]] = []
        self.given: list[Place] = []

    @classmethod
    def of(cls, plan: BackwardPlan, traced: TracedGraph) -> Pattern | None:
        """Describe a plan; ``None`` where it reads or writes something outside its graph."""
        lowered = plan.lowered
        if lowered.graph.updates or plan.has_looked:
            return None
        places: dict[int, Place] = {id(plan.seed): SEED}
        gradients: dict[int, Place] = {}
        for number, node in enumerate(traced.nodes):
            for index, storage in enumerate(node.storages):
                places[id(storage)] = number, index
                gradient = node.output(index)._grad
                if gradient is not None:
                    gradients[id(gradient)] = number, index
        for number, leaf in enumerate(traced.leaves):
            places[id(leaf._storage)] = -1 - number, 0
        try:
            pattern = cls(lowered.graph, plan.program, len(traced.nodes))
            pattern.inputs = [places[id(storage)] for storage in lowered.leaves]
            pattern.leaves = [traced.numbers[leaf] for leaf, _ in plan.leaves]
            pattern.kept = [gradients[id(s)] for s in lowered.outputs[len(plan.leaves) :]]
            pattern.reads = [(traced.numbers[node], position) for node, position in plan.reads]
            pattern.given = [places[id(storage)] for storage in plan.given]
        except (KeyError, TypeError):  # elsewhere, or a program that cannot be referred to weakly
            return None
        return pattern

    def plan(self, traced: TracedGraph, backend: Backend) -> BackwardPlan | None:
        """Return the plan of an equal graph, or ``None`` where one has to be made."""
        program = self.program()
        if program is None:
            return None
        nodes = traced.nodes
        lowered = Lowered(self.graph)
        leaves = []
        for number in self.leaves:
            leaf = traced.leaves[-1 - number]
            leaves.append((leaf, NdArray(leaf._storage.spec)))
        outputs = [scratch for _, scratch in leaves]
        for number, index in self.kept:
            variable = nodes[number].output(index)
            if variable._grad is not None:
                return None  # which may be in memory that the program reads
            outputs.append(variable.grad)
        seed = NdArray(traced.root.spec)
        lowered.leaves = [seed if place is SEED else traced.storage(place) for place in self.inputs]
        lowered.outputs = outputs
        return BackwardPlan(
            lowered,
            backend,
            seed=seed,
            leaves=leaves,
            reads=[(nodes[number], position) for number, position in self.reads],
            given=[traced.storage(place) for place in self.given],
            program=program,
        )


_patterns: OrderedDict[tuple[object, ...], Pattern] = OrderedDict()
_patterns_lock = threading.Lock()
