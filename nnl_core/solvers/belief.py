"""AdaBelief: steps in units of how far gradients are from what was expected."""

from __future__ import annotations

import math

from nnl_core import functions as F
from nnl_core.graph.variable import Variable
from nnl_core.solvers.adam import Moments
from nnl_core.solvers.numbers import StepNumbers, checked, one_minus, rounded


class AdaBelief(Moments):
    """Adam by surprise: ``p <- p - a mean / (sqrt(var / (1 - beta2^t)) + eps)``.

    ``mean`` is that of `Adam`, ``var <- beta2 var + (1 - beta2) (g - mean)^2 + eps`` with the new
    mean, and ``a = alpha / (1 - beta1^t)`` (Zhuang et al., "AdaBelief optimizer: adapting stepsizes
    by the belief in observed gradients", 2020).

    ``rectify`` multiplies ``a`` by ``sqrt((rho - 4) (rho - 2) r / ((r - 4) (r - 2) rho))`` with
    ``r = 2 / (1 - beta2) - 1`` and ``rho = r - 2 t beta2^t / (1 - beta2^t)``; while ``rho <= 4``,
    ``p <- p - alpha mean`` instead (Liu et al., "On the variance of the adaptive learning rate and
    beyond", 2020).

    Args:
        alpha: learning rate.
        beta1: what stays of the mean.
        beta2: what stays of the variance.
        eps: added to the variance and to the root.
        wd: weight decay, of use with ``weight_decouple`` alone; see also `weight_decay`.
        amsgrad: divide by the largest variance so far, ``s_max <- max(s_max, var) + eps``, and add
            no eps to the variance itself.
        weight_decouple: first ``p <- p - alpha wd p``.
        fixed_decay: first ``p <- p - wd p``, whatever the learning rate.
        rectify: see above.

    Elsewhere:
        - nnabla: `AdaBelief`
        - PyTorch: none, packages have it
        - ONNX: none, write it as a graph
    """

    state_names: tuple[str, ...] = ("mean", "var")

    def __init__(
        self,
        alpha: float = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        wd: float = 0.0,
        amsgrad: bool = False,
        weight_decouple: bool = False,
        fixed_decay: bool = False,
        rectify: bool = False,
    ) -> None:
        super().__init__(alpha, beta1, beta2, eps)
        self.wd = checked(wd, "wd")
        self.amsgrad = bool(amsgrad)
        self.weight_decouple = self.fuses_weight_decay = bool(weight_decouple)
        self.fixed_decay = bool(fixed_decay)
        self.rectify = bool(rectify)
        if self.amsgrad:
            self.state_names = (*self.state_names, "s_max")

    def scalars_at(self, now: StepNumbers) -> dict[str, float]:
        """Return the rates of the adaptive and of the plain step, one of them 0, and more."""
        first, second = self._rounded_corrections(now)
        factor = self._rectification(now) if self.rectify else 1.0
        return {
            "rate": now.rate * factor / first,
            "plain_rate": 0.0 if factor else now.rate,
            "correction": second,
            "decay": now.decay if self.fixed_decay else now.decay * now.rate,
        }

    def _rounded_corrections(self, now: StepNumbers) -> tuple[float, float]:
        """Return `corrections` as arithmetic in the rule's dtype gives them, as nnabla's does."""
        powers = (rounded(beta, now.dtype) ** now.t for beta in (self.beta1, self.beta2))
        first, second = (1 - rounded(power, now.dtype) for power in powers)
        return first, second

    def _rectification(self, now: StepNumbers) -> float:
        """Return the factor of the rate; 0 where the variance is not known well enough."""
        # The first lengths are small differences of large numbers: what is left of them depends on
        # the dtype, and is nnabla's only where it is computed in the same one.
        left = self._rounded_corrections(now)[1]
        longest = rounded(2 / one_minus(self.beta2, now.dtype) - 1, now.dtype)
        gone = rounded(2 * now.t * (1 - left) / left, now.dtype)
        length = rounded(longest - gone, now.dtype)
        if length <= 4:
            return 0.0
        above = (length - 4) * (length - 2) * longest
        return math.sqrt(above / ((longest - 4) * (longest - 2) * length))

    def rule(
        self,
        parameter: Variable,
        gradient: Variable,
        states: dict[str, Variable],
        scalars: dict[str, Variable],
    ) -> tuple[Variable, dict[str, Variable]]:
        """Go down the mean gradient, in units of its distance from single gradients."""
        if self.weight_decouple:
            parameter = parameter - scalars["decay"] * parameter
        dtype = gradient.dtype
        mean = self.beta1 * states["mean"] + one_minus(self.beta1, dtype) * gradient
        surprise = gradient - mean
        var = self.beta2 * states["var"] + one_minus(self.beta2, dtype) * surprise * surprise
        new = {"mean": mean, "var": var}
        if self.amsgrad:
            divisor = new["s_max"] = F.maximum2(states["s_max"], var) + self.eps
        else:
            divisor = new["var"] = var + self.eps
        step = scalars["rate"] * mean / (F.sqrt(divisor / scalars["correction"]) + self.eps)
        if self.rectify:
            step = step + scalars["plain_rate"] * mean
        return parameter - step, new
