"""The test kit for plugins. Names are imported when first used, so that the kit costs nothing.

Its pytest plugin is active wherever nnl-core is installed; see `nnl_core.testing.pytest_plugin`.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnl_core.testing.operators import OperatorCheckError, check_operator, operators
    from nnl_core.testing.plugins import (
        HookRecorder,
        Outcome,
        PluginCheckError,
        check_plugin,
        record_hooks,
        run_nnl,
    )

_OPERATORS = ("OperatorCheckError", "check_operator", "operators")

__all__ = [
    "HookRecorder",
    "OperatorCheckError",
    "Outcome",
    "PluginCheckError",
    "check_operator",
    "check_plugin",
    "operators",
    "record_hooks",
    "run_nnl",
]


class _Kit(ModuleType):
    """Keeps ``operators`` the function, whoever has imported the module of that name."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "operators" and isinstance(value, ModuleType):
            value = value.operators
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Kit


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'nnl_core.testing' has no attribute {name!r}")
    home = "operators" if name in _OPERATORS else "plugins"
    value = getattr(importlib.import_module(f"nnl_core.testing.{home}"), name)
    globals()[name] = value
    return value
