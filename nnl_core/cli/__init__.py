"""The command line: ``nnl``."""

from __future__ import annotations

from nnl_core.cli.main import main

__all__ = ["main"]
