"""A training step on one batch size (stands in for the compiled step)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nnl_core.graph.execute import forward_all
from nnl_core.graph.variable import Variable

if TYPE_CHECKING:
    from nnl_core.solvers import Solver


class PlainStep:
    """Forward, backward and update as three programs."""

    def __init__(
        self,
        loss: Variable,
        solver: Solver,
        weight_decay: float,
        clip_grad_norm: float | None,
        outputs: Sequence[Variable],
    ) -> None:
        self.loss = loss
        self.solver = solver
        self.outputs = outputs
        self.weight_decay = weight_decay
        self.clip_grad_norm = clip_grad_norm

    def run(self) -> None:
        self.compute_gradients()
        self.update()

    def compute_gradients(self) -> None:
        forward_all([self.loss, *self.outputs], clear_no_need_grad=True)
        self.solver.zero_grad()
        self.loss.backward(clear_buffer=True)

    def update(self) -> None:
        if self.weight_decay:
            self.solver.weight_decay(self.weight_decay)
        if self.clip_grad_norm:
            self.solver.clip_grad_by_norm(self.clip_grad_norm)
        self.solver.update()
