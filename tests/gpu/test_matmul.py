"""Tests for products of matrices on a GPU, by cuBLAS and by kernels of our own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nnl_core.gpu import blas
from nnl_core.gpu.device import device
from nnl_core.graph.dtypes import bfloat16
from nnl_core.graph.operator import Array

Compute = Callable[..., tuple[Array, ...]]

# (rows, inner, columns): parts of tiles, whole tiles, several tiles, k in slices.
SHAPES = [(5, 3, 7), (64, 32, 64), (70, 40, 130), (3, 1100, 4), (1, 9, 200)]
CASES = [
    *((dtype, shape) for dtype in ("float32", "bfloat16") for shape in SHAPES),
    ("float64", (70, 40, 130)),
    ("float16", (70, 40, 130)),
]
TOLERANCES = {"float32": 1e-5, "float64": 1e-13, "float16": 2e-3, "bfloat16": 1e-2}


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide cuBLAS."""
    monkeypatch.setattr(blas, "find", lambda device: None)


def _matrices(dtype: str, *shapes: tuple[int, ...]) -> list[Array]:
    rng, chosen = np.random.default_rng(1), bfloat16() if dtype == "bfloat16" else np.dtype(dtype)
    return [rng.normal(size=shape).astype(chosen) for shape in shapes]


def _agrees(result: Array, a: Array, b: Array) -> None:
    target = a.astype(np.float64) @ b.astype(np.float64)
    allowed = TOLERANCES[result.dtype.name] * max(1.0, np.abs(target).max())
    np.testing.assert_allclose(result.astype(np.float64), target, rtol=0, atol=allowed)


@pytest.mark.usefixtures("without_library")
@pytest.mark.parametrize("dtype, shape", CASES, ids=str)
def test_tiles_multiply_as_float64_does(
    compute: Compute, dtype: str, shape: tuple[int, int, int]
) -> None:
    rows, inner, columns = shape
    a, b = _matrices(dtype, (rows, inner), (inner, columns))
    (c,) = compute("nnl::batch_matmul", a, b)
    _agrees(c, a, b)


@pytest.mark.usefixtures("without_library")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_large_tiles_multiply_as_float64_does(
    compute: Compute, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(device(0).__dict__, "multiprocessors", 1)
    a, b = _matrices(dtype, (140, 40), (40, 136))
    (c,) = compute("nnl::batch_matmul", a, b)
    _agrees(c, a, b)


@pytest.mark.usefixtures("without_library")
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tiles_read_operands_that_lie_transposed(
    compute: Compute, transpose_a: bool, transpose_b: bool, dtype: str
) -> None:
    a, b = _matrices(dtype, (70, 40), (40, 72))
    given = [np.ascontiguousarray(m.T if t else m) for m, t in ((a, transpose_a), (b, transpose_b))]
    (c,) = compute("nnl::batch_matmul", *given, transpose_a=transpose_a, transpose_b=transpose_b)
    _agrees(c, a, b)


@pytest.mark.usefixtures("without_library")
def test_tiles_multiply_stacks_whose_axes_broadcast(compute: Compute) -> None:
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(2, 1, 3, 4, 5)), rng.normal(size=(3, 1, 5, 6))
    (c,) = compute("nnl::batch_matmul", a, b)
    np.testing.assert_allclose(c, a @ b, atol=1e-13)


@pytest.mark.usefixtures("without_library")
def test_tiles_add_the_bias_after_the_last_slice(compute: Compute) -> None:
    rng = np.random.default_rng(5)
    x, weight, bias = (rng.normal(size=one) for one in ((3, 1100), (1100, 6), (6,)))
    (y,) = compute("nnl::affine", x, weight, bias)
    np.testing.assert_allclose(y, x @ weight + bias, atol=1e-11)


def test_a_bias_in_half_precision_is_rounded_with_the_product_once(compute: Compute) -> None:
    x, weight = np.ones((600, 2), np.float16), np.ones((2, 600), np.float16)
    weight[1], bias = 2**-11, np.full(600, 2**-12, np.float16)
    (y,) = compute("nnl::affine", x, weight, bias)
    np.testing.assert_array_equal(y, np.float16(1 + 2**-10))


def test_integers_are_summed_in_64_bits(compute: Compute) -> None:
    a, b = np.full((70, 90), 100, np.int8), np.full((90, 3), 100, np.int8)
    (c,) = compute("nnl::batch_matmul", a, b)
    assert c.dtype == np.int64 and (c == 900_000).all()


def test_a_stack_of_one_matrix_each_is_one_call_of_the_library(
    compute: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    multiply = blas.Handle.multiply

    def counted(self: blas.Handle, product: blas.Product, *addresses: int) -> None:
        calls.append(product)
        multiply(self, product, *addresses)

    monkeypatch.setattr(blas.Handle, "multiply", counted)
    rng = np.random.default_rng(6)
    a, b = rng.normal(size=(6, 4, 5)), rng.normal(size=(5, 3))
    (c,) = compute("nnl::batch_matmul", a, b)
    np.testing.assert_allclose(c, a @ b, atol=1e-13)
    assert [(call.rows, call.members) for call in calls] == [(24, 1)]


def test_float32_is_multiplied_in_float32_unless_tf32_is_allowed(
    compute: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = np.full((2, 1), 1 + 2**-20, np.float32), np.ones((1, 2), np.float32)
    (exact,) = compute("nnl::batch_matmul", a, b)
    monkeypatch.setattr(device(0), "allow_tf32", True)
    (rounded,) = compute("nnl::batch_matmul", a, b)
    assert (exact == a).all() and (rounded == 1).all()


@pytest.mark.usefixtures("without_library")
def test_tiles_round_float32_to_tf32_where_that_is_allowed(
    compute: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device(0), "allow_tf32", True)
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-9, 10, shape).astype(np.float32) for shape in ((70, 40), (40, 132)))
    (exact,) = compute("nnl::batch_matmul", a, b)
    (rounded,) = compute("nnl::batch_matmul", a + np.float32(2**-12), b)
    np.testing.assert_array_equal(exact, a @ b)
    np.testing.assert_array_equal(rounded, np.where(a == 0, np.float32(2**-12), a) @ b)


def test_a_large_product_by_the_library_has_its_bias(compute: Compute) -> None:
    rng = np.random.default_rng(8)
    x, weight, bias = (rng.normal(size=one) for one in ((70, 90), (90, 50), (50,)))
    (y,) = compute("nnl::affine", x, weight, bias)
    np.testing.assert_allclose(y, x @ weight + bias, atol=1e-11)
