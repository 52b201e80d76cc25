"""Data sets with random access, and the batches drawn from them."""

from __future__ import annotations

from nnl_core.data.arrays import ArraySource
from nnl_core.data.cache import CachedSource
from nnl_core.data.fields import Field, select_fields
from nnl_core.data.functions import FunctionSource, from_iterable
from nnl_core.data.hdf5 import Hdf5Source
from nnl_core.data.images import ImageFolder
from nnl_core.data.iterator import Batch, DataIterator
from nnl_core.data.opening import open_source
from nnl_core.data.source import DataSource, VaryingSource
from nnl_core.data.tables import CsvSource
from nnl_core.data.transforming import (
    Draws,
    EachSample,
    Transform,
    TransformedSource,
    transform_source,
)
from nnl_core.data.transforms import make_transforms

__all__ = [
    "ArraySource",
    "Batch",
    "CachedSource",
    "CsvSource",
    "DataIterator",
    "DataSource",
    "Draws",
    "EachSample",
    "Field",
    "FunctionSource",
    "Hdf5Source",
    "ImageFolder",
    "Transform",
    "TransformedSource",
    "VaryingSource",
    "from_iterable",
    "make_transforms",
    "open_source",
    "select_fields",
    "transform_source",
]
