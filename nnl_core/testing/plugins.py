"""Checking plugins, running ``nnl`` and recording hooks in tests."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import NamedTuple

from nnl_core.builtin import PLUGINS
from nnl_core.errors import NnlError
from nnl_core.hooks import (
    CommandSpec,
    Event,
    KernelSet,
    LayerSpec,
    OperatorSet,
    Plugin,
    Record,
    SettingsSpec,
    checks,
)
from nnl_core.hooks.loading import describe, resolve
from nnl_core.hooks.selection import find_project
from nnl_core.session import Session

HEAVY = (
    "matplotlib",
    "numpy",
    "onnx",
    "onnxruntime",
    "pandas",
    "PIL",
    "pycuda",
    "pydantic",
    "rich",
    "scipy",
    "sklearn",
    "torch",
)
"""What the module of a plugin class must not import."""


# -------------------------------------------------------------------- running nnl


class Outcome(NamedTuple):
    """How a run of ``nnl`` ended."""

    status: int
    stdout: str
    stderr: str


def run_nnl(
    *arguments: str, plugins: Sequence[type[Plugin] | Plugin] = (), directory: Path | None = None
) -> Outcome:
    """Run ``nnl`` in this process, with these plugins and no other, and return how it ended.

    Neither installed plugins nor the environment count; the project file of ``directory`` (default:
    the current one) does.
    """
    from nnl_core.cli import main

    def make_session(command_line: Sequence[str], report: Callable[[str], None]) -> Session:
        return Session(
            plugins,
            project=find_project(Path.cwd()),
            command_line=command_line,
            environment={},
            report=report,
            discover=False,
            tolerant=True,
        )

    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(directory or Path.cwd()),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        status = main(arguments, make_session)
    return Outcome(status, stdout.getvalue(), stderr.getvalue())


# -------------------------------------------------------------------- recording hooks


class HookRecorder:
    """The events that were heard, in order, as pairs of hook name and event."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Event]] = []

    @property
    def names(self) -> list[str]:
        """The names of the hooks that were called, in order."""
        return [name for name, _ in self.calls]

    def events(self, hook: str) -> list[Event]:
        """Return the events of one hook."""
        return [event for name, event in self.calls if name == hook]


@contextlib.contextmanager
def record_hooks(session: Session, *hooks: str) -> Iterator[HookRecorder]:
    """Record event hooks inside a ``with`` block: these, or all.

    Listening to node events makes compiled programs run node by node.
    """
    recorder = HookRecorder()

    def method(name: str) -> Callable[[object, Event], None]:
        def record(self: object, event: Event) -> None:
            recorder.calls.append((name, event))

        return record

    names = hooks or session.manager.event_hooks()
    listener = type("Recorder", (), {name: method(name) for name in names})()
    with session.listen(listener):
        yield recorder


# -------------------------------------------------------------------- checking plugins


class PluginCheckError(AssertionError):
    """A plugin breaks rules; the message lists all of them."""


def check_plugin(plugin: type[Plugin]) -> None:
    """Check all that a plugin promises by being one.

    It loads, with the plugins it requires and no other; its hooks exist; its module imports nothing
    heavy; its names are unique and its layers' begin with its own; every target and probe leads to
    something of the right kind; its settings accept their own defaults.

    Raises `PluginCheckError`, which lists everything that is wrong.
    """
    problems, providers = [], []
    try:
        session = Session(
            [plugin],
            environment={"NNL_DISABLE_PLUGIN_AUTOLOAD": "1"},
            report=lambda message: None,
        )
    except NnlError as error:
        problems.append(str(error))
    else:
        entry = session.manager.entry(plugin.name)
        assert entry is not None
        own = {name: target for name, target, _ in PLUGINS}
        if entry.target != own.get(plugin.name, entry.target):
            problems.append(f"nnl-core has a plugin named {plugin.name!r}")
        providers = [hook for hook in entry.hooks if _is_provider(hook)]
        for records in session.manager.components_of(entry).values():
            for record in records:
                problems += _record_problems(record, plugin, session)
    problems += _import_problems(plugin, providers)
    if problems:
        lines = "".join(f"\n- {problem}" for problem in problems)
        raise PluginCheckError(f"{plugin.__module__}:{plugin.__qualname__}{lines}")


def _is_provider(hook: str) -> bool:
    return hook in vars(Plugin) and checks.info_of(vars(Plugin)[hook]).role == "provider"


_LOAD = """
import importlib, sys
output, sys.stdout = sys.stdout, sys.stderr  # whatever the plugin prints
module, path, providers, *heavy = sys.argv[1:]
found = importlib.import_module(module)
for part in path.split("."):
    found = getattr(found, part, None)
plugin = found() if isinstance(found, type) else found
for hook in providers.split():
    list(getattr(plugin, hook, tuple)())
print(*[name for name in heavy if name in sys.modules], file=output)
"""


def _import_problems(plugin: type[Plugin], providers: Sequence[str]) -> list[str]:
    """Load the plugin in a fresh process and tell what heavy things came with it."""
    names = (plugin.__module__, plugin.__qualname__, " ".join(providers))
    result = subprocess.run(
        [sys.executable, "-c", _LOAD, *names, *HEAVY],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or ["it exits"])[-1]
        return [f"module {plugin.__module__!r} cannot be imported by itself: {reason}"]
    heavy = result.stdout.split()
    if heavy:
        return [f"module {plugin.__module__!r} imports {', '.join(heavy)}: import it where needed"]
    return []


def _record_problems(record: Record, plugin: type[Plugin], session: Session) -> list[str]:
    label = f"{type(record).__name__} {record.name!r}"
    problems = []
    if isinstance(record, LayerSpec) and not record.name.startswith(f"{plugin.name}."):
        problems.append(f"{label}: the names of layers begin with '{plugin.name}.'")
    try:
        found = session.manager.resolve(record)
        problems += [f"{label}: {problem}" for problem in _target_problems(record, found)]
        probe = getattr(record, "probe", "")
        if probe and not callable(resolve(probe, f"probe of {label}")):
            problems.append(f"{label}: probe {probe!r} is not callable")
    except NnlError as error:
        problems.append(str(error))
    return problems


def _target_problems(record: Record, found: object) -> Iterator[str]:
    """Tell whether what a record leads to is of the kind that its users expect."""
    if isinstance(record, CommandSpec):
        functions = vars(found) if isinstance(found, ModuleType) else {}
        for name in ("add_arguments", "run"):
            if not isinstance(functions.get(name), FunctionType):
                yield f"target {record.target!r} is not a module with the function {name}"
    elif isinstance(record, OperatorSet | KernelSet):
        if not isinstance(found, ModuleType):
            yield f"target {record.target!r} is not a module"
        elif isinstance(record, OperatorSet) and not _operators(record.name):
            yield f"importing {record.target!r} defines no operator named '{record.name}::...'"
    elif isinstance(record, SettingsSpec):
        yield from _settings_problems(found)
    elif not callable(found):
        yield f"target {record.target!r} leads to {found!r}, which is not callable"


def _operators(namespace: str) -> Sequence[object]:
    from nnl_core.graph.operator import registered

    return registered(namespace)


def _settings_problems(model: object) -> Iterator[str]:
    from pydantic import BaseModel, ValidationError

    if not isinstance(model, type) or not issubclass(model, BaseModel):
        yield f"{model!r} is not a pydantic model"
        return
    try:
        model.model_validate(model().model_dump())
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        yield f"{model.__name__} refuses its own defaults: {key}: {first['msg']}"
    except Exception as error:  # of a validator
        yield f"{model.__name__} refuses its own defaults: {describe(error)}"
