"""Named parameters in scopes: how they are made, found, saved and loaded."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from nnl_core.errors import ParameterError
from nnl_core.graph.array import NdArray
from nnl_core.graph.checks import wholes
from nnl_core.graph.node import current_scope_name, pop_scope_name, push_scope_name
from nnl_core.graph.spec import DEFAULT_DTYPE
from nnl_core.graph.variable import Variable

if TYPE_CHECKING:
    from nnl_core.io import StoredParameter

Scope: TypeAlias = dict[str, "Variable | Scope"]
Initial: TypeAlias = Callable[[tuple[int, ...]], npt.ArrayLike] | npt.ArrayLike


class Parameter(Variable):
    """A trainable variable; ``name`` is its full name, such as ``conv1/conv/W``."""

    __slots__ = ()

    def __init__(
        self,
        shape: Iterable[int] = (),
        need_grad: bool | None = True,
        dtype: npt.DTypeLike = DEFAULT_DTYPE,
        name: str = "",
    ) -> None:
        super().__init__(shape, need_grad, dtype)
        self.name = name

    def _setup(self, data: NdArray, need_grad: bool | None = None) -> None:
        super()._setup(data, need_grad)
        self.is_steady = True

    def __repr__(self) -> str:
        fixed = "" if self.need_grad else " fixed"
        return f"<Parameter {self.name!r} {self.shape} {self.dtype}{fixed}>"


_root: Scope = {}


class _Current(threading.local):
    """Innermost scope of this thread; a thread starts at the root."""

    def __init__(self) -> None:
        self.scope = _root


_current = _Current()


def current_scope() -> Scope:
    """Return the innermost parameter scope: parameters and inner scopes by name."""
    return _current.scope


get_current_parameter_scope = current_scope


@contextmanager
def parameter_scope(name: str, scope: Scope | None = None) -> Iterator[Scope]:
    """Make and find parameters under ``name`` inside a ``with`` block.

    Blocks nest; ``a/b`` enters two at once. With ``scope``, a dictionary of one's own, names count
    from there instead of the current scope, and ``name`` may be empty. Nodes made inside are
    named after the scope. Raises `ParameterError` where the name is empty or a parameter's.
    """
    before = _current.scope
    parts = _split(name) if name.strip("/") or scope is None else []
    entered = _descend(before if scope is None else scope, parts, create=True)
    assert entered is not None
    for part in parts:
        push_scope_name(part)
    _current.scope = entered
    try:
        yield entered
    finally:
        _current.scope = before
        for _ in parts:
            pop_scope_name()


def get_parameter(key: str) -> Variable | None:
    """Return the parameter of that name under the current scope, or ``None``."""
    scope, name, _ = _place(key, create=False)
    found = None if scope is None else scope.get(name)
    return found if isinstance(found, Variable) else None


def get_parameter_or_create(
    name: str,
    shape: Iterable[int] | None = None,
    initializer: Initial | None = None,
    need_grad: bool = True,
    as_need_grad: bool | None = None,
) -> Variable:
    """Return the parameter of that name, made and initialised where it does not exist yet.

    Parameters
    ----------
    shape
        may be left out where the parameter exists or the initializer is an array
    initializer
        called with the shape, or an array of that shape; without one it starts at zero
    need_grad
        whether a new parameter is trainable
    as_need_grad
        ``False`` returns a variable through which no gradient flows, sharing the elements, and
        leaves the parameter itself trainable

    A parameter that exists keeps its own ``need_grad``: what was frozen stays frozen. Raises
    `ParameterError` where it has another shape.
    """
    scope, key, full_name = _place(name, create=True)
    assert scope is not None
    wanted = None if shape is None else wholes(shape, f"parameter {full_name!r}: shape")
    found = scope.get(key)
    if found is None:
        parameter: Variable = _create(full_name, wanted, initializer, need_grad)
        scope[key] = parameter
    elif isinstance(found, Variable):
        parameter = found
        if wanted is not None and parameter.shape != wanted:
            raise ParameterError(
                f"parameter {full_name!r} has shape {parameter.shape} and is asked for with shape "
                f"{wanted}; use another parameter_scope (or name=), or clear_parameters() first"
            )
    else:
        raise ParameterError(f"{full_name!r} is a scope, and cannot be a parameter too")
    flows = parameter.need_grad and need_grad and as_need_grad is not False
    return parameter if flows == parameter.need_grad else parameter.get_unlinked_variable(flows)


def _create(
    name: str, shape: tuple[int, ...] | None, initializer: Initial | None, need_grad: bool
) -> Parameter:
    if initializer is None:
        first: npt.NDArray[np.generic] | None = None
    elif callable(initializer):
        if shape is None:
            raise ParameterError(f"parameter {name!r} is new: give its shape")
        first = np.asarray(initializer(shape))
    else:
        first = np.asarray(initializer)
        shape = first.shape if shape is None else shape
    if shape is None:
        raise ParameterError(f"parameter {name!r} is new: give its shape")
    if first is not None and first.shape != shape:
        raise ParameterError(
            f"parameter {name!r} has shape {shape}, and its initial value has shape {first.shape}"
        )
    parameter = Parameter(shape, need_grad, name=name)
    parameter.d = 0 if first is None else first
    return parameter


def set_parameter(key: str, param: Variable) -> None:
    """Put a variable under a name, in place of any there; one without a name takes this one."""
    scope, name, full_name = _place(key, create=True)
    assert scope is not None
    if isinstance(scope.get(name), dict):
        raise ParameterError(f"{full_name!r} is a scope, and cannot be a parameter too")
    scope[name] = param
    param.name = param.name or full_name


def pop_parameter(key: str) -> Variable | None:
    """Remove and return the parameter of that name, or ``None`` where there is none."""
    scope, name, _ = _place(key, create=False)
    if scope is None or not isinstance(scope.get(name), Variable):
        return None
    found = scope.pop(name)
    assert isinstance(found, Variable)
    return found


def get_parameters(
    params: dict[str, Variable] | None = None, path: str = "", grad_only: bool = True
) -> dict[str, Variable]:
    """Return the parameters under the current scope by name, in the order they were made.

    Names are relative to the scope, with ``path`` before them. They are added to ``params`` where
    it is given. ``grad_only`` leaves out those that need no gradient.
    """
    result: dict[str, Variable] = {} if params is None else params
    for name, parameter in _walk(_current.scope, path.strip("/")):
        if not grad_only or parameter.need_grad:
            result[name] = parameter
    return result


def clear_parameters() -> None:
    """Forget all parameters under the current scope."""
    _current.scope.clear()


def save_parameters(
    path: str | os.PathLike[str],
    params: Mapping[str, Variable] | None = None,
    extension: str | None = None,
) -> None:
    """Save parameters (default: all under the current scope) to a file, whole or not at all.

    The suffix, or ``extension``, names the format. Raises `FileError` for an unknown one.
    """
    from nnl_core.io import StoredParameter, save

    chosen = get_parameters(grad_only=False) if params is None else params
    stored = {
        name: StoredParameter(parameter.data.read(), parameter.need_grad)
        for name, parameter in chosen.items()
    }
    save(path, stored, extension=extension)


def load_parameters(path: str | os.PathLike[str], extension: str | None = None) -> None:
    """Load all parameters of a file into the current scope, making those that do not exist.

    All or nothing: on any error no parameter has changed. Raises `FileError` where the file
    cannot be read or is damaged, `ParameterError` where a shape differs from what is there.
    """
    from nnl_core.io import load

    assign_parameters(load(path, extension=extension).parameters, os.fspath(path))


def assign_parameters(stored: Mapping[str, StoredParameter], origin: str) -> None:
    """Give the current scope's parameters new elements, making those that do not exist.

    All or nothing. ``origin`` is named in errors.
    """
    from nnl_core.graph.array import convert

    changed: list[tuple[Variable, npt.NDArray[np.generic], bool]] = []
    made: dict[str, Parameter] = {}
    for name, entry in stored.items():
        scope, key, full_name = _place(name, create=False)
        found = None if scope is None else scope.get(key)
        if isinstance(found, dict):
            raise ParameterError(
                f"{origin}: parameter {name!r} is a scope here; nothing was loaded"
            )
        if found is None:
            new = Parameter(entry.array.shape, entry.need_grad, entry.array.dtype, full_name)
            new.d = entry.array
            made[name] = new
            continue
        if found.shape != entry.array.shape:
            raise ParameterError(
                f"{origin}: parameter {name!r} has shape {entry.array.shape} in the file and "
                f"{found.shape} here; nothing was loaded"
            )
        changed.append((found, convert(entry.array, found.spec), entry.need_grad))
    for name in made:
        _check_free(name, made, origin)
    for name, new in made.items():
        set_parameter(name, new)
    for parameter, array, need_grad in changed:
        parameter.d = array
        parameter.need_grad = need_grad


def _check_free(name: str, others: Mapping[str, Variable], origin: str) -> None:
    """Raise where a name goes through one that is a parameter."""
    parts = _split(name)
    for count in range(1, len(parts)):
        outer = "/".join(parts[:count])
        if outer in others or get_parameter(outer) is not None:
            raise ParameterError(
                f"{origin}: {outer!r} is a parameter, so {name!r} cannot be; nothing was loaded"
            )


def _split(name: str) -> list[str]:
    parts = name.strip("/").split("/")
    if not all(parts):
        raise ParameterError(f"parameter name {name!r} has an empty part")
    return parts


def _place(key: str, *, create: bool) -> tuple[Scope | None, str, str]:
    """Return the scope that a name belongs to, its last part, and its full name."""
    *outer, last = _split(key)
    scope = _descend(_current.scope, outer, create=create)
    return scope, last, current_scope_name() + "/".join((*outer, last))


def _descend(scope: Scope, parts: list[str], *, create: bool) -> Scope | None:
    for position, part in enumerate(parts):
        inner = scope.get(part)
        if inner is None and create:
            inner = scope[part] = {}
        if isinstance(inner, dict):
            scope = inner
        elif not create:
            return None
        else:
            label = current_scope_name() + "/".join(parts[: position + 1])
            raise ParameterError(f"{label!r} is a parameter, and cannot be a scope too")
    return scope


def _walk(scope: Scope, path: str) -> Iterator[tuple[str, Variable]]:
    prefix = f"{path}/" if path else ""
    for name, entry in scope.items():
        if isinstance(entry, dict):
            yield from _walk(entry, f"{prefix}{name}")
        else:
            yield f"{prefix}{name}", entry
