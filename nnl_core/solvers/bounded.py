"""Relatives of Adam whose element-wise rates are kept between bounds that close in."""

from __future__ import annotations

from nnl_core import functions as F
from nnl_core.graph.variable import Variable
from nnl_core.solvers.adam import Moments
from nnl_core.solvers.numbers import StepNumbers, checked


class Bounded(Moments):
    """Solvers that go down ``m`` at the rates ``clip(a / (sqrt(square) + eps), low, high)``."""

    def __init__(
        self,
        alpha: float,
        beta1: float,
        beta2: float,
        eps: float,
        final_lr: float,
        gamma: float,
    ) -> None:
        super().__init__(alpha, beta1, beta2, eps)
        self.final_lr = checked(final_lr, "final_lr")
        self.gamma = checked(gamma, "gamma")

    def bounds(self, now: StepNumbers) -> dict[str, float]:
        """Return the bounds, which scale with the schedule."""
        final, closeness = self.final_lr * self.relative_rate(now), self.gamma * now.t
        return {
            "low": final * (1 - 1 / (closeness + 1)),
            "high": final * (1 + 1 / closeness) if closeness else float("inf"),
        }

    def bounded_step(self, m: Variable, square: Variable, scalars: dict[str, Variable]) -> Variable:
        """Return the step down ``m`` at each element's rate."""
        rates = scalars["rate"] / (F.sqrt(square) + self.eps)
        return F.minimum2(F.maximum2(rates, scalars["low"]), scalars["high"]) * m


class AdaBound(Bounded):
    """From Adam to gradient descent: ``p <- p - clip(a / (sqrt(var) + eps), low, high) mean``.

    ``mean``, ``var`` and ``a`` are those of `Adam`; with ``f = final_lr alpha / first alpha``,
    ``low = f (1 - 1 / (gamma t + 1))`` and ``high = f (1 + 1 / (gamma t))`` (Luo et al., "Adaptive
    gradient methods with dynamic bound of learning rate", 2019).

    Args:
        alpha: learning rate.
        beta1: what stays of the mean.
        beta2: what stays of the mean square.
        eps: added to the root.
        final_lr: where both bounds end.
        gamma: how fast they get there.

    Elsewhere:
        - nnabla: `AdaBound`
        - PyTorch: none, packages have it
        - ONNX: none, write it as a graph
    """

    state_names = ("mean", "var")

    def __init__(
        self,
        alpha: float = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        final_lr: float = 0.1,
        gamma: float = 1e-3,
    ) -> None:
        super().__init__(alpha, beta1, beta2, eps, final_lr, gamma)

    def scalars_at(self, now: StepNumbers) -> dict[str, float]:
        """Return the bias-corrected rate and the bounds."""
        return {"rate": self.corrected_rate(now), **self.bounds(now)}

    def rule(
        self,
        parameter: Variable,
        gradient: Variable,
        states: dict[str, Variable],
        scalars: dict[str, Variable],
    ) -> tuple[Variable, dict[str, Variable]]:
        """Go down the mean gradient at bounded rates."""
        mean, var = self.averages_of(gradient, states["mean"], states["var"])
        return parameter - self.bounded_step(mean, var, scalars), {"mean": mean, "var": var}


class AMSBound(Bounded):
    """`AdaBound` whose mean square never falls.

    ``m``, ``v``, ``v_hat`` and ``a`` are those of `AMSGRAD`, the bounds those of `AdaBound` (Luo
    et al., "Adaptive gradient methods with dynamic bound of learning rate", 2019).

    Args:
        alpha: learning rate.
        beta1: what stays of the mean.
        beta2: what stays of the mean square.
        eps: added to the root.
        final_lr: where both bounds end.
        gamma: how fast they get there.
        bias_correction: correct the rate, as Adam does.

    Elsewhere:
        - nnabla: `AMSBound`, whose upper bound opens instead: ``f (1 + t / gamma)``
        - PyTorch: none, packages have it
        - ONNX: none, write it as a graph
    """

    state_names = ("m", "v", "v_hat")

    def __init__(
        self,
        alpha: float = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        final_lr: float = 0.1,
        gamma: float = 1e-3,
        bias_correction: bool = False,
    ) -> None:
        super().__init__(alpha, beta1, beta2, eps, final_lr, gamma)
        self.bias_correction = bool(bias_correction)

    def scalars_at(self, now: StepNumbers) -> dict[str, float]:
        """Return the rate and the bounds."""
        rate = self.corrected_rate(now) if self.bias_correction else now.rate
        return {"rate": rate, **self.bounds(now)}

    def rule(
        self,
        parameter: Variable,
        gradient: Variable,
        states: dict[str, Variable],
        scalars: dict[str, Variable],
    ) -> tuple[Variable, dict[str, Variable]]:
        """Go down the mean gradient at bounded rates."""
        m, v = self.averages_of(gradient, states["m"], states["v"])
        v_hat = F.maximum2(states["v_hat"], v)
        new = {"m": m, "v": v, "v_hat": v_hat}
        return parameter - self.bounded_step(m, v_hat, scalars), new
