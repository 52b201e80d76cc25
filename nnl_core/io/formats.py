"""What a format of parameter files is, and which one a file has."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, cast

from nnl_core.errors import FileError
from nnl_core.graph.operator import Array
from nnl_core.hooks import FileFormatSpec
from nnl_core.io.atomic import replace_file
from nnl_core.session import current_session


class StoredParameter(NamedTuple):
    """One parameter as a file holds it."""

    array: Array
    need_grad: bool = True


class Contents(NamedTuple):
    """What a file of parameters holds."""

    parameters: dict[str, StoredParameter]
    """by name, in the order in which they were saved"""
    metadata: dict[str, str]
    """what the writer added"""


class FileFormat(Protocol):
    """Reads and writes parameters in one format; the target of a `FileFormatSpec` makes it."""

    def write_parameters(
        self,
        file: BinaryIO,
        parameters: Mapping[str, StoredParameter],
        metadata: Mapping[str, str],
    ) -> None:
        """Write everything to an open file."""

    def read_parameters(self, path: Path) -> Contents:
        """Read everything; raise `FileError` naming the file where it is damaged."""


def save(
    path: str | os.PathLike[str],
    parameters: Mapping[str, StoredParameter],
    metadata: Mapping[str, str] | None = None,
    *,
    extension: str | None = None,
) -> None:
    """Save parameters to a file, whole or not at all.

    The suffix of ``path``, or ``extension``, names the format. Raises `FileError` where no format
    has it, or where the file cannot be written.
    """
    record = _by_suffix(Path(path), extension, writing=True)
    file_format = _format(record, path)
    with replace_file(path) as file:
        file_format.write_parameters(file, parameters, metadata or {})


def load(path: str | os.PathLike[str], *, extension: str | None = None) -> Contents:
    """Read a file of parameters.

    Raises `FileError` where it is missing, damaged, or of no known format.
    """
    place = Path(path)
    record = _by_suffix(place, extension, writing=False)
    if not place.is_file():
        raise FileError(f"{os.fspath(path)}: there is no such file")
    try:
        return _format(record, path).read_parameters(place)
    except OSError as error:
        raise FileError(f"{os.fspath(path)}: cannot be read: {error.strerror or error}") from error


def _by_suffix(path: Path, extension: str | None, *, writing: bool) -> FileFormatSpec:
    suffix = (extension or path.suffix).lower()
    if suffix and not suffix.startswith("."):
        suffix = f".{suffix}"
    records = current_session().manager.collect(FileFormatSpec)
    able = [record for record in records if (record.can_write if writing else record.can_read)]
    for record in able:
        if suffix in record.suffixes:
            return record
    if not writing:
        for record in able:
            if record.magic and _first_bytes(path, len(record.magic)) == record.magic:
                return record
    known = ", ".join(sorted({known for record in able for known in record.suffixes}))
    what = f"suffix {suffix!r}" if suffix else "a file without suffix"
    verb = "written" if writing else "read"
    raise FileError(f"{path}: {what} names no format that can be {verb}; known: {known}")


def _first_bytes(path: Path, count: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError:
        return b""


def _format(record: FileFormatSpec, path: str | os.PathLike[str]) -> FileFormat:
    target = current_session().manager.resolve(record)
    file_format = target() if callable(target) else target
    if not hasattr(file_format, "write_parameters") or not hasattr(file_format, "read_parameters"):
        raise FileError(f"{os.fspath(path)}: format {record.name!r} does not hold parameters")
    return cast("FileFormat", file_format)
