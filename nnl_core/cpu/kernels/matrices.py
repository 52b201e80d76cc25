"""NumPy kernel of cofactors, by the inverse where that is accurate."""

from __future__ import annotations

import numpy as np

from nnl_core.graph.operator import Array
from nnl_core.operators import matrices as family


def _batch_cofactor(x: Array, *, out: Array | None) -> Array:
    """``det(x) x^-T`` if all matrices are far from singular, else by singular values."""
    if not x.size or (cofactors := _by_inverse(x)) is None:
        cofactors = family.batch_cofactor.reference(x)
    return np.asarray(np.positive(cofactors, out=out))


def _by_inverse(x: Array) -> Array | None:
    try:
        inverse = np.linalg.inv(x)
    except np.linalg.LinAlgError:
        return None
    squares = [np.square(one).sum(axis=(-2, -1)) for one in (x, inverse)]
    condition = squares[0] * squares[1]  # at least the square of the condition number
    if not (condition * np.finfo(x.dtype).eps < 1).all():
        return None
    transposed = np.swapaxes(inverse, -2, -1)
    return np.asarray(transposed * np.linalg.det(x)[..., None, None])


family.batch_cofactor.kernel("numpy", _batch_cofactor)
