"""Gradients as graph: reverse-mode differentiation that makes nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nnl_core.errors import GraphError, NnlError, OperatorError, ShapeError, UnsavedValueError
from nnl_core.graph.dtypes import DEFAULT_DTYPE, is_floating, is_half
from nnl_core.graph.modes import at_moment, auto_forward, mixed_precision, modes, no_grad
from nnl_core.graph.modes import recompute as recompute_scope
from nnl_core.graph.node import Node
from nnl_core.graph.spec import Spec
from nnl_core.graph.structure import topological
from nnl_core.graph.variable import Variable, functions

if TYPE_CHECKING:
    import numpy.typing as npt

Key = tuple[Node | Variable, int]  # an output of a node, or a leaf


def key_of(variable: Variable) -> Key:
    """Return what identifies a value in a graph, whichever variable stands for it."""
    return (variable, 0) if variable.parent is None else (variable.parent, variable._index)


def grad(
    outputs: Variable | Sequence[Variable],
    inputs: Variable | Sequence[Variable],
    grad_outputs: Any = None,
    *,
    allow_unused: bool = False,
) -> list[Variable]:
    """Return the gradients of the outputs' sum with respect to each input, as variables.

    They are part of the graph: they can be run, combined, and differentiated again, to any order
    that the operators on the way allow.

    Parameters
    ----------
    outputs, inputs
        a variable, or several
    grad_outputs
        what the gradient starts from: ``None`` for ones, or an array, number or variable
        for each output
    allow_unused
        whether an input that no output depends on has gradient zero instead of raising

    Raises `GraphError` for an unused input, `NotDifferentiableError` where an operator on the way
    has no gradient, and in a dynamic graph `StaleValueError` where a needed value was overwritten.
    """
    ends = [outputs] if isinstance(outputs, Variable) else list(outputs)
    starts = [inputs] if isinstance(inputs, Variable) else list(inputs)
    dynamic = modes.auto_forward
    with auto_forward(False):
        seeds = _seeds(ends, grad_outputs)
        wanted = {key_of(start) for start in starts}
        table = gradient_table(ends, seeds, wanted)
        result = []
        for position, start in enumerate(starts):
            gradient = table.get(key_of(start))
            if gradient is None:
                if not allow_unused:
                    label = start.name or f"of shape {start.shape}"
                    raise GraphError(
                        f"input {position} ({label}) does not influence the outputs; pass "
                        "allow_unused=True to get zeros for it"
                    )
                gradient = Variable.constant(np.zeros(start.shape, start.dtype))
            result.append(gradient)
    if dynamic:
        from nnl_core.graph.execute import run_gradients

        run_gradients(ends, wanted, result)
    return result


def _seeds(outputs: list[Variable], given: Any) -> list[Variable]:
    if given is None:
        given = [None] * len(outputs)
    elif isinstance(given, (Variable, np.ndarray, int, float)):
        given = [given]
    if len(given) != len(outputs):
        raise GraphError(f"{len(given)} grad_outputs were given for {len(outputs)} outputs")
    return [
        ones_like(y) if g is None else _as_gradient(g, y)
        for g, y in zip(given, outputs, strict=True)
    ]


def ones_like(variable: Variable) -> Variable:
    """Return ones of the variable's shape and dtype."""
    one = Variable.constant(np.ones((), variable.dtype))
    result: Variable = functions().broadcast_to(one, variable.shape)
    return result


def _as_gradient(value: Variable | npt.ArrayLike, output: Variable) -> Variable:
    if isinstance(value, Variable):
        if value.shape != output.shape:
            raise ShapeError(
                f"a gradient of shape {value.shape} was given for an output of {output.shape}"
            )
        return value
    return Variable.constant(np.broadcast_to(np.asarray(value, output.dtype), output.shape))


def gradient_table(
    outputs: Sequence[Variable],
    seeds: Sequence[Variable],
    wanted: set[Key] | None = None,
    on_node: Callable[[Node, list[Variable | None], tuple[Any, ...]], None] | None = None,
) -> dict[Key, Variable]:
    """Return the gradient of every value between the outputs and the wanted values.

    ``wanted=None`` means everything that needs a gradient. Nodes are made on the way, consumers
    first, and ``on_node`` is told each node with its output and input gradients; nothing runs.
    """
    order = topological(outputs)
    flows = flowing_nodes(order, wanted)
    table: dict[Key, Variable] = {}
    for output, seed in zip(outputs, seeds, strict=True):
        key = key_of(output)
        if output.parent is None:
            if wanted is None or key in wanted:
                _accumulate(table, key, seed)
        elif output.parent in flows or (wanted is not None and key in wanted):
            _accumulate(table, key, seed)
    with recompute_scope(False), no_grad(False), mixed_precision(None):
        for node in reversed(order):
            if node not in flows:
                continue
            gradients = [table.get((node, index)) for index in range(len(node.specs))]
            if all(gradient is None for gradient in gradients):
                continue
            with at_moment(node.moment):
                passed_on = _call_vjp(node, gradients)
            if on_node is not None:
                on_node(node, gradients, passed_on)
            for variable, gradient in zip(node.inputs, passed_on, strict=True):
                if gradient is None or variable is None:
                    continue
                if variable._need_grad is False and (
                    wanted is None or key_of(variable) not in wanted
                ):
                    continue
                if gradient.shape != variable.shape:
                    raise OperatorError(
                        f"the vjp of {node.operator.name!r} gave a gradient of shape "
                        f"{gradient.shape} for an input of shape {variable.shape}"
                    )
                if not _wants(variable, flows, wanted):
                    continue
                _accumulate(table, key_of(variable), gradient)
    return table


def flowing_nodes(order: list[Node], wanted: set[Key] | None) -> set[Node]:
    """Return the nodes of a topological order through which a gradient must flow."""
    flows: set[Node] = set()
    for node in order:
        if node.detached:
            continue
        if any(v is not None and _wants(v, flows, wanted) for v in node.inputs):
            flows.add(node)
    return flows


def _wants(variable: Variable, flows: set[Node], wanted: set[Key] | None) -> bool:
    if wanted is not None and key_of(variable) in wanted:
        return True
    if variable._need_grad is False or not is_floating(variable.dtype):
        return False
    if variable.parent is not None:
        return variable.parent in flows or (wanted is None and bool(variable._need_grad))
    return wanted is None and bool(variable._need_grad)


def _call_vjp(node: Node, gradients: list[Variable | None]) -> tuple[Any, ...]:
    """Return the gradients of a node's inputs, in the inputs' dtypes.

    The rule of an operator that needs full precision never computes in half.
    """
    operator = node.operator
    found = {
        spec.dtype for spec in node.input_specs if spec is not None and is_floating(spec.dtype)
    }
    full = operator.precision == "full" and any(map(is_half, found))
    inputs: tuple[Any, ...] = tuple(
        None if v is None else v if operator.input_name(i) in operator.save else v.spec
        for i, v in enumerate(node.inputs)
    )
    outputs: tuple[Any, ...] = tuple(
        node.output(i) if operator.output_name(i) in operator.save else spec
        for i, spec in enumerate(node.specs)
    )
    if full:
        inputs, outputs = tuple(map(_in_full, inputs)), tuple(map(_in_full, outputs))
        gradients = [_in_full(gradient) for gradient in gradients]
    single = len(outputs) == 1
    try:
        results = operator.call_vjp(
            gradients[0] if single else tuple(gradients),
            outputs[0] if single else outputs,
            inputs,
            node.attributes,
        )
        if not full and len(found) < 2:
            return results
        return tuple(
            g
            if g is None or spec is None or g.dtype == spec.dtype
            else functions().cast(g, spec.dtype)
            for g, spec in zip(results, node.input_specs, strict=True)
        )
    except UnsavedValueError:
        raise UnsavedValueError(
            f"operator {operator.name}: its gradient rule uses a value that is not saved; add its "
            "name to save= in the defop"
        ) from None
    except NnlError as error:
        error.add_note(f"in the gradient of {node.name!r} ({operator.name})")
        raise


def _in_full(value: Any) -> Any:
    """Cast a variable of half precision, or its spec, to ``float32``."""
    if value is None or not is_half(value.dtype):
        return value
    if isinstance(value, Spec):
        return value.with_dtype(DEFAULT_DTYPE)
    return functions().cast(value, DEFAULT_DTYPE)


def _accumulate(table: dict[Key, Variable], key: Key, gradient: Variable) -> None:
    known = table.get(key)
    table[key] = gradient if known is None else functions().add(known, gradient)
