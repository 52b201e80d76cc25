"""NNL: a small deep-learning engine that is all seams. ``import nnl_core as nnl``.

Names are imported when first used, so that ``import nnl_core`` stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnl_core import functions as F
    from nnl_core import initializers as I
    from nnl_core import parametric_functions as PF
    from nnl_core import random
    from nnl_core import solvers as S
    from nnl_core.errors import NnlError
    from nnl_core.graph.array import NdArray
    from nnl_core.graph.autodiff import grad
    from nnl_core.graph.backend import allow_tf32, backend_scope, current_backend, set_backend
    from nnl_core.graph.execute import forward_all
    from nnl_core.graph.modes import (
        auto_forward,
        mixed_precision,
        no_grad,
        recompute,
        set_auto_forward,
    )
    from nnl_core.graph.operator import KernelSource, Sample, defop, lookup
    from nnl_core.graph.spec import Spec
    from nnl_core.graph.variable import Variable
    from nnl_core.module import Layer, Module, Sequential
    from nnl_core.parameters import (
        Parameter,
        clear_parameters,
        get_parameters,
        load_parameters,
        parameter_scope,
        save_parameters,
    )
    from nnl_core.random import seed
    from nnl_core.session import Session, current_session
    from nnl_core.solvers.step import compile_step

_HOMES = {
    "nnl_core.errors": ("NnlError",),
    "nnl_core.graph.array": ("NdArray",),
    "nnl_core.graph.autodiff": ("grad",),
    "nnl_core.graph.backend": ("allow_tf32", "backend_scope", "current_backend", "set_backend"),
    "nnl_core.graph.execute": ("forward_all",),
    "nnl_core.graph.modes": (
        "auto_forward",
        "mixed_precision",
        "no_grad",
        "recompute",
        "set_auto_forward",
    ),
    "nnl_core.graph.operator": ("KernelSource", "Sample", "defop", "lookup"),
    "nnl_core.graph.spec": ("Spec",),
    "nnl_core.graph.variable": ("Variable",),
    "nnl_core.module": ("Layer", "Module", "Sequential"),
    "nnl_core.parameters": (
        "Parameter",
        "clear_parameters",
        "get_parameters",
        "load_parameters",
        "parameter_scope",
        "save_parameters",
    ),
    "nnl_core.random": ("seed",),
    "nnl_core.session": ("Session", "current_session"),
    "nnl_core.solvers.step": ("compile_step",),
}
_MODULES = {
    "F": "nnl_core.functions",
    "I": "nnl_core.initializers",
    "PF": "nnl_core.parametric_functions",
    "S": "nnl_core.solvers",
    "random": "nnl_core.random",
}
_home_of = {name: home for home, names in _HOMES.items() for name in names}

__version__ = "0.1.0"
__all__ = [
    "PF",
    "F",
    "I",
    "KernelSource",
    "Layer",
    "Module",
    "NdArray",
    "NnlError",
    "Parameter",
    "S",
    "Sample",
    "Sequential",
    "Session",
    "Spec",
    "Variable",
    "allow_tf32",
    "auto_forward",
    "backend_scope",
    "clear_parameters",
    "compile_step",
    "current_backend",
    "current_session",
    "defop",
    "forward_all",
    "get_parameters",
    "grad",
    "load_parameters",
    "lookup",
    "mixed_precision",
    "no_grad",
    "parameter_scope",
    "random",
    "recompute",
    "save_parameters",
    "seed",
    "set_auto_forward",
    "set_backend",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        value: object = importlib.import_module(_MODULES[name])
    elif name in _home_of:
        value = getattr(importlib.import_module(_home_of[name]), name)
    else:
        raise AttributeError(f"module 'nnl_core' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
