"""Pools: what becomes of a connection's values at all taps of its kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np

from nnl_core.errors import OperatorError, PluginError
from nnl_core.graph.operator import Array
from nnl_core.session import current_session
from nnl_onn.hooks import PoolSpec


@dataclass(frozen=True)
class Pool:
    """A pool over taps: their sum, or one of them.

    ``select`` is given values with the taps along the last axis, and returns the position of one
    for each of the others. Its gradient goes to the selected tap. Without ``select`` the pool is
    the sum.
    """

    select: Callable[[Array], Array] | None = None

    def __call__(self, values: Array) -> Array:
        """Return the pool of values along their last axis."""
        if self.select is None:
            return np.asarray(values.sum(axis=-1))
        chosen = self.select(values)[..., np.newaxis]
        return np.asarray(np.take_along_axis(values, chosen, -1)[..., 0])


def first_maximum(values: Array) -> Array:
    """Return where the largest value is, the first of equal ones; NaN counts as the largest."""
    return np.asarray(np.argmax(values, axis=-1))


def first_median(values: Array) -> Array:
    """Return where the median is, the lower of two; the first of equal values, and of NaN."""
    middle = (values.shape[-1] - 1) // 2
    median = np.partition(values, middle, axis=-1)[..., middle, np.newaxis]
    no_number = np.isnan(values)
    chosen = np.where(no_number.any(-1, keepdims=True), no_number, values == median)
    return np.asarray(np.argmax(chosen, axis=-1))


sum_pool = Pool()
max_pool = Pool(first_maximum)
median_pool = Pool(first_median)

BUILT_IN = {"sum": sum_pool, "max": max_pool, "median": median_pool}
_found: dict[str, Pool] = {}


def find_pool(name: str) -> Pool:
    """Return a pool by name; raise `UnknownComponentError` where there is none."""
    if not isinstance(name, str):
        raise OperatorError(f"pool {name!r} is no name of a pool")
    known = BUILT_IN.get(name) or _found.get(name)
    if known is None:
        manager = current_session().manager
        record = manager.component(PoolSpec, name)
        known = cast(Pool, manager.resolve(record))
        if not isinstance(known, Pool):
            raise PluginError(f"pool {name!r} ({record.target}) is no nnl_onn.Pool")
        _found[name] = known
    return known


def add_pool(name: str, pool: Pool) -> str:
    """Give a program's own pool a name, and return that; distributions use records.

    Raises `OperatorError` for a name that another pool has.
    """
    known = BUILT_IN.get(name) or _found.setdefault(name, pool)
    if known != pool:
        raise OperatorError(f"another pool has the name {name!r}; take one of your own")
    return name
