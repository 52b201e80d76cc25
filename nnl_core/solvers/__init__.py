"""``S``: solvers, under nnabla's names."""

from __future__ import annotations

from nnl_core.solvers.adam import Adam, AdamW
from nnl_core.solvers.adaptive import RMSprop
from nnl_core.solvers.momentum import Momentum, Nesterov, Sgd
from nnl_core.solvers.solver import Solver, SolverState

__all__ = ["Adam", "AdamW", "Momentum", "Nesterov", "RMSprop", "Sgd", "Solver", "SolverState"]
