"""Tests for Einstein sums on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnl_core.graph.dtypes import bfloat16
from nnl_core.graph.operator import Array

Compute = Callable[..., tuple[Array, ...]]

EQUATIONS: dict[str, tuple[str, tuple[tuple[int, ...], ...]]] = {
    "products of matrices": ("bij,bjk->bik", ((3, 40, 33), (3, 33, 50))),
    "heads of attention": ("bqhd,bkhd->bhqk", ((2, 9, 3, 16), (2, 11, 3, 16))),
    "a result in another order": ("ij,jk->ki", ((20, 30), (30, 10))),
    "small products": ("bij,bjk->bik", ((300, 2, 3), (300, 3, 2))),
    "elements of a stack": ("bi,bi->bi", ((40, 7), (40, 7))),
    "an outer product": ("i,j->ji", ((70,), (30,))),
    "a diagonal": ("bii->ib", ((5, 9, 9),)),
    "a sum of everything": ("ij->", ((50, 70),)),
    "a letter that one has alone": ("bij,bk->ik", ((4, 6, 5), (4, 7))),
    "three operands": ("ab,bc,cd->da", ((5, 6), (6, 7), (7, 8))),
    "axes that broadcast": ("...ij,...jk->...ik", ((1, 3, 9, 10), (2, 1, 10, 12))),
}
equations = pytest.mark.parametrize("equation, shapes", EQUATIONS.values(), ids=EQUATIONS.keys())


def operands(shapes: tuple[tuple[int, ...], ...], dtype: Any) -> list[Array]:
    """Return small whole numbers, whose sums are exact."""
    rng = np.random.default_rng(0)
    return [rng.integers(-2, 3, shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", [np.float32, np.int32], ids=["float32", "int32"])
@equations
def test_sums_are_those_of_numpy(
    compute: Compute, equation: str, shapes: tuple[tuple[int, ...], ...], dtype: Any
) -> None:
    xs = operands(shapes, dtype)
    (y,) = compute("nnl::einsum", *xs, equation=equation)
    np.testing.assert_array_equal(y, np.einsum(equation, *(x.astype(np.float64) for x in xs)))


def test_half_precision_is_rounded_once(compute: Compute) -> None:
    dtype = bfloat16()
    xs = [np.full((3, 1000), 1, dtype), np.full((1000, 4), 1, dtype), np.full((4, 2), 1, dtype)]
    (y,) = compute("nnl::einsum", *xs, equation="ij,jk,kl->il")
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, np.full((3, 2), 4000, dtype))
