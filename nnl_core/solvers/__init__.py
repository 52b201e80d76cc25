"""``S``: solvers, under nnabla's names."""

from __future__ import annotations

from nnl_core.solvers.adam import AMSGRAD, Adam, Adamax, AdamW
from nnl_core.solvers.adaptive import Adadelta, Adagrad, RMSprop, RMSpropGraves
from nnl_core.solvers.belief import AdaBelief
from nnl_core.solvers.bounded import AdaBound, AMSBound
from nnl_core.solvers.layerwise import Lamb, Lars
from nnl_core.solvers.loss_scale import DynamicLossScale
from nnl_core.solvers.momentum import Lion, Momentum, Nesterov, Sgd, SgdW
from nnl_core.solvers.parameter_groups import ParameterGroup
from nnl_core.solvers.solver import Solver
from nnl_core.solvers.states import SolverState

__all__ = [
    "AMSGRAD",
    "AMSBound",
    "AdaBelief",
    "AdaBound",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "DynamicLossScale",
    "Lamb",
    "Lars",
    "Lion",
    "Momentum",
    "Nesterov",
    "ParameterGroup",
    "RMSprop",
    "RMSpropGraves",
    "Sgd",
    "SgdW",
    "Solver",
    "SolverState",
]
