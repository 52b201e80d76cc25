"""What a plugin must be like to be loaded: its class, its hooks' signatures and its records."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from types import ModuleType
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from nnl_core.errors import HookError, PluginConflictError, PluginLoadError, PluginVersionError
from nnl_core.hooks import loading, versions
from nnl_core.hooks.events import attribute_of
from nnl_core.hooks.records import Record, SettingsSpec
from nnl_core.hooks.selection import SECTIONS
from nnl_core.hooks.specs import API, HookInfo, Plugin

_NAME = re.compile(r"[A-Za-z]\w*(-\w+)*")
_API = re.compile(r"(\d+)(?:\.(\d+))?", re.ASCII)
_MOST_RECORDS = 10_000  # a generator without end must not hang the engine
_NOTHING = (inspect.Signature.empty, None, "None")


# -------------------------------------------------------------------- plugins


def instantiate(found: object, name: str) -> object:
    """Turn what an entry point led to into a plugin whose hooks can be called.

    Raises a `PluginError` where it is no plugin, or not one for this core.
    """
    plugin = found
    if inspect.isclass(found) and issubclass(found, Plugin):
        plugin = found()
    elif not isinstance(found, Plugin):
        raise PluginLoadError(f"{found!r} is not a subclass of nnl_core.hooks.Plugin")
    if not _NAME.fullmatch(name):
        raise PluginLoadError(f"{name!r} is not a plugin name: letters, digits, '_' and '-'")
    own = getattr(plugin, "name", None)
    if own != name:
        raise PluginLoadError(f"its class is named {own!r}, but its entry point {name!r}")
    if type(plugin).__eq__ is not object.__eq__:
        raise PluginLoadError("it defines __eq__; plugins are told apart by identity")
    requires = getattr(plugin, "requires", None)
    if not isinstance(requires, tuple | list) or not all(isinstance(it, str) for it in requires):
        raise PluginLoadError(f"requires must be a tuple of plugin names, not {requires!r}")
    check_api(getattr(plugin, "api", None))
    return plugin


def functions(module: ModuleType) -> ModuleType:
    """Return a module whose functions are hooks; PluginLoadError where it has none."""
    if not implemented(module):
        raise PluginLoadError("it defines no function named nnl_...")
    return module


def check_api(api: object) -> None:
    """Raise PluginVersionError where a plugin needs another hook interface than this one."""
    match = _API.fullmatch(api) if isinstance(api, str) else None
    if match is None:
        raise PluginLoadError(f"api must be a string like '1' or '1.2', not {api!r}")
    major, minor = (int(part) for part in API.split("."))
    if int(match[1]) != major or int(match[2] or 0) > minor:
        raise PluginVersionError(f"it needs hook interface {api}; this nnl-core has {API}")


def check_requirement(text: str) -> None:
    """Raise PluginVersionError where a plugin's distribution asks for another nnl-core.

    Requirements under conditions (extras, versions of Python) are the installer's business.
    """
    from nnl_core import __version__

    try:
        wanted = versions.parse_requirement(text)
        if wanted.name != "nnl-core" or wanted.marker:
            return
        if versions.satisfies(__version__, wanted.versions):
            return
    except ValueError as error:
        if "nnl" not in text:  # somebody else's business
            return
        raise PluginVersionError(f"its requirement {text!r}: {error}") from error
    raise PluginVersionError(f"it requires {text!r}; this is nnl-core {__version__}")


# -------------------------------------------------------------------- hooks


def implements(plugin: object, name: str) -> bool:
    """Tell whether an object has its own ``nnl_`` attribute: a specification is not one."""
    if not name.startswith("nnl_"):
        return False
    static = inspect.getattr_static(plugin, name, None)
    return static is not None and not hasattr(getattr(static, "__func__", static), "nnl_info")


def implemented(plugin: object) -> tuple[str, ...]:
    """Return the names of all hooks that an object implements."""
    return tuple(name for name in dir(plugin) if implements(plugin, name))


def info_of(specification: object) -> HookInfo:
    """Return what the engine knows about a hook specification."""
    return cast(HookInfo, vars(specification)["nnl_info"])


def options_of(plugin: object, name: str) -> dict[str, Any]:
    """Return what `hookimpl` marked an implementation with."""
    static = inspect.getattr_static(plugin, name)
    return cast(
        dict[str, Any], getattr(getattr(static, "__func__", static), "nnl_impl", None) or {}
    )


def check_implementations(
    plugin: object, names: Iterable[str], hooks: Mapping[str, HookInfo]
) -> None:
    """Raise HookError where an implementation does not fit its specification."""
    for name in dir(plugin):
        if not name.startswith("nnl_") and not name.startswith("__"):
            static = inspect.getattr_static(plugin, name, None)
            if hasattr(getattr(static, "__func__", static), "nnl_impl"):
                raise HookError(f"{name} is marked with hookimpl, but is not named nnl_...")
    for name in names:
        info = hooks.get(name)
        if info is not None:
            check_implementation(plugin, name, info, options_of(plugin, name))
        elif not options_of(plugin, name).get("optionalhook"):
            raise HookError(f"unknown hook {name}{loading.did_you_mean(name, hooks)}")


def check_implementation(
    plugin: object, name: str, info: HookInfo, options: Mapping[str, Any]
) -> None:
    """Raise HookError where one implementation does not fit its specification."""
    static = inspect.getattr_static(plugin, name)
    bare = getattr(static, "__func__", static)
    if not inspect.isfunction(bare):
        raise HookError(f"{name} is a {type(bare).__name__}, not a method")
    is_wrapper = options.get("wrapper") or options.get("hookwrapper")
    if is_wrapper and not info.wrappers:
        raise HookError(f"{name} ({info.role}, class {info.cost}) takes no wrappers")
    if inspect.iscoroutinefunction(bare) or inspect.isasyncgenfunction(bare):
        raise HookError(f"{name} is asynchronous; hooks are called without an event loop")
    if inspect.isgeneratorfunction(bare) and info.role != "provider" and not is_wrapper:
        raise HookError(f"{name} contains a yield, so calling it would do nothing")
    try:
        signature = inspect.signature(getattr(plugin, name))
    except ValueError as error:  # there is no place even for self
        raise HookError(f"{name}: {loading.describe(error)}") from error
    takes = tuple(
        _named(parameter)
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty
    )
    if takes != info.takes:
        raise HookError(f"{name} takes ({', '.join(info.takes)}), not ({', '.join(takes)})")
    if info.role == "event" and signature.return_annotation not in _NOTHING:
        raise HookError(f"{name} returns nothing, not {signature.return_annotation}")


def _named(parameter: inspect.Parameter) -> str:
    """Return a parameter's name, with a star where it cannot be given by position."""
    if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
        return parameter.name
    return f"{'*, ' if parameter.kind is parameter.KEYWORD_ONLY else ''}{parameter}"


def specifications(namespace: object, prefix: str) -> dict[str, HookInfo]:
    """Return the hooks that a class specifies; HookError where one breaks the rules."""
    if not inspect.isclass(namespace):
        raise HookError(f"{namespace!r} is not a class of hook specifications")
    hooks = {}
    for name in dir(namespace):
        if name.startswith("nnl_"):
            function = inspect.getattr_static(namespace, name)
            info = getattr(function, "nnl_info", None)
            if info is None:
                raise HookError(f"{name} is not marked with provider, decision or event")
            hooks[name] = _checked(name, function, info, prefix)
    if not hooks:
        raise HookError(f"{namespace.__name__} specifies no hook")
    return hooks


def _checked(name: str, function: Callable[..., object], info: HookInfo, prefix: str) -> HookInfo:
    if not name.startswith(prefix):
        raise HookError(f"{name} must be called {prefix}..., like its plugin")
    if (info.role == "event") != bool(re.match(r"nnl_(\w+_)?on_", name)):
        raise HookError(f"{name}: events, and they alone, are called nnl_..._on_...")
    if len(info.takes) != (info.role != "provider"):
        number = "no argument" if info.role == "provider" else "one argument"
        raise HookError(f"{name} ({info.role}) takes {number}, not ({', '.join(info.takes)})")
    if info.record and getattr(info.record, "_fields", ())[:3] != ("name", "target", "summary"):
        raise HookError(
            f"{name}: {info.record.__name__} does not begin with name, target and summary"
        )
    hot = info.cost in ("C", "D")
    if hot and info.role == "decision" and not info.exclusive:
        raise HookError(f"{name}: a decision of class {info.cost} must be exclusive")
    if info.wrappers and (hot or info.exclusive):
        raise HookError(f"{name}: hooks of class {info.cost} take no wrappers")
    answer = inspect.signature(function).return_annotation
    if info.role == "event" and answer not in _NOTHING:
        raise HookError(f"{name}: an event returns nothing, not {answer}")
    return info


def check_new_hook(name: str, info: HookInfo, known: Mapping[str, HookInfo]) -> None:
    """Raise PluginConflictError where a new hook takes a place that another has."""
    for other, its in known.items():
        if name == other:
            raise PluginConflictError(f"hook {name} is already defined")
        if attribute_of(name) == attribute_of(other):
            raise PluginConflictError(f"hook {name} is taken by {other}")
        if info.record is not None and info.record is its.record:
            raise PluginConflictError(f"{name}: {info.record.__name__} is what {other} returns")
        if info.kind and info.kind == its.kind:
            raise PluginConflictError(f"{name}: {info.kind!r} is what {other} returns")


# -------------------------------------------------------------------- records


def records(plugin: object, hook: str, info: HookInfo) -> list[Record]:
    """Ask a plugin for its records of one kind; PluginLoadError where the answer is nonsense."""
    kind = info.record
    assert kind is not None
    try:
        answer = getattr(plugin, hook)()
        if isinstance(answer, tuple) and hasattr(answer, "_fields"):
            raise PluginLoadError(f"{hook} returned one record; return an iterable of records")
        found = list(islice(answer, _MOST_RECORDS + 1))
    except (KeyboardInterrupt, PluginLoadError):
        raise
    except BaseException as error:
        raise PluginLoadError(f"{hook}: {loading.describe(error)}") from error
    if len(found) > _MOST_RECORDS:
        raise PluginLoadError(f"{hook} returned more than {_MOST_RECORDS} records")
    names = set()
    for record in found:
        if type(record) is not kind:  # which is what it is looked up by
            raise PluginLoadError(f"{hook} returned {record!r}, which is no {kind.__name__}")
        problem = _record_problem(record)
        if problem:
            raise PluginLoadError(f"{hook}: {info.kind} {record.name!r}: {problem}")
        if record.name in names:
            raise PluginLoadError(f"{hook} returned two records named {record.name!r}")
        names.add(record.name)
    if kind is SettingsSpec:
        own = names - {getattr(plugin, "name", None)}
        if not all(name.startswith(tuple(f"{section}." for section in SECTIONS)) for name in own):
            raise PluginLoadError(
                f"{hook}: a plugin has settings under its own name, 'explain.NAME' or 'report.NAME'"
            )
    return found


def _record_problem(record: Record) -> str | None:
    problem = next(_field_problems(record), None)
    if problem:
        return problem
    if not record.name.isprintable() or " " in record.name or record.name[:1] in ("", "-"):
        return "a name is one word, without '-' in front"
    if len(record.summary.splitlines()) > 1:
        return f"a summary is one line, not {record.summary!r}"
    probe = getattr(record, "probe", "")
    return loading.target_problem(record.target) or (
        loading.target_problem(probe) if probe else None
    )


def _field_problems(record: Record) -> Iterator[str]:
    """Compare the fields of a record with the types that its class declares."""
    for name, annotation in _types(type(record)).items():
        value = getattr(record, name)
        kind, choices = get_origin(annotation) or annotation, get_args(annotation)
        if kind is Literal and value not in choices:
            yield f"{name} must be one of {', '.join(map(str, choices))}, not {value!r}"
        elif kind in (str, int, bool, bytes, tuple, frozenset) and not isinstance(value, kind):
            yield f"{name} must be of type {kind.__name__}, not {value!r}"
        elif choices in ((str,), (str, ...)) and not all(isinstance(item, str) for item in value):
            yield f"{name} must hold strings, not {value!r}"


@cache
def _types(kind: type[Record]) -> dict[str, Any]:
    try:
        return get_type_hints(kind)
    except NameError:  # a plugin's own record, whose types only a type checker imports
        return {}
