"""What a project file may say: its tables as models, and errors that point at the key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from nnl_core.errors import ConfigurationError
from nnl_core.hooks.loading import did_you_mean
from nnl_core.hooks.selection import Project, find_project, read_project

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Table(BaseModel):
    """A table of the project file: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OpenTable(Table):
    """A table whose further keys are arguments of what it names."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @property
    def arguments(self) -> dict[str, object]:
        """The further keys."""
        return dict(self.model_extra or {})


class ShortTable(Table):
    """A table that may be written as a plain string, which is the value of its first key."""

    @model_validator(mode="before")
    @classmethod
    def _first_alone(cls, value: object) -> object:
        return {next(iter(cls.model_fields)): value} if isinstance(value, str) else value

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: Any, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        made = handler(core)
        table = handler.resolve_ref_schema(made)
        whole = dict(table)
        table.clear()
        table["anyOf"] = [{"type": "string"}, whole]
        return made


class LayerSettings(ShortTable, OpenTable):
    """An entry of ``model.layers``; further keys are the layer's arguments.

    ``layer`` is that of a plugin, a parametric function (``PF``) or a function (``F``); ``name``
    is the scope of its parameters. A plain string is the layer's name.
    """

    layer: str
    name: str | None = None


class MetricSettings(ShortTable, OpenTable):
    """An entry of ``model.metrics``; further keys are the metric's arguments.

    ``name`` is that of a metric or an output, or ``"module:attribute"``; ``as`` is what it is
    reported under. A plain string is the name.
    """

    name: str
    label: str | None = Field(None, alias="as")
    higher_is_better: bool | None = None


class ModelSettings(Table):
    """``[model]``: what computes, and what its output is measured with.

    Either ``function`` is ``"module:function"``, the module found beside the project file, and
    ``arguments`` are passed to it by name; or ``layers`` come one after another, the first of them
    fed with the field ``input``. ``loss`` and ``metrics`` are names, or ``"module:function"``; they
    compare the output with the field ``target``.
    """

    function: str | None = None
    arguments: dict[str, object] = {}
    layers: tuple[LayerSettings, ...] = ()
    input: str = "x"
    loss: str | None = None
    metrics: tuple[MetricSettings, ...] = ()
    target: str = "y"

    @model_validator(mode="after")
    def _one_of_two(self) -> ModelSettings:
        if (self.function is None) == (not self.layers):
            raise ValueError("give function = 'module:function', or else layers = [...]")
        if self.arguments and self.function is None:
            raise ValueError("arguments are those of a function; layers have their own")
        return self


class FieldSettings(ShortTable):
    """``fields.x``: an array of the source and how it is prepared, once, before training.

    Each element becomes ``(element - subtract) / divide``; ``shape`` is that of one sample. A plain
    string is the array's name.
    """

    array: str
    shape: tuple[NonNegativeInt, ...] | None = None
    subtract: Finite = 0.0
    divide: Finite = 1.0
    dtype: (
        Literal["bfloat16", "float16", "float32", "float64", "uint8", "int32", "int64"] | None
    ) = None

    @model_validator(mode="after")
    def _not_by_zero(self) -> FieldSettings:
        if self.divide == 0:
            raise ValueError("divide must not be 0")
        return self


class DataSettings(Table):
    """``[data.NAME]``: a data set; without ``fields``, all arrays of the source by their names.

    ``transforms`` change the fields' samples, in order: names, ``"module:attribute"``, or tables of
    such a ``name`` and arguments. ``cache`` is a folder where the source's samples are kept, made
    ready, for the next run; a source that cannot tell whether it changed needs ``cache_key``.
    """

    source: str
    cache: str | None = None
    cache_key: str | None = None
    fields: dict[str, FieldSettings] = {}
    transforms: tuple[str | dict[str, object], ...] = ()


class ScheduleSettings(ShortTable, OpenTable):
    """``[solver.schedule]``: the learning rate by ``name``; further keys are its arguments.

    ``max_iter`` is the number of steps of the run unless it is given. The first ``warmup`` steps
    rise to the solver's rate. A plain string is the name.
    """

    name: str
    warmup: NonNegativeInt = 0


class GroupSettings(Table):
    """``[[solver.groups]]``: parameters that learn otherwise, as `nnl_core.S.ParameterGroup`."""

    pattern: str
    rate_factor: Annotated[Finite, Field(ge=0)] = 1.0
    decay_factor: Annotated[Finite, Field(ge=0)] = 1.0
    frozen: bool = False


class LossScaleSettings(Table):
    """``solver.loss_scale``: as `nnl_core.S.DynamicLossScale`, whose defaults these are."""

    scale: PositiveFloat = 2.0**15
    factor: Annotated[Finite, Field(gt=1)] = 2.0
    interval: PositiveInt = 2000


class SolverSettings(OpenTable):
    """``[solver]``: the update rule by ``name``; further keys are its arguments.

    ``average`` is the decay of the parameters' moving averages, which are then evaluated and saved.
    """

    name: str = "Adam"
    weight_decay: Annotated[Finite, Field(ge=0)] = 0.0
    clip_grad_norm: PositiveFloat | None = None
    clip_grad_norm_each: PositiveFloat | None = None
    clip_grad_value: PositiveFloat | None = None
    average: Annotated[Finite, Field(ge=0, lt=1)] | None = None
    groups: tuple[GroupSettings, ...] = ()
    loss_scale: LossScaleSettings | None = None
    schedule: ScheduleSettings | None = None


class TrainSettings(Table):
    """``[train]``: how long, in which portions, and where results go.

    ``epochs``, or a number of ``steps``, says how long. ``accumulate`` is the number of parts that
    each batch is computed in, to save memory. ``workers`` take batches in the background,
    ``prefetch`` of them ahead, as processes or threads (``worker_kind``). ``evaluate`` names the
    data sets that are evaluated after each epoch (default: ``validation``, where there is one), or
    after each ``evaluate_every`` epochs, and also after each ``evaluate_every_steps`` steps.
    ``folder`` holds a folder for each run.
    """

    epochs: PositiveInt = 10
    steps: PositiveInt | None = None
    batch_size: PositiveInt = 64
    accumulate: PositiveInt = 1
    seed: NonNegativeInt = 0
    last_batch: Literal["keep", "drop", "pad"] = "keep"
    workers: NonNegativeInt = 0
    worker_kind: Literal["process", "thread"] = "process"
    prefetch: PositiveInt | None = None
    evaluate: tuple[str, ...] | None = None
    evaluate_every: PositiveInt = 1
    evaluate_every_steps: PositiveInt | None = None
    folder: str = "runs"

    @field_validator("evaluate", mode="before")
    @classmethod
    def _one_alone(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_length(self) -> TrainSettings:
        if self.steps is not None and "epochs" in self.model_fields_set:
            raise ValueError("give epochs or steps, not both")
        return self


class CheckpointSettings(Table):
    """``[checkpoints]``: when a run is written down, to go on from there, and what is kept of that.

    As `nnl_core.training.CheckpointPolicy`, where 0 epochs are none, and ``keep = 0`` makes no
    checkpoint at all.
    """

    every_steps: PositiveInt | None = None
    every_epochs: NonNegativeInt = 1
    every_minutes: PositiveFloat | None = None
    keep: NonNegativeInt = 1
    best: str | None = None
    keep_best: PositiveInt = 1
    mode: Literal["min", "max"] | None = None

    @model_validator(mode="after")
    def _best_of_something(self) -> CheckpointSettings:
        if self.best is None and (self.keep_best > 1 or self.mode is not None):
            name = "mode" if self.keep_best == 1 else "keep_best"
            raise ValueError(f"{name} needs best = a metric, such as 'validation/loss'")
        return self


class CallbackSettings(ShortTable, OpenTable):
    """An entry of ``callbacks``: a class with ``nnl_on_...`` methods; further keys are arguments.

    ``callback`` is ``"module:Class"``. A plain string is that.
    """

    callback: str


class ProjectSettings(Table):
    """The whole project file.

    The tables in ``plugin``, ``explain`` and ``report`` are those of plugins, which check them.
    """

    plugins: tuple[str, ...] = ()
    disabled_plugins: tuple[str, ...] = ()
    required_plugins: tuple[str, ...] = ()
    plugin: dict[str, dict[str, object]] = {}
    explain: dict[str, dict[str, object]] = {}
    report: dict[str, dict[str, object]] = {}
    callbacks: tuple[CallbackSettings, ...] = ()
    backend: str | None = None
    precision: Literal["float32", "tf32", "mixed_float16", "mixed_bfloat16"] = "float32"
    model: ModelSettings
    data: dict[str, DataSettings] = {}
    solver: SolverSettings = SolverSettings()
    train: TrainSettings = TrainSettings()
    checkpoints: CheckpointSettings = CheckpointSettings()

    @field_validator("plugins", "disabled_plugins")
    @classmethod
    def _named_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name!r} is there twice")
        return names


# -------------------------------------------------------------------- reading


def open_project(path: Path, overrides: Sequence[str] = ()) -> Project:
    """Read the project file of a folder (or the file itself) and apply ``key=value`` overrides.

    Raises ConfigurationError where there is none.
    """
    if path.is_dir():
        project = find_project(path)
        if project is None:
            raise ConfigurationError(
                f"{path} has no nnl.toml, and no folder above it; `nnl init` makes one"
            )
    elif path.is_file() and path.suffix == ".toml":
        project = read_project(path.resolve())
    else:
        raise ConfigurationError(f"{path} is neither a folder nor a project file (.toml)")
    return project._replace(table=override(project.table, overrides))


def override(table: Mapping[str, object], overrides: Iterable[str]) -> dict[str, object]:
    """Return a copy of a table with assignments such as ``"train.epochs=3"`` applied.

    A value that is not TOML is taken as a string; ``"train.epochs="`` takes the key out.
    """
    result = deepcopy(dict(table))
    for text in overrides:
        path, equals, value = text.partition("=")
        *parents, key = (part.strip() for part in path.split("."))
        if not equals or not all((*parents, key)):
            raise ConfigurationError(f"--set {text}: write it like train.epochs=3")
        inner: Any = result
        for part in parents:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise ConfigurationError(f"--set {text}: {part!r} is {inner!r}, not a table")
        if value.strip():
            inner[key] = _value(value.strip())
        else:
            inner.pop(key, None)
    return result


def _value(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def check(table: Mapping[str, object], where: str) -> ProjectSettings:
    """Return a project file's table as settings.

    Raises ConfigurationError: one line with the file, the key, the value and what was meant.
    """
    try:
        return ProjectSettings.model_validate(table)
    except ValidationError as error:
        raise ConfigurationError(f"{where}: {explain(error, ProjectSettings)}") from error


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the first thing that is wrong, in one line."""
    # What is unknown explains what is missing, not the other way round.
    first = min(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
    kind, found = first["type"], first["input"]
    key = ".".join(str(part) for part in first["loc"])
    if kind == "missing":
        return f"{key} is missing"
    if kind == "extra_forbidden":
        known = _known_keys(model, first["loc"][:-1])
        hint = did_you_mean(str(first["loc"][-1]), known)
        return f"{key}: unknown key{hint or ('; known: ' + ', '.join(known) if known else '')}"
    message = first["msg"].removeprefix("Value error, ")
    if kind in ("model_type", "dict_type"):
        known = _known_keys(model, first["loc"])
        message = f"write a table, such as {{ {known[0] if known else 'name'} = ... }}"
    elif kind == "tuple_type":
        message = f"write a list, such as [{found!r}]"
    elif kind == "literal_error":
        message += did_you_mean(str(found), re.findall(r"'([^']*)'", message))
    message = f"{message[0].lower()}{message[1:]}"
    if kind == "value_error" and isinstance(found, dict):  # the table as a whole
        return f"{key or 'the table'}: {message}"
    return f"{key or 'the table'} = {found!r}: {message}"


def _known_keys(model: type[BaseModel], path: Iterable[int | str]) -> list[str]:
    current: Any = model
    for part in path:
        if isinstance(current, type) and issubclass(current, BaseModel):
            field = current.model_fields.get(str(part))  # none where it has an alias
            current = None if field is None else field.annotation
        else:  # dict[str, Model], list[Model]
            current = (None, *(a for a in get_args(current) if a is not Ellipsis))[-1]
        choices = [choice for choice in get_args(current) if isinstance(choice, type)]
        if isinstance(current, UnionType):  # Model | None
            current = next((c for c in choices if issubclass(c, BaseModel)), current)
    return list(getattr(current, "model_fields", ()))
