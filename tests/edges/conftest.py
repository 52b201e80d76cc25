"""How the tests of this folder run a graph: in every way there is, which must agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable

Array = np.ndarray


def first(result: Any) -> Variable:
    """Return a function's result, of several the first."""
    found = result[0] if isinstance(result, (tuple, list)) else result
    assert isinstance(found, Variable)
    return found


def same(one: Array, two: Array) -> None:
    assert one.dtype == two.dtype
    np.testing.assert_array_equal(one.astype(np.float64), two.astype(np.float64))


def evaluate(build: Callable[[], Any]) -> Array:
    """Return the value of what ``build`` returns, on which static and dynamic execution agree."""
    static = first(build()).d.copy()
    with nnl.auto_forward():
        same(static, first(build()).d)
    return np.asarray(static)


def differentiate(build: Callable[..., Any], *arrays: Any) -> tuple[Array, ...]:
    """Return the value of ``build(*leaves)`` and the gradients of its sum.

    Static and dynamic execution agree on them, bit for bit; a compiled step may sum in another
    order.
    """

    def leaves() -> list[Variable]:
        return [Variable.from_numpy_array(np.asarray(a), need_grad=True) for a in arrays]

    found: list[tuple[Array, ...]] = []
    for dynamic in (False, True):
        variables = leaves()
        with nnl.auto_forward(dynamic):
            y = first(build(*variables))
            loss = F.sum(y)
            if not dynamic:
                loss.forward()
            loss.backward()
        found.append((y.d.copy(), *(v.g.copy() for v in variables)))
    variables = leaves()
    y = first(build(*variables))
    solver = nnl.S.Sgd(0.0)
    solver.set_parameters({str(n): v for n, v in enumerate(variables)})
    nnl.compile_step(F.sum(y), solver, outputs=[y]).run()
    step = (y.d, *(v.g for v in variables))
    for one, two, three in zip(*found, step, strict=True):
        same(one, two)
        np.testing.assert_allclose(three, one, rtol=1e-12, atol=1e-14)
    return found[0]


@pytest.fixture(name="evaluate")
def evaluate_fixture() -> Callable[[Callable[[], Any]], Array]:
    return evaluate


@pytest.fixture(name="differentiate")
def differentiate_fixture() -> Callable[..., tuple[Array, ...]]:
    return differentiate
