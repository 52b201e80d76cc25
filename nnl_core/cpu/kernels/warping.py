"""NumPy kernels of warping: picture after picture, shared among threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnl_core.cpu.threads import share
from nnl_core.graph.operator import Array
from nnl_core.operators import warping as family


def _each(
    reference: Callable[..., Array],
    pictures: Array,
    points: Array,
    places: tuple[int, ...],
    out: Array | None,
    **options: Any,
) -> Array:
    """Run the reference on one picture after the other."""
    shape = (*pictures.shape[:2], *places)
    result = np.empty(shape, pictures.dtype) if out is None else out

    def work(run: Sequence[int]) -> None:
        for at in run:
            one = slice(at, at + 1)
            result[one] = reference(pictures[one], points[one], **options)

    share(work, range(len(pictures)))
    return result


def sample_points(x: Array, points: Array, *, out: Array | None = None, **options: Any) -> Array:
    """Read pictures at points."""
    places = points.shape[1:-1]
    return _each(family.sample_points.reference, x, points, places, out, **options)


def sample_points_adjoint(
    g: Array, points: Array, *, shape: tuple[int, ...], out: Array | None = None, **options: Any
) -> Array:
    """Add gradients to the pixels that were read."""
    reference = family.sample_points_adjoint.reference
    return _each(reference, g, points, shape, out, shape=shape, **options)


family.sample_points.kernel("numpy", sample_points)
family.sample_points_adjoint.kernel("numpy", sample_points_adjoint)
