"""Data sets that are in memory: arrays, and the arrays of .npz and .npy files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nnl_core.data.source import Array, Ids
from nnl_core.errors import DataError
from nnl_core.graph.dtypes import is_real
from nnl_core.graph.spec import Spec
from nnl_core.hooks.loading import describe, did_you_mean


class ArraySource:
    """Arrays by field, whose first axis counts the samples. They are not copied.

    Raises DataError where there are none, or where they differ in length.
    """

    def __init__(self, arrays: Mapping[str, npt.ArrayLike], name: str = "data") -> None:
        self.arrays = {field: np.asarray(array) for field, array in arrays.items()}
        self.name = name
        for field, array in self.arrays.items():
            if not is_real(array.dtype):
                raise DataError(
                    f"{name}: field {field!r} holds {array.dtype}, not numbers; convert it first"
                )
            if array.ndim == 0:
                raise DataError(f"{name}: field {field!r} is a single number, not an array")
        lengths = {field: len(array) for field, array in self.arrays.items()}
        if len(set(lengths.values())) != 1:
            found = ", ".join(f"{field} {length}" for field, length in lengths.items())
            raise DataError(f"{name}: fields must have equally many samples: {found or 'no field'}")
        self._length = next(iter(lengths.values()))
        self.fields = {
            field: Spec(array.shape[1:], array.dtype) for field, array in self.arrays.items()
        }

    def __len__(self) -> int:
        """Return the number of samples."""
        return self._length

    @property
    def fingerprint(self) -> str:
        """What tells these contents from others: a digest of all elements."""
        digest = hashlib.blake2b(digest_size=16)
        for field, array in self.arrays.items():
            digest.update(f"{field} {array.dtype} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()

    def take(self, ids: Ids) -> dict[str, Array]:
        """Return the samples of these numbers, stacked, as new arrays."""
        return {field: array[ids] for field, array in self.arrays.items()}


def open_npz(location: str, wanted: Sequence[str] | None = None) -> ArraySource:
    """Read arrays of an .npz file, or the one of an .npy file, called ``x``."""
    return ArraySource(read_arrays(Path(location), wanted), Path(location).name)


def read_arrays(path: Path, wanted: Sequence[str] | None = None) -> dict[str, Array]:
    """Read the wanted arrays (default: all) of an .npz file, or the one of an .npy file as ``x``.

    Raises DataError where the file or an array is missing, or cannot be read.
    """
    if not path.is_file():
        raise DataError(f"no file {path}")
    try:
        with path.open("rb") as file:  # NumPy leaves a file open that it cannot read
            loaded = np.load(file, allow_pickle=False)
            arrays = {"x": loaded} if isinstance(loaded, np.ndarray) else loaded
            for name in wanted or ():
                if name not in arrays:
                    hint = did_you_mean(name, arrays) or f"; it holds {', '.join(arrays)}"
                    raise DataError(f"{path} has no array {name!r}{hint}")
            return {name: arrays[name] for name in (arrays if wanted is None else wanted)}
    except DataError:
        raise
    except Exception as error:  # a damaged archive raises anything from zlib.error to EOFError
        raise DataError(f"cannot read {path}: {describe(error)}") from error
