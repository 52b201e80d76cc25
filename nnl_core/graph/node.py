"""The use of an operator in a graph, and how calling an operator makes one."""

from __future__ import annotations

import itertools
import math
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.array import NdArray
from nnl_core.graph.backend import current_backend
from nnl_core.graph.checks import as_array
from nnl_core.graph.dtypes import DEFAULT_DTYPE, is_floating, is_real
from nnl_core.graph.modes import modes
from nnl_core.graph.spec import Spec, promote_scalar
from nnl_core.session import current_session

if TYPE_CHECKING:
    from nnl_core.graph.operator import Operator
    from nnl_core.graph.variable import Variable

_sequence = itertools.count()


class Structure:
    """Counts changes to existing graphs, so that cached plans know when to look again.

    Making a node does not count: it changes no graph that was planned before.
    """

    version = 0


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
        "attributes",
        "detached",
        "effects",
        "input_specs",
        "input_versions",
        "inputs",
        "moment",
        "name",
        "operator",
        "output_versions",
        "recompute",
        "sequence",
        "specs",
        "storages",
    )

    def __init__(
        self,
        operator: Operator,
        inputs: tuple[Variable | None, ...],
        attributes: dict[str, Any],
        specs: tuple[Spec, ...],
        name: str,
    ) -> None:
        self.operator = operator
        self.inputs = inputs
        self.attributes = attributes
        self.input_specs = tuple(None if v is None else v.spec for v in inputs)
        self.specs = specs
        self.name = name
        self.storages = [self._make_storage(spec) for spec in specs]
        self.sequence = next(_sequence)
        self.moment = self.sequence if modes.moment is None else modes.moment
        self.detached = modes.no_grad
        self.recompute = modes.recompute
        self.effects: tuple[Effect, ...] = ()
        self.input_versions: tuple[int, ...] | None = None
        self.output_versions: tuple[int, ...] = ()
        self._handles: list[weakref.ref[Variable] | None] = [None] * len(specs)

    def _make_storage(self, spec: Spec) -> NdArray:
        storage = NdArray(spec)
        storage.producer = weakref.ref(self)
        return storage

    def output(self, index: int) -> Variable:
        """Return the variable that stands for one output."""
        handle = self._handles[index]
        variable = handle() if handle is not None else None
        if variable is None:
            from nnl_core.graph.variable import Variable

            variable = Variable._of_node(self, index)
            self._handles[index] = weakref.ref(variable)
        return variable

    def represent(self, variable: Variable) -> None:
        """Let an output be represented by a variable that was made to stand for it."""
        self._handles[variable._index] = weakref.ref(variable)

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Variables of all outputs."""
        return tuple(self.output(index) for index in range(len(self.specs)))

    @property
    def need_grad(self) -> bool:
        """Whether a gradient flows through this node."""
        return not self.detached and any(v is not None and v.need_grad for v in self.inputs)

    def refresh_specs(self) -> None:
        """Infer the outputs again after an input's shape or dtype changed."""
        specs = tuple(None if v is None else v.spec for v in self.inputs)
        if specs == self.input_specs:
            return
        outputs = infer(self.operator, specs, self.attributes, self.name)
        self.input_specs = specs
        for index, spec in enumerate(outputs):
            if spec != self.specs[index]:
                self.storages[index] = self._make_storage(spec)
        self.specs = outputs

    def note_versions(self, overwritten: Iterable[int] = ()) -> None:
        """Remember which writes of the inputs this node's outputs were computed from.

        ``overwritten`` are positions of inputs whose value the same run has replaced. Outputs
        computed again from the same writes keep their version, as they are the same values.
        """
        # Every node of every run comes here: lists are built faster than generators are run.
        found = [-1 if v is None else v._data.version for v in self.inputs]
        for position in overwritten:
            found[position] = -1
        versions = tuple(found)
        if versions == self.input_versions and not overwritten:
            for storage, version in zip(self.storages, self.output_versions, strict=True):
                storage.version = version
        self.input_versions = versions
        self.output_versions = tuple([storage.version for storage in self.storages])

    def __repr__(self) -> str:
        return f"<Node {self.name} of {self.operator.name}>"


def infer(
    operator: Operator, specs: Sequence[Spec | None], attributes: dict[str, Any], name: str
) -> tuple[Spec, ...]:
    """Infer output specs, naming operator and node in the error."""
    try:
        return operator.infer_specs(specs, attributes)
    except ShapeError as error:
        label = operator.__name__ if name == operator.__name__ else f"{operator.__name__} {name!r}"
        raise ShapeError(f"{label}: {error}") from None


def apply(operator: Operator, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Make a node of ``operator`` and return its output variable, or a tuple of them.

    Arrays and Python scalars among the inputs become constants; a scalar takes the dtype that the
    first variable gives it.
    """
    variables = _as_variables(operator, inputs)
    if operator.expression is not None:
        for key, value in attributes.items():
            number = isinstance(value, (int, float, np.number, np.bool_))
            if not number and key in operator.expression:
                raise OperatorError(
                    f"operator {operator.name!r}: {key}={value!r} is not a number; give a Python "
                    "number"
                )
    if modes.half is not None:
        variables = _at_precision(operator, variables, modes.half)
    specs = [None if v is None else v.spec for v in variables]
    name = current_scope_name() + operator.__name__
    node = Node(operator, variables, attributes, infer(operator, specs, attributes, name), name)
    on_created = current_session().events.node_created
    if on_created is not None:
        from nnl_core.hooks.events import NodeCreated

        on_created(NodeCreated(node))
    if modes.auto_forward:
        run_node(node)
    outputs = node.outputs
    return outputs[0] if len(outputs) == 1 else outputs


def _at_precision(
    operator: Operator, variables: tuple[Variable | None, ...], half: np.dtype
) -> tuple[Variable | None, ...]:
    """Cast floating inputs to what the operator computes in under mixed precision."""
    from nnl_core.graph.variable import functions

    if operator.precision == "operands" or any(
        v is not None and v.dtype == np.float64 for v in variables
    ):
        return variables
    wanted = half if operator.precision == "half" else DEFAULT_DTYPE
    return tuple(
        v
        if v is None or v.dtype == wanted or not is_floating(v.dtype)
        else functions().cast(v, wanted)
        for v in variables
    )


def _as_variables(operator: Operator, inputs: Sequence[Any]) -> tuple[Variable | None, ...]:
    from nnl_core.graph.variable import Variable, refuse_variables_in

    parameters = operator.parameters
    if parameters.variadic is None:
        missing = len(parameters.inputs) - len(inputs)
        absent = parameters.inputs[len(inputs) :]
        if missing < 0 or not parameters.optional.issuperset(absent):
            raise OperatorError(
                f"operator {operator.name!r} takes inputs {', '.join(parameters.inputs)} and was "
                f"given {len(inputs)}"
            )
        inputs = (*inputs, *(None for _ in absent))
    result: list[Variable | None] = []
    for position, value in enumerate(inputs):
        if value is None:
            if position < len(parameters.inputs):
                if parameters.inputs[position] not in parameters.optional:
                    raise OperatorError(
                        f"operator {operator.name!r}: input {parameters.inputs[position]!r} is None"
                    )
            result.append(None)
        elif isinstance(value, Variable):
            result.append(value)
        elif isinstance(value, (bool, int, float)):
            first = next((v for v in inputs if isinstance(v, Variable)), None)
            dtype = np.dtype(np.float32) if first is None else first.spec.dtype
            result.append(Variable.constant(np.asarray(value, promote_scalar(dtype, value))))
        elif isinstance(value, Spec):
            result.append(Variable.constant(value))  # raises, saying what to do
        else:
            refuse_variables_in(value)
            array = as_array(value)
            if not is_real(array.dtype):
                raise OperatorError(
                    f"operator {operator.name!r}: input {position} is a {type(value).__name__}; "
                    "give a Variable, an array or a number"
                )
            result.append(Variable.constant(array))
    return tuple(result)


def run_node(node: Node) -> None:
    """Run one node now on the current backend, inputs permitting, and apply its effects."""
    backend = current_backend()
    inputs = [
        None if variable is None else variable._ready_data().buffer(backend)
        for variable in node.inputs
    ]
    events = current_session().events
    if events.node_forward_start is not None:
        from nnl_core.hooks.events import NodeForwardStart

        events.node_forward_start(NodeForwardStart(node, inputs))
    outputs = backend.run(node.operator, inputs, node.attributes, node.specs)
    for storage, output in zip(node.storages, outputs, strict=True):
        storage.adopt_buffer(backend, output)
    node.note_versions()
    if events.node_forward_end is not None:
        from nnl_core.hooks.events import NodeForwardEnd

        events.node_forward_end(NodeForwardEnd(node, inputs, outputs))


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


def topological(outputs: Iterable[Variable]) -> list[Node]:
    """Return the nodes that the variables depend on, producers before consumers."""
    order: list[Node] = []
    state: dict[Node, bool] = {}
    for output in outputs:
        if output.parent is None or output.parent in state:
            continue
        stack: list[tuple[Node, Iterator[Any]]] = [(output.parent, iter(output.parent.inputs))]
        state[output.parent] = False
        while stack:
            node, pending = stack[-1]
            for variable in pending:
                parent = None if variable is None else variable.parent
                if parent is None:
                    continue
                if parent not in state:
                    state[parent] = False
                    stack.append((parent, iter(parent.inputs)))
                    break
                if not state[parent]:
                    raise OperatorError(f"the graph has a cycle through {parent.name!r}")
            else:
                stack.pop()
                state[node] = True
                order.append(node)
    return order


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
