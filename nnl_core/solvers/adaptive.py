"""Solvers that scale each element by the size of its past gradients."""

from __future__ import annotations

from functools import cache

import numpy as np

from nnl_core import functions as F
from nnl_core.graph.variable import Variable
from nnl_core.solvers.solver import Solver, checked


@cache
def rounded(value: float, dtype: np.dtype) -> float:
    """Return the number that ``value`` is in ``dtype``, as the arithmetic of a rule sees it."""
    return float(dtype.type(value))


def one_minus(value: float, dtype: np.dtype) -> float:
    """Return ``1 - value`` such that both, in ``dtype``, add up to one."""
    return 1 - rounded(value, dtype)


class RMSprop(Solver):
    """``v <- decay v + (1 - decay) g^2``, ``p <- p - lr g / (sqrt(v) + eps)``.

    Tieleman and Hinton, "Neural networks for machine learning", lecture 6.5, 2012.
    """

    state_names = ("v",)

    def __init__(self, lr: float = 1e-3, decay: float = 0.9, eps: float = 1e-8) -> None:
        super().__init__(lr)
        self.decay = checked(decay, "decay", below=1)
        self.eps = checked(eps, "eps")

    def rule(
        self,
        parameter: Variable,
        gradient: Variable,
        states: dict[str, Variable],
        scalars: dict[str, Variable],
    ) -> tuple[Variable, dict[str, Variable]]:
        """Divide the gradient by its running root mean square."""
        v = self.decay * states["v"] + one_minus(self.decay, gradient.dtype) * gradient * gradient
        return parameter - scalars["rate"] * gradient / (F.sqrt(v) + self.eps), {"v": v}
