"""Models as lists of layers, which are named in the project file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from nnl_core import functions as F
from nnl_core import parametric_functions as PF
from nnl_core.errors import ConfigurationError, ModelError, NnlError
from nnl_core.graph.variable import Variable
from nnl_core.hooks import InitializerSpec, LayerSpec
from nnl_core.hooks.loading import describe, did_you_mean
from nnl_core.module import Module
from nnl_core.parameters import parameter_scope

if TYPE_CHECKING:
    from nnl_core.session import Session
    from nnl_core.settings import LayerSettings

# What these do to their input is part of training only.
TRAINING_ONLY = frozenset(
    {"dropout", "image_augmentation", "random_crop", "random_erase", "random_flip", "random_shift"}
)


class _Layer(NamedTuple):
    scope: str
    function: Callable[..., object]
    arguments: dict[str, object]
    told: str | None  # the parameter that says whether the graph is for training
    only_training: bool


class LayeredModel:
    """A model function that applies layers one after another.

    A layer is that of a plugin, by the name in its `LayerSpec`, or else a function of ``PF`` or of
    ``F``. Its parameters are in a scope called as it is, with a number from the second of its kind.
    Arguments that are initializers are names, or tables with ``name``. Layers with an argument
    ``batch_stat`` or ``training`` are told whether the graph is for training; dropout and random
    changes are left out where it is not.

    Raises ConfigurationError, which begins with ``where``, for layers and arguments that there
    are not.
    """

    def __init__(
        self, layers: Sequence[LayerSettings], session: Session, *, input: str, where: str
    ) -> None:
        self.__name__ = "layers"
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(name, kind) for name in (input, "training")]
        )
        self._input = input
        self._session = session
        self._layers: list[_Layer] = []
        for number, settings in enumerate(layers):
            layer = self._layer(settings, f"{where}.{number}")
            if layer.scope in {other.scope for other in self._layers}:
                raise ConfigurationError(
                    f"{where}.{number}.name = {layer.scope!r}: another layer has that name"
                )
            self._layers.append(layer)

    def __call__(self, *, training: bool, **fields: Variable) -> Variable:
        """Apply all layers to the field that is their input."""
        value: object = fields[self._input]
        for number, layer in enumerate(self._layers):
            if layer.only_training and not training:
                continue
            told = {} if layer.told is None else {layer.told: training}
            try:
                if isinstance(layer.function, Module):
                    layer.function.training = training
                with parameter_scope(layer.scope):
                    value = layer.function(value, **told, **layer.arguments)
            except Exception as error:
                text = str(error) if isinstance(error, NnlError) else describe(error)
                raise ModelError(f"layer {number}, {layer.scope}: {text}") from error
            if not isinstance(value, Variable):
                raise ModelError(
                    f"layer {number}, {layer.scope}: it gives {type(value).__name__}, not one "
                    "variable; write a model function instead"
                )
        return cast(Variable, value)

    # ---------------------------------------------------------------- looking up

    def _layer(self, settings: LayerSettings, where: str) -> _Layer:
        found = self._find(settings.layer, f"{where}.layer")
        signature = inspect.signature(found)
        is_module = isinstance(found, type)
        names = list(signature.parameters)[0 if is_module else 1 :]
        takes_any = any(
            parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values()
        )
        for key in settings.arguments:
            if key not in names and not takes_any:
                hint = (
                    did_you_mean(key, names) or f"; it takes {', '.join(names) or 'no arguments'}"
                )
                raise ConfigurationError(f"{where}.{key}: {settings.layer} takes no {key!r}{hint}")
        arguments = {
            key: self._argument(key, value, f"{where}.{key}")
            for key, value in settings.arguments.items()
        }
        try:
            signature.bind(*(() if is_module else (None,)), **arguments)
        except TypeError as error:
            raise ConfigurationError(f"{where}: {settings.layer}: {error}") from None
        told = next((n for n in ("training", "batch_stat") if n in names), None)
        if is_module:
            try:
                function = cast("Callable[..., object]", found(**arguments))
            except Exception as error:
                raise ConfigurationError(f"{where}: {settings.layer}: {describe(error)}") from error
            arguments, told = {}, None
        else:
            function = found
        return _Layer(
            settings.name or self._free_scope(settings.layer),
            function,
            arguments,
            None if told in arguments else told,
            settings.layer in TRAINING_ONLY,
        )

    def _find(self, name: str, where: str) -> Callable[..., object]:
        manager = self._session.manager
        own = {n for n, value in vars(F).items() if callable(value) and not n.startswith("_")}
        parametric = {n for n in PF.__all__ if not n.startswith(("get_", "set_"))}
        if "." not in name and name in parametric | own:
            home = PF if name in parametric else F
            return cast("Callable[..., object]", getattr(home, name))
        records = {record.name: record for record in manager.collect(LayerSpec)}
        if name not in records:
            hint = did_you_mean(name, {*own, *parametric, *records})
            advice = hint or "; it is a function of PF or F, or 'plugin.layer'"
            raise ConfigurationError(f"{where} = {name!r}: there is no such layer{advice}")
        return cast("Callable[..., object]", manager.resolve(records[name]))

    def _argument(self, key: str, value: object, where: str) -> object:
        """Return an argument as functions take it: tuples for lists, objects for initializers."""
        if key.endswith("init") or key == "initializer":
            if isinstance(value, Mapping) and "name" not in value:  # one for each parameter
                return {part: self._argument(key, one, where) for part, one in value.items()}
            if isinstance(value, str):
                value = {"name": value}
            if isinstance(value, Mapping):
                return self._initializer(value, where)
        return _hashable(value)

    def _initializer(self, table: Mapping[str, object], where: str) -> object:
        manager = self._session.manager
        name = str(table["name"])
        arguments = {key: _hashable(value) for key, value in table.items() if key != "name"}
        try:
            factory = manager.resolve(manager.component(InitializerSpec, name))
            return cast("Callable[..., object]", factory)(**arguments)
        except (NnlError, TypeError, ValueError) as error:
            raise ConfigurationError(f"{where}: {error}") from error

    def _free_scope(self, layer: str) -> str:
        name = layer.rpartition(".")[2]
        taken = {other.scope for other in self._layers}
        number = 1
        while (scope := name if number == 1 else f"{name}_{number}") in taken:
            number += 1
        return scope


def _hashable(value: object) -> object:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
