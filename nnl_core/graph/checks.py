"""Arguments that are numbers or arrays, checked when a function is called."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from nnl_core.errors import OperatorError, ShapeError


def whole(value: object, name: str) -> int:
    """Return a whole number; raise `OperatorError` for anything else, fractions included."""
    try:
        return operator.index(value)  # type: ignore[arg-type]  # refused below
    except TypeError:
        raise OperatorError(f"{name}={value!r} is not a whole number; give an int") from None


def wholes(values: object, name: str) -> tuple[int, ...]:
    """Return whole numbers; raise `OperatorError` where one is not, or there is no sequence."""
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes)):
        raise OperatorError(f"{name}={values!r} is not a sequence; give whole numbers, as (2, 3)")
    return tuple(whole(value, f"{name}[{place}]") for place, value in enumerate(values))


def real(value: object, name: str) -> float:
    """Return a real number; raise `OperatorError` for anything else, NaN included."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, numbers.Real) or math.isnan(value):
        raise OperatorError(f"{name}={value!r} is not a real number; give a float")
    return float(value)


def as_array(value: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return numbers as an array; raise `ShapeError` for rows of different lengths."""
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ShapeError(f"this {type(value).__name__} is no array: {error}") from None
