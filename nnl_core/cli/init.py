"""``nnl init``: start a project that trains at once."""

from __future__ import annotations

import argparse
from pathlib import Path

from nnl_core.session import Session


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="where to write the project (default: this folder)",
    )


def run(arguments: argparse.Namespace, session: Session) -> int:
    """Write the project and say what to do next."""
    from nnl_core.scaffold.new_project import create_project

    folder: Path = arguments.folder
    for path in create_project(folder):
        print(f"wrote {path}")
    print(f"Next: nnl train{'' if folder == Path() else f' {folder}'}")
    return 0
