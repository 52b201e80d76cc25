"""Solvers that scale each element by the size of its past gradients."""

from __future__ import annotations

from nnl_core import functions as F
from nnl_core.graph.variable import Variable
from nnl_core.solvers.numbers import checked, one_minus
from nnl_core.solvers.solver import Solver


class Adagrad(Solver):
    """Rates that only fall: ``v <- v + g^2``, ``p <- p - lr g / (sqrt(v) + eps)``.

    Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic
    optimization", 2011.

    Args:
        lr: learning rate.
        eps: added to the root.

    Elsewhere:
        - nnabla: `Adagrad`
        - PyTorch: `torch.optim.Adagrad`
        - ONNX: `Adagrad`
    """

    state_names = ("v",)

    def __init__(self, lr: float = 1e-2, eps: float = 1e-8) -> None:
        super().__init__(lr)
        self.eps = checked(eps, "eps")

    def rule(
        self,
        parameter: Variable,
        gradient: Variable,
        states: dict[str, Variable],
        scalars: dict[str, Variable],
    ) -> tuple[Variable, dict[str, Variable]]:
        """Divide the gradient by the root of the sum of its squares."""
        v = states["v"] + gradient * gradient
        return parameter - scalars["rate"] * gradient / (F.sqrt(v) + self.eps), {"v": v}


class Adadelta(Solver):
    """Steps in units of the last steps: ``d = sqrt((D + eps) / (v + eps)) g``, ``p <- p - lr d``.

    ``v <- decay v + (1 - decay) g^2`` before it and ``D <- decay D + (1 - decay) d^2`` after it are
    the states ``e_sqr_grad`` and ``e_sqr_delta`` (Zeiler, "ADADELTA: an adaptive learning rate
    method", 2012).

    Args:
        lr: factor of the steps.
        decay: what stays of both averages.
        eps: added to both averages.

    Elsewhere:
        - nnabla: `Adadelta`
        - PyTorch: `torch.optim.Adadelta`, whose ``decay`` is ``rho``, 0.9 if not given
        - ONNX: none, write it as a graph
    """

    state_names = ("e_sqr_grad", "e_sqr_delta")

    def __init__(self, lr: float = 1.0, decay: float = 0.95, eps: float = 1e-6) -> None:
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
        """Scale the gradient to the size of the last steps."""
        kept, added = self.decay, one_minus(self.decay, gradient.dtype)
        v = kept * states["e_sqr_grad"] + added * gradient * gradient
        delta = F.sqrt((states["e_sqr_delta"] + self.eps) / (v + self.eps)) * gradient
        sizes = kept * states["e_sqr_delta"] + added * delta * delta
        return parameter - scalars["rate"] * delta, {"e_sqr_grad": v, "e_sqr_delta": sizes}


class RMSprop(Solver):
    """``v <- decay v + (1 - decay) g^2``, ``p <- p - lr g / (sqrt(v) + eps)``.

    Tieleman and Hinton, "Neural networks for machine learning", lecture 6.5, 2012.

    Args:
        lr: learning rate.
        decay: what stays of the mean square.
        eps: added to the root.

    Elsewhere:
        - nnabla: `RMSprop`
        - PyTorch: `torch.optim.RMSprop`, whose ``decay`` is ``alpha``, 0.99 if not given
        - ONNX: none, write it as a graph
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


class RMSpropGraves(Solver):
    """RMSprop by variance, with momentum: ``d <- momentum d - lr g / sqrt(n - m^2 + eps)``.

    Then ``p <- p + d``. ``n`` and ``m`` (a state called ``g``) are averages of the gradient's
    square and of the gradient that ``decay`` governs, updated first (Graves, "Generating sequences
    with recurrent neural networks", 2013, section 4.2).

    Args:
        lr: learning rate.
        decay: what stays of both averages.
        momentum: what stays of the last step.
        eps: added to the variance.

    Elsewhere:
        - nnabla: `RMSpropGraves`
        - PyTorch: `torch.optim.RMSprop`, with ``centered=True``; its eps is added to the root
        - ONNX: none, write it as a graph
    """

    state_names = ("n", "g", "d")

    def __init__(
        self, lr: float = 1e-4, decay: float = 0.95, momentum: float = 0.9, eps: float = 1e-4
    ) -> None:
        super().__init__(lr)
        self.decay = checked(decay, "decay", below=1)
        self.momentum = checked(momentum, "momentum", below=1)
        self.eps = checked(eps, "eps")

    def rule(
        self,
        parameter: Variable,
        gradient: Variable,
        states: dict[str, Variable],
        scalars: dict[str, Variable],
    ) -> tuple[Variable, dict[str, Variable]]:
        """Divide the gradient by its running standard deviation, and go on as before."""
        kept, added = self.decay, one_minus(self.decay, gradient.dtype)
        n = kept * states["n"] + added * gradient * gradient
        m = kept * states["g"] + added * gradient
        scaled = scalars["rate"] * gradient / F.sqrt(n - m * m + self.eps)
        d = self.momentum * states["d"] - scaled
        return parameter + d, {"n": n, "g": m, "d": d}
