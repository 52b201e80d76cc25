"""Plugin ``nan_watch``: where the first NaN or infinity of a run arose."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from nnl_core.errors import NotFiniteError
from nnl_core.hooks import (
    NodeBackwardEnd,
    NodeCreated,
    NodeForwardEnd,
    Plugin,
    StepStart,
    UpdateStart,
)

if TYPE_CHECKING:
    from types import FrameType

    from nnl_core.graph.node import Node
    from nnl_core.training import Trainer

_OWN = str(Path(__file__).parents[2])


class NanWatchPlugin(Plugin):
    """Looks at the loss and the gradients of each step before they are applied.

    Where they are not finite, it computes the step again, node by node, and ends the run with an
    error that says which node made the first NaN and the first infinity, of values or of
    gradients. The parameters stay as they were before the step. Where there is a loss scale, which
    skips steps whose gradients overflow, only the loss counts. A step is two programs where this
    listens.
    """

    name = "nan_watch"

    def __init__(self) -> None:
        self._places: WeakKeyDictionary[Node, str] = WeakKeyDictionary()
        self._batch: Any = None

    def nnl_on_node_created(self, event: NodeCreated) -> None:
        """Note the line of a model's own code that made a node."""
        place = _calling_line(sys._getframe(1))
        if place is not None:
            self._places[event.node] = place

    def nnl_on_step_start(self, event: StepStart) -> None:
        """Keep the batch, for it may have to be computed again."""
        self._batch = event.batch

    def nnl_on_update_start(self, event: UpdateStart) -> None:
        """Check the step."""
        trainer = event.trainer
        _, network = trainer.parts(self._batch)[-1]
        loss = float(network.measured["loss"].data.read().item())
        gradients = {} if trainer.loss_scale is not None else event.gradients.by_name
        wrong = [name for name, array in gradients.items() if not _is_finite(array)]
        if loss - loss == 0 and not wrong:
            return
        what = f"the loss is {loss}" if loss - loss != 0 else f"the gradient of {wrong[0]} is wrong"
        raise NotFiniteError(
            f"step {event.step} (epoch {trainer.state.epoch + 1}): {what}; "
            + (_first_of_all(trainer, self._batch, self._places) or "computed again it is not, so "
               "that it depends on random numbers")
        )  # fmt: skip


class _Finder:
    """Listens to the nodes of a step, and remembers the first that spoils finite numbers."""

    def __init__(self, places: Mapping[Node, str]) -> None:
        self.found: dict[str, str] = {}
        self._places = places

    def nnl_on_node_forward_end(self, event: NodeForwardEnd) -> None:
        for kind in _kinds(event.outputs):
            if kind in self.found:
                continue
            given = [n for n, array in enumerate(event.inputs) if kind in _kinds([array])]
            text = f"the first {kind} is made by {self._name(event.node)}"
            if given:  # nobody made it: the data or a parameter holds it
                variable = event.node.inputs[given[0]]
                named = getattr(variable, "name", "") or f"input {given[0]}"
                text = f"{named} of {self._name(event.node)} holds {kind} already"
            self.found[kind] = text

    def nnl_on_node_backward_end(self, event: NodeBackwardEnd) -> None:
        for kind in _kinds(event.input_gradients):
            key = f"{kind} of a gradient"
            if kind not in self.found and key not in self.found:
                self.found[key] = (
                    f"the first {kind} of a gradient is made by {self._name(event.node)}"
                )

    def _name(self, node: Node) -> str:
        place = self._places.get(node)
        inputs = ", ".join(str(spec.shape) for spec in node.input_specs if spec is not None)
        return (
            f"{node.operator.name} ({node.name}{f', {place}' if place else ''}) of shapes {inputs}"
        )


def _first_of_all(trainer: Trainer, batch: Any, places: Mapping[Node, str]) -> str:
    from nnl_core.training.feeding import feed

    finder = _Finder(places)
    for part, network in trainer.parts(batch):
        feed(network, part)
        with trainer.session.listen(finder):
            network.measured["loss"].forward()
            network.measured["loss"].backward()
        if finder.found:
            break
    return ", ".join(finder.found.values())


def _is_finite(buffer: object) -> bool:
    import numpy as np

    from nnl_core.graph.backend import current_backend

    array = current_backend().to_host(buffer)
    return array.dtype.kind in "biu" or bool(np.isfinite(array).all())


def _kinds(buffers: Any) -> Iterator[str]:
    """Yield ``"NaN"`` and ``"infinity"`` where they occur."""
    import numpy as np

    from nnl_core.graph.backend import current_backend

    arrays = [current_backend().to_host(b) for b in buffers if b is not None]
    floating = [array for array in arrays if array.dtype.kind not in "biu"]
    if any(np.isnan(array).any() for array in floating):
        yield "NaN"
    if any(np.isinf(array).any() for array in floating):
        yield "infinity"


def _calling_line(frame: FrameType | None) -> str | None:
    """Return ``file:line`` of the innermost frame that is a model's, not the engine's."""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_OWN) and frame.f_code.co_name == "build":
            return None  # the engine called an operator by itself
        if not path.startswith(_OWN):
            return f"{Path(path).name}:{frame.f_lineno}"
        frame = frame.f_back
    return None
