"""Locations of data: a path, and options behind a question mark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from nnl_core.errors import DataError
from nnl_core.hooks.loading import did_you_mean


def split_options(location: str) -> tuple[str, str]:
    """Return ``PATH?OPTIONS`` in its two parts; what exists under the whole name has no options."""
    if Path(location).exists():
        return location, ""
    path, _, options = location.partition("?")
    return path, options


def read_options(
    text: str, location: str, known: Mapping[str, Sequence[str] | None]
) -> dict[str, str]:
    """Read ``name=value&name=value``; ``known`` has the values that a name may have, or ``None``.

    Raises DataError where a name or a value is not known.
    """
    options: dict[str, str] = {}
    for part in text.split("&") if text else ():
        name, equals, value = part.partition("=")
        if name not in known or not equals:
            hint = did_you_mean(name, known) or f"; known: {', '.join(known)}"
            raise DataError(f"{location}: {part!r} is no option{hint}")
        values = known[name]
        if values is not None and value not in values:
            raise DataError(f"{location}: {name} is {' or '.join(values)}, not {value!r}")
        options[name] = value
    return options
