"""Adam and its relatives."""

from __future__ import annotations

import math

from nnl_core import functions as F
from nnl_core.graph.variable import Variable
from nnl_core.solvers.numbers import StepNumbers, checked, one_minus, rounded
from nnl_core.solvers.solver import Solver


class Moments(Solver):
    """Solvers with decaying averages of the gradient and of its square."""

    rate_name = "alpha"

    def __init__(self, alpha: float, beta1: float, beta2: float, eps: float) -> None:
        super().__init__(alpha)
        self.beta1 = checked(beta1, "beta1", below=1)
        self.beta2 = checked(beta2, "beta2", below=1)
        self.eps = checked(eps, "eps")

    def corrections(self, now: StepNumbers) -> tuple[float, float]:
        """Return ``1 - beta1^t`` and ``1 - beta2^t``: what the averages lack of one."""
        beta1, beta2 = rounded(self.beta1, now.dtype), rounded(self.beta2, now.dtype)
        return 1 - beta1**now.t, 1 - beta2**now.t

    def corrected_rate(self, now: StepNumbers) -> float:
        """Return ``rate sqrt(1 - beta2^t) / (1 - beta1^t)``."""
        first, second = self.corrections(now)
        return now.rate * math.sqrt(second) / first

    def averages_of(
        self, gradient: Variable, mean: Variable, square: Variable
    ) -> tuple[Variable, Variable]:
        """Return both averages with one more gradient."""
        dtype = gradient.dtype
        return (
            self.beta1 * mean + one_minus(self.beta1, dtype) * gradient,
            self.beta2 * square + one_minus(self.beta2, dtype) * gradient * gradient,
        )


class Adam(Moments):
    """Adam: ``p <- p - a mean / (sqrt(var) + eps)`` with bias-corrected rate ``a``.

    ``mean`` and ``var`` are decaying averages of the gradient and its square;
    ``a = alpha sqrt(1 - beta2^t) / (1 - beta1^t)`` (Kingma and Ba, 2015, end of section 2).

    Args:
        alpha: learning rate.
        beta1: what stays of the mean.
        beta2: what stays of the mean square.
        eps: added to the root.

    Elsewhere:
        - nnabla: `Adam`
        - PyTorch: `torch.optim.Adam`, whose eps is added to the corrected root
        - ONNX: `Adam`
    """

    state_names = ("mean", "var")

    def __init__(
        self, alpha: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8
    ) -> None:
        super().__init__(alpha, beta1, beta2, eps)

    def scalars_at(self, now: StepNumbers) -> dict[str, float]:
        """Return the bias-corrected rate."""
        return {"rate": self.corrected_rate(now)}

    def rule(
        self,
        parameter: Variable,
        gradient: Variable,
        states: dict[str, Variable],
        scalars: dict[str, Variable],
    ) -> tuple[Variable, dict[str, Variable]]:
        """Go down the mean gradient, in units of its size."""
        mean, var = self.averages_of(gradient, states["mean"], states["var"])
        step = scalars["rate"] * mean / (F.sqrt(var) + self.eps)
        return parameter - step, {"mean": mean, "var": var}


class AdamW(Adam):
    """Adam with decoupled weight decay: ``p <- p - step - wd (alpha / first alpha) p``.

    Loshchilov and Hutter, "Decoupled weight decay regularization", 2019, where the schedule
    multiplier is the learning rate relative to the one that the solver was made with.

    Args:
        alpha: learning rate.
        beta1: what stays of the mean.
        beta2: what stays of the mean square.
        eps: added to the root.
        wd: weight decay, relative to the first learning rate.

    Elsewhere:
        - nnabla: `AdamW`
        - PyTorch: `torch.optim.AdamW`, whose decay is multiplied by the learning rate itself
        - ONNX: none, `Adam` couples its decay with the gradient
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

    def scalars_at(self, now: StepNumbers) -> dict[str, float]:
        """Return the bias-corrected rate, and the decay under the present schedule."""
        return {**super().scalars_at(now), "decay": now.decay * self.relative_rate(now)}

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


class Adamax(Moments):
    """Adam with the largest gradient: ``u <- max(beta2 u, |g|)``, ``p <- p - a m / (u + eps)``.

    ``m`` is the decaying average of the gradient and ``a = alpha / (1 - beta1^t)`` (Kingma and Ba,
    2015, section 7.1).

    Args:
        alpha: learning rate.
        beta1: what stays of the mean.
        beta2: what stays of the largest gradient.
        eps: added to the largest gradient.

    Elsewhere:
        - nnabla: `Adamax`
        - PyTorch: `torch.optim.Adamax`, whose eps is added to ``|g|``
        - ONNX: none, write it as a graph
    """

    state_names = ("m", "u")

    def __init__(
        self, alpha: float = 2e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8
    ) -> None:
        super().__init__(alpha, beta1, beta2, eps)

    def scalars_at(self, now: StepNumbers) -> dict[str, float]:
        """Return the bias-corrected rate."""
        return {"rate": now.rate / self.corrections(now)[0]}

    def rule(
        self,
        parameter: Variable,
        gradient: Variable,
        states: dict[str, Variable],
        scalars: dict[str, Variable],
    ) -> tuple[Variable, dict[str, Variable]]:
        """Go down the mean gradient, in units of the largest."""
        m = self.beta1 * states["m"] + one_minus(self.beta1, gradient.dtype) * gradient
        u = F.maximum2(self.beta2 * states["u"], F.abs(gradient))
        return parameter - scalars["rate"] * m / (u + self.eps), {"m": m, "u": u}


class AMSGRAD(Moments):
    """Adam whose mean square never falls: ``p <- p - a m / (sqrt(v_hat) + eps)``.

    ``m`` and ``v`` are the averages of `Adam`, ``v_hat <- max(v_hat, v)``, and ``a`` is ``alpha``
    or the corrected rate of `Adam` (Reddi, Kale and Kumar, "On the convergence of Adam and beyond",
    2018, which corrects nothing).

    Args:
        alpha: learning rate.
        beta1: what stays of the mean.
        beta2: what stays of the mean square.
        eps: added to the root.
        bias_correction: correct the rate, as Adam does.

    Elsewhere:
        - nnabla: `AMSGRAD`
        - PyTorch: `torch.optim.Adam`, with ``amsgrad=True``, which corrects the bias
        - ONNX: none, write it as a graph
    """

    state_names = ("m", "v", "v_hat")

    def __init__(
        self,
        alpha: float = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        bias_correction: bool = False,
    ) -> None:
        super().__init__(alpha, beta1, beta2, eps)
        self.bias_correction = bool(bias_correction)

    def scalars_at(self, now: StepNumbers) -> dict[str, float]:
        """Return the rate."""
        return {"rate": self.corrected_rate(now) if self.bias_correction else now.rate}

    def rule(
        self,
        parameter: Variable,
        gradient: Variable,
        states: dict[str, Variable],
        scalars: dict[str, Variable],
    ) -> tuple[Variable, dict[str, Variable]]:
        """Go down the mean gradient, in units of the largest size it had."""
        m, v = self.averages_of(gradient, states["m"], states["v"])
        v_hat = F.maximum2(states["v_hat"], v)
        step = scalars["rate"] * m / (F.sqrt(v_hat) + self.eps)
        return parameter - step, {"m": m, "v": v, "v_hat": v_hat}
