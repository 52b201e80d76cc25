"""Tables of plain text."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def print_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()
) -> None:
    """Print rows below their head; the columns named in ``right`` are set to the right."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
    for line in lines:
        cells = [
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(head, line, widths, strict=True)
        ]
        print("  ".join(cells).rstrip())
