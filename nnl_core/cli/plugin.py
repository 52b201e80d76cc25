"""``nnl plugin new``: start a plugin of your own."""

from __future__ import annotations

import argparse
from pathlib import Path

from nnl_core.scaffold import KINDS, create
from nnl_core.session import Session


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    new = actions.add_parser("new", help="write a plugin that works and passes its tests")
    new.add_argument("name", metavar="NAME", help="name of the plugin, such as 'wavelets'")
    new.add_argument("--kind", choices=sorted(KINDS), required=True, help="what it contributes")
    new.add_argument(
        "--directory", type=Path, default=Path(), metavar="DIR", help="where to put its folder"
    )


def run(arguments: argparse.Namespace, session: Session) -> int:
    """Write the plugin and say what to do next."""
    folder = create(arguments.name, arguments.kind, arguments.directory)
    print(f"{folder} is ready. Next:")
    print(f"  pip install -e {folder}")
    print(f"  pytest {folder}")
    print(f"  nnl -p {arguments.name.replace('-', '_')} plugins -v")
    return 0
