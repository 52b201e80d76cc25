"""What a data set is to the engine: named fields, a length, and samples by number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

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
