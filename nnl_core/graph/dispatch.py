"""What calling an operator does: it makes a node, and runs it where the graph is dynamic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nnl_core.errors import OperatorError
from nnl_core.graph.backend import Buffer, current_backend
from nnl_core.graph.calls import find_call
from nnl_core.graph.checks import as_array
from nnl_core.graph.dtypes import DEFAULT_DTYPE, is_floating, is_real
from nnl_core.graph.modes import modes
from nnl_core.graph.node import Node, current_scope_name
from nnl_core.graph.spec import Spec, promote_scalar
from nnl_core.graph.variable import Variable, functions, refuse_variables_in
from nnl_core.session import current_session

if TYPE_CHECKING:
    from nnl_core.graph.operator import Operator


def apply(operator: Operator, inputs: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """Make a node of ``operator`` and return its output variable, or a tuple of them.

    Arrays and Python scalars among the inputs become constants; a scalar takes the dtype that the
    first variable gives it. Attributes that have a default may be missing.
    """
    # Dynamic graphs come here for each operator: what is usual has the shortest way.
    variables = _as_variables(operator, inputs)
    if modes.half is not None:
        variables = _at_precision(operator, variables, modes.half)
    specs: list[Spec | None] = []
    for variable in variables:
        specs.append(None if variable is None else variable._data.spec)
    name = current_scope_name() + operator.__name__
    call = find_call(operator, tuple(specs), attributes, name)
    node = Node(call, variables, name)
    on_created = current_session().events.node_created
    if on_created is not None:
        from nnl_core.hooks.events import NodeCreated

        on_created(NodeCreated(node))
    if modes.auto_forward:
        run_node(node)
    return node.output(0) if len(call.outputs) == 1 else node.outputs


def _at_precision(
    operator: Operator, variables: tuple[Variable | None, ...], half: np.dtype
) -> tuple[Variable | None, ...]:
    """Cast floating inputs to what the operator computes in under mixed precision."""
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


def _as_variables(operator: Operator, inputs: tuple[Any, ...]) -> tuple[Variable | None, ...]:
    parameters = operator.parameters
    if len(inputs) == len(parameters.inputs):
        for value in inputs:
            if not isinstance(value, Variable):
                break
        else:
            return inputs
    elif parameters.variadic is None:
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
        if isinstance(value, Variable):
            result.append(value)
        elif value is None:
            if position < len(parameters.inputs):
                if parameters.inputs[position] not in parameters.optional:
                    raise OperatorError(
                        f"operator {operator.name!r}: input {parameters.inputs[position]!r} is None"
                    )
            result.append(None)
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
    """Run one node now on the current backend, inputs permitting."""
    backend = current_backend()
    inputs: list[Buffer | None] = []
    for variable in node.inputs:
        inputs.append(None if variable is None else variable._ready_data().buffer(backend))
    session = current_session()
    events = session.events
    if events.node_forward_start is not None:
        from nnl_core.hooks.events import NodeForwardStart

        events.node_forward_start(NodeForwardStart(node, inputs))
    outputs = node.call.bound_to(backend, session.graph_version)(inputs)
    if len(node.storages) == 1:
        node.storages[0].adopt_buffer(backend, outputs[0])
    else:
        for storage, output in zip(node.storages, outputs, strict=True):
            storage.adopt_buffer(backend, output)
    node.note_versions()
    if events.node_forward_end is not None:
        from nnl_core.hooks.events import NodeForwardEnd

        events.node_forward_end(NodeForwardEnd(node, inputs, outputs))
