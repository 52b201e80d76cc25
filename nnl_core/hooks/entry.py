"""What is known of one plugin, whether it works or not."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Literal

from nnl_core.errors import PluginError

State = Literal["active", "available", "disabled", "failed"]


class PluginEntry:
    """What is known of one plugin, working or not: a row of ``nnl plugins``.

    ``plugin`` is first what was given (a class, a file), then the instance whose hooks are called.
    ``cause`` says why it is disabled or failed, ``error`` is what `PluginManager.check` raises.
    ``api``, ``requires`` and ``hooks`` are those of its class, once that is imported.
    """

    def __init__(
        self,
        name: str,
        *,
        plugin: object = None,
        target: str = "",
        distribution: str = "",
        version: str = "",
        summary: str = "",
        requirements: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.plugin = plugin
        self.target = target
        self.distribution = distribution
        self.version = version
        self.summary = summary
        self.requirements = requirements
        self.state: State = "disabled"
        self.cause = ""
        self.error: PluginError | None = None
        self.is_fatal = False
        self.import_ms = 0.0
        self.api = ""
        self.requires: tuple[str, ...] = ()
        self.hooks: tuple[str, ...] = ()
        self.heard_by: list[object] = []  # those whom nnl_on_plugin_registered has told of it

    def __str__(self) -> str:
        origin = " ".join(part for part in (self.distribution, self.version) if part)
        return f"plugin {self.name!r}" + (f" ({origin})" if origin else "")

    @property
    def is_loaded(self) -> bool:
        """Whether its components can be named."""
        return self.state in ("active", "available")


def entry_for(plugin: object) -> PluginEntry:
    """Make the entry of a plugin given as a class, an instance or a file."""
    if isinstance(plugin, Path):
        return PluginEntry(plugin.stem, plugin=plugin, target=str(plugin))
    kind = plugin if inspect.isclass(plugin) else type(plugin)
    name = getattr(plugin, "name", None)
    target = f"{kind.__module__}:{kind.__qualname__}"
    return PluginEntry(name if isinstance(name, str) else target, plugin=plugin, target=target)
