"""The log of a search: a line of JSON for each trial, from which a search goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnl_core.errors import FileError
from nnl_core.training.files import jsonable
from nnl_core.training.log_file import LogFile

FORMAT = 1


class TrialLog:
    """What was tried: in ``records``, and where a path is given also in that file.

    The first line is ``about``: what is searched, as JSON can hold it. Each other is what one trial
    came to, on disk before the next begins. A line that a kill has cut short is cut off, and its
    trial repeated.

    Raises `FileError` where the file cannot be read or written, or is of another search.
    """

    def __init__(self, path: Path | None, about: Mapping[str, object]) -> None:
        self.path = path
        self.records: list[dict[str, Any]] = []
        self._file: LogFile | None = None
        if path is None:
            return
        header = json.loads(json.dumps({"format": FORMAT, **about}))
        whole = _whole_lines(path)
        lines = [_read(path, number, line) for number, line in enumerate(whole.splitlines(), 1)]
        if lines and lines[0] != header:
            raise FileError(f"{path} is of another search: {_difference(lines[0], header)}")
        self.records = lines[1:]
        self._file = LogFile(path, len(whole))
        if not lines:
            self._write(header)

    def add(self, record: Mapping[str, object]) -> None:
        """Add a trial; NaN and infinity become null."""
        made = jsonable(record)
        assert isinstance(made, dict)
        self.records.append(made)
        self._write(made)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _write(self, line: Mapping[str, object]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(line, allow_nan=False))
            self._file.length()  # which is when it is on disk


def _whole_lines(path: Path) -> bytes:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from error
    return text[: text.rfind(b"\n") + 1]


def _read(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise FileError(f"{path}, line {number}: this is no JSON: {error}") from error
    if not isinstance(record, dict):
        raise FileError(f"{path}, line {number}: this is no object, but {record!r}")
    return record


def _difference(found: object, wanted: object, where: str = "its") -> str:
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        for key in {**wanted, **found}:
            if found.get(key) != wanted.get(key):
                joint = " " if where == "its" else "."
                return _difference(found.get(key), wanted.get(key), f"{where}{joint}{key}")
    return f"{where} is {found!r}, not {wanted!r}; take another folder"
