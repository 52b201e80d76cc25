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
    from nnl_onn.modules import SelfOperational as SelfOperational
    from nnl_onn.modules import SuperOperational as SuperOperational
    from nnl_onn.modules import TransposedOperational as TransposedOperational
    from nnl_onn.modules import TransposedSelfOperational as TransposedSelfOperational
    from nnl_onn.nodal import Nodal as Nodal
    from nnl_onn.nodal import add_nodal as add_nodal
    from nnl_onn.operator_sets import OperatorSet as OperatorSet
    from nnl_onn.operator_sets import library as library
    from nnl_onn.parametric_functions import operational as operational
    from nnl_onn.parametric_functions import transposed_operational as transposed_operational
    from nnl_onn.pools import Pool as Pool
    from nnl_onn.pools import add_pool as add_pool
    from nnl_onn.self_onn import self_operate as self_operate
    from nnl_onn.self_onn import self_operational as self_operational
    from nnl_onn.self_onn import transposed_self_operate as transposed_self_operate
    from nnl_onn.self_onn import transposed_self_operational as transposed_self_operational
    from nnl_onn.super_neurons import super_operate as super_operate
    from nnl_onn.super_neurons import super_operational as super_operational

__all__ = [
    "Nodal",
    "Operational",
    "OperatorSet",
    "Pool",
    "SelfOperational",
    "SuperOperational",
    "TransposedOperational",
    "TransposedSelfOperational",
    "add_nodal",
    "add_pool",
    "fastonn_library",
    "fastonn_operators",
    "fastonn_tier",
    "fastonn_weight",
    "library",
    "operate",
    "operational",
    "self_operate",
    "self_operational",
    "super_operate",
    "super_operational",
    "transposed_operate",
    "transposed_operational",
    "transposed_self_operate",
    "transposed_self_operational",
]

_HOMES = {
    "Nodal": "nodal",
    "Operational": "modules",
    "OperatorSet": "operator_sets",
    "Pool": "pools",
    "add_nodal": "nodal",
    "add_pool": "pools",
    "SelfOperational": "modules",
    "SuperOperational": "modules",
    "TransposedOperational": "modules",
    "TransposedSelfOperational": "modules",
    "fastonn_library": "fastonn",
    "fastonn_operators": "fastonn",
    "fastonn_tier": "fastonn",
    "fastonn_weight": "fastonn",
    "library": "operator_sets",
    "operate": "functions",
    "operational": "parametric_functions",
    "self_operate": "self_onn",
    "self_operational": "self_onn",
    "super_operate": "super_neurons",
    "super_operational": "super_neurons",
    "transposed_operate": "functions",
    "transposed_operational": "parametric_functions",
    "transposed_self_operate": "self_onn",
    "transposed_self_operational": "self_onn",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
