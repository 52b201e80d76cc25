"""Dynamic loss scaling: gradients of half precision that are neither zero nor infinite."""

from __future__ import annotations

from nnl_core.errors import SolverError
from nnl_core.solvers.numbers import checked

SMALLEST = 2.0**-24
"""the least number above zero in half precision: no loss needs a smaller scale"""


class DynamicLossScale:
    """A factor of the loss that grows until gradients overflow, and then shrinks.

    With ``compile_step(loss, solver, loss_scale=DynamicLossScale())`` the backward pass begins with
    `scale`, and gradients are divided by it. A step whose gradients are not all finite is skipped:
    parameters, states and the count of updates stay what they were, and the scale is divided by
    ``factor``. After ``interval`` updates in a row it is multiplied by it (Micikevicius et al.,
    "Mixed precision training", 2018, section 3.2).

    Where gradients are computed by hand::

        loss.backward(scale.scale)
        solver.scale_grad(1 / scale.scale)
        finite = not solver.check_inf_or_nan_grad()
        if finite:
            solver.update()
        scale.update(finite)

    Attributes:
        scale: the factor now; powers of two lose no digit of a gradient.
        skipped: how many steps were skipped so far.

    Args:
        scale: the factor at first.
        factor: of each change of the scale, above 1.
        interval: how many updates in a row make it grow.

    Elsewhere:
        - nnabla: `DynamicLossScalingUpdater`, which begins with 8
        - PyTorch: `torch.amp.GradScaler`, which begins with 65536, infinite in half precision
        - ONNX: none, it has no training loop
    """

    def __init__(self, scale: float = 2.0**15, factor: float = 2.0, interval: int = 2000) -> None:
        self.scale = checked(scale, "scale", lowest=SMALLEST)
        self.factor = checked(factor, "factor", lowest=1 + 1e-6)
        self.interval = int(checked(interval, "interval", lowest=1))
        self.skipped = 0
        self._in_a_row = 0

    def update(self, finite: bool) -> None:
        """Take note of a step whose gradients were finite, or were not and that was skipped.

        Raises `SolverError` where steps were skipped until no smaller scale could help.
        """
        if finite:
            self._in_a_row += 1
            if self._in_a_row == self.interval:
                self.scale, self._in_a_row = self.scale * self.factor, 0
            return
        self.skipped += 1
        self._in_a_row = 0
        if self.scale / self.factor < SMALLEST:
            raise SolverError(
                f"gradients are not finite even with a loss scale of {self.scale:g}, after "
                f"{self.skipped} skipped steps: the loss itself, or its gradient, overflows or is "
                "NaN; look for a logarithm, a root or a division by zero"
            )
        self.scale /= self.factor

    def get_state(self) -> dict[str, float]:
        """Return what a checkpoint must know."""
        return {"scale": self.scale, "skipped": self.skipped, "in_a_row": self._in_a_row}

    def set_state(self, state: dict[str, float]) -> None:
        """Go on from what `get_state` returned."""
        self.scale = checked(state["scale"], "scale", lowest=SMALLEST)
        self.skipped, self._in_a_row = int(state["skipped"]), int(state["in_a_row"])

    def __repr__(self) -> str:
        return (
            f"DynamicLossScale(scale={self.scale:g}, factor={self.factor:g}, "
            f"interval={self.interval}, skipped={self.skipped})"
        )
