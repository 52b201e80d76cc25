"""The sections of a docstring, as the pages of the reference and their tests read them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Elsewhere", "Page", "read_page"]

SECTION = re.compile(r"^(\w+):$", re.MULTILINE)
ITEM = re.compile(r"^    \*{0,2}(\w+)(?: \([^)]*\))?: \S", re.MULTILINE)
COUNTERPART = re.compile(r"^    - (\w+): (.+(?:\n      .+)*)", re.MULTILINE)


class Elsewhere(NamedTuple):
    """The name of a function in another library; empty with the reason where there is none."""

    name: str
    note: str


class Page(NamedTuple):
    """What a docstring says: its text, its sections, what its arguments are called."""

    text: str
    sections: dict[str, str]

    @property
    def arguments(self) -> list[str]:
        """The names under ``Args:``, in order."""
        return ITEM.findall(self.sections.get("Args", ""))

    @property
    def elsewhere(self) -> dict[str, Elsewhere]:
        """The lines under ``Elsewhere:``, by library."""
        found = COUNTERPART.findall(self.sections.get("Elsewhere", ""))
        return {library: _counterpart(" ".join(text.split())) for library, text in found}


def _counterpart(text: str) -> Elsewhere:
    name, _, note = text.partition(", ")
    if name == "none":
        return Elsewhere("", note)
    return Elsewhere(name.strip("`"), note)


def read_page(documented: Callable[..., Any]) -> Page:
    """Split the docstring of a function at its sections (a word and a colon alone on a line)."""
    text, *rest = SECTION.split(inspect.getdoc(documented) or "")
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    return Page(text.strip(), {name: body.strip("\n") for name, body in sections.items()})
