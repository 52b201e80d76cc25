"""The core's operators (namespace ``nnl``): one module per family, each operator defined once."""

from __future__ import annotations

import nnl_core.functions  # noqa: F401  # families refer to each other through it: it comes first
