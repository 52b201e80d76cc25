"""Operational neural networks: neurons of any nodal, pool and activation operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnl_onn.nodal import Nodal as Nodal
    from nnl_onn.pools import Pool as Pool

_HOMES = {"Nodal": "nodal", "Pool": "pools"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
