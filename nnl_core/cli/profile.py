"""``nnl profile``: what each node of a project's training step costs."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from nnl_core.cli.project import add_project, open_workbench
from nnl_core.cli.table import print_table
from nnl_core.session import Session

if TYPE_CHECKING:
    from nnl_core.graph.program import NodeProfile

COLUMNS = ("node", "operator", "by", "shape", "ms", "%", "kB", "multiply-adds")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_project(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--repeats", type=int, default=5, metavar="N", help="steps to take medians of (default: 5)"
    )


def run(arguments: argparse.Namespace, session: Session) -> int:
    """Print time, memory traffic and multiply-adds of each node of the compiled step."""
    from nnl_core.settings import open_project

    project = open_project(arguments.project, arguments.overrides)
    with open_workbench(project, session) as workbench:
        rows = workbench.trainer().profile(max(arguments.repeats, 1))
    if arguments.json:
        print(json.dumps([row._asdict() for row in rows], indent=2))
    else:
        print_costs(rows)
    return 0


def print_costs(rows: list[NodeProfile]) -> None:
    """Print one line for each node, and the sums."""
    total = sum(row.seconds for row in rows)
    lines = []
    for row in rows:
        share = row.seconds / total if total else 0.0
        shape = "x".join(str(length) for length in row.shape) or "-"
        lines.append(
            (row.name, row.operator, row.computed_by, shape, *_costs(row.seconds, share, row))
        )
    sums = rows[0]._replace(
        bytes=sum(row.bytes for row in rows),
        multiply_adds=sum(row.multiply_adds for row in rows),
    )
    lines.append(("total", "", "", "", *_costs(total, 1.0, sums)))
    print_table(COLUMNS, lines, right=COLUMNS[4:])


def _costs(seconds: float, share: float, row: NodeProfile) -> tuple[str, str, str, str]:
    return (
        f"{seconds * 1e3:.3f}",
        f"{share:.0%}",
        f"{row.bytes / 1e3:,.1f}",
        f"{row.multiply_adds:,}",
    )
