"""Sorting networks, as far as a median needs them."""

from __future__ import annotations

import functools


@functools.cache
def median_network(count: int) -> tuple[tuple[int, int], ...]:
    """Return comparisons ``(low, high)``, after which the lower median is at ``(count - 1) // 2``.

    They are those of Batcher's odd-even merge sort that the median depends on; what is missing to
    a power of two counts as larger than all.
    """
    size = 1
    while size < count:
        size *= 2
    every: list[tuple[int, int]] = []
    sorted_length = 1
    while sorted_length < size:
        distance = sorted_length
        while distance:
            for start in range(distance % sorted_length, size - distance, 2 * distance):
                for low in range(start, min(start + distance, size - distance)):
                    pair = low, low + distance
                    if len({place // (2 * sorted_length) for place in pair}) == 1:
                        every.append(pair)
            distance //= 2
        sorted_length *= 2
    needed = {(count - 1) // 2}
    kept = []
    for low, high in reversed(every):
        if high < count and not needed.isdisjoint((low, high)):
            needed |= {low, high}
            kept.append((low, high))
    return tuple(reversed(kept))
