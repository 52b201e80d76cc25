"""All that a run needs to go on later as if it had never stopped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nnl_core.data.source import Array
from nnl_core.solvers import SolverState
from nnl_core.training.state import TrainState


@dataclass
class Checkpoint:
    """A copy of a run's state, made and taken back by `Trainer`.

    ``random`` is that of `nnl_core.random`, ``loss_scale`` that of a `DynamicLossScale`, if any.
    Plugins keep what is theirs in ``plugins``, under their names, as what JSON can hold and arrays.
    """

    state: TrainState
    parameters: dict[str, Array]
    solver: dict[str, SolverState]
    learning_rate: float
    random: dict[str, Any]
    history: list[dict[str, float]]
    loss_scale: dict[str, float] = field(default_factory=dict)
    tracker: dict[str, Any] = field(default_factory=dict)
    plugins: dict[str, object] = field(default_factory=dict)
