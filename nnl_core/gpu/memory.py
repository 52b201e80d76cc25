"""Blocks of memory that are kept for the next who asks for as much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

LEAST = 512  # bytes of the smallest block


class Block:
    """Memory that somebody has; the pool has it again when nobody does.

    PyCUDA's own pools need the context to be current wherever a value is collected, else the
    process ends; here that only moves a reference.
    """

    __slots__ = ("_pool", "memory", "size")

    def __init__(self, pool: Pool, memory: Any, size: int) -> None:
        self._pool = pool
        self.memory = memory
        self.size = size

    def __del__(self) -> None:
        self._pool.take_back(self.memory, self.size)


class Pool:
    """Hands out blocks that ``make(bytes)`` made; sizes are rounded up by a quarter at most.

    A block may be handed out again at once: whoever uses the memory does so in the order of one
    stream, or asks when it was last used.
    """

    def __init__(self, make: Callable[[int], Any]) -> None:
        self._make = make
        self._free: dict[int, list[Any]] = {}
        self.active = 0  # bytes that somebody has
        self.held = 0  # bytes kept beside them

    def allocate(self, size: int) -> Block:
        """Return a block of at least so many bytes; what ``make`` raises is raised."""
        size = rounded(size)
        try:
            memory = self._free[size].pop()
            self.held -= size
        except (KeyError, IndexError):
            memory = self._make(size)
        self.active += size
        return Block(self, memory, size)

    def take_back(self, memory: Any, size: int) -> None:
        """Keep the memory of a block that nobody has any more."""
        self.active -= size
        self.held += size
        self._free.setdefault(size, []).append(memory)

    def clear(self) -> None:
        """Drop what is kept; called where that may free memory."""
        self._free.clear()
        self.held = 0


def rounded(size: int) -> int:
    """Return the size of the block for so many bytes: 4, 5, 6 or 7 times a power of two."""
    if size <= LEAST:
        return LEAST
    step = 1 << ((size - 1).bit_length() - 3)
    return -(-size // step) * step
