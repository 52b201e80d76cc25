"""Looking at and changing the gradients that a solver is about to use."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from nnl_core.errors import SolverError
from nnl_core.graph.operator import Array
from nnl_core.solvers.group import FlatGroup


class GradientMethods:
    """Methods of a solver that read or write the gradients of its parameters."""

    @property
    def flat_groups(self) -> list[FlatGroup]:
        """The parameters to update, in groups that lie in flat blocks."""
        return []

    def scale_grad(self, scale: float) -> None:
        """Multiply all gradients by a number."""
        for group in self.changed_gradients():
            gradient = group.gradient.read()
            gradient *= gradient.dtype.type(scale)

    def clip_grad_by_value(self, value: float) -> None:
        """Bring every element of the gradients into ``[-value, value]``; NaN stays NaN."""
        limit = _checked_norm(value)
        for group in self.changed_gradients():
            gradient = group.gradient.read()
            np.clip(gradient, -limit, limit, out=gradient)

    def clip_grad_by_norm(self, clip_norm: float) -> None:
        """Scale each parameter's gradient down to a norm of at most ``clip_norm``."""
        limit = _checked_norm(clip_norm)
        for group in self.changed_gradients():
            for _, gradient in group.storage.gradient_parts():
                norm = math.sqrt(_sum_of_squares(gradient))
                if norm > limit:
                    gradient *= gradient.dtype.type(limit / norm)

    def clip_grad_by_global_norm(self, clip_norm: float) -> float:
        """Scale all gradients alike, to a common norm of at most ``clip_norm``.

        Returns the norm that they had.
        """
        limit = _checked_norm(clip_norm)
        norm = math.sqrt(sum(_sum_of_squares(gradient) for _, gradient in self._gradients()))
        if norm > limit:
            self.scale_grad(limit / norm)
        return norm

    def check_inf_grad(self) -> bool:
        """Whether some gradient has an infinite element."""
        return any(bool(np.isinf(gradient).any()) for _, gradient in self._gradients())

    def check_nan_grad(self) -> bool:
        """Whether some gradient has a NaN."""
        return any(bool(np.isnan(gradient).any()) for _, gradient in self._gradients())

    def check_inf_or_nan_grad(self) -> bool:
        """Whether some gradient has an element that is not finite."""
        return any(not np.isfinite(gradient).all() for _, gradient in self._gradients())

    def _gradients(self) -> Iterator[tuple[str, Array]]:
        for group in self.flat_groups:
            group.storage.collect_gradients()
            yield from group.storage.gradient_parts()

    def changed_gradients(self) -> Iterator[FlatGroup]:
        """Yield groups whose flat gradient may be written in place, in the loop's body."""
        for group in self.flat_groups:
            group.storage.collect_gradients()
            with np.errstate(all="ignore"):
                yield group
            group.gradient.touch()
            group.storage.publish_gradients()


def _checked_norm(value: float) -> float:
    if not value >= 0:
        raise SolverError(f"gradients cannot be clipped to {value!r}; give a number >= 0")
    return float(value)


def _sum_of_squares(array: Array) -> float:
    flat = array.ravel()
    with np.errstate(all="ignore"):
        return (
            float(np.dot(flat, flat))
            if flat.dtype == np.float64
            else float(np.sum(np.square(flat, dtype=np.float64)))
        )
