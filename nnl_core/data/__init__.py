"""Data sets with random access, and the batches drawn from them."""

from __future__ import annotations

from nnl_core.data.arrays import ArraySource
from nnl_core.data.fields import Field, select_fields
from nnl_core.data.iterator import Batch, DataIterator
from nnl_core.data.opening import open_source
from nnl_core.data.source import DataSource

__all__ = [
    "ArraySource",
    "Batch",
    "DataIterator",
    "DataSource",
    "Field",
    "open_source",
    "select_fields",
]
