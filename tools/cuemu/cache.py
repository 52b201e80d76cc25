"""Folders that are kept between runs, made once by whoever comes first."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp


def cache_folder(variable: str, name: str) -> Path:
    """Return the folder that an environment variable names, else one of the user's cache folder."""
    named = os.environ.get(variable)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(named) if named else Path(base) / name


def make_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return a folder, made by ``make(draft)`` where it is not there yet.

    Of several processes one makes it, and the others wait. A draft becomes the folder when it is
    whole, or is removed.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(f"{folder.name}.lock")):
        if folder.is_dir():
            return folder
        draft = Path(mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
        try:
            make(draft)
            draft.rename(folder)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
