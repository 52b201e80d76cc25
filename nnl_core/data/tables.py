"""Data sets described by CSV files, in the format of nnabla's."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nnl_core.data.arrays import read_arrays
from nnl_core.data.images import SUFFIXES, files_digest, read_image
from nnl_core.data.source import Array, Ids
from nnl_core.errors import DataError
from nnl_core.graph.spec import Spec
from nnl_core.hooks.loading import describe, did_you_mean


class Column(NamedTuple):
    """A column's head, ``name[__index][:label]``: its place in a row, the field, the label."""

    place: int
    field: str
    is_element: bool
    label: str


class CsvSource:
    """The rows of a CSV file whose head says what the columns are: ``name[__index][:label]``.

    A column ``x:image`` holds numbers or the names of files, which are relative to the CSV file:
    images (``uint8``, (channels, height, width), one channel for grey ones), ``.npy``, and ``.csv``
    (a matrix, ``float32``). Columns ``x__0``, ``x__1``, ... are the elements of one vector. Numbers
    become ``float32``, whole ones that stand alone in a column ``int64``, of shape (1,). Columns
    whose head begins with ``#`` are left out. Files are read when samples are taken.

    Raises DataError, with the line, where something is not so.
    """

    def __init__(self, path: Path, wanted: Sequence[str] | None = None) -> None:
        self._path = Path(path)
        self._folder = self._path.parent
        self.name = self._path.name
        head, rows, lines = _read_rows(self._path)
        columns = _columns(head, self._path)
        names = list(dict.fromkeys(column.field for column in columns))
        for name in wanted or ():
            if name not in names:
                hint = did_you_mean(name, names) or f"; it has {', '.join(names)}"
                raise DataError(f"{path} has no column {name!r}{hint}")
        self.labels: dict[str, tuple[str, ...]] = {}
        self._numbers: dict[str, Array] = {}
        self._files: dict[str, list[str]] = {}
        self._lines = lines
        self.fields: dict[str, Spec] = {}
        for name in names if wanted is None else wanted:
            own = [column for column in columns if column.field == name]
            self.labels[name] = tuple(column.label for column in own)
            cells = [[row[column.place].strip() for column in own] for row in rows]
            numbers = self._as_numbers(name, cells, own[0].is_element)
            if numbers is not None:
                self._numbers[name] = numbers
                self.fields[name] = Spec(numbers.shape[1:], numbers.dtype)
            else:
                self._files[name] = [cell[0].replace("\\", "/") for cell in cells]
                if "" in self._files[name]:
                    line = lines[self._files[name].index("")]
                    raise DataError(f"{path}, line {line}: column {name!r} has an empty cell")
                self.fields[name] = Spec.of(self._read(name, 0))
        self._length = len(rows)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._length

    @property
    def fingerprint(self) -> str:
        """What tells these contents from others: the table, and its files' sizes and times."""
        table = hashlib.blake2b(self._path.read_bytes(), digest_size=16).hexdigest()
        files = [name for names in self._files.values() for name in names]
        return f"{table} {list(self.fields)} {files_digest(self._folder, files)}"

    def take(self, ids: Ids) -> dict[str, Array]:
        """Return the samples of these numbers, stacked, reading their files."""
        taken: dict[str, Array] = {}
        for name, spec in self.fields.items():
            if name in self._numbers:
                taken[name] = self._numbers[name][ids]
                continue
            stacked = np.empty((len(ids), *spec.shape), spec.dtype)
            for row, number in enumerate(ids.tolist()):
                stacked[row] = self._read(name, number)
            taken[name] = stacked
        return taken

    def _as_numbers(self, name: str, cells: list[list[str]], is_vector: bool) -> Array | None:
        """Return a field's cells as numbers; ``None`` where they name files."""
        try:
            float(cells[0][0])
        except ValueError:
            if not is_vector:
                return None
        rows = []
        for line, row in zip(self._lines, cells, strict=True):
            try:
                rows.append([float(cell) for cell in row])
            except ValueError as error:
                raise DataError(
                    f"{self._path}, line {line}: column {name!r} holds numbers, not {row}"
                ) from error
        if not is_vector and all(_is_whole(row[0]) for row in cells):
            return np.array([[int(row[0])] for row in cells], np.int64)
        return np.array(rows, np.float32)

    def _read(self, name: str, number: int) -> Array:
        file = self._files[name][number]
        where = f"{self._path}, line {self._lines[number]}"
        array = read_cell(self._folder / file, where)
        if number:
            spec = self.fields[name]
            if array.shape != spec.shape or array.dtype != spec.dtype:
                raise DataError(
                    f"{where}: {file} holds {array.dtype} of shape {list(array.shape)}, "
                    f"{self._files[name][0]} {spec.dtype} of shape {list(spec.shape)}"
                )
        return array


def _is_whole(text: str) -> bool:
    return text.lstrip("+-").isdecimal() and len(text) < 19


def _read_rows(path: Path) -> tuple[list[str], list[list[str]], list[int]]:
    """Return the head, the rows that are not empty, and the lines that these end on."""
    if not path.is_file():
        raise DataError(f"no file {path}")
    rows, lines = [], []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            for row in reader:
                if row:
                    rows.append(row)
                    lines.append(reader.line_num)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot read {path}: {describe(error)}") from error
    if len(rows) < 2:
        raise DataError(f"{path} has no rows below its head")
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(rows[0]):
            raise DataError(
                f"{path}, line {line}: {len(row)} cells, but the head has {len(rows[0])}"
            )
    return rows[0], rows[1:], lines[1:]


def _columns(head: list[str], path: Path) -> list[Column]:
    """Read the head of a table."""
    columns: list[Column] = []
    for place, text in enumerate(head):
        if text.startswith("#"):
            continue
        name, _, label = text.strip().partition(":")
        field, element, index = name.partition("__")
        earlier = [column for column in columns if column.field == field]
        if not field or (element and not index.isdecimal()):
            raise DataError(f"{path}: head {text!r} is not name, name__0, or name:label")
        if element and int(index) != len(earlier):
            raise DataError(f"{path}: column {name!r} comes where {field}__{len(earlier)} should")
        if earlier and not (element and earlier[0].is_element):
            raise DataError(f"{path}: two columns are called {field!r}")
        columns.append(Column(place, field, bool(element), label or field))
    if not columns:
        raise DataError(f"{path}: the head names no column")
    return columns


def read_cell(path: Path, where: str) -> Array:
    """Read the file that a cell names; DataError where its suffix is unknown, or it is damaged."""
    suffix = path.suffix.lower()
    if not path.is_file():
        raise DataError(f"{where}: no file {path}")
    try:
        if suffix in SUFFIXES:
            return read_image(path, colour="as stored")
        if suffix == ".npy":
            return read_arrays(path)["x"]
        if suffix == ".csv":
            with path.open(encoding="utf-8-sig", newline="") as file:
                return np.array(
                    [[float(cell) for cell in row] for row in csv.reader(file) if row], np.float32
                )
    except (DataError, ValueError, csv.Error) as error:
        raise DataError(f"{where}: {error}") from error
    raise DataError(f"{where}: {path} is no image, .npy or .csv, and no number")


def open_csv(location: str, wanted: Sequence[str] | None = None) -> CsvSource:
    """Open a table of samples."""
    return CsvSource(Path(location), wanted)
