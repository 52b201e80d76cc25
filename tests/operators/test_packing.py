"""Packed and padded sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.variable import Variable


def padded(lengths: list[int], steps: int, batch_first: bool, *trailing: int) -> np.ndarray:
    """Distinct positive numbers, and zeros behind the lengths."""
    shape = (steps, len(lengths), *trailing)
    result = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
    for n, length in enumerate(lengths):
        result[length:, n] = 0
    return np.swapaxes(result, 0, 1).copy() if batch_first else result


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from([(), (2,), (2, 3)]),
)
def test_padding_gives_back_what_was_packed(
    lengths: list[int], extra: int, batch_first: bool, trailing: tuple[int, ...]
) -> None:
    lengths = sorted(lengths, reverse=True)
    x = padded(lengths, lengths[0] + extra, batch_first, *trailing)
    packed, sizes = F.pack_padded_sequence(x, lengths, batch_first)
    assert packed.shape == (sum(lengths), *trailing)
    assert sizes.d.tolist() == [sum(n > t for n in lengths) for t in range(lengths[0] + extra)]
    back, found = F.pad_packed_sequence(packed, sizes, batch_first)
    np.testing.assert_array_equal(back.d, x)
    assert found.d.tolist() == lengths


def test_elements_are_packed_step_by_step() -> None:
    x = np.array([[11, 12, 13], [21, 22, 0], [31, 0, 0]])
    packed, sizes = F.pack_padded_sequence(x, [3, 2, 1])
    assert packed.d.tolist() == [11, 12, 13, 21, 22, 31]
    assert sizes.d.tolist() == [3, 2, 1]
    packed, _ = F.pack_padded_sequence(x.T, [3, 2, 1], batch_first=True)
    assert packed.d.tolist() == [11, 12, 13, 21, 22, 31]


def test_the_padding_value_and_length_are_chosen() -> None:
    y, _ = F.pad_packed_sequence(np.array([1.0, 2, 3]), [2, 1], padding_value=7, total_length=3)
    np.testing.assert_array_equal(y.d, [[1, 2], [3, 7], [7, 7]])


def test_a_total_length_below_the_sequences_changes_nothing() -> None:
    y, _ = F.pad_packed_sequence(np.array([1.0, 2, 3]), [2, 1], total_length=1)
    np.testing.assert_array_equal(y.d, [[1, 2], [3, 0]])


def test_a_fraction_as_padding_makes_floats_of_integers() -> None:
    y, _ = F.pad_packed_sequence(np.array([1, 2, 3]), [2, 1], padding_value=0.5)
    np.testing.assert_array_equal(y.d, [[1, 2], [3, 0.5]])


def test_gradients_go_back_where_elements_came_from() -> None:
    x = Variable.from_numpy_array(padded([2, 1], 2, False), need_grad=True)
    packed, _ = F.pack_padded_sequence(x, [2, 1])
    packed.forward()
    packed.backward(np.array([10.0, 20.0, 30.0]))
    np.testing.assert_array_equal(x.g, [[10, 20], [30, 0]])
    y = Variable.from_numpy_array(np.ones(3), need_grad=True)
    back, _ = F.pad_packed_sequence(y, [2, 1], padding_value=5)
    back.forward()
    back.backward(np.array([[10.0, 20.0], [30.0, 40.0]]))
    np.testing.assert_array_equal(y.g, [10, 20, 30])


def test_lengths_of_the_same_sum_may_be_assigned_later() -> None:
    lengths = Variable.from_numpy_array(np.array([2.0, 1.0]))
    packed, _ = F.pack_padded_sequence(np.array([[1, 2], [3, 4], [5, 6]]), lengths)
    lengths.d = [3, 0]
    packed.forward()
    assert packed.d.tolist() == [1, 3, 5]
    lengths.d = [3, 1]
    with pytest.raises(OperatorError, match=r"lengths sum to 4, and summed to 3 when .* build the"):
        packed.forward()


def test_another_batch_may_not_be_assigned_later() -> None:
    sizes = Variable.from_numpy_array(np.array([2, 1]))
    back, _ = F.pad_packed_sequence(np.array([1.0, 2.0, 3.0]), sizes)
    sizes.d = [3, 0]
    with pytest.raises(OperatorError, match=r"first of batch_sizes is 3, and was 2 .* build the"):
        back.forward()


def test_empty_sequences_are_gone_when_padded_again() -> None:
    packed, sizes = F.pack_padded_sequence(np.ones((2, 3)), [2, 1, 0])
    back, lengths = F.pad_packed_sequence(packed, sizes)
    assert back.d.tolist() == [[1, 1], [1, 0]]
    assert lengths.d.tolist() == [2, 1]


def test_no_elements_at_all_work() -> None:
    packed, _ = F.pack_padded_sequence(np.ones((3, 2, 4)), [0, 0])
    assert packed.d.shape == (0, 4)
    back, lengths = F.pad_packed_sequence(np.ones((0, 4)), np.zeros(0, int), total_length=2)
    assert back.d.shape == (2, 0, 4)
    assert lengths.d.shape == (0,)


@pytest.mark.parametrize(
    ("lengths", "sentence"),
    [
        ([1, 2], r"lengths \[1, 2\] increase; order the sequences by length, the longest first"),
        ([4, 1], r"lengths: index 4 is out of range \[0, 4\)"),
        ([1.5, 1], "lengths: index 1.5 is not a whole number"),
    ],
)
def test_lengths_that_cannot_be_are_named(lengths: Any, sentence: str) -> None:
    with pytest.raises(OperatorError, match=sentence):
        F.pack_padded_sequence(np.ones((3, 2)), lengths)[0].forward()


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ([1, 2], r"batch_sizes \[1, 2\] increase"),
        ([2, 0], "batch_sizes sum to 2 for 3 packed elements"),
        ([-1, 4], r"batch_sizes: index -1 is out of range \[0, 4\)"),
    ],
)
def test_sizes_that_cannot_be_are_named(sizes: Any, sentence: str) -> None:
    with pytest.raises(OperatorError, match=sentence):
        F.pad_packed_sequence(np.ones(3), sizes)[0].forward()


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(ShapeError, match=r"lengths of shape \(3,\) must be \(steps, batch"):
        F.pack_padded_sequence(np.ones((3, 2)), [1, 1, 1])
    with pytest.raises(ShapeError, match=r"lengths of shape \(2,\) must be \(batch, steps"):
        F.pack_padded_sequence(np.ones((3, 2)), [1, 1], batch_first=True)
    with pytest.raises(ShapeError, match=r"batch_sizes of shape \(1, 2\) must be"):
        F.pad_packed_sequence(np.ones(3), [[2, 1]])
