"""Dtypes that operators compute in, where that is not the dtype of their inputs."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from nnl_core.errors import OperatorError
from nnl_core.graph.dtypes import is_floating
from nnl_core.graph.dtypes import wide_dtype as wide_dtype  # part of this module, too
from nnl_core.graph.operator import Array
from nnl_core.graph.spec import DEFAULT_DTYPE, promote_scalar
from nnl_core.graph.variable import Operand, Variable
from nnl_core.operators.arithmetic import cast, is_number


def wide(x: Array) -> Array:
    """Convert to the dtype that values are computed in."""
    return x.astype(wide_dtype(x.dtype), copy=False)


def single_precision(reference: Callable[..., Array]) -> Callable[..., Array]:
    """Make a reference compute ``float16`` in ``float32`` and return the first input's dtype."""

    @functools.wraps(reference)
    def computed(x: Array, *others: Array, **attributes: object) -> Array:
        result = reference(wide(x), *(wide(other) for other in others), **attributes)
        return np.asarray(result).astype(x.dtype, copy=False)

    return computed


def sum_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype of a sum of products: integers and booleans are summed in 64 bits."""
    if dtype.kind == "u":
        return np.dtype(np.uint64)
    return dtype if is_floating(dtype) else np.dtype(np.int64)


def floating(x: Operand) -> Variable:
    """Return a variable of floating dtype: integers and booleans become ``float32``."""
    variable = x if isinstance(x, Variable) else Variable.constant(x)
    return variable if is_floating(variable.dtype) else cast(variable, DEFAULT_DTYPE)


def holding(x: Operand, value: float) -> Variable:
    """Return a variable whose dtype holds a number, too: for a fraction, integers are cast.

    Raises `ShapeError` for a whole number beyond the range of the integers.
    """
    variable = x if isinstance(x, Variable) else Variable.constant(x)
    if not is_number(value):
        raise OperatorError(f"{value!r} is not a number; give a Python number")
    whole = bool(value) if value in (0, 1) else int(value) if float(value).is_integer() else value
    dtype = promote_scalar(variable.dtype, whole)
    return variable if dtype == variable.dtype else cast(variable, dtype)
