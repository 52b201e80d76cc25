"""What a hook that nobody listens to costs the code that announces it."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import Any

import numpy as np
import numpy.typing as npt
import pluggy

import nnl_core as nnl
from benchmarks.report import Report
from benchmarks.timing import TIMING_COLUMNS, interleave, timer, timing_row
from nnl_core import functions as F
from nnl_core.graph import execute
from nnl_core.hooks import EventTable, NodeForwardEnd, NodeForwardStart

Array = npt.NDArray[np.float32]

CHAIN = 20  # products of (32, 64) with (64, 64): small enough for a cost around each to show
DESCRIPTIONS = {
    "plain": "no hook at all",
    "guarded": "two hooks around each product, read from EventTable: nobody listens",
    "pluggy": "the same two hooks called through pluggy alone: no plugin registered",
    "one listener": "as guarded, with one listener for each hook",
    "graph, unhooked": "the same products as a static graph, its look for listeners taken out",
    "graph": "the same graph as it is: y.forward() with nobody listening",
    "graph, one listener": "the same graph with one listener for each hook: nodes run one by one",
}


def run(rounds: int) -> Report:
    """Time a chain of small products, bare and as a graph, with and without hooks around each."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((32, 64), np.float32)
    scale = np.float32(1 / 8)
    weights = [scale * generator.standard_normal((64, 64), np.float32) for _ in range(CHAIN)]
    cases: dict[str, Callable[[], Array]] = {
        "plain": lambda: plain(x, weights),
        "guarded": lambda: guarded(x, weights, nobody),
        "pluggy": lambda: through_pluggy(x, weights, relay),
        "one listener": lambda: guarded(x, weights, somebody),
        **graph_cases(x, weights),
    }
    nobody = EventTable()
    somebody = EventTable()
    somebody.node_forward_start = somebody.node_forward_end = ignore
    relay = pluggy_relay()

    expected = plain(x, weights)
    for name, call in cases.items():
        if not np.array_equal(call(), expected):
            raise AssertionError(f"case {name!r} computes something else than 'plain'")
    timers = {name: timer(call, thread_time) for name, call in cases.items()}
    samples = interleave(timers, rounds=10 * rounds, sample_seconds=0.002)
    rows = [
        timing_row(
            name,
            samples,
            baseline="graph, unhooked" if name.startswith("graph") else "plain",
            description=DESCRIPTIONS[name],
        )
        for name in cases
    ]
    notes = [
        f"A chain of {CHAIN} products (32, 64) @ (64, 64); pluggy {pluggy.__version__}.",
        "The ratios of the graph are to the graph without hooks. CPU time of one thread.",
    ]
    return Report("Hooks in a hot loop", TIMING_COLUMNS, rows, notes)


def plain(x: Array, weights: list[Array]) -> Array:
    """Multiply along the chain."""
    for weight in weights:
        y = x @ weight
        x = y
    return x


def guarded(x: Array, weights: list[Array], events: EventTable) -> Array:
    """Multiply along the chain, announcing each product as the graph's own loop does."""
    on_start = events.node_forward_start
    on_end = events.node_forward_end
    for weight in weights:
        if on_start is not None:
            on_start(NodeForwardStart(NODE, (x, weight)))
        y = x @ weight
        if on_end is not None:
            on_end(NodeForwardEnd(NODE, (x, weight), (y,)))
        x = y
    return x


def through_pluggy(x: Array, weights: list[Array], relay: Any) -> Array:
    """Multiply along the chain, announcing each product with two ordinary pluggy calls."""
    for weight in weights:
        relay.node_forward_start(node=NODE, inputs=(x, weight))
        y = x @ weight
        relay.node_forward_end(node=NODE, inputs=(x, weight), outputs=(y,))
        x = y
    return x


def graph_cases(x: Array, weights: list[Array]) -> dict[str, Callable[[], Array]]:
    """Return the chain as a static graph: without a look for listeners, with it, with listeners."""
    y = nnl.Variable.from_numpy_array(x)
    for weight in weights:
        y = F.affine(y, nnl.Variable.from_numpy_array(weight))
    events = nnl.current_session().events
    names = vars(execute)
    look = names["forward_observer"]

    def forward() -> Array:
        y.forward(clear_buffer=True)
        return y.d

    def unhooked() -> Array:
        names["forward_observer"] = lambda pre_hook, post_hook: None
        try:
            return forward()
        finally:
            names["forward_observer"] = look

    def with_listener() -> Array:
        events.node_forward_start = events.node_forward_end = ignore
        try:
            return forward()
        finally:
            events.node_forward_start = events.node_forward_end = None

    return {"graph, unhooked": unhooked, "graph": forward, "graph, one listener": with_listener}


def ignore(event: object) -> None:
    """Listen, and do nothing about it."""


def pluggy_relay() -> Any:
    """Return the relay of a pluggy manager that knows the two hooks and has no plugin."""
    specification = pluggy.HookspecMarker("benchmark")

    class Specifications:
        @specification
        def node_forward_start(self, node: object, inputs: object) -> None:
            """Announce that a node is about to run."""

        @specification
        def node_forward_end(self, node: object, inputs: object, outputs: object) -> None:
            """Announce that a node has run."""

    manager = pluggy.PluginManager("benchmark")
    manager.add_hookspecs(Specifications)
    return manager.hook


NODE: Any = object()  # stands for the node; none of the listeners looks at it
