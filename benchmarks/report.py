"""What a benchmark returns: a table, the machine it ran on, and what a reader must know."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

Cell = str | int | float | None


class Report(NamedTuple):
    """A table with its title; ``None`` in a cell is a value that could not be had."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()

    def as_text(self) -> str:
        """Lay the report out as a Markdown table between its title and its notes."""
        table = [list(self.columns), *([_text(cell) for cell in row] for row in self.rows)]
        widths = [max(len(line[i]) for line in table) for i in range(len(self.columns))]
        numeric = [
            any(not isinstance(row[i], str | None) for row in self.rows)
            for i in range(len(self.columns))
        ]
        rule = ["-" * (w - 1) + ":" if n else "-" * w for w, n in zip(widths, numeric, strict=True)]
        lines = [
            "| "
            + " | ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(line, widths, numeric, strict=True)
            )
            + " |"
            for line in (table[0], rule, *table[1:])
        ]
        return "\n".join([self.title, "", *lines, "", *self.notes, machine()])

    def as_json(self) -> str:
        """Give the same as one JSON object, each row an object keyed by column."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        content = {"title": self.title, "rows": rows, "notes": [*self.notes], "machine": machine()}
        return json.dumps(content, indent=2)


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def machine() -> str:
    """Say in one line what this ran on."""
    model = platform.processor() or platform.machine()
    cpu_information = Path("/proc/cpuinfo")
    if cpu_information.is_file():
        for line in cpu_information.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    load = f"load {os.getloadavg()[0]:.2f}"
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, {load}"
