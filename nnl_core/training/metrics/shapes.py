"""How targets go with outputs: labels of classes, and numbers in the output's shape."""

from __future__ import annotations

import math

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.variable import Variable


def class_labels(output: Variable, target: Variable, counts: Variable | None = None) -> Variable:
    """Return labels of the shape that goes with an output's: its class axis, 1, has length 1.

    They are -1, and so ignored, for samples that do not count.
    Raises ShapeError where that is impossible.
    """
    wanted = (*output.shape[:1], 1, *output.shape[2:])
    if output.ndim < 2 or target.size != math.prod(wanted) or target.ndim > output.ndim:
        raise ShapeError(
            f"an output of shape {output.shape} (samples, classes, ...) goes with one label for "
            f"each sample, not with a target of shape {target.shape}"
        )
    return where(counts, target if target.shape == wanted else F.reshape(target, wanted), -1)


def where(counts: Variable | None, values: Variable, other: float) -> Variable:
    """Return values of samples that count, and another value for those that fill a batch."""
    return values if counts is None else F.where(counts, values, other)


def alike(output: Variable, target: Variable) -> Variable:
    """Return the target in the output's shape; axes of length 1 may be added or left out.

    Raises ShapeError where the two differ otherwise: broadcasting here hides mistakes.
    """
    if target.shape == output.shape:
        return target
    if [n for n in target.shape if n != 1] != [n for n in output.shape if n != 1]:
        raise ShapeError(
            f"the output has shape {output.shape}, its target {target.shape}; they must be alike"
        )
    return F.reshape(target, output.shape)
