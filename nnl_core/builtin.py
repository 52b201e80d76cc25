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
    OperatorSet,
    Plugin,
    ReportSectionSpec,
    ScheduleSpec,
    SolverSpec,
    hookimpl,
)

if TYPE_CHECKING:
    from nnl_core.graph.program import Program, Request
    from nnl_core.training import Evaluator, Trainer, TrainResult

# Plugins that come with the core: active where they are named, as those that are installed.
PLUGINS = (  # name, target, summary
    (
        "csv_log",
        "nnl_core.training.plugins.csv_log:CsvLogPlugin",
        "the epochs' metrics as a table",
    ),
    (
        "early_stopping",
        "nnl_core.training.plugins.early_stopping:EarlyStoppingPlugin",
        "an end where a metric gets no better",
    ),
    (
        "gradient_watch",
        "nnl_core.training.plugins.gradient_watch:GradientWatchPlugin",
        "norms of gradients, reported as metrics",
    ),
    (
        "learning_curve",
        "nnl_core.training.plugins.learning_curve:LearningCurvePlugin",
        "a picture of the epochs' metrics",
    ),
    (
        "learning_rate_finder",
        "nnl_core.training.plugins.learning_rate_finder:LearningRateFinderPlugin",
        "a sweep of the learning rate in place of a training",
    ),
    (
        "metrics_log",
        "nnl_core.training.plugins.metrics_log:MetricsLogPlugin",
        "every reported number as a line of JSON",
    ),
    (
        "nan_watch",
        "nnl_core.training.plugins.nan_watch:NanWatchPlugin",
        "where the first NaN or infinity arose",
    ),
    (
        "progress",
        "nnl_core.training.plugins.progress:ProgressPlugin",
        "a bar with loss, metrics, speed and time left",
    ),
    (
        "tensorboard",
        "nnl_core.training.plugins.tensorboard:TensorboardPlugin",
        "every reported number for TensorBoard",
    ),
)

OPERATORS = (OperatorSet("nnl", "nnl_core.functions", "the operators of the core"),)

BACKENDS = (
    BackendSpec(
        "numpy",
        "nnl_core.cpu.backend:NumpyBackend",
        "NumPy on the CPU: the reference, always there",
        probe="nnl_core.cpu.backend:probe",
        priority=0,
    ),
    BackendSpec(
        "cuda",
        "nnl_core.gpu.backend:CudaBackend",
        "CUDA kernels on an NVIDIA GPU, through PyCUDA",
        probe="nnl_core.gpu.probe:probe",
        priority=20,
        details="nnl_core.gpu.probe:details",
    ),
)

# Those on projects look at the session of this folder from outside: they open the project's own.
COMMANDS = (
    CommandSpec("init", "nnl_core.cli.init", "start a project", tolerant=True),
    CommandSpec(
        "config", "nnl_core.cli.config", "show settings, or what they may be", tolerant=True
    ),
    CommandSpec("train", "nnl_core.cli.train", "train the model of a project file", tolerant=True),
    CommandSpec("eval", "nnl_core.cli.evaluate", "evaluate a trained model", tolerant=True),
    CommandSpec("infer", "nnl_core.cli.infer", "run a trained model on data", tolerant=True),
    CommandSpec("runs", "nnl_core.cli.runs", "list runs and compare them", tolerant=True),
    CommandSpec("report", "nnl_core.cli.report", "write a page about a run", tolerant=True),
    CommandSpec("plot", "nnl_core.cli.plot", "draw the curves of runs", tolerant=True),
    CommandSpec("info", "nnl_core.cli.info", "show versions and backends", tolerant=True),
    CommandSpec(
        "profile", "nnl_core.cli.profile", "time the steps and nodes of a model", tolerant=True
    ),
    CommandSpec(
        "bench", "nnl_core.cli.bench", "measure latency and throughput of a model", tolerant=True
    ),
    CommandSpec("plugins", "nnl_core.cli.plugins", "list plugins and examine them", tolerant=True),
    CommandSpec("plugin", "nnl_core.cli.plugin", "start a plugin of your own", tolerant=True),
)

LAYERS: tuple[LayerSpec, ...] = ()

_INITIALIZERS = "nnl_core.initializers"
INITIALIZERS = (
    InitializerSpec("Constant", f"{_INITIALIZERS}:ConstantInitializer", "one value everywhere"),
    InitializerSpec("Normal", f"{_INITIALIZERS}:NormalInitializer", "normally distributed"),
    InitializerSpec("Orthogonal", f"{_INITIALIZERS}:OrthogonalInitializer", "orthogonal rows"),
    InitializerSpec("Range", f"{_INITIALIZERS}:RangeInitializer", "a sequence with equal steps"),
    InitializerSpec("Uniform", f"{_INITIALIZERS}:UniformInitializer", "uniformly distributed"),
    InitializerSpec("UniformInt", f"{_INITIALIZERS}:UniformIntInitializer", "uniform integers"),
)

_SOLVERS = "nnl_core.solvers"
SOLVERS = (
    SolverSpec("AMSBound", f"{_SOLVERS}:AMSBound", "AdaBound whose mean square never falls"),
    SolverSpec("AMSGRAD", f"{_SOLVERS}:AMSGRAD", "Adam whose mean square never falls"),
    SolverSpec("AdaBelief", f"{_SOLVERS}:AdaBelief", "steps in units of the gradient's surprise"),
    SolverSpec("AdaBound", f"{_SOLVERS}:AdaBound", "from Adam to gradient descent"),
    SolverSpec("Adadelta", f"{_SOLVERS}:Adadelta", "steps in units of the last steps"),
    SolverSpec("Adagrad", f"{_SOLVERS}:Adagrad", "the gradient over the root of all its squares"),
    SolverSpec("Adam", f"{_SOLVERS}:Adam", "steps in units of the gradient's size"),
    SolverSpec("AdamW", f"{_SOLVERS}:AdamW", "Adam with decoupled weight decay"),
    SolverSpec("Adamax", f"{_SOLVERS}:Adamax", "Adam in units of the largest gradient"),
    SolverSpec("Lamb", f"{_SOLVERS}:Lamb", "Adam in units of each parameter's norm"),
    SolverSpec("Lars", f"{_SOLVERS}:Lars", "momentum in units of each parameter's norm"),
    SolverSpec("Lion", f"{_SOLVERS}:Lion", "the sign of the mean gradient"),
    SolverSpec("Momentum", f"{_SOLVERS}:Momentum", "gradient descent with momentum"),
    SolverSpec("Nesterov", f"{_SOLVERS}:Nesterov", "momentum that looks one step ahead"),
    SolverSpec("RMSprop", f"{_SOLVERS}:RMSprop", "the gradient over its root mean square"),
    SolverSpec("RMSpropGraves", f"{_SOLVERS}:RMSpropGraves", "RMSprop by variance, with momentum"),
    SolverSpec("Sgd", f"{_SOLVERS}:Sgd", "plain gradient descent"),
    SolverSpec("SgdW", f"{_SOLVERS}:SgdW", "momentum with decoupled weight decay"),
)

_SCHEDULES = "nnl_core.schedules"
SCHEDULES = (
    ScheduleSpec("cosine", f"{_SCHEDULES}:CosineScheduler", "half a cosine wave down to 0"),
    ScheduleSpec(
        "cosine_restarts", f"{_SCHEDULES}:CosineRestartScheduler", "cosine waves one after another"
    ),
    ScheduleSpec("exponential", f"{_SCHEDULES}:ExponentialScheduler", "a power of a factor"),
    ScheduleSpec("one_cycle", f"{_SCHEDULES}:OneCycleScheduler", "up, and down to almost nothing"),
    ScheduleSpec(
        "plateau", f"{_SCHEDULES}:PlateauScheduler", "a factor when a metric gets no better"
    ),
    ScheduleSpec("polynomial", f"{_SCHEDULES}:PolynomialScheduler", "a power of what is left"),
    ScheduleSpec(
        "step", f"{_SCHEDULES}:StepScheduler", "a factor at given steps, or every so many"
    ),
)
_METRICS = "nnl_core.training.metrics"
METRICS = (
    MetricSpec("accuracy", f"{_METRICS}:Accuracy", "how often the largest output is the label's"),
    MetricSpec(
        "top_n_accuracy",
        f"{_METRICS}:TopNAccuracy",
        "how often the label's output is among the n largest (5)",
    ),
    MetricSpec(
        "top_5_accuracy",
        f"{_METRICS}:top_5_accuracy",
        "how often the label's output is among the five largest",
    ),
    MetricSpec(
        "binary_accuracy",
        f"{_METRICS}:binary_accuracy",
        "how often a logit has the sign that the target asks for",
    ),
    MetricSpec(
        "confusion_matrix",
        f"{_METRICS}:ConfusionMatrix",
        "a table: samples by their label and by the class chosen",
    ),
    MetricSpec(
        "precision", f"{_METRICS}:Precision", "the share of samples said to be of a class that are"
    ),
    MetricSpec(
        "recall", f"{_METRICS}:Recall", "the share of a class's samples that are said to be of it"
    ),
    MetricSpec("f1", f"{_METRICS}:F1", "the harmonic mean of precision and recall"),
    MetricSpec(
        "roc_auc", f"{_METRICS}:RocAuc", "how often a sample of a class scores higher than another"
    ),
    MetricSpec(
        "perplexity",
        f"{_METRICS}:Perplexity",
        "the exponential of the mean cross entropy",
        higher_is_better=False,
    ),
    MetricSpec(
        "absolute_error",
        f"{_METRICS}:absolute_error",
        "mean distance between output and target (MAE)",
        higher_is_better=False,
    ),
    MetricSpec(
        "squared_error",
        f"{_METRICS}:squared_error",
        "mean square of the distance between output and target (MSE)",
        higher_is_better=False,
    ),
    MetricSpec("psnr", f"{_METRICS}:Psnr", "peak signal-to-noise ratio in decibels"),
    MetricSpec("snr", f"{_METRICS}:Snr", "signal-to-noise ratio in decibels"),
    MetricSpec("ssim", f"{_METRICS}:Ssim", "structural similarity of images"),
)
DATA_SOURCES = (
    DataSourceSpec(
        "arrays",
        "nnl_core.data.arrays:open_npz",
        "arrays of NumPy's .npz and .npy files",
        schemes=("npz:",),
        suffixes=(".npz", ".npy"),
    ),
    DataSourceSpec(
        "csv",
        "nnl_core.data.tables:open_csv",
        "tables of numbers and names of files, as nnabla's",
        schemes=("csv:",),
        suffixes=(".csv",),
    ),
    DataSourceSpec(
        "hdf5",
        "nnl_core.data.hdf5:open_hdf5",
        "datasets of HDF5 files, with h5py",
        schemes=("hdf5:",),
        suffixes=(".h5", ".hdf5"),
    ),
    DataSourceSpec(
        "images",
        "nnl_core.data.images:open_images",
        "folders of images, one for each class, with pillow",
        schemes=("images:",),
        suffixes=("/",),
    ),
)
FILE_FORMATS = (
    FileFormatSpec("npz", "nnl_core.io.npz:NpzFormat", "a zip of NumPy arrays", suffixes=(".npz",)),
    FileFormatSpec(
        "safetensors",
        "nnl_core.io.safetensors:SafetensorsFormat",
        "a header and raw elements, which most other engines read",
        suffixes=(".safetensors",),
    ),
)


_SECTIONS = "nnl_core.report.sections"
REPORT_SECTIONS = (
    ReportSectionSpec("summary", f"{_SECTIONS}.run:summary", "how the run ended, and its metrics"),
    ReportSectionSpec(
        "learning_curves", f"{_SECTIONS}.run:learning_curves", "all metrics over the epochs"
    ),
    ReportSectionSpec(
        "confusion_matrix", f"{_SECTIONS}.samples:confusion_matrix", "which classes are mistaken"
    ),
    ReportSectionSpec(
        "worst_samples", f"{_SECTIONS}.samples:worst_samples", "samples with the largest losses"
    ),
    ReportSectionSpec("layers", f"{_SECTIONS}.model:layers", "what each node costs"),
    ReportSectionSpec("parameters", f"{_SECTIONS}.model:parameters", "shapes and values"),
    ReportSectionSpec("settings", f"{_SECTIONS}.run:settings", "the project file as it was"),
    ReportSectionSpec("environment", f"{_SECTIONS}.run:environment", "versions and machine"),
)


class CorePlugin(Plugin):
    """The core's components, and its answers where no other plugin has one."""

    name = "core"

    def nnl_operators(self) -> Iterable[OperatorSet]:
        """Contribute the core's operators."""
        return OPERATORS

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

    def nnl_report_sections(self) -> Iterable[ReportSectionSpec]:
        """Contribute the core's sections of a report."""
        return REPORT_SECTIONS

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
