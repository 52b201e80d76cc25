"""Gradient descent, plain and with momentum."""

from __future__ import annotations

from nnl_core import functions as F
from nnl_core.graph.variable import Variable
from nnl_core.solvers.numbers import StepNumbers, checked, one_minus
from nnl_core.solvers.solver import Solver


class Sgd(Solver):
    """Gradient descent: ``p <- p - lr g``.

    Args:
        lr: learning rate.

    Elsewhere:
        - nnabla: `Sgd`
        - PyTorch: `torch.optim.SGD`
        - ONNX: `Momentum`, with ``alpha=0``
    """

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
    """Gradient descent with momentum: ``m <- momentum m + lr g``, ``p <- p - m``.

    Polyak, "Some methods of speeding up the convergence of iteration methods", 1964.

    Args:
        lr: learning rate.
        momentum: what stays of the last step.

    Elsewhere:
        - nnabla: `Momentum`
        - PyTorch: `torch.optim.SGD`, whose rate multiplies the sum, not what enters it
        - ONNX: `Momentum`, as PyTorch
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
        """Go down a decaying sum of gradients."""
        m = self.momentum * states["m"] + scalars["rate"] * gradient
        return parameter - m, {"m": m}


class SgdW(Momentum):
    """Momentum with decoupled weight decay: ``p <- p - m - wd (lr / first lr) p``.

    ``m`` is that of `Momentum`; the decay acts on the parameter as it was before the step
    (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019).

    Args:
        lr: learning rate.
        momentum: what stays of the last step.
        wd: weight decay, relative to the first learning rate.

    Elsewhere:
        - nnabla: `SgdW`
        - PyTorch: none, `torch.optim.SGD` couples its decay with the gradient
        - ONNX: none, `Momentum` couples its decay with the gradient
    """

    fuses_weight_decay = True

    def __init__(self, lr: float = 1e-3, momentum: float = 0.9, wd: float = 1e-4) -> None:
        super().__init__(lr, momentum)
        self.wd = checked(wd, "wd")

    def scalars_at(self, now: StepNumbers) -> dict[str, float]:
        """Return the rate, and the decay under the present schedule."""
        return {"rate": now.rate, "decay": now.decay * self.relative_rate(now)}

    def rule(
        self,
        parameter: Variable,
        gradient: Variable,
        states: dict[str, Variable],
        scalars: dict[str, Variable],
    ) -> tuple[Variable, dict[str, Variable]]:
        """Take the step of `Momentum`, and shrink the parameter."""
        stepped, changed = super().rule(parameter, gradient, states, scalars)
        return stepped - scalars["decay"] * parameter, changed


class Nesterov(Solver):
    """Accelerated gradient: ``p <- p - momentum m + (1 + momentum) m'``.

    ``m' = momentum m - lr g`` is the next ``m``. Written for the point that it looks ahead to
    (Sutskever et al., "On the importance of initialization and momentum in deep learning", 2013).

    Args:
        lr: learning rate.
        momentum: what stays of the last step.

    Elsewhere:
        - nnabla: `Nesterov`
        - PyTorch: `torch.optim.SGD`, with ``nesterov=True``; its rate multiplies the sum
        - ONNX: `Momentum`, with ``mode="nesterov"``
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


class Lion(Solver):
    """Steps of equal size: ``p <- p - lr (sign(beta1 m + (1 - beta1) g) + decay p)``.

    Then ``m <- beta2 m + (1 - beta2) g``. ``decay`` is what `weight_decay` was called with before
    this update, else 0. The sign of 0 is 0 (Chen et al., "Symbolic discovery of optimization
    algorithms", 2023).

    Args:
        lr: learning rate, the size of each element's step.
        beta1: share of ``m`` in the step's direction.
        beta2: what stays of ``m``.

    Elsewhere:
        - nnabla: `Lion`
        - PyTorch: none, packages have it
        - ONNX: none, write it as a graph
    """

    state_names = ("m",)
    fuses_weight_decay = True

    def __init__(self, lr: float = 1e-4, beta1: float = 0.9, beta2: float = 0.99) -> None:
        super().__init__(lr)
        self.beta1 = checked(beta1, "beta1", below=1)
        self.beta2 = checked(beta2, "beta2", below=1)

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
        """Go one step in the direction of each element's mean."""
        m, dtype = states["m"], gradient.dtype
        direction = F.sign(self.beta1 * m + one_minus(self.beta1, dtype) * gradient, alpha=0.0)
        new = gradient + self.beta2 * (m - gradient)  # rounded as nnabla rounds it
        return parameter - scalars["rate"] * (direction + scalars["decay"] * parameter), {"m": new}
