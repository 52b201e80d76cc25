"""NumPy kernels of losses."""

from __future__ import annotations

import math

import numpy as np

from nnl_core.cpu.kernels.blocks import flat_blocks
from nnl_core.cpu.kernels.softmax import SHORT
from nnl_core.graph.operator import Array
from nnl_core.operators import cross_entropy, loss
from nnl_core.operators.labels import class_labels

Pair = tuple[Array, Array]


def _by_class(x: Array, axis: int, *, classes: int) -> Array:
    """View an array as ``(before, classes, after)``; short class axes at the end come first.

    Classes are then compared and added as vectors.
    """
    axis %= x.ndim
    length = x.shape[axis]
    if axis == x.ndim - 1 and classes <= SHORT:
        return x.reshape(1, -1, length).transpose(0, 2, 1)
    before, after = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    return x.reshape(before, length, after)


def _softmax_cross_entropy(
    x: Array,
    target: Array,
    weight: Array | None,
    *,
    axis: int,
    ignore_index: int | None,
    label_smoothing: float,
    out: Pair | None,
) -> Pair:
    classes, dtype = x.shape[axis], x.dtype
    labels, counted = class_labels("softmax_cross_entropy", target, classes, ignore_index)
    if out is None:
        out = np.empty(target.shape, x.dtype), np.empty(x.shape, x.dtype)
    y_out, p_out = out
    labels, counted = (_by_class(a, axis, classes=classes) for a in (labels, counted))
    p = np.array(_by_class(x, axis, classes=classes), dtype, order="C")
    np.subtract(p, p.max(1, keepdims=True, initial=-np.inf), out=p)
    at_label = np.take_along_axis(p, labels, 1)
    w = np.ones(classes, dtype) if weight is None else weight.astype(dtype)
    spread = (p * w[:, None]).sum(1, keepdims=True) if label_smoothing else None
    np.exp(p, out=p)
    total = p.sum(1, keepdims=True)
    np.divide(p, total, out=p)
    log_total = np.log(total)
    y = log_total - at_label
    if weight is not None:
        y *= w[labels]
    if spread is not None:
        everywhere = (log_total * w.sum() - spread) / classes
        y = (1 - label_smoothing) * y + label_smoothing * everywhere
    if not counted.all():
        y[~counted] = 0
    np.copyto(_by_class(y_out, axis, classes=classes), y, casting="unsafe")
    np.copyto(_by_class(p_out, axis, classes=classes), p, casting="unsafe")
    return y_out, p_out


def _softmax_cross_entropy_gradient(
    g: Array,
    p: Array,
    target: Array,
    weight: Array | None,
    *,
    axis: int,
    ignore_index: int | None,
    label_smoothing: float,
    out: Array | None,
) -> Array:
    classes, dtype = p.shape[axis], p.dtype
    labels, counted = class_labels("softmax_cross_entropy", target, classes, ignore_index)
    result = np.empty(p.shape, p.dtype) if out is None else out
    labels, counted, g, p = (_by_class(a, axis, classes=classes) for a in (labels, counted, g, p))
    factor = np.where(counted, g, 0).astype(dtype)  # what the loss of each label counts
    at_label, everywhere = factor, factor
    if weight is not None:
        w = weight.astype(dtype)
        at_label = factor * w[labels]
        everywhere = at_label
    dx = p.astype(dtype, order="C")
    if label_smoothing:
        share = label_smoothing / classes
        w = np.ones(classes, dtype) if weight is None else w
        at_label = at_label * (1 - label_smoothing)
        everywhere = at_label + factor * (w.sum() * share)
        np.multiply(dx, everywhere, out=dx)
        dx -= factor * (w[:, None] * share)
    else:
        np.multiply(dx, everywhere, out=dx)
    np.put_along_axis(dx, labels, np.take_along_axis(dx, labels, 1) - at_label, 1)
    if np.isnan(dx).any():
        np.copyto(dx, 0, where=factor == 0)
    np.copyto(_by_class(result, axis, classes=classes), dx, casting="unsafe")
    return result


cross_entropy.softmax_cross_entropy_operator.kernel("numpy", _softmax_cross_entropy)
cross_entropy.softmax_cross_entropy_gradient.kernel("numpy", _softmax_cross_entropy_gradient)


def _squared_error(x0: Array, x1: Array, *, out: Array | None) -> Array:
    d = np.asarray(np.subtract(x0, x1, out=out))
    return np.asarray(np.multiply(d, d, out=out))


def _absolute_error(x0: Array, x1: Array, *, out: Array | None) -> Array:
    d = np.asarray(np.subtract(x0, x1, out=out))
    return np.asarray(np.abs(d, out=out))


def _huber_loss(x0: Array, x1: Array, *, delta: float, out: Array | None) -> Array:
    """``c (2 d - c)`` with ``c = min(d, delta)``."""
    d = np.asarray(np.subtract(x0, x1))
    y = np.empty_like(d) if out is None else out
    for distance, cut in flat_blocks(d, y):
        np.abs(distance, out=distance)
        np.minimum(distance, d.dtype.type(delta), out=cut)
        distance += distance
        distance -= cut
        cut *= distance
    return y


loss.huber_loss_operator.kernel("numpy", _huber_loss)
loss.squared_error_operator.kernel("numpy", _squared_error)
loss.absolute_error_operator.kernel("numpy", _absolute_error)
