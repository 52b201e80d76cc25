"""The use of an operator in a graph, what it assigns besides, and what names it."""

from __future__ import annotations

import itertools
import math
import threading
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from nnl_core.errors import OperatorError
from nnl_core.graph.array import NdArray
from nnl_core.graph.calls import Call, Specs, find_call
from nnl_core.graph.modes import modes
from nnl_core.graph.spec import Spec
from nnl_core.graph.structure import Structure
from nnl_core.graph.variable import Variable

if TYPE_CHECKING:
    from nnl_core.graph.operator import Operator

_sequence = itertools.count()


class Effect(NamedTuple):
    """An assignment that happens whenever a node runs (running statistics, counters)."""

    target: Variable
    value: Variable
    moment: float
    """nodes of a later moment see it; infinite: none does before the next run"""


class Node:
    """One use of an operator: inputs, attributes and the storage of the outputs.

    ``sequence`` numbers nodes as they are made. ``moment`` is the same, but for nodes of a gradient
    rule it is that of the node whose gradient it is: they see variables as that node did.
    """

    __slots__ = (
        "__weakref__",
        "_handles",
        "call",
        "detached",
        "effects",
        "input_versions",
        "inputs",
        "moment",
        "name",
        "output_versions",
        "recompute",
        "sequence",
        "storages",
    )

    def __init__(self, call: Call, inputs: tuple[Variable | None, ...], name: str) -> None:
        self.call = call
        self.inputs = inputs
        self.name = name
        producer = weakref.ref(self)
        storages: list[NdArray] = []
        for spec in call.outputs:  # a dynamic graph makes many nodes: loops beat comprehensions
            storages.append(NdArray(spec, None, producer))
        self.storages = storages
        self.sequence = next(_sequence)
        moment = modes.moment
        self.moment = self.sequence if moment is None else moment
        self.detached = modes.no_grad
        self.recompute = modes.recompute
        self.effects: tuple[Effect, ...] = ()
        self.input_versions: tuple[int, ...] | None = None
        self.output_versions: tuple[int, ...] = ()
        self._handles: list[weakref.ref[Variable] | None] = [None] * len(storages)

    @property
    def operator(self) -> Operator:
        """What the node is a use of."""
        return self.call.operator

    @property
    def attributes(self) -> dict[str, Any]:
        """The operator's attributes; not to be changed: other nodes have the same."""
        return self.call.attributes

    @property
    def input_specs(self) -> Specs:
        """What the inputs were when the outputs were inferred."""
        return self.call.inputs

    @property
    def specs(self) -> tuple[Spec, ...]:
        """Shapes and dtypes of the outputs."""
        return self.call.outputs

    def output(self, index: int) -> Variable:
        """Return the variable that stands for one output."""
        handle = self._handles[index]
        variable = None if handle is None else handle()
        if variable is None:
            variable = Variable._of_node(self, index)
            self._handles[index] = weakref.ref(variable)
        return variable

    def represent(self, variable: Variable) -> None:
        """Let an output be represented by a variable that was made to stand for it."""
        self._handles[variable._index] = weakref.ref(variable)

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Variables of all outputs."""
        return tuple([self.output(index) for index in range(len(self.storages))])

    @property
    def need_grad(self) -> bool:
        """Whether a gradient flows through this node."""
        return not self.detached and any(v is not None and v.need_grad for v in self.inputs)

    def refresh_specs(self) -> None:
        """Infer the outputs again after an input's shape or dtype changed."""
        specs = tuple(None if v is None else v.spec for v in self.inputs)
        if specs == self.input_specs:
            return
        before = self.specs
        self.call = find_call(self.operator, specs, self.attributes, self.name)
        for index, spec in enumerate(self.specs):
            if spec != before[index]:
                self.storages[index] = NdArray(spec, producer=weakref.ref(self))

    def note_versions(self, overwritten: Iterable[int] = ()) -> None:
        """Remember which writes of the inputs this node's outputs were computed from.

        ``overwritten`` are positions of inputs whose value the same run has replaced. Outputs
        computed again from the same writes keep their version, as they are the same values.
        """
        # Every node of every run comes here: a loop is faster than a comprehension.
        found = []
        for variable in self.inputs:
            found.append(-1 if variable is None else variable._data.version)
        for position in overwritten:
            found[position] = -1
        versions = tuple(found)
        if versions == self.input_versions and not overwritten:
            for storage, version in zip(self.storages, self.output_versions, strict=True):
                storage.version = version
        self.input_versions = versions
        storages = self.storages
        if len(storages) == 1:
            self.output_versions = (storages[0].version,)
        else:
            self.output_versions = tuple([storage.version for storage in storages])

    def __repr__(self) -> str:
        return f"<Node {self.name} of {self.operator.name}>"


def add_effects(
    output: Variable, effects: Iterable[tuple[Variable, Variable]], *, at_end: bool = False
) -> None:
    """Assign ``target := value`` for each pair whenever ``output``'s node runs.

    Of one call, all values are computed from what the targets held before it. Nodes made later
    see what was assigned, in a dynamic graph and in a static one where both run; with ``at_end``
    only the next run does. In dynamic mode the assignments happen now.
    """
    node = output.parent
    if node is None:
        raise OperatorError("effects belong to a node, and this variable has none")
    moment = math.inf if at_end else next(_sequence)
    pairs = tuple(Effect(target, value, moment) for target, value in effects)
    node.effects += pairs
    if modes.auto_forward:
        values = [effect.value._ready_data().read().copy() for effect in pairs]
        for effect, value in zip(pairs, values, strict=True):
            effect.target._data.write(value)
    elif node.input_versions is not None:
        Structure.version += 1  # it is part of a plan


class _ScopeNames(threading.local):
    """Prefixes of the naming scopes that this thread is in, innermost last."""

    def __init__(self) -> None:
        self.stack = [""]


_scope_names = _ScopeNames()


def current_scope_name() -> str:
    """Return the prefix that names new nodes, such as ``conv1/``."""
    return _scope_names.stack[-1]


def push_scope_name(name: str) -> None:
    """Enter a naming scope (parameter scopes call this)."""
    _scope_names.stack.append(f"{current_scope_name()}{name}/")


def pop_scope_name() -> None:
    """Leave the innermost naming scope."""
    _scope_names.stack.pop()
