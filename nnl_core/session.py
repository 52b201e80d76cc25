"""A session: which plugins are in use, with which settings, and the events that they hear."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar, cast

from nnl_core import __version__
from nnl_core.builtin import PLUGINS, CorePlugin
from nnl_core.errors import (
    BackendError,
    ConfigurationError,
    HookError,
    NnlError,
    PluginError,
    UnknownComponentError,
)
from nnl_core.hooks import (
    BackendRequest,
    BackendSpec,
    GraphCompiled,
    KernelSet,
    OperatorSet,
    PassSpec,
    Plugin,
    SessionEnd,
    SessionStart,
    SettingsSpec,
)
from nnl_core.hooks.entry import PluginEntry, entry_for
from nnl_core.hooks.loading import describe, did_you_mean, resolve
from nnl_core.hooks.manager import PluginManager
from nnl_core.hooks.selection import Project, find_project, select

if TYPE_CHECKING:
    from pydantic import BaseModel

    from nnl_core.graph.backend import Backend
    from nnl_core.graph.ir import Graph
    from nnl_core.graph.passes import Pass
    from nnl_core.graph.program import Program, Request

Model = TypeVar("Model", bound="BaseModel")


class Session:
    """Plugins in use and their settings; a ``with`` block makes it the current session.

    ``plugins`` become active: names of installed ones, subclasses or instances of `Plugin`. All
    other installed plugins are available: their components can be named. The environment variables
    ``NNL_PLUGINS`` and its like are honoured, the project file only by `from_project`. ``settings``
    holds tables such as ``{"early_stopping": {"patience": 3}}``, which replace those of the
    project.

    Raises a `NnlError` where a named or required plugin cannot be had, unless ``tolerant``.
    """

    def __init__(
        self,
        plugins: Iterable[str | Plugin | type[Plugin]] = (),
        *,
        settings: Mapping[str, Mapping[str, object]] | None = None,
        project: Project | None = None,
        command_line: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        report: Callable[[str], None] | None = None,
        discover: bool = True,
        tolerant: bool = False,
    ) -> None:
        if isinstance(plugins, str):
            raise ConfigurationError(f"plugins is a list of plugins, such as [{plugins!r}]")
        given = list(plugins)
        names = [plugin if isinstance(plugin, str) else entry_for(plugin).name for plugin in given]
        local: list[object] = [plugin for plugin in given if not isinstance(plugin, str)]
        if project is not None and (project.path.parent / "nnlfile.py").is_file():
            local.append(project.path.parent / "nnlfile.py")
        environment = os.environ if environment is None else environment
        selection = select(project, environment, command_line, names)
        self._choices = (given, settings, command_line, environment, report, discover)
        self._environment = environment
        self.project = project
        self.settings: Mapping[str, object] = {} if project is None else project.table
        built_in = [
            PluginEntry(
                name,
                target=target,
                distribution="nnl-core",
                version=__version__,
                summary=summary,
            )
            for name, target, summary in PLUGINS
        ]
        self.manager = PluginManager(selection, discover=discover, report=report, built_in=built_in)
        core = self.manager.register(CorePlugin)
        core.distribution, core.version = "nnl-core", __version__
        core.summary = "the components of the core"
        self.events = self.manager.events
        self._tables = {
            **({} if project is None else project.plugin_tables()),
            **(settings or {}),
        }
        self._models: dict[str, BaseModel] = {}
        self._backends: dict[str, Backend] = {}
        self._reasons: dict[str, str | None] = {}
        self._depth = 0
        # What nobody asked for is looked for when something unknown is named.
        if local or self._tables or selection.named or selection.required or selection.strict:
            self.manager.load(local)
            if not tolerant:
                self.check()

    @classmethod
    def from_project(
        cls,
        folder: Path | None = None,
        *,
        command_line: Sequence[str] = (),
        report: Callable[[str], None] | None = None,
        tolerant: bool = False,
    ) -> Session:
        """Make the session of the nearest project file, going upwards from a folder.

        ``command_line`` holds the values of ``-p``. Without a project file only these and the
        environment count.
        """
        return cls(
            project=find_project(folder or Path.cwd()),
            command_line=command_line,
            report=report,
            tolerant=tolerant,
        )

    def for_project(self, project: Project) -> Session:
        """Make the session of another project, otherwise with the choices made for this one."""
        plugins, settings, command_line, environment, report, discover = self._choices
        return Session(
            plugins,
            settings=settings,
            project=project,
            command_line=command_line,
            environment=environment,
            report=report,
            discover=discover,
        )

    def check(self) -> None:
        """Raise where a plugin that must be there is not, or settings are wrong or for none."""
        for problem in self.problems():
            raise problem

    def problems(self) -> Iterator[NnlError]:
        """Yield all that `check` would raise, settings last."""
        yield from self.manager.problems()
        known = {entry.name: entry for entry in self.manager.entries}
        if not self._tables:
            return
        declared = {record.name: record for record in self.manager.collect(SettingsSpec)}
        for name in self._tables:
            record = declared.get(name)
            owner = known.get(name) if record is None else self.manager.owner(record)
            if owner is not None and owner.state == "active":
                try:
                    self._validated(name)
                except NnlError as error:
                    yield error
            elif owner is None and "." in name:
                yield ConfigurationError(
                    f"{self._where(name)}: no plugin here has such a table"
                    f"{did_you_mean(name, declared)}"
                )
            elif owner is None and name not in self.manager.selection.blocked:
                yield ConfigurationError(
                    f"{self._where(name)}: plugin {name!r} is not installed"
                    f"{did_you_mean(name, known)}"
                )

    def idle_tables(self) -> list[str]:
        """Return where tables ``[plugin.NAME]`` stand of plugins that are there, but not active."""
        available = {entry.name for entry in self.manager.entries if entry.state == "available"}
        return [self._where(name) for name in self._tables if name in available]

    def __enter__(self) -> Session:
        _sessions.append(self)
        self._depth += 1
        try:
            if self._depth == 1:
                self.manager.start_session(SessionStart(self, self.settings))
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._depth == 1:
                self.manager.end_session(SessionEnd(self, self.settings))
        finally:
            self._leave()

    def _leave(self) -> None:
        self._depth -= 1
        last = max(place for place, session in enumerate(_sessions) if session is self)
        del _sessions[last]

    def listen(self, listener: object) -> AbstractContextManager[None]:
        """Call an object's ``nnl_on_...`` methods inside a ``with`` block.

        Raises `HookError` where it has none, or one that is not an event.
        """
        return self.manager.listen(listener)

    # ---------------------------------------------------------------- settings

    def plugin_settings(self, name: str, model: type[Model]) -> Model:
        """Return a plugin's settings: its table in the project file as the model it declared.

        ``name`` is the plugin's, or ``"explain.NAME"`` or ``"report.NAME"`` of such a table.
        Without a table they are the model's defaults. Raises `ConfigurationError` where they are
        wrong.
        """
        settings = self._validated(name)
        if not isinstance(settings, model):
            raise PluginError(f"plugin {name!r}: {settings!r} is no {model.__name__}")
        return settings

    def _validated(self, name: str) -> BaseModel:
        if name not in self._models:
            where = self._where(name)
            if name not in {record.name for record in self.manager.collect("settings")}:
                raise ConfigurationError(f"{where}: plugin {name!r} takes no settings")
            model = self.manager.resolve(self.manager.component("settings", name))
            from pydantic import BaseModel, ValidationError

            if not isinstance(model, type) or not issubclass(model, BaseModel):
                raise PluginError(
                    f"the settings of plugin {name!r} are no pydantic model: {model!r}"
                )
            try:
                self._models[name] = model.model_validate(self._tables.get(name, {}))
            except ValidationError as error:
                from nnl_core.settings import explain

                raise ConfigurationError(f"{where}: {explain(error, model)}") from error
            except Exception as error:  # of a validator
                raise PluginError(f"{where}: {describe(error)}") from error
        return self._models[name]

    def _where(self, name: str) -> str:
        if self.project is None:
            return f"settings of plugin {name!r}"
        prefix = "tool.nnl." if self.project.path.name == "pyproject.toml" else ""
        table = name if "." in name else f"plugin.{name}"
        return f"{self.project.path.name} [{prefix}{table}]"

    # ---------------------------------------------------------------- operators and graphs

    @property
    def graph_version(self) -> int:
        """A number that changes with what plugins do to graphs: programs are cached by it."""
        return self.manager.graph_version

    def load_operators(self, namespace: str) -> None:
        """Import the operators of a namespace, if a plugin provides it."""
        known = {record.name: record for record in self.manager.collect(OperatorSet)}
        if namespace in known:
            self.manager.resolve(known[namespace])

    def load_kernels(self, operator: str, backend: str) -> None:
        """Import the kernels that active plugins have for an operator on a backend."""
        for record in self.manager.collect(KernelSet, only_active=True):
            if record.backend == backend and fnmatchcase(operator, record.operators):
                self.manager.resolve(record)

    def graph_passes(self) -> dict[str, tuple[Pass, ...]]:
        """Return the graph passes of active plugins by stage."""
        passes: dict[str, tuple[Pass, ...]] = {}
        for record in self.manager.collect(PassSpec, only_active=True):
            single = cast("Pass", self.manager.resolve(record))
            passes[record.stage] = (*passes.get(record.stage, ()), single)
        return passes

    def compile_graph(self, request: Request) -> Program:
        """Compile a graph: the plugins' way, or else the core's."""
        return self.manager.compile_graph(request)

    def graph_compiled(self, graph: Graph, program: Program, passes: Sequence[str]) -> None:
        """Tell the listeners of a compiled graph."""
        if self.events.graph_compiled is not None:
            self.events.graph_compiled(GraphCompiled(graph, program, passes))

    # ---------------------------------------------------------------- backends

    def backend(self, name: str | None = None) -> Backend:
        """Return a backend by name, or the default, see `default_backend`.

        Of one that runs on several devices, ``"cuda:1"`` is that on the second; ``"cuda"`` is on
        the first. Raises `BackendError` with the probe's reason where it does not work here.
        """
        if name is None:
            name, _ = self.default_backend()
        record, number = self._backend_record(name)
        key = f"{record.name}:{number}" if number else record.name
        if key in self._backends and number is None:
            return self._backends[key]
        problem = self.backend_problem(record)
        if problem is not None:
            raise BackendError(f"backend {record.name!r} cannot be used here: {problem}")
        factory = cast("Callable[..., Backend]", self.manager.resolve(record))
        if number is not None and not _takes_number(factory):
            raise BackendError(
                f"there is no backend {name!r}: {record.name!r} has no devices to choose from; say "
                f"{record.name!r}"
            )
        if key not in self._backends:
            self._backends[key] = factory() if number is None else factory(number)
        return self._backends[key]

    def _backend_record(self, name: str) -> tuple[BackendSpec, int | None]:
        """Return a backend's record, and the number of a device behind its name."""
        base, colon, number = name.partition(":")
        record = self.manager.component(BackendSpec, base)
        if not colon:
            return record, None
        if not (number.isascii() and number.isdecimal()):
            raise BackendError(
                f"backend {name!r}: write the number of a device behind the name, such as "
                f"'{base}:1'"
            )
        return record, int(number)

    def default_backend(self) -> tuple[str, str]:
        """Return the default backend's name, and who says so.

        That is the environment variable ``NNL_BACKEND``; without it, of those that work here, what
        plugins select or else the one of highest priority. Raises `BackendError` where the variable
        names none that works, or none does.
        """
        asked = self._environment.get("NNL_BACKEND", "").strip()
        if asked:
            try:
                record, _ = self._backend_record(asked)
            except (BackendError, UnknownComponentError) as error:
                raise BackendError(f"NNL_BACKEND is {asked!r}: {error}") from None
            problem = self.backend_problem(record)
            if problem is not None:
                raise BackendError(
                    f"NNL_BACKEND is {asked!r}, which cannot be used here: {problem}"
                )
            return asked, "NNL_BACKEND"
        ranked = sorted(self.manager.collect(BackendSpec), key=lambda spec: -spec.priority)
        working = [spec.name for spec in ranked if self.backend_problem(spec) is None]
        if not working:
            raise BackendError("no backend works here; `nnl info` says why")
        selected = self.manager.select_backend(BackendRequest(working))
        if selected is None:
            return working[0], "the preferred one of those that work"
        if selected not in working:
            raise HookError(
                f"nnl_select_backend answered {selected!r}; what works here is {', '.join(working)}"
            )
        return selected, "selected by a plugin"

    def backend_problem(self, record: BackendSpec) -> str | None:
        """Return why a backend does not work here, or ``None``; its probe is asked once."""
        if record.name not in self._reasons:
            reason: str | None = None
            if record.probe:
                try:
                    probe = resolve(record.probe, f"probe of backend {record.name!r}")
                    reason = cast("Callable[[], str | None]", probe)()
                except Exception as error:
                    reason = describe(error)
            self._reasons[record.name] = reason
        return self._reasons[record.name]


def _takes_number(factory: Callable[..., object]) -> bool:
    """Tell whether what makes a backend takes the number of a device."""
    from inspect import signature

    try:
        signature(factory).bind(0)
    except TypeError:
        return False
    return True


_sessions: list[Session] = []
_creation = threading.RLock()
_is_being_made = False


def current_session() -> Session:
    """Return the session of the innermost ``with`` block, else the default one.

    The default session is made when first asked for. It uses no plugins but the core's own, unless
    the environment names some.
    """
    return _sessions[-1] if _sessions else _default_session()


def _default_session() -> Session:
    global _is_being_made
    with _creation:
        if not _sessions:
            if _is_being_made:
                raise PluginError(
                    "there is no session yet while its plugins are loaded; use the one that "
                    "nnl_on_session_start brings"
                )
            _is_being_made = True
            try:
                session = Session()
            finally:
                _is_being_made = False
            session.__enter__()
            atexit.register(session.__exit__, None, None, None)
        return _sessions[-1]
