"""Samples that are computed, and iterables that are taken into memory."""

from __future__ import annotations

import numpy as np
import pytest

from nnl_core.data import FunctionSource, from_iterable
from nnl_core.errors import DataError


def square(number):
    return {"x": np.full(2, number * number, np.float32), "n": number}


def test_a_function_gives_the_samples_that_are_asked_for():
    source = FunctionSource(square, 10)
    samples = source.take(np.array([3, 3, 0]))
    assert samples["x"].tolist() == [[9, 9], [9, 9], [0, 0]]
    assert samples["n"].tolist() == [3, 3, 0]
    assert len(source) == 10


def test_fields_are_those_of_the_first_sample():
    fields = FunctionSource(square, 10).fields
    assert fields == {"x": ((2,), np.float32), "n": ((), np.int64)}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"x": np.zeros(3)}, r"sample 1: field 'x' has shape \[3\]"),
        ({"x": np.zeros(2, np.int8)}, "dtype int8, not .* float64 as in the first sample"),
        ({"y": np.zeros(2)}, "sample 1 has the fields y, not x"),
        ({"x": ["a", "b"]}, "sample 1: field 'x' holds <U1, not numbers"),
        (np.zeros(2), "sample 1 is of type ndarray; return arrays by field"),
    ],
)
def test_a_sample_that_is_not_like_the_first_is_an_error_with_its_number(other, message):
    samples = [{"x": np.zeros(2)}, other]
    with pytest.raises(DataError, match=message):
        FunctionSource(samples.__getitem__, 2).take(np.array([0, 1]))
    with pytest.raises(DataError, match=message):
        from_iterable(samples)


def test_an_iterable_is_read_once_and_kept():
    source = from_iterable((square(number) for number in range(4)), "squares")
    for _ in range(2):
        assert source.take(np.arange(4))["n"].tolist() == [0, 1, 2, 3]
    assert (source.name, len(source)) == ("squares", 4)


def test_no_samples_are_no_data_set():
    with pytest.raises(DataError, match=r"none: .*no field"):
        from_iterable([], "none")
    with pytest.raises(DataError, match="at least one sample, not 0"):
        FunctionSource(square, 0)
