"""Many arrays end to end in one block: the layout of flat parameter storage."""

from __future__ import annotations

from collections.abc import Iterable

ALIGNMENT = 16  # elements: each array starts on a cache line in float32


def layout(sizes: Iterable[int]) -> tuple[list[tuple[int, int]], int]:
    """Return (start, stop) of each array in the block, and the block's length, in elements."""
    places = []
    end = 0
    for size in sizes:
        places.append((end, end + size))
        end += -(-size // ALIGNMENT) * ALIGNMENT
    return places, end
