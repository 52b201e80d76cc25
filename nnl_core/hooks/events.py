"""What event hooks receive, one object each, and the table of compiled events that hot code reads.

A new fact becomes a new field, so the signature of a hook never changes. Fields may be read; what
may also be changed is said by the hook's documentation in `nnl_core.hooks.specs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsFloat, TypeAlias, TypeVar

from nnl_core.errors import HookError
from nnl_core.hooks.loading import add_note

if TYPE_CHECKING:
    from nnl_core.graph.backend import Buffer
    from nnl_core.graph.ir import Graph
    from nnl_core.graph.node import Node
    from nnl_core.graph.operator import Operator
    from nnl_core.graph.program import Program
    from nnl_core.graph.spec import Spec
    from nnl_core.graph.variable import Variable
    from nnl_core.session import Session
    from nnl_core.training import Checkpoint, Evaluator, Trainer


class Event:
    """Base of all event and request objects."""

    __slots__ = ()

    def __repr__(self) -> str:
        names = [
            name
            for base in reversed(type(self).__mro__)
            for name in vars(base).get("__slots__", ())
        ]
        fields = ", ".join(f"{name}={getattr(self, name, None)!r}" for name in names)
        return f"{type(self).__name__}({fields})"


# ---------------------------------------------------------------- plugins and sessions


class PluginRegistered(Event):
    """A plugin was loaded; one that is not installed has no ``distribution`` and ``version``."""

    __slots__ = ("distribution", "name", "version")

    def __init__(self, name: str, distribution: str, version: str) -> None:
        self.name = name
        self.distribution = distribution
        self.version = version


class SessionStart(Event):
    """A session was entered; ``settings`` is the whole table of the project file."""

    __slots__ = ("session", "settings")

    def __init__(self, session: Session, settings: Mapping[str, object]) -> None:
        self.session = session
        self.settings = settings


class SessionEnd(SessionStart):
    """A session is being left."""

    __slots__ = ()


# ---------------------------------------------------------------- graphs


class GraphCompiled(Event):
    """A graph became a program; ``passes`` are the names of those that ran, in order."""

    __slots__ = ("graph", "passes", "program")

    def __init__(self, graph: Graph, program: Program, passes: Sequence[str]) -> None:
        self.graph = graph
        self.program = program
        self.passes = passes


class NodeCreated(Event):
    """An operator was applied to variables."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node


class NodeForwardStart(Event):
    """One node is about to be computed from the buffers ``inputs``."""

    __slots__ = ("inputs", "node")

    def __init__(self, node: Node, inputs: Sequence[Buffer | None]) -> None:
        self.node = node
        self.inputs = inputs


class NodeForwardEnd(NodeForwardStart):
    """One node has been computed."""

    __slots__ = ("outputs",)

    def __init__(
        self, node: Node, inputs: Sequence[Buffer | None], outputs: Sequence[Buffer]
    ) -> None:
        self.node = node
        self.inputs = inputs
        self.outputs = outputs


class NodeBackwardStart(Event):
    """The gradients of one node's inputs are about to be computed."""

    __slots__ = ("node", "output_gradients")

    def __init__(self, node: Node, output_gradients: Sequence[object]) -> None:
        self.node = node
        self.output_gradients = output_gradients


class NodeBackwardEnd(NodeBackwardStart):
    """The gradients of one node's inputs have been computed."""

    __slots__ = ("input_gradients",)

    def __init__(
        self, node: Node, output_gradients: Sequence[object], input_gradients: Sequence[object]
    ) -> None:
        self.node = node
        self.output_gradients = output_gradients
        self.input_gradients = input_gradients


# ---------------------------------------------------------------- training


class TrainStart(Event):
    """A run is about to begin, or to go on from a checkpoint."""

    __slots__ = ("trainer",)

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer


class TrainEnd(TrainStart):
    """A run has ended without an exception."""

    __slots__ = ("result",)

    def __init__(self, trainer: Trainer, result: object) -> None:
        self.trainer = trainer
        self.result = result


class EpochStart(Event):
    """One pass over the data begins; ``epoch`` counts from 0."""

    __slots__ = ("epoch", "trainer")

    def __init__(self, trainer: Trainer, epoch: int) -> None:
        self.trainer = trainer
        self.epoch = epoch


class EpochEnd(EpochStart):
    """One pass over the data has ended, with the epoch's metrics by name."""

    __slots__ = ("metrics",)

    def __init__(self, trainer: Trainer, epoch: int, metrics: Mapping[str, float]) -> None:
        self.trainer = trainer
        self.epoch = epoch
        self.metrics = metrics


class StepStart(Event):
    """A training step begins; ``step`` counts from 0 over the whole run."""

    __slots__ = ("batch", "step", "trainer")

    def __init__(self, trainer: Trainer, step: int, batch: object) -> None:
        self.trainer = trainer
        self.step = step
        self.batch = batch


class StepEnd(StepStart):
    """A training step has ended. ``float(event.loss)`` waits for the device, so ask it rarely."""

    __slots__ = ("loss",)

    def __init__(self, trainer: Trainer, step: int, batch: object, loss: SupportsFloat) -> None:
        self.trainer = trainer
        self.step = step
        self.batch = batch
        self.loss = loss


class GradientSet(Event):
    """The gradients of one step.

    ``by_name`` gives the gradient of each parameter; all of them are views into ``buffers``, the
    few flat arrays that a communicator reduces.
    """

    __slots__ = ("buffers", "by_name")

    def __init__(self, buffers: Sequence[Buffer], by_name: Mapping[str, Buffer]) -> None:
        self.buffers = buffers
        self.by_name = by_name


class GradientsReady(Event):
    """This process has its own gradients; ``sample_ids`` tells whose, where that is known."""

    __slots__ = ("gradients", "sample_ids", "step", "trainer")

    def __init__(
        self,
        trainer: Trainer,
        step: int,
        gradients: GradientSet,
        sample_ids: Sequence[int] | None,
    ) -> None:
        self.trainer = trainer
        self.step = step
        self.gradients = gradients
        self.sample_ids = sample_ids


class UpdateStart(Event):
    """The gradients, now reduced over all processes, are about to be applied."""

    __slots__ = ("gradients", "step", "trainer")

    def __init__(self, trainer: Trainer, step: int, gradients: GradientSet) -> None:
        self.trainer = trainer
        self.step = step
        self.gradients = gradients


class UpdateEnd(Event):
    """The parameters have been updated."""

    __slots__ = ("parameters", "step", "trainer")

    def __init__(self, trainer: Trainer, step: int, parameters: Mapping[str, Variable]) -> None:
        self.trainer = trainer
        self.step = step
        self.parameters = parameters


class EvaluationStart(Event):
    """An evaluation begins."""

    __slots__ = ("evaluator",)

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator


class EvaluationEnd(EvaluationStart):
    """An evaluation has ended, with its metrics by name."""

    __slots__ = ("metrics",)

    def __init__(self, evaluator: Evaluator, metrics: Mapping[str, float]) -> None:
        self.evaluator = evaluator
        self.metrics = metrics


class MetricReported(Event):
    """A number worth keeping was reported."""

    __slots__ = ("name", "step", "value")

    def __init__(self, name: str, value: float, step: int) -> None:
        self.name = name
        self.value = value
        self.step = step


class SafePoint(Event):
    """All that belongs to the steps made so far, or to the epoch that ended, has been told."""

    __slots__ = ("epoch_ended", "trainer")

    def __init__(self, trainer: Trainer, epoch_ended: bool) -> None:
        self.trainer = trainer
        self.epoch_ended = epoch_ended


class CheckpointSave(Event):
    """A checkpoint holds the core's state; plugins add theirs."""

    __slots__ = ("checkpoint", "trainer")

    def __init__(self, checkpoint: Checkpoint, trainer: Trainer) -> None:
        self.checkpoint = checkpoint
        self.trainer = trainer


class CheckpointLoad(CheckpointSave):
    """A run goes on from a checkpoint: the core's own state has been restored."""

    __slots__ = ()


class ExceptionRaised(Event):
    """A run is ending with an exception."""

    __slots__ = ("exception", "trainer")

    def __init__(self, trainer: Trainer, exception: BaseException) -> None:
        self.trainer = trainer
        self.exception = exception


# ---------------------------------------------------------------- questions


class BackendRequest(Event):
    """Which backend shall be the default? ``candidates`` work here, the core's choice first."""

    __slots__ = ("candidates",)

    def __init__(self, candidates: Sequence[str]) -> None:
        self.candidates = candidates


class KernelRequest(Event):
    """Which kernel shall run an operator on inputs of these shapes and dtypes?"""

    __slots__ = ("attributes", "backend", "inputs", "operator")

    def __init__(
        self,
        operator: Operator,
        backend: str,
        inputs: Sequence[Spec | None],
        attributes: Mapping[str, object],
    ) -> None:
        self.operator = operator
        self.backend = backend
        self.inputs = inputs
        self.attributes = attributes


# ---------------------------------------------------------------- the table

E = TypeVar("E")
Listeners: TypeAlias = Callable[[E], None] | None


class EventTable:
    """The compiled events: each attribute is ``None`` (nobody listens) or one callable.

    The attribute of ``nnl_on_step_end`` is ``step_end``. Read it into a local before a loop, build
    the event inside the ``if``::

        step_end = session.events.step_end
        for step in range(count):
            ...
            if step_end is not None:
                step_end(StepEnd(trainer, step, batch, loss))

    The object stays the same for a session's life; its attributes change when plugins come and go
    or a listener is attached. Events that a plugin defines are found with `get`.
    """

    plugin_registered: Listeners[PluginRegistered]
    session_start: Listeners[SessionStart]
    session_end: Listeners[SessionEnd]
    graph_compiled: Listeners[GraphCompiled]
    node_created: Listeners[NodeCreated]
    node_forward_start: Listeners[NodeForwardStart]
    node_forward_end: Listeners[NodeForwardEnd]
    node_backward_start: Listeners[NodeBackwardStart]
    node_backward_end: Listeners[NodeBackwardEnd]
    train_start: Listeners[TrainStart]
    train_end: Listeners[TrainEnd]
    epoch_start: Listeners[EpochStart]
    epoch_end: Listeners[EpochEnd]
    step_start: Listeners[StepStart]
    step_end: Listeners[StepEnd]
    gradients_ready: Listeners[GradientsReady]
    reduce_gradients: Callable[[GradientSet], bool | None] | None
    update_start: Listeners[UpdateStart]
    update_end: Listeners[UpdateEnd]
    evaluation_start: Listeners[EvaluationStart]
    evaluation_end: Listeners[EvaluationEnd]
    metric: Listeners[MetricReported]
    safe_point: Listeners[SafePoint]
    checkpoint_save: Listeners[CheckpointSave]
    checkpoint_load: Listeners[CheckpointLoad]
    exception: Listeners[ExceptionRaised]

    def __init__(self) -> None:
        vars(self).update(dict.fromkeys(type(self).__annotations__))

    def get(self, hook: str) -> Callable[[object], None] | None:
        """Return what the attribute of the named event hook holds, for events of plugins.

        Raises `HookError` where no loaded plugin defines the hook.
        """
        try:
            compiled: Callable[[object], None] | None = vars(self)[attribute_of(hook)]
        except KeyError:
            raise HookError(
                f"no loaded plugin defines the event hook {hook!r}; `nnl plugins -v` lists hooks"
            ) from None
        return compiled


def attribute_of(hook: str) -> str:
    """Return the attribute of `EventTable` that belongs to a hook."""
    return hook.removeprefix("nnl_").removeprefix("on_")


def with_note(function: Callable[[Any], object], note: str) -> Callable[[Any], object]:
    """Make a callable of a listener and the note for its exceptions."""

    def call_one(event: object) -> object:
        try:
            return function(event)
        except BaseException as error:
            add_note(error, note)
            raise

    return call_one


def compile_listeners(
    functions: Sequence[tuple[Callable[[Any], object], str]],
) -> Callable[[Any], Any] | None:
    """Make one callable of listeners and the notes for their exceptions; ``None`` of none."""
    if not functions:
        return None
    if len(functions) == 1:
        return with_note(*functions[0])

    def call_all(event: object) -> None:
        note = ""
        try:
            for function, note in functions:  # noqa: B007 - the note of whichever raises
                function(event)
        except BaseException as error:
            add_note(error, note)
            raise

    return call_all
