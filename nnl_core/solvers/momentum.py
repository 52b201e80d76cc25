"""Gradient descent, plain and with momentum."""

from __future__ import annotations

from nnl_core.graph.variable import Variable
from nnl_core.solvers.solver import Solver, checked


class Sgd(Solver):
    """``p <- p - lr g``."""

    def __init__(self, lr: float = 1e-3) -> None:
        super().__init__(lr)

    def rule(
        self,
        parameter: Variable,
        gradient: Variable,
        states: dict[str, Variable],
        scalars: dict[str, Variable],
    ) -> tuple[Variable, dict[str, Variable]]:
        """Go down the gradient."""
        return parameter - scalars["rate"] * gradient, {}


class Momentum(Solver):
    """``m <- momentum m + lr g``, ``p <- p - m``."""

    state_names = ("m",)

    def __init__(self, lr: float = 1e-3, momentum: float = 0.9) -> None:
        super().__init__(lr)
        self.momentum = checked(momentum, "momentum", below=1)

    def rule(
        self,
        parameter: Variable,
        gradient: Variable,
        states: dict[str, Variable],
        scalars: dict[str, Variable],
    ) -> tuple[Variable, dict[str, Variable]]:
        """Go down a decaying sum of gradients."""
        m = self.momentum * states["m"] + scalars["rate"] * gradient
        return parameter - m, {"m": m}


class Nesterov(Solver):
    """``m' = momentum m - lr g``, ``p <- p - momentum m + (1 + momentum) m'``.

    Nesterov's accelerated gradient, written for the point that it looks ahead to (Sutskever et
    al., "On the importance of initialization and momentum in deep learning", 2013).
    """

    state_names = ("m",)

    def __init__(self, lr: float = 1e-3, momentum: float = 0.9) -> None:
        super().__init__(lr)
        self.momentum = checked(momentum, "momentum", below=1)

    def rule(
        self,
        parameter: Variable,
        gradient: Variable,
        states: dict[str, Variable],
        scalars: dict[str, Variable],
    ) -> tuple[Variable, dict[str, Variable]]:
        """Go down a decaying sum of gradients, looking one step ahead."""
        before = states["m"]
        m = self.momentum * before - scalars["rate"] * gradient
        return parameter - self.momentum * before + (1 + self.momentum) * m, {"m": m}
