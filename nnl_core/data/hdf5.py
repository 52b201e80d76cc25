"""Data sets in HDF5 files, read as samples are taken."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from nnl_core.data.images import files_digest
from nnl_core.data.source import Array, Ids
from nnl_core.errors import DataError
from nnl_core.graph.dtypes import as_dtype, is_real
from nnl_core.graph.spec import Spec
from nnl_core.hooks.loading import describe, did_you_mean

if TYPE_CHECKING:
    import h5py


class Hdf5Source:
    """Datasets of an HDF5 file, by their path in it, whose first axis counts the samples.

    Without ``wanted`` all that hold numbers are fields. The file is opened by each process that
    takes samples, and closed with the source. Raises DataError where it cannot be read, or where
    datasets differ in length.
    """

    def __init__(self, path: Path, wanted: Sequence[str] | None = None) -> None:
        self._path = Path(path)
        self._file: h5py.File | None = None
        self.name = self._path.name
        if not self._path.is_file():
            raise DataError(f"no file {path}")
        found = self._datasets()
        for name in wanted or ():
            if name not in found:
                hint = did_you_mean(name, found) or f"; it holds {', '.join(found)}"
                raise DataError(f"{path} has no dataset {name!r}{hint}")
        chosen = found if wanted is None else {name: found[name] for name in wanted}
        if not chosen:
            raise DataError(f"{path} holds no dataset of numbers with an axis of samples")
        lengths = {name: spec.shape[0] for name, spec in chosen.items()}
        if len(set(lengths.values())) != 1:
            listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise DataError(f"{path}: fields must have equally many samples: {listed}")
        self._length = next(iter(lengths.values()))
        self.fields = {name: spec.with_shape(spec.shape[1:]) for name, spec in chosen.items()}

    def __len__(self) -> int:
        """Return the number of samples."""
        return self._length

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_file": None}  # an open file goes to no other process

    @property
    def fingerprint(self) -> str:
        """What tells these contents from others: the fields, the file's size and time."""
        return f"{list(self.fields)} {files_digest(self._path.parent, [self._path.name])}"

    def take(self, ids: Ids) -> dict[str, Array]:
        """Read the samples of these numbers, and stack them."""
        # HDF5 reads rows in rising order, each once.
        rows, places = np.unique(ids, return_inverse=True)
        file = self._opened()
        try:
            return {
                name: np.asarray(file[name][rows], spec.dtype)[places]
                for name, spec in self.fields.items()
            }
        except OSError as error:
            raise DataError(f"cannot read {self._path}: {describe(error)}") from error

    def _opened(self) -> h5py.File:
        if self._file is None:
            try:
                import h5py
            except ImportError as error:
                raise DataError(
                    f"{self._path}: HDF5 is read with h5py, which is not installed; "
                    "pip install 'nnl-core[hdf5]'"
                ) from error
            try:
                self._file = h5py.File(self._path, "r")
            except OSError as error:
                raise DataError(f"cannot read {self._path}: {describe(error)}") from error
        return self._file

    def _datasets(self) -> dict[str, Spec]:
        """Return shape and dtype of all datasets of numbers that have a first axis."""
        found: dict[str, Spec] = {}

        def note(name: str, item: object) -> None:
            shape = cast("tuple[int, ...] | None", getattr(item, "shape", None))
            dtype = getattr(item, "dtype", None)
            if shape and dtype is not None and is_real(dtype):
                found[name] = Spec(shape, as_dtype(dtype))

        self._opened().visititems(note)
        return found


def open_hdf5(location: str, wanted: Sequence[str] | None = None) -> Hdf5Source:
    """Open an HDF5 file."""
    return Hdf5Source(Path(location), wanted)
