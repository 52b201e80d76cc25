"""Adam and its relatives."""

from __future__ import annotations

import math

import numpy as np

from nnl_core import functions as F
from nnl_core.graph.variable import Variable
from nnl_core.solvers.adaptive import one_minus, rounded
from nnl_core.solvers.solver import Solver, checked


class Adam(Solver):
    """Adam: ``p <- p - a mean / (sqrt(var) + eps)`` with bias-corrected rate ``a``.

    ``mean`` and ``var`` are decaying averages of the gradient and its square;
    ``a = alpha sqrt(1 - beta2^t) / (1 - beta1^t)`` (Kingma and Ba, 2015, end of section 2).
    """

    state_names = ("mean", "var")
    rate_name = "alpha"

    def __init__(
        self, alpha: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8
    ) -> None:
        super().__init__(alpha)
        self.beta1 = checked(beta1, "beta1", below=1)
        self.beta2 = checked(beta2, "beta2", below=1)
        self.eps = checked(eps, "eps")

    def scalars_at(self, t: int, dtype: np.dtype) -> dict[str, float]:
        """Return the bias-corrected rate."""
        beta1, beta2 = rounded(self.beta1, dtype), rounded(self.beta2, dtype)
        return {"rate": self._rate * math.sqrt(1 - beta2**t) / (1 - beta1**t)}

    def rule(
        self,
        parameter: Variable,
        gradient: Variable,
        states: dict[str, Variable],
        scalars: dict[str, Variable],
    ) -> tuple[Variable, dict[str, Variable]]:
        """Go down the mean gradient, in units of its size."""
        dtype = gradient.dtype
        mean = self.beta1 * states["mean"] + one_minus(self.beta1, dtype) * gradient
        var = self.beta2 * states["var"] + one_minus(self.beta2, dtype) * gradient * gradient
        step = scalars["rate"] * mean / (F.sqrt(var) + self.eps)
        return parameter - step, {"mean": mean, "var": var}


class AdamW(Adam):
    """Adam with decoupled weight decay: ``p <- p - step - wd (alpha / first alpha) p``.

    Loshchilov and Hutter, "Decoupled weight decay regularization", 2019, where the schedule
    multiplier is the learning rate relative to the one that the solver was made with.
    """

    fuses_weight_decay = True

    def __init__(
        self,
        alpha: float = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        wd: float = 1e-4,
    ) -> None:
        super().__init__(alpha, beta1, beta2, eps)
        self.wd = checked(wd, "wd")
        self._first_rate = self._rate

    def scalars_at(self, t: int, dtype: np.dtype) -> dict[str, float]:
        """Return the bias-corrected rate, and the decay under the present schedule."""
        decay = self.wd if self._decay is None else self._decay
        multiplier = self._rate / self._first_rate if self._first_rate else 1.0
        return {**super().scalars_at(t, dtype), "decay": decay * multiplier}

    def rule(
        self,
        parameter: Variable,
        gradient: Variable,
        states: dict[str, Variable],
        scalars: dict[str, Variable],
    ) -> tuple[Variable, dict[str, Variable]]:
        """Take Adam's step, and shrink the parameter."""
        stepped, changed = super().rule(parameter, gradient, states, scalars)
        return stepped - scalars["decay"] * parameter, changed
