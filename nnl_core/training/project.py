"""From the settings of a project to a model, data, a solver and a trainer."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from nnl_core.data import ArraySource, DataIterator, DataSource, Field, open_source, select_fields
from nnl_core.data.source import Array
from nnl_core.errors import ConfigurationError, DataError
from nnl_core.hooks import ScheduleSpec, SolverSpec
from nnl_core.hooks.loading import did_you_mean, resolve
from nnl_core.hooks.records import Record
from nnl_core.schedules import LinearWarmupScheduler
from nnl_core.solvers import DynamicLossScale, ParameterGroup
from nnl_core.training.metrics import Comparison
from nnl_core.training.model import MetricChoice, Model, ModelFunction
from nnl_core.training.trainer import Trainer

if TYPE_CHECKING:
    from nnl_core.schedules import Schedule
    from nnl_core.session import Session
    from nnl_core.settings import FieldSettings, ModelSettings, ProjectSettings, SolverSettings
    from nnl_core.solvers import Solver


class Workbench:
    """Makes what a project's settings name.

    ``folder`` is where modules are imported from, ``data_folder`` where relative paths of data
    begin.
    """

    def __init__(
        self,
        settings: ProjectSettings,
        folder: Path,
        session: Session,
        data_folder: Path | None = None,
    ) -> None:
        self.settings = settings
        self.folder = folder
        self.session = session
        self._data_folder = folder if data_folder is None else data_folder

    def model(self) -> Model:
        """Import the model function."""
        settings: ModelSettings = self.settings.model
        metrics: dict[str, MetricChoice] = {}
        for name in settings.metrics:
            if ":" in name:
                metrics[name.rpartition(":")[2]] = cast(Comparison, self._import(name, "metric"))
            else:
                metrics[name] = name
        loss: str | Comparison | None = settings.loss
        if settings.loss is not None and ":" in settings.loss:
            loss = cast(Comparison, self._import(settings.loss, "loss"))
        return Model(
            cast(ModelFunction, self._import(settings.function, "model.function")),
            loss=loss,
            metrics=metrics,
            target=settings.target,
            arguments=settings.arguments,
            session=self.session,
        )

    def _import(self, target: str, wanted_by: str) -> object:
        return import_from(self.folder, target, f"{wanted_by} = {target!r}")

    def data(self, name: str) -> DataSource:
        """Open one of the project's data sets."""
        known = self.settings.data
        if name not in known:
            hint = did_you_mean(name, known) or f"; it has {', '.join(known) or 'none'}"
            raise DataError(f"the project has no data set {name!r}{hint}")
        fields = fields_of(known[name].fields)
        source = open_source(
            known[name].source,
            self.session,
            folder=self._data_folder,
            wanted=sorted({field.array for field in fields.values()}) or None,
        )
        return select_fields(
            source, fields or {key: Field(key) for key in source.fields}, f"data.{name}"
        )

    def solver(self) -> Solver:
        """Make the solver."""
        settings: SolverSettings = self.settings.solver
        made = cast("Solver", self._make(SolverSpec, settings.name, settings.arguments, "solver"))
        made.set_groups(ParameterGroup(**group.model_dump()) for group in settings.groups)
        made.keep_average(settings.average)
        return made

    def loss_scale(self) -> DynamicLossScale | None:
        """Make the loss scale, where there is one."""
        settings = self.settings.solver.loss_scale
        return None if settings is None else DynamicLossScale(**settings.model_dump())

    def schedule(self, rate: float, steps: int) -> Schedule | None:
        """Make the schedule of a learning rate, for a run of so many steps."""
        settings = self.settings.solver.schedule
        if settings is None:
            return None
        arguments = {"init_lr": rate, **(settings.model_extra or {})}
        if "max_iter" in self._parameters_of(ScheduleSpec, settings.name):
            arguments.setdefault("max_iter", max(1, steps - settings.warmup))
        made = cast(
            "Schedule", self._make(ScheduleSpec, settings.name, arguments, "solver.schedule")
        )
        return LinearWarmupScheduler(made, settings.warmup) if settings.warmup else made

    def _parameters_of(self, kind: type[Record], name: str) -> list[str]:
        manager = self.session.manager
        factory = cast("Callable[..., object]", manager.resolve(manager.component(kind, name)))
        return list(inspect.signature(factory).parameters)

    def _make(
        self, kind: type[Record], name: str, arguments: Mapping[str, object], table: str
    ) -> object:
        """Make a component from a table of the project file, whose keys are its arguments."""
        manager = self.session.manager
        factory = cast("Callable[..., object]", manager.resolve(manager.component(kind, name)))
        known = self._parameters_of(kind, name)
        for key in arguments:
            if key not in known:
                hint = did_you_mean(key, known) or f"; it takes {', '.join(known)}"
                raise ConfigurationError(f"{table}.{key}: {name} takes no {key!r}{hint}")
        try:
            return factory(**arguments)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"{table} {name}: {error}") from error

    def trainer(self) -> Trainer:
        """Make everything and put it together."""
        settings = self.settings.train
        evaluated = settings.evaluate
        if evaluated is None and "validation" in self.settings.data:
            evaluated = "validation"
        data, solver = self.data("train"), self.solver()
        batches = len(DataIterator(data, settings.batch_size, last_batch=settings.last_batch))
        return Trainer(
            self.model(),
            data,
            solver,
            schedule=self.schedule(solver.learning_rate(), batches * settings.epochs),
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            seed=settings.seed,
            last_batch=settings.last_batch,
            accumulate=settings.accumulate,
            evaluate={evaluated: self.data(evaluated)} if evaluated else {},
            weight_decay=self.settings.solver.weight_decay,
            clip_grad_norm=self.settings.solver.clip_grad_norm,
            clip_grad_norm_each=self.settings.solver.clip_grad_norm_each,
            clip_grad_value=self.settings.solver.clip_grad_value,
            loss_scale=self.loss_scale(),
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
            path = Path(file).resolve()
            if path.is_relative_to(folder) and "site-packages" not in path.parts:
                found[name] = path
    return found
