"""All that a run needs to go on later as if it had never stopped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nnl_core.data.source import Array
from nnl_core.solvers import SolverState
from nnl_core.training.state import TrainState


@dataclass
class Checkpoint:
    """A copy of a run's state, made and taken back by `Trainer`; `Checkpoints` keeps it on disk.

    Attributes
    ----------
    frozen
        names of parameters that need no gradient
    solver
        states of the solver called ``solver_name``, by parameter
    random
        that of `nnl_core.random`
    history
        the metrics of each epoch, and ``tracker`` what the run's `MetricHistory` knows of them
    metrics
        states of the metrics of the epoch that was begun
    loss_scale
        that of a `DynamicLossScale`, if any
    plugins
        what plugins keep, under their names: arrays, and what JSON can hold, nested at will
    made_with
        settings, backend, plugins and versions, for whoever wants to know
    """

    state: TrainState
    parameters: dict[str, Array]
    frozen: list[str]
    solver: dict[str, SolverState]
    solver_name: str
    learning_rate: float
    random: dict[str, Any]
    history: list[dict[str, float]]
    tracker: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Array] = field(default_factory=dict)
    loss_scale: dict[str, float] = field(default_factory=dict)
    plugins: dict[str, object] = field(default_factory=dict)
    made_with: dict[str, Any] = field(default_factory=dict)
