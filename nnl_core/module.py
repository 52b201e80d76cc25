"""Models as objects: `Module` owns its parameters and the modules it is made of."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from nnl_core.errors import ParameterError
from nnl_core.graph.node import pop_scope_name, push_scope_name
from nnl_core.graph.variable import Variable
from nnl_core.parameters import (
    Parameter,
    Scope,
    assign_parameters,
    get_parameters,
    parameter_scope,
    save_parameters,
    set_parameter,
)

Step: TypeAlias = Callable[[Any], Any]

_MARK = "@"  # before the name of a submodule's scope inside its owner's


class Module:
    """Base class of models: define ``call``, and assign the modules it uses to attributes.

    Parametric functions in ``call`` make and find their parameters in the module's own scope,
    whatever scope is current outside. A `Parameter` assigned to an attribute belongs to the module
    too. In `get_parameters` a name has ``@attribute/`` before it for each module on the way.
    """

    @property
    def parameter_scope(self) -> Scope:
        """The module's own parameters, and the scopes of its submodules."""
        scope: Scope = self.__dict__.setdefault("_scope", {})
        return scope

    @property
    def submodules(self) -> dict[str, Module]:
        """Modules assigned to attributes, by attribute."""
        modules: dict[str, Module] = self.__dict__.setdefault("_submodules", {})
        return modules

    @property
    def name(self) -> str:
        """The attribute that it was assigned to, or the name of its class."""
        return str(self.__dict__.get("_name", type(self).__name__))

    @property
    def training(self) -> bool:
        """Whether it is used for training (at first it is); setting it reaches all submodules."""
        return bool(self.__dict__.get("_training", True))

    @training.setter
    def training(self, value: bool) -> None:
        self.__dict__["_training"] = value
        for module in self.submodules.values():
            module.training = value

    def __setattr__(self, name: str, value: object) -> None:
        self._forget(name)
        if isinstance(value, Module):
            self.__dict__.pop(name, None)
            self.submodules[name] = value
            self.parameter_scope[_MARK + name] = value.parameter_scope
            value.__dict__["_name"] = name
        elif isinstance(value, Parameter):
            self.__dict__.pop(name, None)
            self.parameter_scope[name] = value
            value.name = value.name or f"{self.name}/{name}"
        elif isinstance(value, (list, tuple, set, dict)) and any(
            isinstance(item, (Module, Parameter))
            for item in (value.values() if isinstance(value, dict) else value)
        ):
            raise ParameterError(
                f"{type(self).__name__}.{name}: modules and parameters in a {type(value).__name__} "
                "would not belong to the module; assign a Sequential of them, or each by itself"
            )
        else:
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            if name in self.submodules:
                return self.submodules[name]
            if isinstance(self.parameter_scope.get(name), Parameter):
                return self.parameter_scope[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        if not self._forget(name):
            object.__delattr__(self, name)

    def _forget(self, name: str) -> bool:
        """Drop the submodule or parameter of an attribute; return whether there was one."""
        if self.submodules.pop(name, None) is not None:
            del self.parameter_scope[_MARK + name]
            return True
        if isinstance(self.parameter_scope.get(name), Parameter):
            del self.parameter_scope[name]
            return True
        return False

    def call(self, *inputs: Any, **options: Any) -> Any:
        """Build the module's graph on the inputs, and return the outputs."""
        raise ParameterError(f"{type(self).__name__} defines no call(), so it cannot be called")

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Return what `call` makes of the inputs, in the module's own parameter scope."""
        push_scope_name(self.name)
        try:
            with parameter_scope("", self.parameter_scope):
                return self.call(*inputs, **options)
        finally:
            pop_scope_name()

    # Parameters ---------------------------------------------------------------------------------

    def get_parameters(
        self, recursive: bool = True, grad_only: bool = False
    ) -> dict[str, Variable]:
        """Return the parameters by name; one that is shared appears once, first come."""
        with parameter_scope("", self.parameter_scope):
            found = get_parameters(grad_only=grad_only)
        result: dict[str, Variable] = {}
        known: set[Variable] = set()
        for name, parameter in found.items():
            if parameter not in known and (recursive or not name.startswith(_MARK)):
                known.add(parameter)
                result[name] = parameter
        return result

    def set_parameter(self, key: str, param: Variable) -> None:
        """Put a variable under a name as `get_parameters` gives it.

        Raises `ParameterError` where a module on the way does not exist.
        """
        self.set_parameters({key: param})

    def set_parameters(self, params: Mapping[str, Variable]) -> None:
        """Put several variables under their names; a module that does not exist stops it all."""
        for key in params:
            self._check_modules(key)
        with parameter_scope("", self.parameter_scope):
            for key, parameter in params.items():
                set_parameter(key, parameter)

    def zero_grad(self) -> None:
        """Make the gradients of all parameters zero."""
        for parameter in self.get_parameters().values():
            parameter.grad.zero()

    def save_parameters(self, path: str | os.PathLike[str], extension: str | None = None) -> None:
        """Save all parameters to a file, whole or not at all; the suffix names the format."""
        save_parameters(path, self.get_parameters(), extension)

    def load_parameters(self, path: str | os.PathLike[str], extension: str | None = None) -> None:
        """Load what `save_parameters` wrote: all of it, or none on an error.

        Parameters that the module has not made yet are made. Raises `ParameterError` where a
        module or a shape does not fit.
        """
        from nnl_core.io import load

        stored = load(path, extension=extension).parameters
        for key in stored:
            self._check_modules(key)
        with parameter_scope("", self.parameter_scope):
            assign_parameters(stored, os.fspath(path))

    def _check_modules(self, key: str) -> None:
        module, rest = self, key
        while rest.startswith(_MARK):
            name, _, rest = rest.removeprefix(_MARK).partition("/")
            if name not in module.submodules:
                raise ParameterError(
                    f"parameter {key!r} belongs to a module {name!r}, which {module.name} has not; "
                    f"it has {', '.join(module.submodules) or 'none'}"
                )
            module = module.submodules[name]

    def __repr__(self) -> str:
        inner = "".join(f" {name}={module!r}" for name, module in self.submodules.items())
        return f"<{type(self).__name__}{inner}>"


class Layer(Module):
    """A parametric function and its arguments as a module: ``Layer(PF.affine, 10)``.

    Where the function takes ``batch_stat``, and it is not among the arguments, batch statistics are
    used exactly in `training`.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        self.function = function
        self.arguments = arguments
        self.options = options

    def call(self, *inputs: Any) -> Any:
        """Call the function on the inputs, followed by the arguments."""
        options = self.options
        if "batch_stat" in inspect.signature(self.function).parameters:
            options = {"batch_stat": self.training, **options}
        return self.function(*inputs, *self.arguments, **options)

    def __repr__(self) -> str:
        return f"<Layer {self.function.__name__}>"


class Sequential(Module):
    """Modules, or other callables, each called with what the one before it returned.

    Modules are named by position, ``@0``, ``@1`` and so on, or by keyword. Callables that are no
    modules, such as ``F.relu``, have no parameters of their own.
    """

    def __init__(self, *layers: Step, **named: Step) -> None:
        labels = [*map(str, range(len(layers))), *named]
        self._layers: list[tuple[str, Step | None]] = []
        for label, layer in zip(labels, (*layers, *named.values()), strict=True):
            if isinstance(layer, Module):
                setattr(self, label, layer)
            elif not callable(layer):
                raise ParameterError(f"layer {label!r} of a Sequential cannot be called: {layer!r}")
            self._layers.append((label, None if isinstance(layer, Module) else layer))

    def call(self, x: Any) -> Any:
        """Call the layers one after another."""
        for layer in self:
            x = layer(x)
        return x

    def __iter__(self) -> Iterator[Step]:
        return (self.submodules[label] if f is None else f for label, f in self._layers)

    def __len__(self) -> int:
        return len(self._layers)

    def __getitem__(self, index: int) -> Step:
        return list(self)[index]
