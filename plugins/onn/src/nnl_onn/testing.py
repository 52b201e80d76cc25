"""Checks for nodal operators and pools of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from nnl_core import Sample
from nnl_core.errors import NotDifferentiableError
from nnl_core.graph.backend import Backend
from nnl_core.testing import check_operator
from nnl_onn.nodal import find_nodal
from nnl_onn.operators import operate, operate_gradients
from nnl_onn.pools import BUILT_IN as POOLS
from nnl_onn.samples import CASES, draw


def check_nodal(
    nodal: str, backend: Backend | str = "numpy", *, pool: str | None = None, seed: int = 0,
    tolerance: float = 1.0,
) -> None:  # fmt: skip
    """Hold a nodal operator, by name or as an expression, to what `check_operator` checks.

    That is with each of the pools of this package, or with ``pool`` alone: values, gradients and
    their gradients against differences, the kernels of ``backend`` against the reference. Gradients
    of the author's own are asked for shapes only, as they are meant to differ.

    Raises `OperatorCheckError`; `OperatorError` where the operator gives nearly the same value
    everywhere, so that there is nothing to check.
    """
    pools = POOLS if pool is None else (pool,)

    def samples(with_gradient: bool) -> Iterator[Sample]:
        rng = np.random.default_rng(seed)
        for number, one in enumerate(pools):
            for case in (CASES[number], CASES[number + 3]):
                d = draw(nodal, one, case, rng)
                yield Sample(*([d.g] if with_gradient else []), d.x, d.w, **d.options)

    check_operator(operate, backend, tolerance=tolerance, samples=samples(False))
    with suppress(NotDifferentiableError):
        for path in "xw":
            find_nodal(nodal).form(path)
        check_operator(operate_gradients, backend, tolerance=tolerance, samples=samples(True))
