"""NumPy kernels of resampling: blocks of rows that stay in the cache, shared among threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from nnl_core.cpu.threads import share
from nnl_core.graph.operator import Array
from nnl_core.operators import resampling as family
from nnl_core.operators.resampling import Resized, Rule

BLOCK_BYTES = 1 << 18


def _resample(
    reference: Callable[..., Array],
    x: Array,
    lengths: dict[int, int],
    axes: tuple[Resized, ...],
    rule: Rule,
    out: Array | None,
) -> Array:
    """Run the reference on blocks of what lies before the first axis that is resampled."""
    shape = tuple(lengths.get(axis, n) for axis, n in enumerate(x.shape))
    result = np.empty(shape, x.dtype) if out is None else out
    first = min(resized.axis for resized in axes)
    rows = math.prod(shape[:first])
    flat = x.reshape(rows, *x.shape[first:])
    target = result.reshape(rows, *shape[first:])
    moved = tuple(resized._replace(axis=resized.axis - first + 1) for resized in axes)
    step = max(1, BLOCK_BYTES * rows // max(1, x.nbytes, result.nbytes))

    def work(starts: Sequence[int]) -> None:
        for start in starts:
            block = flat[start : start + step]
            target[start : start + step] = reference(block, axes=moved, rule=rule)

    share(work, range(0, rows, step))
    if not np.may_share_memory(target, result):
        result[...] = target.reshape(shape)
    return result


def resize(x: Array, *, axes: tuple[Resized, ...], rule: Rule, out: Array | None = None) -> Array:
    """Resample axes."""
    lengths = {resized.axis: resized.size for resized in axes}
    return _resample(family.resize_operator.reference, x, lengths, axes, rule, out)


def resize_adjoint(
    g: Array, *, axes: tuple[Resized, ...], rule: Rule, out: Array | None = None
) -> Array:
    """Add gradients to what was resampled."""
    lengths = {resized.axis: resized.length for resized in axes}
    return _resample(family.resize_adjoint.reference, g, lengths, axes, rule, out)


family.resize_operator.kernel("numpy", resize)
family.resize_adjoint.kernel("numpy", resize_adjoint)
