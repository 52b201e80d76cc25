"""Logs of lines that a run which goes on neither repeats nor misses."""

from __future__ import annotations

import os
from pathlib import Path

from nnl_core.errors import FileError


class LogFile:
    """A text file that lines are added to.

    A plugin puts `length` into each checkpoint, and gives it back when a run goes on from one:
    what was written after it will be written again, and is cut off. Raises `FileError` where the
    file cannot be written.
    """

    def __init__(self, path: Path, length: int | None = None) -> None:
        self.path = path
        try:
            self._file = path.open("ab")
            if length is not None and self._file.tell() > length:
                self._file.truncate(length)
        except OSError as error:
            raise self._failure(error) from error

    def write(self, line: str) -> None:
        """Add a line, without its end."""
        try:
            self._file.write(f"{line}\n".encode())
        except OSError as error:
            raise self._failure(error) from error

    def length(self) -> int:
        """Return the number of bytes so far, once they are safe on disk."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            return os.fstat(self._file.fileno()).st_size
        except OSError as error:
            raise self._failure(error) from error

    def close(self) -> None:
        """Write what is left and close the file."""
        try:
            self._file.close()
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> FileError:
        return FileError(f"{self.path}: cannot be written: {error.strerror or error}")
