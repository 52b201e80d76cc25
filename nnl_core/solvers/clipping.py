"""Clipping of gradients, as graph on flat variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nnl_core import functions as F
from nnl_core.errors import SolverError
from nnl_core.graph.variable import Variable
from nnl_core.solvers.group import FlatGroup


class Clipping(NamedTuple):
    """Limits that gradients are brought to, in this order; ``None`` is no limit."""

    value: float | None = None
    """of each element's size"""
    norm_each: float | None = None
    """of the norm of each parameter's gradient"""
    norm: float | None = None
    """of the norm of all gradients together"""

    def check(self) -> None:
        """Raise `SolverError` for a limit that is no number above 0."""
        for name, limit in self._asdict().items():
            if limit is not None and not limit > 0:
                raise SolverError(f"clip_grad_{name}={limit!r}: give a number above 0, or None")

    def apply(self, flat: list[Variable], groups: Sequence[FlatGroup]) -> list[Variable]:
        """Return the gradients of groups within the limits; NaN stays NaN."""
        if self.value is not None:
            flat = [F.clip_by_value(gradient, -self.value, self.value) for gradient in flat]
        if self.norm_each is not None:
            flat = [
                F.pack(
                    *(
                        self._within(part, length(part), self.norm_each)
                        for part in parts_of(gradient, group)
                    )
                )
                for gradient, group in zip(flat, groups, strict=True)
            ]
        if self.norm is not None:
            norm = F.sqrt(sum(F.sum(gradient * gradient) for gradient in flat))
            flat = [self._within(gradient, norm, self.norm) for gradient in flat]
        return flat

    @staticmethod
    def _within(gradient: Variable, norm: Variable, limit: float) -> Variable:
        return gradient * (limit / F.maximum_scalar(norm, limit))


def length(x: Variable) -> Variable:
    """Return the root of the sum of squares, 0-d."""
    return F.sqrt(F.sum(x * x))


def parts_of(flat: Variable, group: FlatGroup) -> list[Variable]:
    """Return each parameter's part of a flat variable."""
    return [F.slice(flat, (start,), (stop,)) for start, stop in group.storage.segments.values()]
