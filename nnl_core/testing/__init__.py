"""The test kit for plugins. Names are imported when first used, so that the kit costs nothing.

Its pytest plugin is active wherever nnl-core is installed; see `nnl_core.testing.pytest_plugin`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnl_core.testing.operator_checks import OperatorCheckError, check_operator, operators
    from nnl_core.testing.plugins import (
        HookRecorder,
        Outcome,
        PluginCheckError,
        check_plugin,
        record_hooks,
        run_nnl,
    )

_OPERATOR_CHECKS = ("OperatorCheckError", "check_operator", "operators")

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


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'nnl_core.testing' has no attribute {name!r}")
    home = "operator_checks" if name in _OPERATOR_CHECKS else "plugins"
    value = getattr(importlib.import_module(f"nnl_core.testing.{home}"), name)
    globals()[name] = value
    return value
