"""The numbers of a rule: their ranges, and what they are in a dtype."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nnl_core.errors import SolverError


class StepNumbers(NamedTuple):
    """What the scalars of an update are computed from."""

    t: int
    """number of the update, from 1"""
    dtype: np.dtype
    """what the rule computes in"""
    rate: float
    """learning rate of these parameters"""
    decay: float
    """weight decay of these parameters, where the rule has it"""


def checked(value: float, name: str, lowest: float = 0.0, below: float = math.inf) -> float:
    """Return a rule's number; raise `SolverError` outside ``[lowest, below)``."""
    if not isinstance(value, (int, float, np.number)):
        raise SolverError(f"{name}={value!r} is not a number")
    if not lowest <= value < below:
        raise SolverError(f"{name}={value!r} is outside [{lowest:g}, {below:g})")
    return float(value)


def rounded(value: float, dtype: np.dtype) -> float:
    """Return the number that ``value`` is in ``dtype``, as the arithmetic of a rule sees it."""
    return float(dtype.type(value))


def one_minus(value: float, dtype: np.dtype) -> float:
    """Return ``1 - value`` such that both, in ``dtype``, add up to one."""
    return 1 - rounded(value, dtype)
