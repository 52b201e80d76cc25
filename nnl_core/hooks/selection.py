"""Which plugins a project, the environment and the command line ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from nnl_core.errors import ConfigurationError

PROJECT_FILE = "nnl.toml"
SECTIONS = ("explain", "report")  # of the project file, with tables that plugins contribute


class Selection(NamedTuple):
    """The plugins asked for. ``named`` ones become active, in this order.

    ``sources`` says where a name was read. Without ``autoload``, nothing else is imported. Where
    ``strict``, any plugin that fails is an error.
    """

    named: tuple[str, ...] = ()
    blocked: frozenset[str] = frozenset()
    required: tuple[str, ...] = ()
    sources: Mapping[str, str] = {}
    autoload: bool = True
    strict: bool = False


class Project(NamedTuple):
    """The project file and NNL's table in it."""

    path: Path
    table: Mapping[str, object]

    @property
    def where(self) -> str:
        """How messages call the table."""
        return f"{self.path.name}{' [tool.nnl]' if self.path.name == 'pyproject.toml' else ''}"

    def strings(self, key: str) -> list[str]:
        """Return a list of strings from the table; ConfigurationError where it is none."""
        value = self.table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigurationError(
                f"{self.where}: {key} must be a list of strings, not {value!r}"
            )
        return value

    def plugin_tables(self) -> dict[str, Mapping[str, object]]:
        """Return the tables of plugins by the names of their settings.

        That of ``[plugin.NAME]`` is ``NAME``, that of ``[explain.NAME]`` is ``explain.NAME``.
        """
        found: dict[str, Mapping[str, object]] = {}
        for section in ("plugin", *SECTIONS):
            tables = self.table.get(section, {})
            if not isinstance(tables, dict):
                raise ConfigurationError(
                    f"{self.where}: {section} holds tables, [{section}.NAME], not {tables!r}"
                )
            for name, table in tables.items():
                if not isinstance(table, dict):
                    raise ConfigurationError(
                        f"{self.where}: {section}.{name} must be a table, not {table!r}"
                    )
                found[name if section == "plugin" else f"{section}.{name}"] = table
        return found


def find_project(start: Path) -> Project | None:
    """Find the nearest ``nnl.toml``, or ``pyproject.toml`` with ``[tool.nnl]``, going upwards.

    In one folder ``nnl.toml`` is preferred. Raises ConfigurationError where it cannot be read.
    """
    start = start.resolve()
    for folder in (start, *start.parents):
        own, shared = folder / PROJECT_FILE, folder / "pyproject.toml"
        if own.is_file():
            return read_project(own)
        # Most pyproject.toml files are not ours; parsing them costs more than this.
        if shared.is_file() and b"nnl" in shared.read_bytes():
            tool = _read(shared).get("tool")
            if isinstance(tool, dict) and "nnl" in tool:
                return read_project(shared)
    return None


def read_project(path: Path) -> Project:
    """Read a project file: of ``pyproject.toml``, ``[tool.nnl]``, and of others all.

    Raises ConfigurationError where it cannot be read.
    """
    table: object = _read(path)
    for key in ("tool", "nnl") if path.name == "pyproject.toml" else ():
        table = table.get(key, {}) if isinstance(table, dict) else table
    if not isinstance(table, dict):
        raise ConfigurationError(f"{path}: tool.nnl must be a table")
    return Project(path, table)


def _read(path: Path) -> dict[str, object]:
    import tomllib

    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"cannot read {path}: {error}") from error


def select(
    project: Project | None,
    environment: Mapping[str, str],
    command_line: Sequence[str] = (),
    plugins: Sequence[str] = (),
) -> Selection:
    """Merge what the project file, the environment, the command line and the program ask for.

    ``command_line`` holds the values of ``-p``, ``plugins`` what the program names itself. For each
    plugin the last of the four that mentions it counts. A file or an environment that both names
    and disables a plugin disables it; on the command line the last word counts.
    """
    verdicts: dict[str, tuple[bool, str]] = {}

    def say(names: Sequence[str], wanted: bool, source: str) -> None:
        for name in names:
            verdicts[name] = (wanted, source)

    if project is not None:
        say(project.strings("plugins"), True, project.where)
        say(project.strings("disabled_plugins"), False, project.where)
    for variable, wanted in (("NNL_PLUGINS", True), ("NNL_DISABLED_PLUGINS", False)):
        say(environment.get(variable, "").replace(",", " ").split(), wanted, variable)
    for value in command_line:
        name = value.removeprefix("no:")
        say([name], name == value, f"-p {value}")
    say(plugins, True, "the program")
    is_wanted, source = verdicts.get("core", (True, ""))
    if not is_wanted:
        raise ConfigurationError(f"{source}: the core cannot be disabled")
    return Selection(
        named=tuple(name for name, (wanted, _) in verdicts.items() if wanted),
        blocked=frozenset(name for name, (wanted, _) in verdicts.items() if not wanted),
        required=tuple(project.strings("required_plugins")) if project is not None else (),
        sources={name: source for name, (_, source) in verdicts.items()},
        autoload=not _is_on(environment, "NNL_DISABLE_PLUGIN_AUTOLOAD"),
        strict=_is_on(environment, "NNL_STRICT_PLUGINS"),
    )


def _is_on(environment: Mapping[str, str], variable: str) -> bool:
    value = environment.get(variable, "").strip().lower()
    if value in ("1", "true", "yes", "on"):
        return True
    if value in ("", "0", "false", "no", "off"):
        return False
    raise ConfigurationError(f"{variable} is {value!r}; write 1 or 0")
