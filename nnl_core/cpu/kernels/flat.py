"""NumPy kernel of flat storage."""

from __future__ import annotations

from nnl_core.graph.flat import layout
from nnl_core.graph.operator import Array
from nnl_core.operators import flat as family


def _pack(*xs: Array, out: Array | None) -> Array:
    """Pack into ``out``, leaving alone what was computed in its place there already."""
    if out is None:
        packed: Array = family.pack.reference(*xs)
        return packed
    end = 0
    places, length = layout(x.size for x in xs)
    for x, (start, stop) in zip(xs, places, strict=True):
        out[end:start] = 0
        target = out[start:stop].reshape(x.shape)
        if target.ctypes.data != x.ctypes.data:
            target[...] = x
        end = stop
    out[end:length] = 0
    return out


family.pack.kernel("numpy", _pack)
