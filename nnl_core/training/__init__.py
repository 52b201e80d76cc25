"""Training and evaluating models: a small loop over one compiled step, and what surrounds it.

Names are imported when first used: the built-in plugins live here too, and must stay light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnl_core.training.checkpoint import Checkpoint
    from nnl_core.training.checkpoint_files import Checkpoints
    from nnl_core.training.checkpoint_policy import CheckpointPolicy
    from nnl_core.training.evaluator import Evaluator, Predictor
    from nnl_core.training.metrics import Metric, Sums
    from nnl_core.training.model import Model
    from nnl_core.training.state import TrainResult, TrainState
    from nnl_core.training.tracking import MetricHistory
    from nnl_core.training.trainer import Trainer

_HOMES = {
    "Checkpoint": "checkpoint",
    "CheckpointPolicy": "checkpoint_policy",
    "Checkpoints": "checkpoint_files",
    "Evaluator": "evaluator",
    "Metric": "metrics",
    "MetricHistory": "tracking",
    "Model": "model",
    "Predictor": "evaluator",
    "Sums": "metrics",
    "TrainResult": "state",
    "TrainState": "state",
    "Trainer": "trainer",
}

__all__ = [
    "Checkpoint",
    "CheckpointPolicy",
    "Checkpoints",
    "Evaluator",
    "Metric",
    "MetricHistory",
    "Model",
    "Predictor",
    "Sums",
    "TrainResult",
    "TrainState",
    "Trainer",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
