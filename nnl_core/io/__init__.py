"""Files: formats for parameters, found by suffix or content, written whole or not at all."""

from __future__ import annotations

from nnl_core.io.atomic import replace_file
from nnl_core.io.formats import Contents, FileFormat, StoredParameter, load, save

__all__ = ["Contents", "FileFormat", "StoredParameter", "load", "replace_file", "save"]
