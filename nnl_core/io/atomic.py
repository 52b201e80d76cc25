"""Replacing a file as a whole: what was there stays until what comes is safe on disk."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from nnl_core.errors import FileError


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Write a file in a ``with`` block; it takes the place of the old one when the block ends.

    The bytes go to a new file beside it, are synchronised, and the name is moved over. After an
    exception, a crash or a full disk the old file is as it was. Raises `FileError` where the file
    cannot be written.
    """
    # A symbolic link is followed, so that it stays one.
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except OSError as error:
        raise FileError(f"{os.fspath(path)}: cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            with suppress(FileNotFoundError):
                os.chmod(beside, stat.S_IMODE(os.stat(target).st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(beside)
        if isinstance(error, OSError):
            raise FileError(
                f"{os.fspath(path)}: cannot be written: {error.strerror or error}; what was there "
                "is unchanged"
            ) from error
        raise
    _synchronise_folder(target.parent)


def _synchronise_folder(folder: Path) -> None:
    """Make a rename in a folder durable, where the system allows."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
