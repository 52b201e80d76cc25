"""Telling listeners about nodes while a program runs them one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nnl_core.graph.backend import Buffer
from nnl_core.graph.ir import Instruction
from nnl_core.graph.lower import Lowered
from nnl_core.graph.node import Node
from nnl_core.graph.program import Observer
from nnl_core.graph.variable import Variable
from nnl_core.session import current_session

NodeHook = Callable[[Node], None]
Flow = list[tuple[Node, list[Variable | None], tuple[Any, ...]]]


def forward_observer(
    pre_hook: NodeHook | None, post_hook: NodeHook | None
) -> Callable[[Lowered], Observer] | None:
    """Return what reports nodes of a forward pass, or ``None`` where nobody listens."""
    events = current_session().events
    on_start, on_end = events.node_forward_start, events.node_forward_end
    if on_start is None and on_end is None and pre_hook is None and post_hook is None:
        return None
    from nnl_core.hooks.events import NodeForwardEnd, NodeForwardStart

    def bind(lowered: Lowered) -> Observer:
        def observe(
            instruction: Instruction,
            inputs: Sequence[Buffer | None],
            outputs: Sequence[Buffer] | None,
        ) -> None:
            node = lowered.nodes[instruction.source]
            if outputs is None:
                if pre_hook is not None:
                    pre_hook(node)
                if on_start is not None:
                    on_start(NodeForwardStart(node, inputs))
            else:
                if post_hook is not None:
                    post_hook(node)
                if on_end is not None:
                    on_end(NodeForwardEnd(node, inputs, outputs))

        return observe

    return bind


def backward_observer(
    pre_hook: NodeHook | None, post_hook: NodeHook | None
) -> Callable[[Lowered, Flow], tuple[Observer, Callable[[], None]]] | None:
    """Return what reports the forward nodes in the order gradients pass them, or ``None``.

    Bound to a graph, it gives an observer of the run and a function to call after it.
    """
    events = current_session().events
    on_start, on_end = events.node_backward_start, events.node_backward_end
    if on_start is None and on_end is None and pre_hook is None and post_hook is None:
        return None
    from nnl_core.hooks.events import NodeBackwardEnd, NodeBackwardStart

    def bind(lowered: Lowered, flow: Flow) -> tuple[Observer, Callable[[], None]]:
        values: dict[int, Buffer] = {}
        for variable_number, leaf in zip(lowered.graph.leaves, lowered.leaves, strict=True):
            values[variable_number] = leaf.read()
        owner = _owners(lowered, flow)
        begun = 0  # how many nodes of the flow were announced; the latest may still be open

        def value(variable: Any) -> Buffer | None:
            if not isinstance(variable, Variable):
                return None
            if variable.parent is None:
                return variable._data.read()
            number = lowered.numbers.get((variable.parent, variable._index, 0))
            return None if number is None else values.get(number)

        def start() -> None:
            node, received, _ = flow[begun]
            if pre_hook is not None:
                pre_hook(node)
            if on_start is not None:
                on_start(NodeBackwardStart(node, [*map(value, received)]))

        def end() -> None:
            node, received, passed_on = flow[begun - 1]
            if post_hook is not None:
                post_hook(node)
            if on_end is not None:
                on_end(NodeBackwardEnd(node, [*map(value, received)], [*map(value, passed_on)]))

        def advance(count: int) -> None:
            nonlocal begun
            while begun < count:
                if begun:
                    end()
                start()
                begun += 1

        def observe(
            instruction: Instruction,
            inputs: Sequence[Buffer | None],
            outputs: Sequence[Buffer] | None,
        ) -> None:
            if outputs is None:
                advance(owner[instruction.source] + 1)
                return
            values.update(zip(instruction.outputs, outputs, strict=True))

        def finish() -> None:
            advance(len(flow))
            if flow:
                end()

        return observe, finish

    return bind


def _owners(lowered: Lowered, flow: Flow) -> list[int]:
    """Return for each lowered node the position in ``flow`` whose gradient rule made it, or -1."""
    made: dict[Node, int] = {}
    for position, (_, received, passed_on) in enumerate(flow):
        known = {variable.parent for variable in received if variable is not None}
        stack = [v.parent for v in passed_on if isinstance(v, Variable) and v.parent]
        while stack:
            node = stack.pop()
            if node in made or node in known:
                continue
            made[node] = position
            stack.extend(v.parent for v in node.inputs if v is not None and v.parent)
    return [made.get(node, -1) for node in lowered.nodes]
