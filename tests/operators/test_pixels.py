"""Channels that become pixels, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.variable import Variable


@pytest.mark.parametrize("order", ["CRD", "DCR"])
def test_each_pixel_comes_from_the_channel_that_the_order_says(order: str) -> None:
    r, depth = 2, 3
    x = np.arange(2 * depth * r * r * 2 * 5).reshape(2, depth * r * r, 2, 5)
    y = F.pixel_shuffle(x, r, order).d
    assert y.shape == (2, depth, 4, 10)
    for b, c, row, column in np.ndindex(y.shape):
        i, j = row % r, column % r
        channel = (c * r + i) * r + j if order == "CRD" else (i * r + j) * depth + c
        assert y[b, c, row, column] == x[b, channel, row // r, column // r]


@given(
    leading=st.lists(st.integers(0, 3), max_size=2),
    depth=st.integers(1, 3),
    lengths=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    factor=st.integers(1, 3),
    order=st.sampled_from(["CRD", "DCR"]),
    channel_last=st.booleans(),
)
@settings(deadline=None, max_examples=50)
def test_unshuffling_undoes_shuffling(
    leading: list[int],
    depth: int,
    lengths: tuple[int, int],
    factor: int,
    order: str,
    channel_last: bool,
) -> None:
    channels = depth * factor**2
    shape = (*leading, *lengths, channels) if channel_last else (*leading, channels, *lengths)
    x = np.arange(np.prod(shape)).reshape(shape)
    y = F.pixel_shuffle(x, factor, order, channel_last)
    np.testing.assert_array_equal(F.pixel_unshuffle(y, factor, order, channel_last).d, x)


@pytest.mark.parametrize("order", ["CRD", "DCR"])
def test_channels_last_are_shuffled_as_channels_first(order: str) -> None:
    x = np.arange(2 * 8 * 3 * 5).reshape(2, 8, 3, 5)
    first = F.pixel_shuffle(x, 2, order).d
    last = F.pixel_shuffle(np.moveaxis(x, 1, -1), 2, order, channel_last=True).d
    np.testing.assert_array_equal(last, np.moveaxis(first, 1, -1))


def test_the_gradient_goes_back_to_where_each_pixel_came_from() -> None:
    x = Variable.from_numpy_array(np.zeros((4, 1, 1)), need_grad=True)
    y = F.pixel_shuffle(x, 2)
    y.forward()
    y.backward(np.array([[[1.0, 2.0], [3.0, 4.0]]]))
    np.testing.assert_array_equal(x.g.ravel(), [1, 2, 3, 4])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: F.pixel_shuffle(np.zeros((6, 1, 1)), 2), ShapeError, "6 channels cannot be"),
        (lambda: F.pixel_unshuffle(np.zeros((1, 4, 3)), 2), ShapeError, "height 4 and width 3"),
        (lambda: F.pixel_shuffle(np.zeros((4, 1)), 2), ShapeError, r"x of shape \(4, 1\)"),
        (lambda: F.pixel_shuffle(np.zeros((4, 1, 1)), 0), OperatorError, "factor 0"),
        (lambda: F.pixel_shuffle(np.zeros((4, 1, 1)), 2, "RCD"), OperatorError, "order 'RCD'"),
    ],
)
def test_what_does_not_fit_is_named(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
