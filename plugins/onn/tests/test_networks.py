"""Sorting networks for medians."""

from __future__ import annotations

import itertools

import pytest

from nnl_onn.networks import median_network


def median_by_network(values: list[int]) -> int:
    values = list(values)
    for low, high in median_network(len(values)):
        if values[low] > values[high]:
            values[low], values[high] = values[high], values[low]
    return values[(len(values) - 1) // 2]


@pytest.mark.parametrize("count", [*range(1, 13), 25, 27, 32])
def test_the_lower_median_of_zeros_and_ones_comes_to_its_place(count):
    # A network that is right of all zeros and ones is right of all values (Knuth's principle); of
    # many inputs those that begin or end with equal ones are tried, in every rotation.
    if count <= 12:
        every = itertools.product((0, 1), repeat=count)
    else:
        blocks = ([0] * k + [1] * (count - k) for k in range(count + 1))
        every = (one[r:] + one[:r] for one in blocks for r in range(count))
    for values in every:
        assert median_by_network(list(values)) == sorted(values)[(count - 1) // 2]


def test_a_network_makes_no_comparison_that_the_median_does_not_need():
    assert len(median_network(1)) == 0
    assert len(median_network(2)) == 1
    assert len(median_network(3)) == 3
    assert len(median_network(9)) < 26  # which all of Batcher's network for 9 has
