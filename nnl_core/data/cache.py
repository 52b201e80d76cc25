"""Keeping what a source gave in a file, from where it is read without being computed again."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nnl_core.data.source import Array, DataSource, Ids, check_fields, fingerprint_of, varies
from nnl_core.errors import DataError, FileError
from nnl_core.graph.dtypes import as_dtype
from nnl_core.graph.spec import Spec
from nnl_core.io.atomic import replace_file

MAGIC = b"NNLcache"
ALIGNMENT = 64
ROWS_AT_ONCE = 256


class Block(NamedTuple):
    """Where the samples of a field lie in a cache file, one after the other."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


class CachedSource:
    """Samples of a source, read from a file in ``folder`` that is written where there is none.

    The file is named by the fingerprint of the contents: of files, their names, sizes and times; of
    arrays, all elements. A source that cannot tell its contents (one of a function) needs a
    ``key``, which the user changes whenever these change. Writing it takes all samples once. It
    appears whole or not at all, so that several runs may write it at the same time; one that is
    not whole is written again. All processes read it through the same memory. What an older
    fingerprint names stays: delete the folder to be rid of it.

    Raises DataError where samples differ from epoch to epoch (cache what is below the transforms),
    where there is neither fingerprint nor key, or where the file cannot be written.
    """

    def __init__(self, source: DataSource, folder: Path, *, key: str | None = None) -> None:
        self.name = source.name
        if varies(source):
            raise DataError(
                f"{self.name}: samples differ from epoch to epoch; cache the source that is "
                "transformed, not the result"
            )
        contents = fingerprint_of(source) if key is None else key
        if contents is None:
            raise DataError(
                f"{self.name}: it cannot be told whether the contents change; give a key, and "
                "another one when they do"
            )
        self.fields = dict(source.fields)
        self._length = len(source)
        described = f"{contents} {self._length} {self.fields}"
        self.fingerprint = hashlib.blake2b(described.encode(), digest_size=16).hexdigest()
        plain_name = re.sub(r"[^\w.-]+", "_", self.name).encode()[:128].decode(errors="ignore")
        self.path = Path(folder) / f"{plain_name}-{self.fingerprint}.cache"
        try:
            self._arrays = read_cache(self.path)
        except DataError:  # it is not there, or not whole
            _write(source, self.path)
            self._arrays = read_cache(self.path)

    def __len__(self) -> int:
        """Return the number of samples."""
        return self._length

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_arrays": {}}  # another process opens the file, and copies nothing

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._arrays = read_cache(self.path)

    def take(self, ids: Ids) -> dict[str, Array]:
        """Return the samples of these numbers, stacked, as new arrays."""
        return {field: array[ids] for field, array in self._arrays.items()}


def read_cache(path: Path) -> dict[str, Array]:
    """Map the arrays of a cache file into memory, to be read only.

    Raises DataError where the file is missing, shorter or longer than its header says, or no cache.
    """
    try:
        with path.open("rb") as file:
            length = file.seek(0, 2)
            file.seek(0)
            start = file.read(len(MAGIC) + 8)
            if not start.startswith(MAGIC):
                raise DataError(f"{path} is no cache")
            header = file.read(min(length, int.from_bytes(start[len(MAGIC) :], "little")))
        described = json.loads(header)
        if length != described["length"]:
            raise DataError(f"{path} has {length} bytes, not {described['length']}; delete it")
        whole = np.memmap(path, np.uint8, mode="r")
        return {
            field: _block(whole, Block(offset, tuple(shape), dtype))
            for field, (offset, shape, dtype) in described["fields"].items()
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"cannot read the cache {path}: {error}") from error


def _block(whole: Array, block: Block) -> Array:
    spec = Spec(block.shape, as_dtype(block.dtype))
    part = np.asarray(whole[block.offset : block.offset + spec.nbytes])
    return part.view(spec.dtype).reshape(spec.shape)


def _layout(fields: Mapping[str, Spec], rows: int) -> tuple[dict[str, Block], bytes]:
    """Return where the fields lie, and the file's first bytes, which say so."""
    room = 4096  # for the header; more if that is not enough
    while True:
        place, blocks = room, {}
        for field, spec in fields.items():
            blocks[field] = Block(place, (rows, *spec.shape), str(spec.dtype))
            place += -(-rows * spec.nbytes // ALIGNMENT) * ALIGNMENT
        text = json.dumps({"fields": blocks, "length": place}).encode()
        start = MAGIC + len(text).to_bytes(8, "little") + text
        if len(start) <= room:
            return blocks, start
        room *= 2


def _write(source: DataSource, path: Path) -> None:
    blocks, start = _layout(source.fields, len(source))
    length = json.loads(start[len(MAGIC) + 8 :])["length"]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as file:
            file.write(start)
            file.truncate(length)
            for begin in range(0, len(source), ROWS_AT_ONCE):
                ids = np.arange(begin, min(begin + ROWS_AT_ONCE, len(source)))
                arrays = source.take(ids)
                check_fields(arrays, source.fields, f"{source.name}: samples from {begin} on")
                for field, array in arrays.items():
                    file.seek(blocks[field].offset + begin * source.fields[field].nbytes)
                    file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    except (OSError, FileError) as error:
        raise DataError(f"{source.name}: the cache cannot be written: {error}") from error
