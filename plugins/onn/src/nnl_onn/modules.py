"""Operational layers as modules, which own their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnl_core import Layer
from nnl_onn.operator_sets import Sets
from nnl_onn.parametric_functions import operational, transposed_operational
from nnl_onn.self_onn import self_operational, transposed_self_operational
from nnl_onn.super_neurons import super_operational


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


class SelfOperational(Layer):
    """A layer of generative neurons; further arguments are those of `self_operational`."""

    def __init__(self, outmaps: int, kernel: Sequence[int], order: int = 3, **options: Any) -> None:
        super().__init__(self_operational, outmaps, kernel, order, **options)


class TransposedSelfOperational(Layer):
    """One of decoders; further arguments are those of `transposed_self_operational`."""

    def __init__(self, outmaps: int, kernel: Sequence[int], order: int = 3, **options: Any) -> None:
        super().__init__(transposed_self_operational, outmaps, kernel, order, **options)


class SuperOperational(Layer):
    """A layer of super neurons; further arguments are those of `super_operational`."""

    def __init__(self, outmaps: int, kernel: Sequence[int], order: int = 3, **options: Any) -> None:
        super().__init__(super_operational, outmaps, kernel, order, **options)
