"""Search in sorted sequences."""

from __future__ import annotations

import bisect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.errors import ShapeError

NUMBERS = st.lists(st.integers(-5, 5), min_size=1, max_size=8)


@settings(deadline=None, max_examples=40)
@given(NUMBERS, NUMBERS)
def test_places_are_those_of_bisection(elements, values):
    elements = sorted(elements)
    left = F.searchsorted(np.array(elements), np.array(values))
    right = F.searchsorted(np.array(elements), np.array(values), right=True)
    assert left.d.tolist() == [bisect.bisect_left(elements, v) for v in values]
    assert right.d.tolist() == [bisect.bisect_right(elements, v) for v in values]


def test_each_row_is_searched_for_its_own_values():
    rows, values = np.array([[1.0, 3.0], [5.0, 7.0]]), np.array([[2.0], [2.0]])
    assert F.searchsorted(rows, values).d.tolist() == [[1], [0]]


def test_leading_axes_must_agree():
    with pytest.raises(ShapeError, match=r"searchsorted.*\(2, 3\), \(3, 3\)"):
        F.searchsorted(np.zeros((2, 3)), np.zeros((3, 3)))
