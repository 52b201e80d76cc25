"""Operational layers as modules, which own their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnl_core import Layer
from nnl_onn.operator_sets import Sets
from nnl_onn.parametric_functions import operational, transposed_operational


class Operational(Layer):
    """A layer of operational neurons; further arguments are those of `operational`."""

    def __init__(
        self, outmaps: int, kernel: Sequence[int], operators: Sets | None = None, **options: Any
    ) -> None:
        super().__init__(operational, outmaps, kernel, operators, **options)


class TransposedOperational(Layer):
    """A layer of decoders; further arguments are those of `transposed_operational`."""

    def __init__(
        self, outmaps: int, kernel: Sequence[int], operators: Sets | None = None, **options: Any
    ) -> None:
        super().__init__(transposed_operational, outmaps, kernel, operators, **options)
