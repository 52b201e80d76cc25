"""What the core itself contributes, as a plugin like any other.

One tuple for each kind: to add a component, add a record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nnl_core.hooks import (
    BackendSpec,
    CommandSpec,
    DataSourceSpec,
    FileFormatSpec,
    InitializerSpec,
    LayerSpec,
    MetricSpec,
    Plugin,
    ScheduleSpec,
    SolverSpec,
    hookimpl,
)

if TYPE_CHECKING:
    from nnl_core.training import Evaluator, Trainer, TrainResult

    from nnl_core.graph.program import Program, Request

BACKENDS = (
    BackendSpec(
        "numpy",
        "nnl_core.cpu.backend:NumpyBackend",
        "NumPy on the CPU: the reference, always there",
        probe="nnl_core.cpu.backend:probe",
        priority=0,
    ),
)

COMMANDS = (
    CommandSpec("train", "nnl_core.cli.train", "train the model of a project file"),
    CommandSpec("eval", "nnl_core.cli.evaluate", "evaluate a trained model"),
    CommandSpec("infer", "nnl_core.cli.infer", "run a trained model on data"),
    CommandSpec("info", "nnl_core.cli.info", "show backends, versions and files"),
    CommandSpec("profile", "nnl_core.cli.profile", "time the steps and nodes of a model"),
    CommandSpec("plugins", "nnl_core.cli.plugins", "list plugins and examine them", tolerant=True),
    CommandSpec("plugin", "nnl_core.cli.plugin", "start a plugin of your own", tolerant=True),
)

LAYERS: tuple[LayerSpec, ...] = ()
INITIALIZERS: tuple[InitializerSpec, ...] = ()
SOLVERS: tuple[SolverSpec, ...] = ()
SCHEDULES: tuple[ScheduleSpec, ...] = ()
METRICS: tuple[MetricSpec, ...] = ()
DATA_SOURCES: tuple[DataSourceSpec, ...] = ()
FILE_FORMATS: tuple[FileFormatSpec, ...] = ()


class CorePlugin(Plugin):
    """The core's components, and its answers where no other plugin has one."""

    name = "core"

    def nnl_backends(self) -> Iterable[BackendSpec]:
        """Contribute the core's backends."""
        return BACKENDS

    def nnl_commands(self) -> Iterable[CommandSpec]:
        """Contribute the core's commands."""
        return COMMANDS

    def nnl_layers(self) -> Iterable[LayerSpec]:
        """Contribute the core's layers."""
        return LAYERS

    def nnl_initializers(self) -> Iterable[InitializerSpec]:
        """Contribute the core's initializers."""
        return INITIALIZERS

    def nnl_solvers(self) -> Iterable[SolverSpec]:
        """Contribute the core's solvers."""
        return SOLVERS

    def nnl_schedules(self) -> Iterable[ScheduleSpec]:
        """Contribute the core's schedules."""
        return SCHEDULES

    def nnl_metrics(self) -> Iterable[MetricSpec]:
        """Contribute the core's metrics."""
        return METRICS

    def nnl_data_sources(self) -> Iterable[DataSourceSpec]:
        """Contribute the core's data sources."""
        return DATA_SOURCES

    def nnl_file_formats(self) -> Iterable[FileFormatSpec]:
        """Contribute the core's file formats."""
        return FILE_FORMATS

    @hookimpl(trylast=True)
    def nnl_compile_graph(self, request: Request) -> Program | None:
        """Run the passes and let the backend compile the graph."""
        from nnl_core.graph.program import default_compile

        return default_compile(request)

    @hookimpl(trylast=True)
    def nnl_run_training(self, trainer: Trainer) -> TrainResult | None:
        """Run the trainer's own loop."""
        return trainer.run_loop()

    @hookimpl(trylast=True)
    def nnl_run_evaluation(self, evaluator: Evaluator) -> dict[str, float] | None:
        """Run the evaluator's own loop."""
        return evaluator.run_loop()
