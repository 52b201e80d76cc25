"""Choose between two arrays by a mask, at the speed of arithmetic."""

from __future__ import annotations

import numpy as np

from nnl_core.graph.operator import Array


def choose(mask: Array, a: Array, b: Array | None, out: Array | None) -> Array:
    """Put ``a`` where ``mask`` is true, else ``b`` (``None``: zero), into ``out``.

    ``a`` and ``b`` have the shape of ``mask`` and one floating dtype. Bits are combined: on masks
    without a pattern that is several times faster than ``numpy.where``, which branches; and unlike
    a product with the mask it lets no NaN through from the other side.
    """
    if out is None:
        out = np.empty(a.shape, a.dtype)
    bits = np.dtype(f"i{a.itemsize}")
    select = np.asarray(mask, bits)
    np.negative(select, out=select)
    chosen = a.view(bits)
    if b is None:
        np.bitwise_and(chosen, select, out=out.view(bits))
        return out
    other = b.view(bits)
    np.bitwise_and(np.bitwise_xor(chosen, other), select, out=select)
    np.bitwise_xor(select, other, out=out.view(bits))
    return out
