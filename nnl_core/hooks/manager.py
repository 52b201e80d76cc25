"""The plugin manager: finds plugins, keeps broken ones apart, and is the only one to call hooks.

A plugin is *available* once loaded (its components can be named), *active* when it was named (its
decision and event hooks are called), *disabled*, or *failed* with a cause. All that a plugin says
of itself is checked when it is loaded, so that it is in as a whole or not at all.
"""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pluggy

from nnl_core.errors import (
    ConfigurationError,
    HookError,
    NnlError,
    PluginConflictError,
    PluginError,
    PluginLoadError,
    PluginVersionError,
    PluginWarning,
)
from nnl_core.hooks import checks, loading, versions
from nnl_core.hooks.components import Components
from nnl_core.hooks.entry import PluginEntry, State, entry_for
from nnl_core.hooks.events import (
    EventTable,
    PluginRegistered,
    SessionEnd,
    SessionStart,
    attribute_of,
    compile_listeners,
    with_note,
)
from nnl_core.hooks.selection import Selection
from nnl_core.hooks.specs import Plugin

if TYPE_CHECKING:
    from nnl_core.graph.operator import Kernel
    from nnl_core.graph.program import Program, Request
    from nnl_core.hooks.events import BackendRequest, KernelRequest
    from nnl_core.training import Evaluator, Trainer, TrainResult

GROUP = "nnl.plugins"
_REWRITES = {"nnl_graph_passes", "nnl_compile_graph", "nnl_select_kernel", "nnl_kernels"}
_versions = count(1)  # of the sets of plugins that have to do with graphs, in this process


class _Pluggy(pluggy.PluginManager):
    """pluggy, taught that overriding a method of `Plugin` is the declaration of a hook."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        if not checks.implements(plugin, name):
            return None
        caller: pluggy.HookCaller | None = getattr(self.hook, name, None)
        if caller is None or caller.spec is None:
            return None  # an optional hook that nobody defines
        if checks.info_of(caller.spec.function).role == "provider":
            return None  # asked once, when the plugin is loaded
        return cast(pluggy.HookimplOpts, checks.options_of(plugin, name))


class PluginManager(Components):
    """Loads the selected plugins and answers for them.

    Installed plugins are looked for by `load`, or when something unknown is named; ``built_in``
    ones are found there too. ``report`` receives one line for each
    plugin that fails. Without ``discover``, only what is registered by hand or built in exists.
    """

    def __init__(
        self,
        selection: Selection | None = None,
        *,
        discover: bool = True,
        report: Callable[[str], None] | None = None,
        built_in: Iterable[PluginEntry] = (),
    ) -> None:
        super().__init__()
        self.events = EventTable()
        self.selection = selection or Selection()
        self.graph_version = 0
        self._rewriters: list[object] = []
        self._report = report or _warn
        self._discover = discover
        self._built_in = tuple(built_in)
        self.is_loaded = False
        self._pluggy = _Pluggy("nnl")
        self._listeners: list[object] = []
        self._add_hookspecs(Plugin, None)

    # ---------------------------------------------------------------- loading

    def register(self, plugin: Plugin | type[Plugin], *, active: bool = True) -> PluginEntry:
        """Load one plugin by hand; it is called before those that are there.

        Raises a `PluginError`, and leaves no trace of the plugin, where it is not acceptable.
        """
        entry = entry_for(plugin)
        if self.entry(entry.name) is not None:
            raise PluginConflictError(f"a plugin named {entry.name!r} is already registered")
        self.entries.append(entry)
        self._load([entry], {entry.name} if active else set())
        if entry.error is not None:
            self.entries.remove(entry)
            raise entry.error
        return entry

    def load(self, local: Iterable[object] = ()) -> None:
        """Load installed plugins as selected, and ``local`` ones (classes, instances, files).

        Plugins that fail are reported and left out; `check` raises where that is fatal.
        """
        self.is_loaded = True
        selection = self.selection
        given = [entry_for(plugin) for plugin in local]
        for entry in given:
            entry.is_fatal = not isinstance(entry.plugin, Path)  # a program's own must work
        found = [*given, *self._built_in, *(self._installed() if self._discover else ())]
        for entry in found:
            holder = self.entry(entry.name)
            self.entries.append(entry)
            if holder is not None and entry.error is None:
                self._fail(entry, PluginConflictError(f"its name is taken by {holder}"))
        places = {name: place for place, name in enumerate(selection.named)}
        found.sort(key=lambda entry: (places.get(entry.name, len(places)), entry.name))
        self._load(found, {*selection.named, *(entry.name for entry in given)})
        for entry in found:
            if entry.error is not None and not entry.is_fatal:
                self._report(f"{entry.error}; left out")

    def check(self) -> None:
        """Raise the first failure of loading that must not pass."""
        for problem in self.problems():
            raise problem

    def problems(self) -> Iterator[NnlError]:
        """Yield the failures of loading that must not pass.

        That is: a named plugin that is not installed, one of ``required_plugins`` that is absent,
        unusable or of another version, a second implementer of an exclusive hook and, where
        strict, any failure.
        """
        selection = self.selection
        installed = {entry.name for entry in self.entries}
        for name in selection.named:
            if name not in installed:
                yield ConfigurationError(
                    f"plugin {name!r} (named by {selection.sources.get(name, 'the session')}) is "
                    f"not installed{loading.did_you_mean(name, installed)}"
                )
        for entry in self.entries:
            if entry.error is not None and (selection.strict or entry.is_fatal):
                yield entry.error
        for text in selection.required:
            yield from self._requirement_problems(text)

    def block(self, name: str) -> None:
        """Take a plugin, and those that require it, out of use."""
        entry = self.entry(name)
        if entry is None or not entry.is_loaded:
            raise PluginError(f"no plugin {name!r} is loaded")
        self._withdraw(entry, "disabled", "by request")
        self._settle(self.entries)
        self._compile()

    def unregister(self, name: str) -> None:
        """Forget a plugin altogether; those that require it fail."""
        entry = self.entry(name)
        if entry is None:
            raise PluginError(f"no plugin {name!r} is registered")
        self._withdraw(entry, "disabled", "unregistered")
        self.entries.remove(entry)
        self._settle(self.entries)
        self._compile()

    def entry(self, name: str) -> PluginEntry | None:
        """Return the plugin of that name; where several claim it, the one that has it."""
        return next((entry for entry in self.entries if entry.name == name), None)

    def _requirement_problems(self, text: str) -> Iterator[NnlError]:
        try:
            wanted = versions.parse_requirement(text)
            found = [
                entry
                for entry in self.entries
                if wanted.name in (versions.canonical(entry.distribution), entry.name)
            ]
            for entry in found:
                if entry.error is not None:
                    yield entry.error
                elif not entry.is_loaded:
                    yield PluginError(f"{entry} is required, but disabled: {entry.cause}")
                elif not versions.satisfies(entry.version or "0", wanted.versions):
                    yield PluginVersionError(f"{entry} is installed, but {text!r} is required")
            if not found:
                yield ConfigurationError(f"the required plugin {text!r} is not installed")
        except ValueError as error:
            yield ConfigurationError(f"required_plugins: {error}")

    def _ensure_loaded(self) -> None:
        if not self.is_loaded:
            self.load()

    def _installed(self) -> list[PluginEntry]:
        """Find installed plugins, sorted by distribution, without importing any."""
        import importlib_metadata

        found: dict[str, list[PluginEntry]] = {}
        for distribution in importlib_metadata.distributions():
            path = str(getattr(distribution, "_path", distribution))
            try:
                # Hardly any distribution is a plugin: look before parsing.
                if GROUP not in (distribution.read_text("entry_points.txt") or ""):
                    continue
                metadata = distribution.metadata  # parsed each time that it is asked for
                name, version = str(metadata["Name"]), str(metadata["Version"])
                summary = " ".join(str(metadata.get("Summary") or "").split())
                requirements = tuple(distribution.requires or ())
                points = [
                    PluginEntry(
                        point.name,
                        target=point.value.partition("[")[0].strip(),  # what follows are extras
                        distribution=name,
                        version=version,
                        summary=summary,
                        requirements=requirements,
                    )
                    for point in distribution.entry_points.select(group=GROUP)
                ]
            except Exception as error:
                name = Path(path).stem
                points = [PluginEntry(name)]
                self._fail(
                    points[0],
                    PluginLoadError(f"cannot read {path}: {loading.describe(error)}"),
                )
            # As with imports, the first on sys.path hides those behind it.
            found.setdefault(versions.canonical(name), points)
        return [
            entry
            for _, entries in sorted(found.items())
            for entry in sorted(entries, key=lambda entry: entry.name)
        ]

    def _load(self, entries: list[PluginEntry], active: set[str]) -> None:
        """Take new plugins from their entries to the event table."""
        candidates = {entry.name: entry for entry in entries if entry.error is None}
        wanted = []
        for name, entry in candidates.items():
            if name in self.selection.blocked:
                entry.cause = f"by {self.selection.sources.get(name, 'request')}"
            elif name in active or self.selection.autoload:
                wanted.append(entry)
            else:
                entry.cause = "plugin autoload is off"
        for entry in wanted:  # which grows by what its members require
            self._attempt(entry, self._import)
            for name in entry.requires if entry.is_loaded else ():
                other = candidates.get(name)
                if other is not None and other not in wanted and name not in self.selection.blocked:
                    wanted.append(other)
        wanted += self._activate(active, wanted)
        wanted.sort(key=lambda entry: entry.state != "active")
        new = [entry for entry in wanted if entry.name in candidates]
        for entry in new:
            self._attempt(entry, self._define_hooks)
        self._settle(wanted)
        for entry in new:
            self._attempt(entry, self._collect)
        self._settle(wanted)
        for entry in reversed(wanted):  # pluggy calls the last registered first
            self._attempt(entry, self._connect)
        self._compile()
        self._announce()

    def _activate(self, names: Iterable[str], new: list[PluginEntry]) -> list[PluginEntry]:
        """Make plugins and what they require active; return those that were loaded before."""
        queue = list(names)
        for name in queue:
            entry = self.entry(name)
            required = entry.requires if entry is not None and entry.is_loaded else ()
            queue += [other for other in required if other not in queue]
        found = [
            entry for entry in self.entries if entry.state == "available" and entry.name in queue
        ]
        for entry in found:
            entry.state = "active"
        return [entry for entry in found if entry not in new]

    def _attempt(self, entry: PluginEntry, step: Callable[[PluginEntry], None]) -> None:
        """Take one step with a plugin that is still whole; whatever it raises is its failure."""
        if entry.state == "failed":
            return
        try:
            step(entry)
        except KeyboardInterrupt as error:
            loading.add_note(error, f"while {entry} was loaded")
            raise
        except BaseException as error:  # a plugin may even exit
            self._fail(entry, error)

    def _fail(self, entry: PluginEntry, error: BaseException) -> None:
        is_ours = (
            isinstance(error, PluginError) and type(error).__module__ == PluginError.__module__
        )
        kind = type(error) if is_ours else PluginLoadError
        cause = str(error) if is_ours else loading.describe(error)
        cause = cause.removeprefix(f"{entry}: ")
        entry.error = cast(type[PluginError], kind)(f"{entry}: {cause}")
        entry.error.__cause__ = error.__cause__ if is_ours else error
        self._withdraw(entry, "failed", cause)

    def _withdraw(self, entry: PluginEntry, state: State, cause: str) -> None:
        """Undo all that the manager did with a plugin."""
        entry.state, entry.cause = state, cause
        if entry.plugin is not None and self._pluggy.is_registered(entry.plugin):
            self._pluggy.unregister(entry.plugin)
        self._forget(entry.plugin)
        for components in self._records.values():
            for name in [name for name, (_, owner) in components.items() if owner is entry]:
                del components[name]
        for hook in [hook for hook, (_, owner) in self._hooks.items() if owner is entry]:
            del self._hooks[hook]
            delattr(self._pluggy.hook, hook)
            vars(self.events).pop(attribute_of(hook), None)

    # ---------------------------------------------------------------- the steps of loading

    def _import(self, entry: PluginEntry) -> None:
        for text in entry.requirements:
            checks.check_requirement(text)
        found = entry.plugin
        if found is None:
            start = time.perf_counter()
            try:
                found = loading.resolve(entry.target, str(entry))
            finally:
                entry.import_ms = (time.perf_counter() - start) * 1000
        if isinstance(found, Path):
            entry.plugin = checks.functions(loading.import_file(found))
        else:
            entry.plugin = checks.instantiate(found, entry.name)
        entry.api = str(getattr(entry.plugin, "api", ""))
        entry.requires = tuple(getattr(entry.plugin, "requires", ()))
        entry.hooks = checks.implemented(entry.plugin)
        entry.state = "available"

    def _define_hooks(self, entry: PluginEntry) -> None:
        hook = "nnl_hookspecs"
        if hook in entry.hooks:
            for record in checks.records(entry.plugin, hook, self._hooks[hook][0]):
                self._add_hookspecs(loading.resolve(record.target, f"{entry}: {hook}"), entry)

    def _add_hookspecs(self, namespace: object, owner: PluginEntry | None) -> None:
        prefix = "nnl_" if owner is None else f"nnl_{owner.name.replace('-', '_')}_"
        found = checks.specifications(namespace, prefix)
        hooks = dict(self._hooks)
        for hook, info in found.items():
            checks.check_new_hook(hook, info, {name: known for name, (known, _) in hooks.items()})
            hooks[hook] = info, owner
        self._hooks = hooks
        self._pluggy.add_hookspecs(cast(type, namespace))

    def _settle(self, entries: list[PluginEntry]) -> None:
        """Check what plugins need of others, until nothing more falls out."""
        settled = False
        while not settled:
            settled = True
            for entry in entries:
                if entry.is_loaded:
                    self._attempt(entry, self._check_needs)
                    settled = settled and entry.is_loaded

    def _check_needs(self, entry: PluginEntry) -> None:
        for name in entry.requires:
            other = self.entry(name)
            if other is None:
                raise PluginLoadError(f"it requires plugin {name!r}, which is not installed")
            if other.state == "failed":
                raise PluginLoadError(f"it requires plugin {name!r}, which failed: {other.cause}")
            if other.state == "disabled":
                self._withdraw(entry, "disabled", f"it requires {name!r}, disabled {other.cause}")
                return
        hooks = {hook: info for hook, (info, _) in self._hooks.items()}
        checks.check_implementations(entry.plugin, entry.hooks, hooks)
        if entry.state == "active":
            for hook in entry.hooks:
                if hook in hooks and hooks[hook].exclusive:
                    self._check_exclusive(entry, hook)

    def _check_exclusive(self, entry: PluginEntry, hook: str) -> None:
        for other in self.entries:
            if other is entry:
                return
            if other.state == "active" and hook in other.hooks:
                entry.is_fatal = True
                raise PluginConflictError(f"{hook} is already implemented by {other}")

    def _collect(self, entry: PluginEntry) -> None:
        for hook, (info, _) in self._hooks.items():
            if info.role != "provider" or hook not in entry.hooks:
                continue
            known = self._records.setdefault(hook, {})
            for record in checks.records(entry.plugin, hook, info):
                if record.name in known:
                    raise PluginConflictError(
                        f"{hook}: {info.kind} {record.name!r} is already provided by "
                        f"{known[record.name][1]}"
                    )
                known[record.name] = record, entry

    def _connect(self, entry: PluginEntry) -> None:
        if entry.state == "active":
            self._pluggy.register(entry.plugin, entry.name)

    # ---------------------------------------------------------------- events

    @contextmanager
    def listen(self, listener: object) -> Iterator[None]:
        """Call an object's ``nnl_on_...`` methods inside a ``with`` block, after the plugins.

        Raises `HookError` where it has none, or one that is not an event.
        """
        names = checks.implemented(listener)
        hooks = {hook: info for hook, (info, _) in self._hooks.items() if info.role == "event"}
        if not names:
            raise HookError(f"{listener!r} has no method named nnl_on_...")
        checks.check_implementations(listener, names, hooks)
        self._listeners.append(listener)
        self._compile()
        try:
            self._announce()
            yield
        finally:
            self._listeners = [other for other in self._listeners if other is not listener]
            self._forget(listener)
            self._compile()

    def start_session(self, event: SessionStart) -> None:
        """Tell of a session's start. Where somebody raises, those told before hear of its end."""
        told: list[object] = []
        for owner, function, note in self._implementers("nnl_on_session_start"):
            try:
                with_note(function, note)(event)
            except BaseException:
                self.end_session(SessionEnd(event.session, event.settings), told)
                raise
            told.append(owner)

    def end_session(self, event: SessionEnd, told: Iterable[object] | None = None) -> None:
        """Tell of a session's end: all, or those ``told`` of its start, whoever of them raises."""
        with ExitStack() as stack:  # which calls in reverse order, as is due at an end
            for owner, function, note in self._implementers("nnl_on_session_end"):
                if told is None or any(owner is other for other in told):
                    stack.callback(with_note(function, note), event)

    def event_hooks(self) -> list[str]:
        """Return the names of all event hooks, those of plugins included."""
        return [hook for hook, (info, _) in self._hooks.items() if info.role == "event"]

    def _compile(self) -> None:
        """Bring the event table up to date."""
        for hook, (info, _) in self._hooks.items():
            if info.role == "event" or info.exclusive:
                functions = [(function, note) for _, function, note in self._implementers(hook)]
                if hook.endswith("_end"):
                    functions.reverse()
                vars(self.events)[attribute_of(hook)] = compile_listeners(functions)
        rewriters = [
            entry.plugin
            for entry in self.entries
            if entry.state == "active"
            and entry.name != "core"
            and not _REWRITES.isdisjoint(entry.hooks)
        ]
        if rewriters != self._rewriters:
            self._rewriters = rewriters
            self.graph_version = next(_versions) if rewriters else 0

    def _implementers(self, hook: str) -> list[tuple[object, Callable[..., object], str]]:
        """Return who implements a hook, in calling order, with the note for its exceptions."""
        found = [
            (impl.plugin, impl.function, f"in {self._signed(impl.plugin_name)}, hook {hook}")
            for impl in reversed(getattr(self._pluggy.hook, hook).get_hookimpls())
        ]
        for listener in self._listeners:
            if checks.implements(listener, hook):
                note = f"in listener {type(listener).__name__}, hook {hook}"
                found.append((listener, getattr(listener, hook), note))
        return found

    def _signed(self, name: str) -> str:
        entry = self.entry(name)
        return f"plugin {name!r} {entry.version if entry else ''}".rstrip()

    def _announce(self) -> None:
        """Tell each listener of the plugins that it has not heard of."""
        hook = "nnl_on_plugin_registered"
        for owner, function, note in self._implementers(hook):
            for entry in [entry for entry in self.entries if entry.is_loaded]:
                if any(owner is other for other in entry.heard_by):
                    continue
                entry.heard_by.append(owner)
                try:
                    function(PluginRegistered(entry.name, entry.distribution, entry.version))
                except KeyboardInterrupt:
                    raise
                except BaseException as error:
                    guilty = next((it for it in self.entries if it.plugin is owner), None)
                    if guilty is None:
                        loading.add_note(error, note)
                        raise
                    self._fail(guilty, PluginLoadError(f"{hook}: {loading.describe(error)}"))
                    self._settle(self.entries)
                    self._compile()
                    break

    def _forget(self, owner: object) -> None:
        """Note that one who comes again has heard of no plugin."""
        for entry in self.entries:
            entry.heard_by = [other for other in entry.heard_by if other is not owner]

    # ---------------------------------------------------------------- decisions

    def decide(self, hook: str, argument: object) -> Any:
        """Return the first answer to a decision hook, or None; for the hooks of plugins."""
        self._ensure_loaded()
        info = self._hooks[hook][0] if hook in self._hooks else None
        if info is None or info.role != "decision":
            raise HookError(
                f"{hook!r} is no decision hook{loading.did_you_mean(hook, self._hooks)}"
            )
        caller = getattr(self._pluggy.hook, hook)
        try:
            return caller(**{info.takes[0]: argument})
        except BaseException as error:
            name = _blamed(error, caller.get_hookimpls())
            if name is not None:
                loading.add_note(error, f"in {self._signed(name)}, hook {hook}")
            raise

    def select_backend(self, request: BackendRequest) -> str | None:
        """Ask ``nnl_select_backend``."""
        return cast("str | None", self.decide("nnl_select_backend", request))

    def select_kernel(self, request: KernelRequest) -> Kernel | None:
        """Ask ``nnl_select_kernel``."""
        return cast("Kernel | None", self.decide("nnl_select_kernel", request))

    def compile_graph(self, request: Request) -> Program:
        """Ask ``nnl_compile_graph``."""
        return cast("Program", self.decide("nnl_compile_graph", request))

    def run_training(self, trainer: Trainer) -> TrainResult:
        """Ask ``nnl_run_training``."""
        return cast("TrainResult", self.decide("nnl_run_training", trainer))

    def run_evaluation(self, evaluator: Evaluator) -> dict[str, float]:
        """Ask ``nnl_run_evaluation``."""
        return cast("dict[str, float]", self.decide("nnl_run_evaluation", evaluator))


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, or ``None``."""
    import importlib_metadata

    try:
        return str(importlib_metadata.version(distribution))
    except importlib_metadata.PackageNotFoundError:
        return None


def _blamed(error: BaseException, implementations: Iterable[pluggy.HookImpl]) -> str | None:
    """Return the plugin whose implementation is innermost in a traceback."""
    by_code = {
        getattr(inspect.unwrap(impl.function), "__code__", None): impl.plugin_name
        for impl in implementations
        if impl.plugin_name != "core"  # whose answers run what is to blame
    }
    name = None
    traceback = error.__traceback__
    while traceback is not None:
        name = by_code.get(traceback.tb_frame.f_code, name)
        traceback = traceback.tb_next
    return name


def _warn(message: str) -> None:
    # From load, whoever asked for it: the place in the engine tells nobody anything.
    warnings.warn(message, PluginWarning, stacklevel=4)
