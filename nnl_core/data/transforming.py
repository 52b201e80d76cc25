"""Sources whose samples go through transforms, with randomness that belongs to the sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nnl_core.data.source import (
    Array,
    DataSource,
    Ids,
    check_fields,
    fingerprint_of,
    sample_arrays,
    take_at,
    varies,
)
from nnl_core.errors import DataError
from nnl_core.graph.spec import Spec
from nnl_core.hooks.loading import add_note

_PURPOSE = 1  # tells these streams from that of an epoch's order, which has seed and epoch alone


class Draws:
    """Random numbers for a batch: a generator for each of its samples, in their order.

    A generator depends on seed, epoch and the sample's number alone. All transforms of a batch
    draw from the same ones, in turn.
    """

    def __init__(self, ids: Ids, seed: int = 0, epoch: int = 0) -> None:
        self._ids = ids
        self._seed = seed
        self._epoch = epoch

    @cached_property
    def generators(self) -> list[np.random.Generator]:
        """The generators, made when a transform first asks for them."""
        return [
            np.random.default_rng((self._seed, self._epoch, number, _PURPOSE))
            for number in self._ids.tolist()
        ]


Transform: TypeAlias = Callable[[dict[str, Array], Draws], dict[str, Array]]
"""Changes a batch: arrays by field, which it may write to, and its samples' generators. One with
the attribute ``random = False`` draws nothing. It must not depend on how samples are batched."""


class EachSample:
    """A transform that calls ``function(sample, generator, **arguments)`` for one sample at a time.

    ``sample`` has the arrays of one sample by field, and so has what the function returns.
    """

    def __init__(
        self, function: Callable[..., Mapping[str, npt.ArrayLike]], **arguments: object
    ) -> None:
        self._function = function
        self._arguments = arguments

    def __repr__(self) -> str:
        return getattr(self._function, "__qualname__", repr(self._function))

    def __call__(self, batch: dict[str, Array], draws: Draws) -> dict[str, Array]:
        """Change a batch sample by sample."""
        samples = [
            sample_arrays(
                self._function(
                    {field: array[row] for field, array in batch.items()},
                    generator,
                    **self._arguments,
                ),
                f"what transform {self!r} gave",
            )
            for row, generator in enumerate(draws.generators)
        ]
        first = {field: Spec.of(array) for field, array in samples[0].items()}
        for sample in samples:
            stacked = {field: array[np.newaxis] for field, array in sample.items()}
            check_fields(stacked, first, f"what transform {self!r} gave")
        return {field: np.stack([sample[field] for sample in samples]) for field in first}


class TransformedSource:
    """Samples of another source after transforms, one after the other.

    Sample 0 goes through them at once, and says what the fields are. Without an epoch, `take` gives
    samples as they are in epoch 0 of seed 0. Raises DataError where the transforms do not fit the
    samples, or do not give all of them the same shape.
    """

    def __init__(
        self, source: DataSource, transforms: Iterable[Transform], name: str | None = None
    ) -> None:
        self.name = source.name if name is None else name
        self._source = source
        self._transforms = list(transforms)
        self.fields: dict[str, Spec] = {}
        if not len(source):
            raise DataError(f"{self.name}: the data set is empty")
        first = self._change(np.arange(1), 0, 0)
        self.fields = {field: Spec(array.shape[1:], array.dtype) for field, array in first.items()}

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._source)

    @property
    def varies(self) -> bool:
        """Whether samples differ from epoch to epoch."""
        draws = any(getattr(transform, "random", True) for transform in self._transforms)
        return draws or varies(self._source)

    @property
    def fingerprint(self) -> str | None:
        """What tells these contents from others: known where transforms are data classes."""
        below = fingerprint_of(self._source)
        if below is None or not all(is_dataclass(transform) for transform in self._transforms):
            return None
        return f"{below} {self._transforms}"

    def take(self, ids: Ids) -> dict[str, Array]:
        """Return samples as they are in epoch 0 of seed 0."""
        return self.take_at(ids, 0, 0)

    def take_at(self, ids: Ids, seed: int, epoch: int) -> dict[str, Array]:
        """Return samples as they are in an epoch."""
        if not len(ids):
            return {field: np.empty((0, *s.shape), s.dtype) for field, s in self.fields.items()}
        batch = self._change(ids, seed, epoch)
        check_fields(batch, self.fields, f"{self.name}: a batch after its transforms")
        return batch

    def _change(self, ids: Ids, seed: int, epoch: int) -> dict[str, Array]:
        batch = take_at(self._source, ids, seed, epoch)
        draws = Draws(ids, seed, epoch)
        for transform in self._transforms:
            try:
                batch = transform(batch, draws)
            except Exception as error:
                add_note(error, f"in transform {transform!r} of {self.name}")
                raise
        for field, array in batch.items():
            if array.shape[:1] != ids.shape:
                raise DataError(
                    f"{self.name}: after its transforms, field {field!r} has shape {array.shape}, "
                    f"not one row for each of {len(ids)} samples"
                )
        return batch


def transform_source(source: DataSource, transforms: Sequence[Transform]) -> DataSource:
    """Return a source whose samples go through transforms: itself where there are none."""
    return TransformedSource(source, transforms) if transforms else source
