"""The structure of graphs that exist: which node depends on which, and how often that changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from nnl_core.errors import OperatorError

if TYPE_CHECKING:
    from nnl_core.graph.node import Node
    from nnl_core.graph.variable import Variable


class Structure:
    """Counts changes to existing graphs, so that cached plans know when to look again.

    Making a node does not count: it changes no graph that was planned before.
    """

    version = 0


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
