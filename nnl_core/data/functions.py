"""Data sets that are computed: by a function of a sample's number, or by an iterable, once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy.typing as npt

from nnl_core.data.arrays import ArraySource
from nnl_core.data.source import Array, Ids, check_fields, sample_arrays, stack
from nnl_core.errors import DataError
from nnl_core.graph.spec import Spec

Sample = Mapping[str, npt.ArrayLike]


class FunctionSource:
    """Samples that ``function(number)`` computes, as arrays by field, whenever they are taken.

    The function must give the same sample for the same number; sample 0 says what the fields are.
    Raises DataError where a sample is not what its fields say.
    """

    def __init__(self, function: Callable[[int], Sample], length: int, name: str = "data") -> None:
        if length < 1:
            raise DataError(f"{name}: a data set has at least one sample, not {length}")
        self.name = name
        self._function = function
        self._length = length
        first = sample_arrays(function(0), f"{name}: sample 0")
        self.fields = {field: Spec.of(array) for field, array in first.items()}

    def __len__(self) -> int:
        """Return the number of samples."""
        return self._length

    def take(self, ids: Ids) -> dict[str, Array]:
        """Compute the samples of these numbers, and stack them."""
        samples = []
        for number in ids.tolist():
            where = f"{self.name}: sample {number}"
            sample = sample_arrays(self._function(number), where)
            check_fields({field: sample[field][None] for field in sample}, self.fields, where)
            samples.append(sample)
        return stack(samples, self.fields)


def from_iterable(samples: Iterable[Sample], name: str = "data") -> ArraySource:
    """Take all samples of an iterable into memory, in their order.

    Raises DataError where there are none, or where one differs from the first in fields, shape or
    dtype.
    """
    taken = []
    fields: dict[str, Spec] = {}
    for number, sample in enumerate(samples):
        where = f"{name}: sample {number}"
        arrays = sample_arrays(sample, where)
        fields = fields or {field: Spec.of(array) for field, array in arrays.items()}
        check_fields({field: array[None] for field, array in arrays.items()}, fields, where)
        taken.append(arrays)
    return ArraySource(stack(taken, fields), name)
