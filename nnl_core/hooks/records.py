"""What plugins contribute: records that name an object by import string, so that listing is cheap.

Every record begins with ``name`` (what users write), ``target`` (``"package.module:attribute"``,
imported at first use) and ``summary`` (one line for listings).
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol


class Record(Protocol):
    """What all records have in common."""

    @property
    def name(self) -> str:
        """What users write to get this component."""

    @property
    def target(self) -> str:
        """Import string of what it stands for."""

    @property
    def summary(self) -> str:
        """One line for listings."""


class OperatorSet(NamedTuple):
    """Operators of one namespace. ``name`` is the namespace, ``target`` the defining module."""

    name: str
    target: str
    summary: str


class KernelSet(NamedTuple):
    """Kernels for somebody else's operators. ``target`` is the module that attaches them.

    ``operators`` says whose, as a pattern (``"onn::*"``); ``backend`` names what they run on.
    """

    name: str
    target: str
    summary: str
    operators: str
    backend: str


class BackendSpec(NamedTuple):
    """A way to run graphs. ``target`` is called without arguments and gives the backend.

    ``probe`` is the import string of a callable that returns ``None`` where the backend works, else
    the reason why not. Of those that work, the highest ``priority`` is the default. Where there are
    several devices, ``target`` takes a number, which users write behind the name (``"cuda:1"``).
    ``details`` is the import string of a callable that returns what ``nnl info`` shows of a backend
    that works: texts by name.
    """

    name: str
    target: str
    summary: str
    probe: str = ""
    priority: int = 0
    details: str = ""


class LayerSpec(NamedTuple):
    """A layer (parametric function or module) that models name; plugins write ``plugin.Layer``."""

    name: str
    target: str
    summary: str


class InitializerSpec(NamedTuple):
    """A way to fill new parameters."""

    name: str
    target: str
    summary: str


class SolverSpec(NamedTuple):
    """An update rule."""

    name: str
    target: str
    summary: str


class ScheduleSpec(NamedTuple):
    """How a number, such as the learning rate, changes over a run."""

    name: str
    target: str
    summary: str


class MetricSpec(NamedTuple):
    """What tells how good a model is.

    ``target`` is a function of output and target, whose mean is reported, or a
    `nnl_core.training.Metric`, or a class of them, which gets a project's arguments.
    """

    name: str
    target: str
    summary: str
    higher_is_better: bool = True


class DataSourceSpec(NamedTuple):
    """Random access to a data set, by the beginning of a URI or the end of a file's name.

    ``target`` is called with the location, and the names of the arrays that are wanted or ``None``,
    and gives a `nnl_core.data.DataSource`. The location is what follows one of the ``schemes``
    (``"mnist:"``), or the path of a file with one of the ``suffixes`` (``".npz"``; ``"/"`` is a
    folder's). Where there are suffixes, what follows a scheme is a path, too.
    """

    name: str
    target: str
    summary: str
    schemes: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()


class FileFormatSpec(NamedTuple):
    """A file format for parameters. ``target`` makes a `nnl_core.io.FileFormat`.

    A file is recognised by its ``suffixes`` (with the dot) or by ``magic``, its first bytes.
    """

    name: str
    target: str
    summary: str
    suffixes: tuple[str, ...] = ()
    magic: bytes = b""
    can_read: bool = True
    can_write: bool = True


class CommandSpec(NamedTuple):
    """``nnl NAME``. ``target`` is a module with ``add_arguments(parser)`` and ``run(arguments,
    session) -> int``.

    The session has been checked and entered. A ``tolerant`` command gets one that has not: it looks
    at plugins from outside, broken ones included, or makes a session of its own.
    """

    name: str
    target: str
    summary: str
    tolerant: bool = False


class ExplainerSpec(NamedTuple):
    """A way to explain a model's output. ``needs`` lists what it asks of the model."""

    name: str
    target: str
    summary: str
    needs: frozenset[str] = frozenset()


class SearchStrategySpec(NamedTuple):
    """A strategy that proposes the next trial of an architecture search."""

    name: str
    target: str
    summary: str


class CommunicatorSpec(NamedTuple):
    """A way for processes to exchange arrays. ``probe`` is as in `BackendSpec`."""

    name: str
    target: str
    summary: str
    probe: str = ""


class PassSpec(NamedTuple):
    """A graph transformation, run at ``stage`` of every compilation."""

    name: str
    target: str
    summary: str
    stage: Literal["canonicalize", "fuse", "lower"] = "canonicalize"


class ReportSectionSpec(NamedTuple):
    """A part of the page that ``nnl report`` writes about a run.

    ``target`` is called with the `nnl_core.report.ReportedRun` and gives a
    `nnl_core.report.ReportSection`, or ``None`` where it has nothing to say of this run.
    """

    name: str
    target: str
    summary: str


class SettingsSpec(NamedTuple):
    """The pydantic model of a plugin's table in the project file.

    ``name`` is the plugin's, for ``[plugin.NAME]``, or that of another table: ``"explain.NAME"`` or
    ``"report.NAME"``. The target is imported only where a project has that table.
    """

    name: str
    target: str
    summary: str


class HookspecSpec(NamedTuple):
    """Hooks that a plugin defines for others. ``target`` is a class of hook specifications.

    Their names begin with ``nnl_`` and the plugin's name.
    """

    name: str
    target: str
    summary: str
