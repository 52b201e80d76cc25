"""All hooks of NNL in one place: `Plugin` is their specification and the base class of plugins.

Every method documents when it is called and how often (its cost class), and what may be changed:

- A: once a process, or once a plugin;
- B: once a run, an epoch, a compilation or an evaluation;
- C: once a training step;
- D: once a node.

Hooks of classes C and D, and all events, are compiled: with no implementer they cost one check for
``None``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, TypeVar

from pluggy import HookimplMarker, HookspecMarker

from nnl_core.hooks import events, records

if TYPE_CHECKING:
    from nnl_core.graph.operator import Kernel
    from nnl_core.graph.program import Program, Request
    from nnl_core.training import Evaluator, Trainer, TrainResult

API = "1.0"
"""Version of the hook interface: the minor grows with additions, the major with removals."""

Function = TypeVar("Function", bound=Callable[..., object])
Cost = Literal["A", "B", "C", "D"]

hookimpl = HookimplMarker("nnl")
"""Marks an implementation with options (``tryfirst``, ``trylast``, ``wrapper``, ``optionalhook``).

Overriding a method of `Plugin` needs no marker.
"""

_hookspec = HookspecMarker("nnl")


class HookInfo(NamedTuple):
    """What the engine knows about a hook.

    ``takes`` are the names of its arguments. A provider has a ``record`` type and a ``kind``, the
    word by which its records are looked up. An
    ``exclusive`` decision has at most one implementer. Only those that allow it have ``wrappers``.
    """

    role: Literal["provider", "decision", "event"]
    cost: Cost
    takes: tuple[str, ...] = ()
    kind: str = ""
    record: type[records.Record] | None = None
    exclusive: bool = False
    wrappers: bool = False


def _spec(info: HookInfo, warn_on_impl: Warning | None = None) -> Callable[[Function], Function]:
    def mark(function: Function) -> Function:
        firstresult = info.role == "decision"
        marked = _hookspec(function, firstresult=firstresult, warn_on_impl=warn_on_impl)
        takes = tuple(name for name in inspect.signature(function).parameters if name != "self")
        vars(marked)["nnl_info"] = info._replace(takes=takes)
        return marked

    return mark


def provider(
    kind: str, record: type[records.Record], *, warn_on_impl: Warning | None = None
) -> Callable[[Function], Function]:
    """Specify a hook without arguments that returns records, looked up as ``kind``."""
    return _spec(HookInfo("provider", "A", kind=kind, record=record), warn_on_impl)


def decision(
    cost: Cost,
    *,
    exclusive: bool = False,
    wrappers: bool = False,
    warn_on_impl: Warning | None = None,
) -> Callable[[Function], Function]:
    """Specify a hook with one argument whose first answer other than ``None`` counts."""
    info = HookInfo("decision", cost, exclusive=exclusive, wrappers=wrappers)
    return _spec(info, warn_on_impl)


def event(cost: Cost, *, warn_on_impl: Warning | None = None) -> Callable[[Function], Function]:
    """Specify a hook with one argument, the event, and no answer."""
    return _spec(HookInfo("event", cost), warn_on_impl)


class Plugin:
    """Base class of plugins: override the methods whose hooks you want.

    An entry point of the group ``nnl.plugins`` leads to the subclass; its name equals ``name``. The
    module imports nothing heavy: records name what they stand for by import string.

    ``api`` is the version of the hook interface it was written for ("1", or "1.2" where it needs
    what 1.2 added). ``requires`` names plugins without which it cannot work.
    """

    name: ClassVar[str] = ""
    api: ClassVar[str] = "1"
    requires: ClassVar[tuple[str, ...]] = ()

    # ---------------------------------------------------------------- what I contribute
    #
    # Called once, when the plugin is loaded, whether or not it is active: what is installed can be
    # named. Return records; a generator will do. Nothing may be changed, imported or opened here.

    @provider("operators", records.OperatorSet)
    def nnl_operators(self) -> Iterable[records.OperatorSet]:
        """Contribute namespaces of operators.

        Once a plugin (A). The module is imported when an operator of its namespace is first named.
        """
        return ()

    @provider("kernels", records.KernelSet)
    def nnl_kernels(self) -> Iterable[records.KernelSet]:
        """Contribute kernels for operators defined elsewhere.

        Once a plugin (A). Where the plugin is active, the module is imported when the backend first
        looks for a kernel of such an operator.
        """
        return ()

    @provider("backend", records.BackendSpec)
    def nnl_backends(self) -> Iterable[records.BackendSpec]:
        """Contribute ways to run graphs.

        Once a plugin (A). A backend is probed when it is asked for, or when a default is chosen.
        """
        return ()

    @provider("layer", records.LayerSpec)
    def nnl_layers(self) -> Iterable[records.LayerSpec]:
        """Contribute layers, named ``plugin.Layer``.

        Once a plugin (A).
        """
        return ()

    @provider("initializer", records.InitializerSpec)
    def nnl_initializers(self) -> Iterable[records.InitializerSpec]:
        """Contribute ways to fill new parameters.

        Once a plugin (A).
        """
        return ()

    @provider("solver", records.SolverSpec)
    def nnl_solvers(self) -> Iterable[records.SolverSpec]:
        """Contribute update rules.

        Once a plugin (A).
        """
        return ()

    @provider("schedule", records.ScheduleSpec)
    def nnl_schedules(self) -> Iterable[records.ScheduleSpec]:
        """Contribute schedules of the learning rate and the like.

        Once a plugin (A).
        """
        return ()

    @provider("metric", records.MetricSpec)
    def nnl_metrics(self) -> Iterable[records.MetricSpec]:
        """Contribute metrics.

        Once a plugin (A).
        """
        return ()

    @provider("data source", records.DataSourceSpec)
    def nnl_data_sources(self) -> Iterable[records.DataSourceSpec]:
        """Contribute data sets, by name or by the beginning of a URI.

        Once a plugin (A).
        """
        return ()

    @provider("file format", records.FileFormatSpec)
    def nnl_file_formats(self) -> Iterable[records.FileFormatSpec]:
        """Contribute formats of files that hold parameters.

        Once a plugin (A).
        """
        return ()

    @provider("command", records.CommandSpec)
    def nnl_commands(self) -> Iterable[records.CommandSpec]:
        """Contribute commands of ``nnl``.

        Once a plugin (A). ``nnl --help`` shows the summary; the target is imported to run it.
        """
        return ()

    @provider("explainer", records.ExplainerSpec)
    def nnl_explainers(self) -> Iterable[records.ExplainerSpec]:
        """Contribute ways to explain a model's output.

        Once a plugin (A).
        """
        return ()

    @provider("search strategy", records.SearchStrategySpec)
    def nnl_search_strategies(self) -> Iterable[records.SearchStrategySpec]:
        """Contribute strategies of architecture search.

        Once a plugin (A).
        """
        return ()

    @provider("communicator", records.CommunicatorSpec)
    def nnl_communicators(self) -> Iterable[records.CommunicatorSpec]:
        """Contribute ways for processes to exchange arrays.

        Once a plugin (A).
        """
        return ()

    @provider("graph pass", records.PassSpec)
    def nnl_graph_passes(self) -> Iterable[records.PassSpec]:
        """Contribute graph transformations to the compiler.

        Once a plugin (A). Those of active plugins run, after the core's of the same stage.
        """
        return ()

    @provider("report section", records.ReportSectionSpec)
    def nnl_report_sections(self) -> Iterable[records.ReportSectionSpec]:
        """Contribute parts of the page that ``nnl report`` writes about a run.

        Once a plugin (A). The sections of active plugins are shown, after the core's.
        """
        return ()

    @provider("settings", records.SettingsSpec)
    def nnl_settings(self) -> Iterable[records.SettingsSpec]:
        """Contribute the models of the plugin's own tables in the project file.

        Once a plugin (A). The model is imported only where a project has that table.
        """
        return ()

    @provider("hookspecs", records.HookspecSpec)
    def nnl_hookspecs(self) -> Iterable[records.HookspecSpec]:
        """Define hooks that other plugins may implement.

        Once a plugin (A), before any other hook of any plugin. The target is imported at once: keep
        it as light as the plugin's own module.
        """
        return ()

    # ---------------------------------------------------------------- what I decide
    #
    # Active plugins are asked in order; the first answer other than None counts. The core is last.

    @decision("A")
    def nnl_select_backend(self, request: events.BackendRequest) -> str | None:
        """Choose the default backend, by name, among those that work here.

        Once a process (A), when the first graph runs and nobody asked for a backend.
        """
        return None

    @decision("B")
    def nnl_select_kernel(self, request: events.KernelRequest) -> Kernel | None:
        """Choose the kernel of an operator: what `Operator.kernel` takes for that backend.

        Once for each operator, backend, attributes, and input shapes and dtypes (B); the answer is
        kept. Never once a call.
        """
        return None

    @decision("B", wrappers=True)
    def nnl_compile_graph(self, request: Request) -> Program | None:
        """Compile a graph.

        Once a compilation (B). The core lets the backend compile it. Wrappers are allowed.
        """
        return None

    @decision("B", wrappers=True)
    def nnl_run_training(self, trainer: Trainer) -> TrainResult | None:
        """Run a whole training.

        Once a run (B). The core runs its own loop. Wrappers (profilers, process groups) are
        allowed.
        """
        return None

    @decision("B", wrappers=True)
    def nnl_run_evaluation(self, evaluator: Evaluator) -> dict[str, float] | None:
        """Run an evaluation and return its metrics by name.

        Once an evaluation (B). The core runs its own loop. Wrappers are allowed.
        """
        return None

    @decision("C", exclusive=True)
    def nnl_reduce_gradients(self, gradients: events.GradientSet) -> bool | None:
        """Combine the gradients of all processes, in place; return True where it did.

        Once a step (C), after ``nnl_on_gradients_ready`` and before ``nnl_on_update_start``. The
        buffers of ``gradients`` are there to be written. One active plugin at most implements this.
        """
        return None

    # ---------------------------------------------------------------- what I am told
    #
    # Active plugins only. Nothing is returned. Plugins hear in the order in which the project names
    # them, in reverse at events that end something. An exception stops the run, naming the plugin.

    @event("A")
    def nnl_on_plugin_registered(self, event: events.PluginRegistered) -> None:
        """Hear of a plugin that was loaded, this one and those before it included.

        Once a plugin (A). Nothing may be changed.
        """

    @event("B")
    def nnl_on_session_start(self, event: events.SessionStart) -> None:
        """Set up what the plugin needs while it is in use.

        Once a session (B). ``event.session.plugin_settings(name, Model)`` gives the plugin's own
        settings.
        """

    @event("B")
    def nnl_on_session_end(self, event: events.SessionEnd) -> None:
        """Put away what ``nnl_on_session_start`` set up.

        Once a session (B), also after an exception; not where that setting up has failed.
        """

    @event("B")
    def nnl_on_graph_compiled(self, event: events.GraphCompiled) -> None:
        """Look at a graph and the program it became.

        Once a compilation by the core (B), not where a plugin compiles or an equal graph was
        compiled before. Nothing may be changed.
        """

    @event("D")
    def nnl_on_node_created(self, event: events.NodeCreated) -> None:
        """Look at a new node of a graph.

        Once a node (D). Nothing may be changed.
        """

    @event("D")
    def nnl_on_node_forward_start(self, event: events.NodeForwardStart) -> None:
        """Look at a node that is about to be computed.

        Once a node and execution (D). Nothing may be changed. While somebody listens, programs run
        their nodes one by one, but for compiled training steps, whose nodes are not told of.
        """

    @event("D")
    def nnl_on_node_forward_end(self, event: events.NodeForwardEnd) -> None:
        """Look at what a node computed.

        As ``nnl_on_node_forward_start`` (D). The arrays are the engine's: copy what you keep.
        """

    @event("D")
    def nnl_on_node_backward_start(self, event: events.NodeBackwardStart) -> None:
        """Look at the gradients that arrive at a node.

        Once a node and backward pass (D). Nothing may be changed. While somebody listens, programs
        run their nodes one by one, but for compiled training steps, whose nodes are not told of.
        """

    @event("D")
    def nnl_on_node_backward_end(self, event: events.NodeBackwardEnd) -> None:
        """Look at the gradients that a node passes on.

        As ``nnl_on_node_backward_start`` (D). Nothing may be changed.
        """

    @event("B")
    def nnl_on_train_start(self, event: events.TrainStart) -> None:
        """Prepare for a run.

        Once a run (B). ``event.trainer`` may be changed through its public methods.
        """

    @event("B")
    def nnl_on_train_end(self, event: events.TrainEnd) -> None:
        """Finish a run that ended without an exception.

        Once a run (B).
        """

    @event("B")
    def nnl_on_epoch_start(self, event: events.EpochStart) -> None:
        """Prepare for a pass over the data.

        Once an epoch (B).
        """

    @event("B")
    def nnl_on_epoch_end(self, event: events.EpochEnd) -> None:
        """Look at an epoch's metrics; ``event.trainer.request_stop(reason)`` ends the run.

        Once an epoch (B).
        """

    @event("C")
    def nnl_on_step_start(self, event: events.StepStart) -> None:
        """Look at the batch of a step.

        Once a step (C). The batch's arrays may be written in place.
        """

    @event("C")
    def nnl_on_step_end(self, event: events.StepEnd) -> None:
        """Look at a step's loss; ``event.trainer.request_stop(reason)`` ends the run.

        Once a step (C). Nothing may be changed.
        """

    @event("C")
    def nnl_on_gradients_ready(self, event: events.GradientsReady) -> None:
        """Look at this process's own gradients, before other processes' are added.

        Once a step (C). The gradients may be written in place. A step that somebody listens to here
        is two programs, not one.
        """

    @event("C")
    def nnl_on_update_start(self, event: events.UpdateStart) -> None:
        """Change the gradients that are about to be applied (clipping, noise).

        Once a step (C), after the reduction. The gradients may be written in place. A step that
        somebody listens to here is two programs, not one.
        """

    @event("C")
    def nnl_on_update_end(self, event: events.UpdateEnd) -> None:
        """Look at, or project, the updated parameters.

        Once a step (C). The parameters may be written in place.
        """

    @event("B")
    def nnl_on_evaluation_start(self, event: events.EvaluationStart) -> None:
        """Prepare for an evaluation.

        Once an evaluation (B).
        """

    @event("B")
    def nnl_on_evaluation_end(self, event: events.EvaluationEnd) -> None:
        """Look at an evaluation's metrics.

        Once an evaluation (B).
        """

    @event("C")
    def nnl_on_metric(self, event: events.MetricReported) -> None:
        """Record a number: this is where loggers listen.

        Once for each number that is reported, at most a few a step (C). The loss of a step that a
        device computes may come after the next two have begun; ``step`` says whose it is.
        """

    @event("C")
    def nnl_on_safe_point(self, event: events.SafePoint) -> None:
        """Make a checkpoint, if one is due: what is restored from it goes on bit for bit.

        Once a step, after all ``nnl_on_step_end``, and once an epoch, after all
        ``nnl_on_epoch_end`` (C). Nothing may be changed.
        """

    @event("B")
    def nnl_on_checkpoint_save(self, event: events.CheckpointSave) -> None:
        """Put the plugin's state into ``event.checkpoint.plugins[name]``, and nowhere else.

        Once a checkpoint (B). The state may hold arrays, and what JSON can hold.
        """

    @event("B")
    def nnl_on_checkpoint_load(self, event: events.CheckpointLoad) -> None:
        """Take the plugin's state out of ``event.checkpoint.plugins[name]``, where it is.

        Once a checkpoint (B). A checkpoint of a run without the plugin has none.
        """

    @event("B")
    def nnl_on_exception(self, event: events.ExceptionRaised) -> None:
        """Look at the exception that ends a run; it goes on afterwards.

        Once a run at most (B).
        """
