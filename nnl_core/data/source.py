"""What a data set is to the engine: named fields, a length, and samples by number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from nnl_core.errors import DataError
from nnl_core.graph.dtypes import is_real
from nnl_core.graph.spec import Spec

Array = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]


class DataSource(Protocol):
    """Samples 0 to ``len(source) - 1``, each with one array of fixed shape for every field."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def fields(self) -> Mapping[str, Spec]:
        """Shape and dtype of one sample's arrays, by field."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def take(self, ids: Ids) -> dict[str, Array]:
        """Return the samples of these numbers, stacked, as new arrays."""


class VaryingSource(DataSource, Protocol):
    """A source whose samples may differ from epoch to epoch: they do where it ``varies``."""

    @property
    def varies(self) -> bool:
        """Whether `take_at` depends on seed and epoch."""

    def take_at(self, ids: Ids, seed: int, epoch: int) -> dict[str, Array]:
        """Return samples as they are in an epoch; each depends on seed, epoch and its number."""


def check_source(source: object) -> None:
    """Raise DataError where something is no source, as a dictionary of arrays is none."""
    lacking = [name for name in ("name", "fields", "take") if not hasattr(source, name)]
    if lacking:
        raise DataError(
            f"a {type(source).__name__} is no data source: it has no {', '.join(lacking)}; "
            'ArraySource({"x": ..., "y": ...}) makes one of arrays'
        )


def varies(source: DataSource) -> bool:
    """Whether the samples of a source differ from epoch to epoch."""
    return bool(getattr(source, "varies", False))


def take_at(source: DataSource, ids: Ids, seed: int, epoch: int) -> dict[str, Array]:
    """Return samples of any source as they are in an epoch."""
    if varies(source):
        return cast(VaryingSource, source).take_at(ids, seed, epoch)
    return source.take(ids)


def fingerprint_of(source: DataSource) -> str | None:
    """Return what tells a source's contents from others, where it can say so."""
    found: str | None = getattr(source, "fingerprint", None)
    return found


def check_fields(arrays: Mapping[str, Array], fields: Mapping[str, Spec], where: str) -> None:
    """Raise DataError where stacked samples are not what a source's fields promise."""
    if arrays.keys() != fields.keys():
        raise DataError(
            f"{where} has the fields {', '.join(arrays) or 'none'}, not {', '.join(fields)}"
        )
    for field, spec in fields.items():
        found = arrays[field]
        if found.shape[1:] != spec.shape or found.dtype != spec.dtype:
            raise DataError(
                f"{where}: field {field!r} has shape {list(found.shape[1:])} and dtype "
                f"{found.dtype}, not {list(spec.shape)} and {spec.dtype} as in the first sample"
            )


def sample_arrays(sample: Mapping[str, npt.ArrayLike], where: str) -> dict[str, Array]:
    """Return a sample's values as arrays; DataError where one holds no numbers."""
    if not isinstance(sample, Mapping):
        raise DataError(
            f"{where} is of type {type(sample).__name__}; return arrays by field, such as "
            "{'x': ..., 'y': ...}"
        )
    arrays = {field: np.asarray(value) for field, value in sample.items()}
    for field, array in arrays.items():
        if not is_real(array.dtype):
            raise DataError(f"{where}: field {field!r} holds {array.dtype}, not numbers")
    return arrays


def stack(samples: Sequence[Mapping[str, Array]], fields: Mapping[str, Spec]) -> dict[str, Array]:
    """Stack samples that are what their fields say."""
    stacked = {
        field: np.empty((len(samples), *spec.shape), spec.dtype) for field, spec in fields.items()
    }
    for row, sample in enumerate(samples):
        for field, array in stacked.items():
            array[row] = sample[field]
    return stacked
