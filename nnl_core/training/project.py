"""From the settings of a project to a model, data, a solver and a trainer."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from nnl_core.data import (
    ArraySource,
    CachedSource,
    DataIterator,
    DataSource,
    Field,
    make_transforms,
    open_source,
    select_fields,
    transform_source,
)
from nnl_core.data.source import Array
from nnl_core.errors import ConfigurationError, NnlError, UnknownComponentError
from nnl_core.graph.backend import allow_tf32, backend_scope
from nnl_core.graph.modes import mixed_precision
from nnl_core.hooks import ScheduleSpec, SolverSpec
from nnl_core.hooks.loading import did_you_mean, resolve
from nnl_core.hooks.records import Record
from nnl_core.hooks.selection import PROJECT_FILE
from nnl_core.schedules import LinearWarmupScheduler
from nnl_core.solvers import DynamicLossScale, ParameterGroup
from nnl_core.training.checkpoint_policy import CheckpointPolicy
from nnl_core.training.layers import LayeredModel
from nnl_core.training.metrics import LOSSES, Choice, Comparison, choices
from nnl_core.training.model import Model, ModelFunction
from nnl_core.training.trainer import Trainer

if TYPE_CHECKING:
    from nnl_core.schedules import Schedule
    from nnl_core.session import Session
    from nnl_core.settings import (
        DataSettings,
        FieldSettings,
        ModelSettings,
        ProjectSettings,
        ScheduleSettings,
        SolverSettings,
    )
    from nnl_core.solvers import Solver


class Workbench:
    """Makes what a project's settings name.

    ``folder`` is where modules are imported from, ``data_folder`` where relative paths of data
    begin, and ``where`` what messages call the project file.
    """

    def __init__(
        self,
        settings: ProjectSettings,
        folder: Path,
        session: Session,
        data_folder: Path | None = None,
        where: str = PROJECT_FILE,
    ) -> None:
        self.settings = settings
        self.where = where
        self.folder = folder
        self.session = session
        self._data_folder = folder if data_folder is None else data_folder
        self._opened: dict[str, DataSource] = {}

    @contextmanager
    def _at(self, key: str, value: object) -> Iterator[None]:
        """Let errors inside a block say which setting they are about."""
        try:
            yield
        except NnlError as error:
            raise ConfigurationError(f"{self.where}: {key} = {value!r}: {error}") from error

    def model(self) -> Model:
        """Import the model function, or put its layers together."""
        settings: ModelSettings = self.settings.model
        loss: str | Comparison | None = settings.loss
        if settings.loss is not None and ":" in settings.loss:
            loss = cast(Comparison, self._import(settings.loss, "model.loss"))
        elif settings.loss is not None and settings.loss not in LOSSES:
            known = f"; known: {', '.join(LOSSES)}, 'module:function'"
            raise ConfigurationError(
                f"{self.where}: model.loss = {loss!r}: unknown loss"
                f"{did_you_mean(settings.loss, LOSSES) or known}"
            )
        function: object
        if settings.function is not None:
            function = self._import(settings.function, "model.function")
        else:
            function = LayeredModel(
                settings.layers,
                self.session,
                input=settings.input,
                where=f"{self.where}: model.layers",
            )
        metrics = self._metrics()
        with self._at("model.arguments", settings.arguments):
            return Model(
                cast(ModelFunction, function),
                loss=loss,
                metrics=metrics,
                target=settings.target,
                arguments=settings.arguments,
                session=self.session,
            )

    def _metrics(self) -> dict[str, Choice]:
        """Choose metrics. Without arguments, a name may be that of an output, known later."""
        tables: list[dict[str, object]] = []
        for metric in self.settings.model.metrics:
            table = metric.model_dump(by_alias=True, exclude_none=True)
            if ":" in metric.name:
                table.setdefault("as", metric.name.rpartition(":")[2])
                table["name"] = self._import(metric.name, "model.metrics")
            tables.append(table)
        with self._at("model.metrics", [table["name"] for table in tables]):
            chosen = choices(tables)
        for label, choice in chosen.items():
            if choice.arguments:
                with self._at("model.metrics", label):
                    choice.make(label, self.session)
        return chosen

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Use the project's backend and precision, and let its callbacks hear, inside a block."""
        settings = self.settings
        half = settings.precision.removeprefix("mixed_")
        with ExitStack() as stack:
            if settings.backend is not None:
                with self._at("backend", settings.backend):
                    stack.enter_context(backend_scope(settings.backend))
            with self._at("precision", settings.precision):
                stack.enter_context(mixed_precision(None if half in ("float32", "tf32") else half))
            if half == "tf32":
                stack.enter_context(allow_tf32())
            for callback in self.callbacks():
                stack.enter_context(self.session.listen(callback))
            yield

    def callbacks(self) -> list[object]:
        """Make the objects of ``callbacks``, which listen to events."""
        made = []
        for number, settings in enumerate(self.settings.callbacks):
            key = f"{self.where}: callbacks.{number}"
            factory = import_from(self.folder, settings.callback, f"{key} = {settings.callback!r}")
            try:
                made.append(cast("Callable[..., object]", factory)(**settings.arguments))
            except (TypeError, ValueError) as error:
                raise ConfigurationError(f"{key} = {settings.callback!r}: {error}") from error
        return made

    def _import(self, target: str, key: str) -> object:
        return import_from(self.folder, target, f"{self.where}: {key} = {target!r}")

    def _data_settings(self, name: str, wanted_by: str = "") -> DataSettings:
        known = self.settings.data
        if name not in known:
            hint = did_you_mean(name, known) or f"; it has {', '.join(known) or 'none'}"
            raise ConfigurationError(f"{self.where}: {wanted_by}there is no [data.{name}]{hint}")
        return known[name]

    def data(self, name: str) -> DataSource:
        """Open one of the project's data sets, once."""
        if name not in self._opened:
            self._opened[name] = self._open(name)
        return self._opened[name]

    def _open(self, name: str) -> DataSource:
        settings = self._data_settings(name)
        fields = fields_of(settings.fields)
        with self._at(f"data.{name}.source", settings.source):
            source = open_source(
                settings.source,
                self.session,
                folder=self._data_folder,
                wanted=sorted({field.array for field in fields.values()}) or None,
            )
        if settings.cache is not None:
            with self._at(f"data.{name}.cache", settings.cache):
                source = CachedSource(
                    source, self._data_folder / settings.cache, key=settings.cache_key
                )
        prepared = select_fields(
            source,
            fields or {key: Field(key) for key in source.fields},
            f"{self.where}: data.{name}",
        )
        transforms = make_transforms(
            settings.transforms,
            f"{self.where}: data.{name}.transforms",
            lambda target, wanted_by: import_from(self.folder, target, wanted_by),
        )
        return transform_source(prepared, transforms)

    def solver(self) -> Solver:
        """Make the solver."""
        settings: SolverSettings = self.settings.solver
        arguments = settings.arguments
        made = cast("Solver", self._make(SolverSpec, settings, arguments, "solver"))
        made.set_groups(ParameterGroup(**group.model_dump()) for group in settings.groups)
        made.keep_average(settings.average)
        return made

    def loss_scale(self) -> DynamicLossScale | None:
        """Make the loss scale: that of the settings, or the default one of ``mixed_float16``."""
        settings = self.settings.solver.loss_scale
        if settings is not None:
            return DynamicLossScale(**settings.model_dump())
        # What float16 holds begins at 6e-8: without a scale, small gradients become zero.
        return DynamicLossScale() if self.settings.precision == "mixed_float16" else None

    def schedule(self, rate: float, steps: int) -> Schedule | None:
        """Make the schedule of a learning rate, for a run of so many steps."""
        settings = self.settings.solver.schedule
        if settings is None:
            return None
        arguments = {"init_lr": rate, **(settings.model_extra or {})}
        factory = self._factory(ScheduleSpec, settings.name, "solver.schedule")
        if "max_iter" in inspect.signature(factory).parameters:
            arguments.setdefault("max_iter", max(1, steps - settings.warmup))
        made = cast("Schedule", self._make(ScheduleSpec, settings, arguments, "solver.schedule"))
        return LinearWarmupScheduler(made, settings.warmup) if settings.warmup else made

    def _factory(self, kind: type[Record], name: str, table: str) -> Callable[..., object]:
        manager = self.session.manager
        with self._at(f"{table}.name", name):
            return cast("Callable[..., object]", manager.resolve(manager.component(kind, name)))

    def _make(
        self,
        kind: type[Record],
        settings: SolverSettings | ScheduleSettings,
        arguments: Mapping[str, object],
        table: str,
    ) -> object:
        """Make a component from a table of the project file, whose keys are its arguments."""
        name = settings.name
        factory = self._factory(kind, name, table)
        known = list(inspect.signature(factory).parameters)
        for key in arguments:
            if key not in known:
                own = [field for field in type(settings).model_fields if field != "name"]
                hint = did_you_mean(key, [*known, *own])
                hint = hint or f"; it takes {', '.join([*known, *own])}"
                raise ConfigurationError(
                    f"{self.where}: {table}.{key}: {name} takes no {key!r}{hint}"
                )
        try:
            return factory(**arguments)
        except (NnlError, TypeError, ValueError) as error:
            raise ConfigurationError(f"{self.where}: {table} {name}: {error}") from error

    def checkpoints(self) -> CheckpointPolicy | None:
        """Make the policy of checkpoints, where there are any."""
        settings = self.settings.checkpoints
        if settings.keep == 0:
            return None
        return CheckpointPolicy(
            **settings.model_dump(exclude={"every_epochs"}),
            every_epochs=settings.every_epochs or None,
        )

    def trainer(self) -> Trainer:
        """Make everything and put it together."""
        settings = self.settings.train
        evaluated = settings.evaluate
        if evaluated is None:
            evaluated = tuple({"validation"} & self.settings.data.keys())
        for name in evaluated:
            self._data_settings(name, f"train.evaluate = {name!r}: ")
        model, solver, data = self.model(), self.solver(), self.data("train")
        batches = len(DataIterator(data, settings.batch_size, last_batch=settings.last_batch))
        steps = settings.steps or batches * settings.epochs
        schedule = self.schedule(solver.learning_rate(), steps)
        try:
            return self._trainer(model, data, solver, schedule, evaluated, -(-steps // batches))
        except UnknownComponentError as error:  # of a metric: whether it is an output is known now
            raise ConfigurationError(f"{self.where}: model.metrics: {error}") from error

    def _trainer(
        self,
        model: Model,
        data: DataSource,
        solver: Solver,
        schedule: Schedule | None,
        evaluated: Sequence[str],
        epochs: int,
    ) -> Trainer:
        settings = self.settings.train
        return Trainer(
            model,
            data,
            solver,
            schedule=schedule,
            epochs=epochs,
            steps=settings.steps,
            batch_size=settings.batch_size,
            seed=settings.seed,
            last_batch=settings.last_batch,
            workers=settings.workers,
            worker_kind=settings.worker_kind,
            prefetch=settings.prefetch,
            accumulate=settings.accumulate,
            evaluate={name: self.data(name) for name in evaluated},
            evaluate_every=settings.evaluate_every,
            evaluate_every_steps=settings.evaluate_every_steps,
            weight_decay=self.settings.solver.weight_decay,
            clip_grad_norm=self.settings.solver.clip_grad_norm,
            clip_grad_norm_each=self.settings.solver.clip_grad_norm_each,
            clip_grad_value=self.settings.solver.clip_grad_value,
            loss_scale=self.loss_scale(),
            checkpoints=self.checkpoints(),
            session=self.session,
        )

    def prepared(self, arrays: Mapping[str, Array], part: str, name: str) -> DataSource:
        """Return arrays prepared like a data set of the project.

        An array may be called like a field, or like the array that the field is made of; where
        there is one array and one field besides the target, they belong together.
        """
        settings = self.settings.data.get(part)
        fields = fields_of(settings.fields) if settings is not None else {}
        chosen: dict[str, Field] = {}
        for key, field in fields.items():
            for array in (key, field.array):
                if array in arrays and key not in chosen:
                    chosen[key] = field._replace(array=array)
        inputs = fields.keys() - {self.settings.model.target}
        if not chosen and len(inputs) == len(arrays) == 1:
            only = inputs.pop()
            chosen[only] = fields[only]._replace(array=next(iter(arrays)))
        chosen = chosen or {key: Field(key) for key in arrays}
        used = {field.array: arrays[field.array] for field in chosen.values()}
        return select_fields(ArraySource(used, name), chosen, name)


def fields_of(settings: Mapping[str, FieldSettings]) -> dict[str, Field]:
    """Return the fields that settings describe."""
    return {key: Field(**field.model_dump()) for key, field in settings.items()}


# -------------------------------------------------------------------- a project's own modules

_current: list[Path] = []  # the folder whose modules are loaded: one at most


def import_from(folder: Path, target: str, wanted_by: str) -> object:
    """Import ``"module:attribute"``, looking into ``folder`` first.

    The modules of the folder before it are forgotten: two projects may both have a ``model.py``.
    """
    folder = folder.resolve()
    if _current != [folder]:
        for other in _current:
            for name in modules_in(other):
                del sys.modules[name]
            if str(other) in sys.path:
                sys.path.remove(str(other))
        _current[:] = [folder]
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return resolve(target, wanted_by)


def modules_in(folder: Path) -> dict[str, Path]:
    """Return the files of the loaded modules that are a project's own, by the modules' names."""
    folder = folder.resolve()
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if (
            isinstance(file, str)
            and file.endswith(".py")
            and not name.startswith(("nnl_", "__main__"))
        ):
            for path in (Path(file), Path(file).resolve()):  # one may lead to it, or away from it
                if path.is_relative_to(folder) and "site-packages" not in path.parts:
                    found[name] = path
                    break
    return found
