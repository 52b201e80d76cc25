"""Memory for arenas: aligned, in huge pages where it is large, and then shared among programs."""

from __future__ import annotations

import mmap
import weakref

import numpy as np

from nnl_core.graph.operator import Array

HUGE_PAGE = 1 << 21


def allocate(size: int) -> tuple[Array, mmap.mmap | None]:
    """Return aligned memory, in huge pages where it is large and the system has them."""
    if size < HUGE_PAGE:
        raw = np.empty(size + 64, np.uint8)
        shift = -raw.ctypes.data % 64
        return raw[shift : shift + size], None
    mapping = mmap.mmap(-1, size + HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    raw = np.frombuffer(mapping, np.uint8)
    shift = -raw.ctypes.data % HUGE_PAGE
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            # Whole ones only: the last would be larger than what is asked for.
            mapping.madvise(mmap.MADV_HUGEPAGE, shift, size - size % HUGE_PAGE)
        except OSError:  # a system without them
            pass
    return raw[shift : shift + size], mapping


class Block:
    """Memory that programs use in turn; it is there as long as one of them holds it."""

    __slots__ = ("__weakref__", "_kept", "address", "size")

    def __init__(self, size: int) -> None:
        array, mapping = allocate(size)
        self._kept: tuple[Array, mmap.mmap | None] | None = (array, mapping)
        self.size = size
        self.address: int = array.ctypes.data

    def release(self) -> None:
        """Give the memory back to the system; nobody may use the block from then on."""
        self._kept = None


_idle: list[weakref.ref[Block]] = []


def borrow(size: int, own: Block | None) -> Block:
    """Return a block that nobody uses: the largest, so that programs come to have one in common.

    Among equal ones it is the borrower's own. No lock: whoever removes it from the list has it.
    """
    while True:
        found: tuple[tuple[int, bool], Block, weakref.ref[Block]] | None = None
        smaller: list[tuple[Block, weakref.ref[Block]]] = []
        for reference in tuple(_idle):
            block = reference()
            if block is None:
                _take(reference)
            elif block.size >= size:
                rank = block.size, block is own
                if found is None or rank > found[0]:
                    found = rank, block, reference
            else:
                smaller.append((block, reference))
        if found is None:
            for block, reference in smaller:  # whoever used them will use the new one
                if _take(reference):
                    block.release()
            return Block(size)
        if _take(found[2]):
            return found[1]


def give_back(block: Block) -> None:
    """Let others use a block."""
    _idle.append(weakref.ref(block))


def _take(reference: weakref.ref[Block]) -> bool:
    try:
        _idle.remove(reference)
    except ValueError:  # another thread was faster
        return False
    return True
