"""Operators between separate arrays and one flat block (gradients of a training step)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.flat import layout
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec, promote

__all__ = ["pack"]


@defop("nnl::pack")
def pack(*xs: Array) -> Array:
    """Put arrays end to end in one flat block, each start aligned, gaps zero.

    Starts are multiples of 16 elements. For solvers, which keep parameters in such blocks.

    Args:
        *xs: arrays of one dtype.

    Gradient:
        To each array its part of ``dy``.

    Examples:
        >>> F.pack(np.ones((2, 2)), np.ones(3)).shape
        (32,)

    Elsewhere:
        - nnabla: none, its solvers work parameter by parameter
        - PyTorch: none, internal to its optimizers
        - ONNX: none, training alone
    """
    places, length = layout(x.size for x in xs)
    block = np.zeros(length, np.result_type(*(x.dtype for x in xs)))
    for x, (start, stop) in zip(xs, places, strict=True):
        block[start:stop] = x.ravel()
    return block


@pack.infer
def pack_infer(*xs: Spec) -> Spec:
    """Length of the block."""
    if not xs:
        raise ShapeError("pack needs at least one array")
    return Spec((layout(x.size for x in xs)[1],), promote(*(x.dtype for x in xs)))


@pack.vjp
def pack_vjp(g: Any, y: Any, *xs: Any) -> tuple[Any, ...]:
    """Cut the block's gradient into the arrays' shapes."""
    places, _ = layout(x.size for x in xs)
    return tuple(
        F.reshape(F.slice(g, (start,), (stop,)), x.shape)
        for x, (start, stop) in zip(xs, places, strict=True)
    )


@pack.samples
def pack_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Odd sizes, 0-d and empty arrays."""
    yield Sample(rng.normal(size=(3, 5)), rng.normal(size=()), rng.normal(size=(0, 2)))
    yield Sample(rng.normal(size=16))
