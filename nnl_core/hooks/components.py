"""Looking up what plugins contribute, with errors that help."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar, overload

from nnl_core.errors import HookError, UnknownComponentError
from nnl_core.hooks import loading
from nnl_core.hooks.entry import PluginEntry
from nnl_core.hooks.records import Record
from nnl_core.hooks.specs import HookInfo

R = TypeVar("R", bound=Record)


class Components:
    """The records of all loaded plugins. `PluginManager` fills it."""

    def __init__(self) -> None:
        self.entries: list[PluginEntry] = []
        self._hooks: dict[str, tuple[HookInfo, PluginEntry | None]] = {}
        self._records: dict[str, dict[str, tuple[Record, PluginEntry]]] = {}

    def _ensure_loaded(self) -> None:
        """Look for installed plugins, where that has not been done."""

    @overload
    def collect(self, kind: type[R], *, only_active: bool = False) -> tuple[R, ...]: ...

    @overload
    def collect(self, kind: str, *, only_active: bool = False) -> tuple[Record, ...]: ...

    def collect(self, kind: str | type[Record], *, only_active: bool = False) -> tuple[Record, ...]:
        """Return all records of one kind, in the order of the plugins.

        ``kind`` is a record type (``SolverSpec``), its word (``"solver"``) or its hook
        (``"nnl_solvers"``).
        """
        self._ensure_loaded()
        return tuple(
            record
            for record, owner in self._records.get(self._hook(kind), {}).values()
            if owner.state == "active" or not only_active
        )

    @overload
    def component(self, kind: type[R], name: str) -> R: ...

    @overload
    def component(self, kind: str, name: str) -> Record: ...

    def component(self, kind: str | type[Record], name: str) -> Record:
        """Return the record of one component. The core's own need no other plugin to be loaded.

        Raises `UnknownComponentError` with the nearest names, and the plugins that failed.
        """
        hook = self._hook(kind)
        if name not in self._records.get(hook, {}):
            self._ensure_loaded()
        known = self._records.get(hook, {})
        if name in known:
            return known[name][0]
        word = self._hooks[hook][0].kind
        raise UnknownComponentError(f"unknown {word} {name!r}{self._advice(name, known)}")

    def _advice(self, name: str, known: Iterable[str]) -> str:
        advice = loading.did_you_mean(name, known)
        if not advice and known:
            advice = f"; known: {', '.join(sorted(known))}"
        for entry in self.entries:
            is_its_own = re.split(r"::|\.|:", name)[0] == entry.name
            if entry.state == "failed":
                verb = "which would provide it," if is_its_own else "which may provide it,"
                advice += f"; {entry}, {verb} failed: {entry.cause}"
            elif entry.state == "disabled" and is_its_own:
                advice += f"; {entry} is disabled: {entry.cause}"
        return advice

    def components_of(self, entry: PluginEntry) -> dict[str, list[Record]]:
        """Return what one plugin contributes, by kind."""
        found: dict[str, list[Record]] = {}
        for hook, known in self._records.items():
            for record, owner in known.values():
                if owner is entry:
                    found.setdefault(self._hooks[hook][0].kind, []).append(record)
        return found

    def owner(self, record: Record) -> PluginEntry | None:
        """Return the plugin that a record came from."""
        found = self._records.get(self._hook(type(record)), {}).get(record.name)
        return found[1] if found is not None and found[0] == record else None

    def resolve(self, record: Record) -> object:
        """Import what a record stands for; `TargetError` says whose record it is."""
        word = self._hooks[self._hook(type(record))][0].kind
        owner = self.owner(record)
        source = f" of {owner}" if owner is not None else ""
        return loading.resolve(record.target, f"{word} {record.name!r}{source}")

    def _hook(self, kind: str | type[Record]) -> str:
        kinds = self._kinds()
        if kind not in kinds:  # a plugin may define it
            self._ensure_loaded()
            kinds = self._kinds()
        try:
            return kinds[kind]
        except KeyError:
            words = [word for word in kinds if isinstance(word, str)]
            hint = loading.did_you_mean(str(kind), words)
            raise HookError(f"no plugin contributes anything called {kind!r}{hint}") from None

    def _kinds(self) -> dict[object, str]:
        """Return the hook of each kind of records, by all that it is called."""
        kinds: dict[object, str] = {}
        for hook, (info, _) in self._hooks.items():
            if info.role == "provider":
                kinds |= {hook: hook, info.kind: hook, info.record: hook}
        return kinds
