"""Shape and dtype of a value that may not exist yet, and the rules that combine them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nnl_core.errors import ShapeError
from nnl_core.graph.checks import whole, wholes
from nnl_core.graph.dtypes import DEFAULT_DTYPE as DEFAULT_DTYPE  # part of this module, too
from nnl_core.graph.dtypes import as_dtype, is_bfloat16, is_floating


class Spec(NamedTuple):
    """What is known of an array without its data: ``shape`` and ``dtype``."""

    shape: tuple[int, ...]
    dtype: np.dtype = DEFAULT_DTYPE

    @classmethod
    def of(cls, array: npt.NDArray[np.generic]) -> Spec:
        """Describe an existing array."""
        return cls(array.shape, array.dtype)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes the elements take when stored without gaps."""
        return math.prod(self.shape) * self.dtype.itemsize

    def with_shape(self, shape: tuple[int, ...]) -> Spec:
        """Return the same dtype with another shape."""
        return Spec(shape, self.dtype)

    def with_dtype(self, dtype: npt.DTypeLike) -> Spec:
        """Return the same shape with another dtype."""
        return Spec(self.shape, as_dtype(dtype))


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Combine shapes as NumPy broadcasts them; raise `ShapeError` where they do not fit."""
    if len(shapes) == 2 and shapes[0] == shapes[1]:
        return shapes[0]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        text = " and ".join(str(shape) for shape in shapes)
        raise ShapeError(f"shapes {text} do not broadcast: each axis must match or be 1") from None


def promote(*dtypes: np.dtype) -> np.dtype:
    """Return the dtype that an operation on these dtypes computes in.

    Within a kind (boolean, integer, floating) the wider wins; across kinds the floating operand
    keeps its width: ``int64`` with ``float32`` is ``float32``, where NumPy would widen. Neither of
    ``bfloat16`` and ``float16`` holds the other: both together are ``float32``.
    """
    first = dtypes[0]
    if all(dtype == first for dtype in dtypes):
        return first
    floating = [dtype for dtype in dtypes if is_floating(dtype)]
    if len(set(floating)) > 1:
        floating = [DEFAULT_DTYPE if is_bfloat16(dtype) else dtype for dtype in floating]
    return np.result_type(*(floating or dtypes))


def promote_scalar(dtype: np.dtype, value: float | int | bool) -> np.dtype:
    """Return the dtype of an operation between an array and a Python scalar.

    A scalar never widens a floating array; an integer array with a float scalar becomes the
    default floating dtype; a boolean array with an integer scalar becomes ``int64``. Raises
    `ShapeError` for an integer that the dtype cannot hold.
    """
    if is_floating(dtype):
        return dtype
    if isinstance(value, (float, np.floating)):
        return DEFAULT_DTYPE
    if isinstance(value, (bool, np.bool_)):
        return dtype
    if dtype.kind == "b":
        return np.dtype(np.int64)
    bounds = np.iinfo(dtype)
    if not bounds.min <= value <= bounds.max:
        raise ShapeError(f"{dtype} cannot hold {value}; cast the array to a wider dtype first")
    return dtype


def elementwise_spec(*specs: Spec, dtype: npt.DTypeLike | None = None) -> Spec:
    """Infer the result of an elementwise operation: broadcast shape, promoted (or given) dtype."""
    if dtype is None and all(spec == specs[0] for spec in specs):
        return specs[0]
    shape = broadcast_shapes(*(spec.shape for spec in specs))
    if dtype is not None:
        return Spec(shape, as_dtype(dtype))
    return Spec(shape, promote(*(spec.dtype for spec in specs)))


def normalize_axis(axis: int, ndim: int) -> int:
    """Return ``axis`` counted from the front; raise `ShapeError` outside ``[-ndim, ndim)``."""
    place = whole(axis, "axis")
    if not -ndim <= place < ndim:
        raise ShapeError(f"axis {place} is out of range for {ndim} axes")
    return place % ndim


def normalize_axes(axes: int | Iterable[int] | None, ndim: int) -> tuple[int, ...]:
    """Return sorted non-negative axes; ``None`` means all; repeats raise `ShapeError`."""
    if axes is None:
        return tuple(range(ndim))
    listed = wholes(axes, "axes") if isinstance(axes, Iterable) else (axes,)
    normal = tuple(sorted(normalize_axis(axis, ndim) for axis in listed))
    if len(set(normal)) != len(normal):
        raise ShapeError(f"axes {listed} name an axis twice")
    return normal
