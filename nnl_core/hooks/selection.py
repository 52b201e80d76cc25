"""Which plugins a project, the environment and the command line ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from nnl_core.errors import ConfigurationError


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
        """Return the tables ``[plugin.NAME]`` by plugin name."""
        tables = self.table.get("plugin", {})
        if not isinstance(tables, dict):
            raise ConfigurationError(
                f"{self.where}: plugin holds a table for each plugin, [plugin.NAME], not {tables!r}"
            )
        for name, table in tables.items():
            if not isinstance(table, dict):
                raise ConfigurationError(
                    f"{self.where}: plugin.{name} must be a table, not {table!r}"
                )
        return tables


def find_project(start: Path) -> Project | None:
    """Find the nearest ``nnl.toml``, or ``pyproject.toml`` with ``[tool.nnl]``, going upwards.

    In one folder ``nnl.toml`` is preferred. Raises ConfigurationError where it cannot be read.
    """
    start = start.resolve()
    for folder in (start, *start.parents):
        own, shared = folder / "nnl.toml", folder / "pyproject.toml"
        if own.is_file():
            return Project(own, _read(own))
        # Most pyproject.toml files are not ours; parsing them costs more than this.
        if shared.is_file() and b"nnl" in shared.read_bytes():
            tool = _read(shared).get("tool")
            if isinstance(tool, dict) and "nnl" in tool:
                if not isinstance(tool["nnl"], dict):
                    raise ConfigurationError(f"{shared}: tool.nnl must be a table")
                return Project(shared, tool["nnl"])
    return None


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
