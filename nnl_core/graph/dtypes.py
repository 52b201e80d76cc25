"""Element types: which there are, which are floating, and what values of each are computed in.

``bfloat16`` comes from the library ``ml_dtypes``, which is imported when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnl_core.errors import BackendError

DEFAULT_DTYPE = np.dtype(np.float32)


def bfloat16() -> np.dtype:
    """Return the dtype of 16 bits that has the range of ``float32`` and 8 bits of precision.

    Raises `BackendError` where the library it comes from is not installed.
    """
    try:
        import ml_dtypes
    except ImportError as error:
        raise BackendError(
            "bfloat16 needs the library ml_dtypes, which is not installed: "
            "pip install 'nnl-core[standard]', or use float16"
        ) from error
    dtype: np.dtype = np.dtype(ml_dtypes.bfloat16)
    return dtype


def as_dtype(dtype: npt.DTypeLike) -> np.dtype:
    """Return the dtype of a name or type, in this machine's byte order; of ``"bfloat16"``, too."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        return bfloat16()
    found = np.dtype(dtype)
    # A new dtype of another byte order is equal to NumPy's own, but not the same object, and what
    # NumPy does fast (`ufunc.at`) it does for its own.
    return found if found.isnative else found.newbyteorder("=")


def is_bfloat16(dtype: np.dtype) -> bool:
    """Whether a dtype is ``bfloat16``: NumPy takes it for one of unknown kind."""
    return dtype.kind == "V" and dtype.name == "bfloat16"


def is_floating(dtype: np.dtype) -> bool:
    """Whether elements are floating numbers, through which gradients flow."""
    return dtype.kind == "f" or is_bfloat16(dtype)


def is_real(dtype: np.dtype) -> bool:
    """Whether elements are real numbers or truths: what a variable may hold."""
    return dtype.kind in "biuf" or is_bfloat16(dtype)


def is_half(dtype: np.dtype) -> bool:
    """Whether a dtype is ``float16`` or ``bfloat16``."""
    return dtype.itemsize == 2 and is_floating(dtype)


def wide_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype that values are computed in: ``float32`` for half, else their own."""
    return DEFAULT_DTYPE if is_half(dtype) else dtype


def widened(arrays: Sequence[npt.NDArray[Any] | None]) -> list[npt.NDArray[Any] | None]:
    """Return the arrays, those of half precision as ``float32``."""
    return [
        None if array is None else array.astype(wide_dtype(array.dtype), copy=False)
        for array in arrays
    ]
