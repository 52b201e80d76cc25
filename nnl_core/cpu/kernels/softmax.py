"""NumPy kernels of softmax, its logarithm and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnl_core.graph.operator import Array, Operator
from nnl_core.operators import softmax as family

SHORT = 64
"""Along an axis of up to this length NumPy's reductions are slower than turning the array round."""


def _attach(operator: Operator) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Attach ``function(*arrays, out, axis)``, which computes in ``float32`` or ``float64``.

    ``out`` may be the first array. The axis comes first where it was short and the last: then whole
    rows are compared and added as vectors.
    """

    def attach(function: Callable[..., None]) -> Callable[..., None]:
        def kernel(*arrays: Array, axis: int, out: Array | None) -> Array:
            first = arrays[0]
            if out is None:
                out = np.empty(first.shape, first.dtype)
            length = first.shape[axis]
            if first.ndim > 1 and axis % first.ndim == first.ndim - 1 and 0 < length <= SHORT:
                turned = [np.array(x.reshape(-1, length).T, order="C") for x in arrays]
                function(*turned, turned[0], 0)
                np.copyto(out, turned[0].T.reshape(out.shape))
            else:
                function(*arrays, out, axis)
            return out

        operator.kernel("numpy", kernel)
        return function

    return attach


def _largest(x: Array, axis: int) -> Any:
    return x.max(axis, keepdims=True, initial=-np.inf)


@_attach(family.softmax_operator)
def _softmax(x: Array, out: Array, axis: int) -> None:
    np.subtract(x, _largest(x, axis), out=out)
    np.exp(out, out=out)
    np.divide(out, out.sum(axis, keepdims=True), out=out)


@_attach(family.masked_softmax_operator)
def _masked_softmax(x: Array, out: Array, axis: int) -> None:
    largest = _largest(x, axis)
    largest[np.isneginf(largest)] = 0
    np.subtract(x, largest, out=out)
    np.exp(out, out=out)
    total = out.sum(axis, keepdims=True)
    total[total == 0] = 1
    np.divide(out, total, out=out)


@_attach(family.softmax_gradient)
def _softmax_gradient(g: Array, y: Array, out: Array, axis: int) -> None:
    along = (g * y).sum(axis, keepdims=True)
    if np.isnan(along).any():
        along = np.where(g == 0, 0, g * y).sum(axis, keepdims=True)
        change = g - along
        np.copyto(out, np.where(change == 0, 0, change * y))
    else:
        np.subtract(g, along, out=out)
        np.multiply(out, y, out=out)


@_attach(family.log_softmax_operator)
def _log_softmax(x: Array, out: Array, axis: int) -> None:
    np.subtract(x, _largest(x, axis), out=out)
    np.subtract(out, np.log(np.exp(out).sum(axis, keepdims=True)), out=out)


@_attach(family.log_softmax_gradient)
def _log_softmax_gradient(g: Array, y: Array, out: Array, axis: int) -> None:
    total = g.sum(axis, keepdims=True)
    rest = np.exp(y)
    np.multiply(rest, total, out=rest)
    if not total.all():
        np.copyto(rest, 0, where=total == 0)
    np.subtract(g, rest, out=out)
