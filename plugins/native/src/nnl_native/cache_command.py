"""``nnl cache``: how large the cache of compiled kernels is, and how to be rid of it."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nnl_core.errors import BackendError
from nnl_core.session import Session

FOLDER = re.compile(r"[0-9a-f]{16}")  # of one compiler, its flags and a processor


class Content(NamedTuple):
    """What the cache holds."""

    folder: str
    kernels: int
    files: int
    bytes: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "action",
        choices=("show", "clear"),
        help="show: where it is and how large; clear: delete what is in it",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, session: Session) -> int:
    """Print what the cache holds, or what was deleted."""
    from nnl_native.compiler import cache_folder

    folder = cache_folder()
    found = content(folder)
    if arguments.action == "clear":
        clear(folder)
    if arguments.json:
        print(json.dumps(found._asdict()))
        return 0
    done = "deleted " if arguments.action == "clear" else ""
    print(f"{done}{found.kernels} kernels, {found.files} files, {found.bytes / 1e6:.1f} MB")
    print(f"in {found.folder}")
    return 0


def content(folder: Path) -> Content:
    """Count kernels (links to the library that they are in), files and bytes."""
    kernels = files = size = 0
    for part in _parts(folder):
        for place, _, names in os.walk(part):
            for name in names:
                file = Path(place, name)
                if file.is_symlink():
                    kernels += 1
                    continue
                try:
                    size += file.stat().st_size
                except FileNotFoundError:  # another process was faster
                    continue
                files += 1
    return Content(str(folder), kernels, files, size)


def clear(folder: Path) -> None:
    """Delete what the cache has made in its folder, and nothing else.

    Processes that have kernels loaded keep them. Raises BackendError where it may not.
    """
    for part in _parts(folder):
        try:
            shutil.rmtree(part)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise BackendError(f"cannot clear the cache {part}: {error}") from error


def _parts(folder: Path) -> Iterator[Path]:
    try:
        found = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise BackendError(f"cannot read the cache {folder}: {error}") from error
    yield from (part for part in found if FOLDER.fullmatch(part.name) and part.is_dir())
