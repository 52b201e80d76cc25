"""Solvers whose steps are in units of each parameter's norm: for large batches."""

from __future__ import annotations

from nnl_core import functions as F
from nnl_core.graph.variable import Variable
from nnl_core.solvers.adam import Moments
from nnl_core.solvers.clipping import length
from nnl_core.solvers.numbers import StepNumbers, checked
from nnl_core.solvers.solver import Solver


class Lars(Solver):
    """Momentum at rates of each layer's own: ``p <- p - v``, ``v <- momentum v + r (g + decay p)``.

    ``r = lr coefficient |p| / (|g| + decay |p|)`` with norms over the whole parameter; eps is added
    to a denominator less than it, and ``r = lr`` where ``|p|`` is less. ``v`` comes first, and
    ``decay`` is what `weight_decay` was called with before this update, else 0 (You, Gitman and
    Ginsburg, "Large batch training of convolutional networks", 2017).

    Args:
        lr: learning rate.
        momentum: what stays of the last step.
        coefficient: how far a step may go, relative to the parameter's norm.
        eps: see above.

    Elsewhere:
        - nnabla: `Lars`
        - PyTorch: none, packages have it
        - ONNX: none, write it as a graph
    """

    state_names = ("v",)
    per_parameter = True
    fuses_weight_decay = True

    def __init__(
        self,
        lr: float = 1e-3,
        momentum: float = 0.9,
        coefficient: float = 1e-3,
        eps: float = 1e-6,
    ) -> None:
        super().__init__(lr)
        self.momentum = checked(momentum, "momentum", below=1)
        self.coefficient = checked(coefficient, "coefficient")
        self.eps = checked(eps, "eps")

    def scalars_at(self, now: StepNumbers) -> dict[str, float]:
        """Return the rate and the decay."""
        return {"rate": now.rate, "decay": now.decay}

    def rule(
        self,
        parameter: Variable,
        gradient: Variable,
        states: dict[str, Variable],
        scalars: dict[str, Variable],
    ) -> tuple[Variable, dict[str, Variable]]:
        """Go down a decaying sum of gradients, each in units of the parameter's norm."""
        size = length(parameter)
        divisor = length(gradient) + scalars["decay"] * size
        divisor = F.where(divisor < self.eps, divisor + self.eps, divisor)
        ratio = F.where(size < self.eps, 1.0, self.coefficient * size / divisor)
        decayed = gradient + scalars["decay"] * parameter
        v = self.momentum * states["v"] + scalars["rate"] * ratio * decayed
        return parameter - v, {"v": v}


class Lamb(Moments):
    """Adam with steps in units of each parameter's norm: ``p <- p - eta (clip(|p|) / |u|) u``.

    ``u = mean / (sqrt(var) + eps) + decay p`` with the averages of `Adam` (or those divided by
    ``1 - beta^t``) and norms over the whole parameter; ``clip`` is to ``[gamma_l, gamma_u]``, and
    the ratio is 1 where ``|u|`` is less than eps. ``decay`` is what `weight_decay` was called with
    before this update, else 0 (You et al., "Large batch optimization for deep learning: training
    BERT in 76 minutes", 2020).

    Args:
        eta: learning rate.
        beta1: what stays of the mean.
        beta2: what stays of the mean square.
        gamma_l: smallest norm of a parameter that counts.
        gamma_u: largest norm of a parameter that counts.
        eps: added to the root.
        bias_correction: divide the averages by what they lack of one.

    Elsewhere:
        - nnabla: `Lamb`
        - PyTorch: none, packages have it
        - ONNX: none, write it as a graph
    """

    state_names = ("mean", "var")
    rate_name = "eta"
    per_parameter = True
    fuses_weight_decay = True

    def __init__(
        self,
        eta: float = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        gamma_l: float = 0.0,
        gamma_u: float = 10.0,
        eps: float = 1e-6,
        bias_correction: bool = False,
    ) -> None:
        super().__init__(eta, beta1, beta2, eps)
        self.gamma_l = checked(gamma_l, "gamma_l")
        self.gamma_u = checked(gamma_u, "gamma_u", lowest=self.gamma_l)
        self.bias_correction = bool(bias_correction)

    def scalars_at(self, now: StepNumbers) -> dict[str, float]:
        """Return the rate, the decay, and what to divide the averages by."""
        first, second = self.corrections(now) if self.bias_correction else (1.0, 1.0)
        return {"rate": now.rate, "decay": now.decay, "first": first, "second": second}

    def rule(
        self,
        parameter: Variable,
        gradient: Variable,
        states: dict[str, Variable],
        scalars: dict[str, Variable],
    ) -> tuple[Variable, dict[str, Variable]]:
        """Go Adam's way as far as the parameter's norm says."""
        mean, var = self.averages_of(gradient, states["mean"], states["var"])
        root = F.sqrt(var / scalars["second"])
        direction = mean / scalars["first"] / (root + self.eps) + scalars["decay"] * parameter
        size = F.clip_by_value(length(parameter), self.gamma_l, self.gamma_u)
        divisor = length(direction)
        ratio = F.where(divisor < self.eps, 1.0, size / divisor)
        step = scalars["rate"] * ratio * direction
        return parameter - step, {"mean": mean, "var": var}
