"""Batches in an order that the seed decides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from nnl_core.data.source import Array, DataSource, Ids
from nnl_core.errors import DataError


class Batch:
    """Some samples: ``arrays`` by field, and their numbers ``ids`` in the source."""

    __slots__ = ("arrays", "ids")

    def __init__(self, arrays: dict[str, Array], ids: Ids) -> None:
        self.arrays = arrays
        self.ids = ids

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, field: str) -> Array:
        return self.arrays[field]


class DataIterator:
    """Epochs of batches of a source.

    The order of an epoch depends on ``seed`` and the epoch's number alone. A last batch that is
    shorter than the rest is kept or dropped. Raises DataError where there would be no batch.
    """

    def __init__(
        self,
        source: DataSource,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        last_batch: Literal["keep", "drop"] = "keep",
    ) -> None:
        if batch_size < 1:
            raise DataError(f"a batch holds at least one sample, not {batch_size}")
        if len(source) == 0:
            raise DataError(f"{source.name}: the data set is empty")
        if last_batch == "drop" and len(source) < batch_size:
            raise DataError(
                f"{source.name}: {len(source)} samples are less than one batch of {batch_size}; "
                "choose a smaller batch, or keep the last one"
            )
        self.source = source
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.last_batch = last_batch

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        if self.last_batch == "drop":
            return len(self.source) // self.batch_size
        return -(-len(self.source) // self.batch_size)

    @property
    def sizes(self) -> list[int]:
        """The sizes that batches have: the full one first, then that of a shorter last one."""
        full = min(self.batch_size, len(self.source))
        rest = len(self.source) % self.batch_size
        has_rest = rest and rest != full and self.last_batch == "keep"
        return [full, rest] if has_rest else [full]

    def order(self, epoch: int) -> Ids:
        """Return the numbers of all samples in an epoch's order."""
        if not self.shuffle:
            return np.arange(len(self.source))
        return np.random.default_rng((self.seed, epoch)).permutation(len(self.source))

    def epoch(self, number: int = 0, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch, beginning with batch ``start``."""
        order = self.order(number)
        for index in range(start, len(self)):
            ids = order[index * self.batch_size : (index + 1) * self.batch_size]
            yield Batch(self.source.take(ids), ids)
