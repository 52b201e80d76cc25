"""Writing TOML, which Python reads but does not write."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(table: Mapping[str, object]) -> str:
    """Return a table of strings, numbers, lists and tables as TOML; what is ``None`` is left out.

    Tables in lists are written inline.
    """
    return "\n".join(_lines(table, ())).lstrip("\n") + "\n"


def _lines(table: Mapping[str, object], path: tuple[str, ...]) -> Iterator[str]:
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    if path and (plain or not inner):
        yield f"\n[{'.'.join(map(_key, path))}]"
    for key, value in plain.items():
        if value is not None:
            yield f"{_key(key)} = {_value(value)}"
    for key, value in inner.items():
        yield from _lines(value, (*path, key))


def _key(text: str) -> str:
    return text if _BARE.fullmatch(text) else _string(text)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "inf", -math.inf: "-inf"}.get(value, "nan")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        items = (f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None)
        return f"{{ {', '.join(items)} }}"
    return str(value)  # numbers, dates and times
