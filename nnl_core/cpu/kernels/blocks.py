"""Arrays taken in blocks that stay in the cache from one pass to the next."""

from __future__ import annotations

from collections.abc import Iterator

from nnl_core.graph.operator import Array

BLOCK_BYTES = 1 << 17


def flat_blocks(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Yield the same part of arrays of one shape, after the other; all at once if one is a view."""
    if not all(x.flags.c_contiguous for x in arrays):
        yield arrays
        return
    flat = [x.reshape(-1) for x in arrays]
    step = BLOCK_BYTES // arrays[0].itemsize
    for start in range(0, flat[0].size, step):
        yield tuple(x[start : start + step] for x in flat)
