"""Class labels given as numbers: checked, and told from those that are ignored."""

from __future__ import annotations

import numpy as np

from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.operator import Array
from nnl_core.graph.spec import Spec, normalize_axis


def check_label_shape(x: Spec, target: Spec, axis: int) -> int:
    """Return the class axis counted from the front; raise `ShapeError` for other labels' shapes."""
    axis = normalize_axis(axis, x.ndim)
    expected = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    if target.shape != expected:
        raise ShapeError(
            f"target has shape {target.shape}, expected {expected}: that of the input with one "
            f"label in place of the {x.shape[axis]} classes on axis {axis}"
        )
    if not x.shape[axis]:
        raise ShapeError(f"there are no classes: axis {axis} of {x.shape} has length 0")
    return axis


def class_labels(
    operator: str, target: Array, classes: int, ignore_index: int | None = None
) -> tuple[Array, Array]:
    """Return integer labels, ignored ones as 0, and where labels count.

    Negative labels and ``ignore_index`` are ignored. Raises `OperatorError` for a label that is no
    whole number or names no class.
    """
    if target.dtype.kind == "f":
        _reject(operator, target, ~np.isfinite(target) | (np.floor(target) != target), classes)
    labels = target.astype(np.int64)
    counted = labels >= 0
    if ignore_index is not None:
        counted &= labels != ignore_index
    _reject(operator, target, counted & (labels >= classes), classes)
    return np.where(counted, labels, 0), counted


def _reject(operator: str, target: Array, wrong: Array, classes: int) -> None:
    if wrong.any():
        position = tuple(int(index) for index in np.argwhere(wrong)[0])
        raise OperatorError(
            f"{operator}: label {target[position]} at position {position} is not one of the "
            f"{classes} classes; labels are whole numbers from 0 to {classes - 1}, negative ones "
            "are ignored"
        )
