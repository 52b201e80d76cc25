"""Convolution with a kernel for each place, the product of a column and a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnl_core.errors import ShapeError
from nnl_core.graph.operator import Array, Sample, defop
from nnl_core.graph.spec import Spec, promote
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import cast
from nnl_core.operators.dtypes import floating, wide
from nnl_core.operators.multilinear import differentiate_each_other
from nnl_core.operators.windows import sliding

__all__ = ["adaptive_separable_convolution"]


# The form is sum of y[n,c,p,q] x[n,c,p+j,q+i] v[n,j,p,q] h[n,i,p,q] over all indices.


def _windows(x: Array, rows: int, columns: int) -> Array:
    """Return a view of all windows as (batch, channels, p, q, j, i)."""
    return sliding(wide(x), (rows, columns), (1, 1))


@defop("nnl::adaptive_separable_convolution", save=("x", "v", "h"), precision="half")
def adaptive_separable_operator(x: Array, v: Array, h: Array) -> Array:
    """``y[n,c,p,q] = sum_{j,i} v[n,j,p,q] h[n,i,p,q] x[n,c,p+j,q+i]``."""
    windows = _windows(x, v.shape[1], h.shape[1])
    across = np.einsum("ncpqji,nipq->ncpqj", windows, wide(h))
    return np.einsum("ncpqj,njpq->ncpq", across, wide(v)).astype(x.dtype, copy=False)


@defop("nnl::adaptive_separable_vertical", save=("x", "h", "y"), outputs=("v",), precision="half")
def adaptive_separable_vertical(x: Array, h: Array, y: Array) -> Array:
    """``v[n,j,p,q] = sum_{c,i} y[n,c,p,q] h[n,i,p,q] x[n,c,p+j,q+i]``."""
    windows = _windows(x, x.shape[2] - y.shape[2] + 1, h.shape[1])
    across = np.einsum("ncpqji,nipq->ncpqj", windows, wide(h))
    return np.einsum("ncpqj,ncpq->njpq", across, wide(y)).astype(x.dtype, copy=False)


@defop("nnl::adaptive_separable_horizontal", save=("x", "v", "y"), outputs=("h",), precision="half")
def adaptive_separable_horizontal(x: Array, v: Array, y: Array) -> Array:
    """``h[n,i,p,q] = sum_{c,j} y[n,c,p,q] v[n,j,p,q] x[n,c,p+j,q+i]``."""
    windows = _windows(x, v.shape[1], x.shape[3] - y.shape[3] + 1)
    down = np.einsum("ncpqji,njpq->ncpqi", windows, wide(v))
    return np.einsum("ncpqi,ncpq->nipq", down, wide(y)).astype(x.dtype, copy=False)


@defop("nnl::adaptive_separable_data", save=("v", "h", "y"), outputs=("x",), precision="half")
def adaptive_separable_data(v: Array, h: Array, y: Array) -> Array:
    """``x[n,c,p+j,q+i] = sum_{j,i} y[n,c,p,q] v[n,j,p,q] h[n,i,p,q]``."""
    batch, channels, places, across = y.shape
    x = np.zeros((batch, channels, places + v.shape[1] - 1, across + h.shape[1] - 1), wide(y).dtype)
    for j in range(v.shape[1]):
        row = wide(y) * wide(v)[:, j, None]
        for i in range(h.shape[1]):
            x[:, :, j : j + places, i : i + across] += row * wide(h)[:, i, None]
    return x.astype(y.dtype, copy=False)


# Shapes ------------------------------------------------------------------------------------------


def _checked(x: Any, v: Any, h: Any, y: Any) -> None:
    """Refuse shapes that do not belong to one form; what is the result is ``None``."""
    known = [shape for shape in (x, v, h, y) if shape is not None]
    if any(len(shape) != 4 for shape in known):
        raise ShapeError("data and kernels must have four axes: (batch, channels or taps, y, x)")
    places = {shape[2:] for shape in (v, h, y) if shape is not None}
    if len({shape[0] for shape in known}) > 1 or len(places) > 1:
        raise ShapeError("batches and places must be the same")
    if y is None:
        expected = (x[2] - v[1] + 1, x[3] - h[1] + 1)
        if min(expected) < 1 or places != {expected}:
            raise ShapeError(
                f"kernels of {v[1]} x {h[1]} taps take data of shape {x} to places {expected}; "
                f"the kernels are given at places {v[2:]}"
            )


@adaptive_separable_operator.infer
def adaptive_separable_infer(x: Spec, v: Spec, h: Spec) -> Spec:
    """(batch, channels, height - j + 1, width - i + 1)."""
    _checked(x.shape, v.shape, h.shape, None)
    return x.with_shape((*x.shape[:2], *v.shape[2:]))


@adaptive_separable_vertical.infer
def adaptive_separable_vertical_infer(x: Spec, h: Spec, y: Spec) -> Spec:
    """(batch, j, p, q)."""
    _checked(x.shape, None, h.shape, y.shape)
    return x.with_shape((x.shape[0], x.shape[2] - y.shape[2] + 1, *y.shape[2:]))


@adaptive_separable_horizontal.infer
def adaptive_separable_horizontal_infer(x: Spec, v: Spec, y: Spec) -> Spec:
    """(batch, i, p, q)."""
    _checked(x.shape, v.shape, None, y.shape)
    return x.with_shape((x.shape[0], x.shape[3] - y.shape[3] + 1, *y.shape[2:]))


@adaptive_separable_data.infer
def adaptive_separable_data_infer(v: Spec, h: Spec, y: Spec) -> Spec:
    """(batch, channels, p + j - 1, q + i - 1)."""
    _checked(None, v.shape, h.shape, y.shape)
    longer = (y.shape[2] + v.shape[1] - 1, y.shape[3] + h.shape[1] - 1)
    return y.with_shape((*y.shape[:2], *longer))


# Gradients, costs and samples ---------------------------------------------------------------------


differentiate_each_other(
    {
        "y": adaptive_separable_operator,
        "v": adaptive_separable_vertical,
        "h": adaptive_separable_horizontal,
        "x": adaptive_separable_data,
    }
)


def _cost(channels: int, v: tuple[int, ...], taps: int) -> int:
    """Sums along rows, then along columns."""
    return v[0] * channels * v[2] * v[3] * v[1] * (taps + 1)


@adaptive_separable_operator.multiply_adds
def adaptive_separable_cost(x: Spec, v: Spec, h: Spec) -> int:
    """One per channel, place and tap of the product."""
    return _cost(x.shape[1], v.shape, h.shape[1])


@adaptive_separable_vertical.multiply_adds
def adaptive_separable_vertical_cost(x: Spec, h: Spec, y: Spec) -> int:
    """As many."""
    v = adaptive_separable_vertical_infer(x, h, y).shape
    return _cost(x.shape[1], v, h.shape[1])


@adaptive_separable_horizontal.multiply_adds
def adaptive_separable_horizontal_cost(x: Spec, v: Spec, y: Spec) -> int:
    """As many."""
    return _cost(x.shape[1], v.shape, x.shape[3] - y.shape[3] + 1)


@adaptive_separable_data.multiply_adds
def adaptive_separable_data_cost(v: Spec, h: Spec, y: Spec) -> int:
    """As many."""
    return _cost(y.shape[1], v.shape, h.shape[1])


# (batch, channels, p, q, j, i): oblong, one tap, one place, empty.
_CASES = [(2, 3, 3, 4, 3, 2), (1, 1, 2, 2, 1, 1), (1, 2, 1, 1, 2, 4), (0, 2, 2, 2, 2, 2)]


def _drawn(rng: np.random.Generator, factors: str) -> Iterator[Sample]:
    for batch, channels, p, q, j, i in _CASES:
        shapes = {
            "x": (batch, channels, p + j - 1, q + i - 1),
            "v": (batch, j, p, q),
            "h": (batch, i, p, q),
            "y": (batch, channels, p, q),
        }
        yield Sample(*(rng.normal(size=shapes[factor]) for factor in factors))


adaptive_separable_operator.samples(lambda rng: _drawn(rng, "xvh"))
adaptive_separable_vertical.samples(lambda rng: _drawn(rng, "xhy"))
adaptive_separable_horizontal.samples(lambda rng: _drawn(rng, "xvy"))
adaptive_separable_data.samples(lambda rng: _drawn(rng, "vhy"))


# What users call ---------------------------------------------------------------------------------


def adaptive_separable_convolution(
    x: Operand, vertical_kernel: Operand, horizontal_kernel: Operand
) -> Variable:
    """Convolve images with a kernel for each place, the product of a column and a row.

    ``y[n, c, p, q] = sum_{j, i} vertical[n, j, p, q] horizontal[n, i, p, q] x[n, c, p+j, q+i]``:
    the kernels are the same for all channels. (Niklaus et al., arXiv:1708.01692.) Pad before
    where the size is to stay.

    Args:
        x: ``(batch, channels, height, width)``, floating.
        vertical_kernel: ``(batch, J, height - J + 1, width - I + 1)``.
        horizontal_kernel: ``(batch, I, height - J + 1, width - I + 1)``.

    Returns:
        ``(batch, channels, height - J + 1, width - I + 1)``.

    Raises:
        ShapeError: the kernels are not given at these places.

    Gradient:
        To all three, as of a sum of products.

    Examples:
        >>> x = np.arange(6.0).reshape(1, 1, 2, 3)
        >>> F.adaptive_separable_convolution(x, np.ones((1, 2, 1, 3)), np.ones((1, 1, 1, 3))).d
        array([[[[3., 5., 7.]]]])

    Elsewhere:
        - nnabla: `adaptive_separable_convolution`
        - PyTorch: none, `torch.einsum` of `torch.nn.functional.unfold` and the kernels
        - ONNX: none, shifted copies (`Slice`) times kernels, summed
    """
    given = [floating(v) for v in (x, vertical_kernel, horizontal_kernel)]
    dtype = promote(*(v.dtype for v in given))
    return adaptive_separable_operator(*(v if v.dtype == dtype else cast(v, dtype) for v in given))
