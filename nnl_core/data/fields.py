"""Choosing and preparing fields: which array, in which shape, on which scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from nnl_core.data.arrays import ArraySource
from nnl_core.data.source import Array, DataSource, Ids, fingerprint_of, take_at, varies
from nnl_core.errors import DataError
from nnl_core.graph.dtypes import as_dtype, is_floating
from nnl_core.graph.spec import Spec
from nnl_core.hooks.loading import did_you_mean


class Field(NamedTuple):
    """How a field is made of a source's array: ``(element - subtract) / divide``, then ``dtype``.

    ``shape`` is that of one sample. Scaled integers become float32 unless ``dtype`` says otherwise.
    """

    array: str
    shape: tuple[int, ...] | None = None
    subtract: float = 0.0
    divide: float = 1.0
    dtype: str | None = None

    @property
    def is_scaled(self) -> bool:
        """Whether elements change."""
        return self.subtract != 0 or self.divide != 1

    def spec(self, given: Spec, where: str) -> Spec:
        """Return what becomes of a sample; DataError where the shapes do not fit."""
        shape = given.shape if self.shape is None else self.shape
        if Spec(shape, given.dtype).size != given.size:
            raise DataError(
                f"{where}: shape {list(shape)} does not fit array {self.array!r}, whose samples "
                f"have shape {list(given.shape)}"
            )
        dtype = given.dtype if self.dtype is None else as_dtype(self.dtype)
        if self.dtype is None and self.is_scaled and not is_floating(given.dtype):
            dtype = np.dtype(np.float32)
        return Spec(shape, dtype)

    def prepare(self, array: Array, spec: Spec) -> Array:
        """Return stacked samples as ``spec`` says."""
        if self.is_scaled:
            array = array.astype(np.result_type(spec.dtype, np.float32))
            array -= array.dtype.type(self.subtract)
            array /= array.dtype.type(self.divide)
        return array.astype(spec.dtype, copy=False).reshape(len(array), *spec.shape)


class FieldSource:
    """Fields of another source, prepared whenever samples are taken."""

    def __init__(self, source: DataSource, fields: Mapping[str, Field], name: str) -> None:
        self.name = name
        self._source = source
        self._given = fields
        self.fields = {}
        for key, field in fields.items():
            if field.array not in source.fields:
                hint = did_you_mean(field.array, source.fields)
                raise DataError(f"{name}: {source.name} has no array {field.array!r}{hint}")
            self.fields[key] = field.spec(source.fields[field.array], f"{name}, field {key!r}")

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._source)

    @property
    def varies(self) -> bool:
        """Whether the source's samples differ from epoch to epoch."""
        return varies(self._source)

    @property
    def fingerprint(self) -> str | None:
        """What tells these contents from others."""
        below = fingerprint_of(self._source)
        return None if below is None else f"{below} {self._given}"

    def take(self, ids: Ids) -> dict[str, Array]:
        """Return the samples of these numbers, stacked, as new arrays."""
        return self._prepare(self._source.take(ids))

    def take_at(self, ids: Ids, seed: int, epoch: int) -> dict[str, Array]:
        """Return samples as they are in an epoch."""
        return self._prepare(take_at(self._source, ids, seed, epoch))

    def _prepare(self, found: dict[str, Array]) -> dict[str, Array]:
        return {
            key: field.prepare(found[field.array], self.fields[key])
            for key, field in self._given.items()
        }


def select_fields(source: DataSource, fields: Mapping[str, Field], name: str) -> DataSource:
    """Return a source of the given fields; what is in memory is prepared once and for all."""
    selected = FieldSource(source, fields, name)
    if not isinstance(source, ArraySource):
        return selected
    arrays = {
        key: field.prepare(source.arrays[field.array], selected.fields[key])
        for key, field in fields.items()
    }
    return ArraySource(arrays, name)
