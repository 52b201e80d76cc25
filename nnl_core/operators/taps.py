"""Values between elements: the weights of the nearest ones, and sums of weighted rows."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from nnl_core.graph.operator import Array

Polynomial = tuple[float, ...]
CUBIC_A = -0.75
"""The slope of the cubic kernel at distance 1 that PyTorch and ONNX take."""


def kernel(method: str, a: float = CUBIC_A) -> tuple[Polynomial, ...]:
    """Return the weight of each tap as a polynomial in the fraction, constant first.

    ``"cubic"`` is the convolution of R. Keys, Cubic convolution interpolation for digital image
    processing, 1981, with its coefficient ``a``.
    """
    if method == "cubic":
        return (
            (0.0, a, -2 * a, a),
            (1.0, 0.0, -(a + 3), a + 2),
            (0.0, -a, 2 * a + 3, -(a + 2)),
            (0.0, 0.0, a, -a),
        )
    return ((1.0, -1.0), (0.0, 1.0)) if method == "linear" else ((1.0,),)


def degree(method: str) -> int:
    """Return how often the weights can be differentiated before nothing is left."""
    return len(kernel(method)[0]) - 1


def derivative(polynomial: Polynomial, order: int) -> Polynomial:
    """Return a derivative of a polynomial."""
    kept = tuple(
        math.perm(power, order) * factor
        for power, factor in enumerate(polynomial)
        if power >= order
    )
    return kept or (0.0,)


def evaluate(polynomial: Polynomial, f: Array) -> Array:
    """Return a polynomial's values, in the dtype of ``f``; NaN where ``f`` is."""
    *lower, highest = polynomial
    result = 0 * f + highest
    for factor in reversed(lower):
        result = result * f + factor
    return result


def half_away_from_zero(x: Array) -> Array:
    """Round to the nearest whole number, halves away from zero."""
    return np.trunc(x + np.copysign(0.5, x))


def as_rows(pictures: Array) -> Array:
    """Return pictures ``(batch, channels, *lengths)`` as a matrix of a row for each pixel."""
    pixels = pictures.shape[0] * math.prod(pictures.shape[2:])
    return np.moveaxis(pictures, 1, -1).reshape(pixels, pictures.shape[1])


def as_pictures(rows: Array, batch: int, lengths: tuple[int, ...], dtype: np.dtype) -> Array:
    """Return a matrix of a row for each pixel as pictures ``(batch, channels, *lengths)``."""
    pictures = np.moveaxis(rows.reshape(batch, *lengths, rows.shape[1]), -1, 1)
    return np.ascontiguousarray(pictures, dtype=dtype)


def read_rows(rows: Array, taps: Iterable[tuple[Array, Array]], dtype: npt.DTypeLike) -> Array:
    """Return sums of weighted rows of a matrix: ``y[i] = sum over taps of weight[i] rows[at[i]]``.

    What has weight 0 is not looked at, so that it may be infinite, NaN or out of range.
    """
    count, width = rows.shape
    source = np.zeros((count + 1, width), dtype)
    source[:count] = rows
    result = None
    for at, weight in taps:
        # All are in range: "clip" takes several times less time than a check.
        term = source.take(np.where(weight == 0, count, at), axis=0, mode="clip")
        term *= weight[:, None]
        result = term if result is None else np.add(result, term, out=result)
    assert result is not None
    return result


def write_rows(values: Array, taps: Iterable[tuple[Array, Array]], count: int) -> Array:
    """Add weighted rows to a matrix of zeros: the adjoint of `read_rows`, in float64."""
    columns = np.ascontiguousarray(values.T)
    result = np.zeros((len(columns), count + 1))
    for at, weight in taps:
        places = np.where(weight == 0, count, at)
        for column, total in zip(columns, result, strict=True):
            total += np.bincount(places, column * weight, minlength=count + 1)
    return result[:, :count].T
