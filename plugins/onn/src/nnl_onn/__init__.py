"""Operational neural networks: neurons of any nodal, pool and activation operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnl_onn.fastonn import fastonn_library as fastonn_library
    from nnl_onn.fastonn import fastonn_operators as fastonn_operators
    from nnl_onn.fastonn import fastonn_tier as fastonn_tier
    from nnl_onn.fastonn import fastonn_weight as fastonn_weight
    from nnl_onn.functions import operate as operate
    from nnl_onn.functions import transposed_operate as transposed_operate
    from nnl_onn.modules import Operational as Operational
    from nnl_onn.modules import TransposedOperational as TransposedOperational
    from nnl_onn.nodal import Nodal as Nodal
    from nnl_onn.operator_sets import OperatorSet as OperatorSet
    from nnl_onn.operator_sets import library as library
    from nnl_onn.parametric_functions import operational as operational
    from nnl_onn.parametric_functions import transposed_operational as transposed_operational
    from nnl_onn.pools import Pool as Pool

__all__ = [
    "Nodal",
    "Operational",
    "OperatorSet",
    "Pool",
    "TransposedOperational",
    "fastonn_library",
    "fastonn_operators",
    "fastonn_tier",
    "fastonn_weight",
    "library",
    "operate",
    "operational",
    "transposed_operate",
    "transposed_operational",
]

_HOMES = {
    "Nodal": "nodal",
    "Operational": "modules",
    "OperatorSet": "operator_sets",
    "Pool": "pools",
    "TransposedOperational": "modules",
    "fastonn_library": "fastonn",
    "fastonn_operators": "fastonn",
    "fastonn_tier": "fastonn",
    "fastonn_weight": "fastonn",
    "library": "operator_sets",
    "operate": "functions",
    "operational": "parametric_functions",
    "transposed_operate": "functions",
    "transposed_operational": "parametric_functions",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
