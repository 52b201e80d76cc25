"""Memory for arenas: aligned, and in huge pages where it is large."""

from __future__ import annotations

import mmap

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
