"""``nnl plugins``: what is installed, what it contributes and what is wrong with it."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import redirect_stdout
from typing import Any

from nnl_core.errors import NnlError
from nnl_core.hooks.entry import PluginEntry
from nnl_core.hooks.loading import resolve
from nnl_core.session import Session

SLOW_MS = 100.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "action",
        nargs="?",
        choices=["list", "doctor"],
        default="list",
        help="list plugins (default), or import all that they name and report problems",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="show hooks, components and import times"
    )


def run(arguments: argparse.Namespace, session: Session) -> int:
    """List the plugins, or examine them: 1 where that finds problems."""
    with redirect_stdout(sys.stderr):  # for what plugins say on the way
        if not session.manager.is_loaded:
            session.manager.load()
    if arguments.action == "doctor":
        return _examine(session, as_json=arguments.json)
    rows = [_row(entry, session) for entry in session.manager.entries]
    if arguments.json:
        print(json.dumps(rows, indent=2))
    else:
        _print_table(rows, verbose=arguments.verbose)
    return 0


def _row(entry: PluginEntry, session: Session) -> dict[str, Any]:
    return {
        "name": entry.name,
        "distribution": entry.distribution,
        "version": entry.version,
        "entry_point": entry.target,
        "summary": entry.summary,
        "state": entry.state,
        "cause": entry.cause,
        "api": entry.api,
        "requires": list(entry.requires),
        "hooks": list(entry.hooks),
        "components": {
            kind: [record.name for record in records]
            for kind, records in session.manager.components_of(entry).items()
        },
        "import_ms": round(entry.import_ms, 1),
    }


def _print_table(rows: list[dict[str, Any]], *, verbose: bool) -> None:
    columns = ("name", "distribution", "version", "state")
    widths = {key: max(len(key), *(len(row[key]) for row in rows)) for key in columns}
    print("  ".join(key.ljust(widths[key]) for key in columns).rstrip())
    for row in rows:
        cells = [row[key].ljust(widths[key]) for key in columns]
        remark = row["cause"] or row["summary"]
        print("  ".join([*cells, remark]).rstrip())
        if verbose:
            _print_details(row)


def _print_details(row: dict[str, Any]) -> None:
    details = {
        "entry point": row["entry_point"],
        "api": row["api"],
        "requires": ", ".join(row["requires"]),
        "hooks": ", ".join(row["hooks"]),
        **{kind: ", ".join(names) for kind, names in row["components"].items()},
        "import": f"{row['import_ms']} ms" if row["import_ms"] else "",
    }
    for key, value in details.items():
        if value:
            print(f"    {key}: {value}")


def _examine(session: Session, *, as_json: bool) -> int:
    with redirect_stdout(sys.stderr):
        problems = [
            {"plugin": str(entry), "problem": problem}
            for entry in session.manager.entries
            for problem in _problems(entry, session)
        ]
        for error in session.problems():
            if not any(problem["problem"] in str(error) for problem in problems):
                problems.append({"plugin": "", "problem": str(error)})
    if as_json:
        print(json.dumps(problems, indent=2))
    else:
        for problem in problems:
            print(": ".join(text for text in problem.values() if text))
        if not problems:
            print(f"{len(session.manager.entries)} plugins, no problems")
    return 1 if problems else 0


def _problems(entry: PluginEntry, session: Session) -> list[str]:
    """Return what is wrong with one plugin, importing all that its records name."""
    if entry.state == "failed":
        return [entry.cause]
    found = []
    if entry.import_ms > SLOW_MS:
        found.append(f"importing {entry.target} took {entry.import_ms:.0f} ms; keep it light")
    for records in session.manager.components_of(entry).values():
        for record in records:
            try:
                session.manager.resolve(record)
                probe = getattr(record, "probe", "")
                if probe:
                    resolve(probe, f"probe of {record.name!r}")
            except NnlError as error:
                found.append(str(error).replace(f" of {entry}", ""))
    return found
