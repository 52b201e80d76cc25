"""Tests for sums that are fused with what computes their terms, on a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.gpu.backend import CudaBackend
from nnl_core.gpu.program import CudaProgram
from nnl_core.graph.ir import Graph
from nnl_core.graph.operator import Array
from nnl_core.graph.program import clear_cache
from nnl_core.session import current_session

AXES = {
    "rows of less than a warp": ((40, 6), (1,)),
    "rows of a warp": ((9, 100), (1,)),
    "rows of a block": ((3, 2000), (1,)),
    "odd rows of a block": ((3, 1301), (1,)),
    "rows in parts": ((2, 30000), (1,)),
    "all": ((3, 50, 7), (0, 1, 2)),
    "columns": ((70, 33), (0,)),
    "columns of loads": ((9, 64), (0,)),
    "columns in parts": ((3000, 4), (0,)),
    "columns of examples": ((3, 20, 8), (1,)),
    "channels": ((4, 3, 5, 8), (0, 2, 3)),
    "other axes": ((2, 3, 4, 5, 2), (1, 3)),
    "an axis of one": ((5, 1, 6), (1,)),
    "everything of one": ((1, 1), (0,)),
}


@pytest.fixture
def labels(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of what the last compiled program runs."""
    seen: list[str] = []
    backend = current_session().backend("cuda")
    assert isinstance(backend, CudaBackend)
    compile_graph = backend.compile

    def compiled(graph: Graph) -> CudaProgram:
        program = compile_graph(graph)
        seen[:] = [instruction.label for instruction in program.graph.instructions]
        return program

    monkeypatch.setattr(backend, "compile", compiled)
    clear_cache()
    with nnl.backend_scope("cuda"):
        yield seen


def variable(shape: tuple[int, ...], seed: int, dtype: str = "float32") -> Variable:
    """Return normal numbers."""
    numbers = np.random.default_rng(seed).normal(size=shape)
    return Variable.from_numpy_array(numbers.astype(dtype))


@pytest.mark.parametrize("shape, axes", AXES.values(), ids=AXES.keys())
def test_sums_of_products_read_their_factors_once(
    labels: list[str], shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    x, y = variable(shape, 1), variable(shape, 2)
    total = F.sum(x * y, axes)
    total.forward()
    assert len(labels) == 1
    exact = (x.d.astype(np.float64) * y.d).sum(axes)
    np.testing.assert_allclose(total.d, exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape, axes", AXES.values(), ids=AXES.keys())
def test_what_is_summed_may_be_asked_for_too(
    labels: list[str], shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    x, y = variable(shape, 3, "float64"), variable(shape, 4, "float64")
    kept = tuple(1 if axis in axes else n for axis, n in enumerate(shape))
    scale = variable(kept, 5, "float64")
    product = x * y * scale
    total, mean = F.sum(product, axes, keepdims=True), F.mean(product * x, axes, keepdims=True)
    nnl.forward_all([product, total, mean])
    assert len(labels) == 1
    exact = x.d * y.d * scale.d
    np.testing.assert_allclose(product.d, exact, rtol=1e-12)
    np.testing.assert_allclose(total.d, exact.sum(axes, keepdims=True), rtol=1e-9, atol=1e-9)
    expected = (exact * x.d).mean(axes, keepdims=True)
    np.testing.assert_allclose(mean.d, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape, axes", AXES.values(), ids=AXES.keys())
def test_what_follows_from_sums_is_computed_with_them(
    labels: list[str], shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    kept = tuple(1 if axis in axes else n for axis, n in enumerate(shape))
    x, scale, shift = variable(shape, 17), variable(kept, 18), variable((), 19)
    product = x * scale
    total, mean = F.sum(product, axes, keepdims=True), F.mean(product * x, axes, keepdims=True)
    bent = F.tanh(total * shift + scale) / (mean * mean + 1.0)
    nnl.forward_all([bent, mean])
    if np.prod(kept) < np.prod(shape):
        assert len(labels) == 1
    wide = x.d.astype(np.float64)
    level = (wide * wide * scale.d).mean(axes, keepdims=True)
    sums = (wide * scale.d).sum(axes, keepdims=True)
    np.testing.assert_allclose(mean.d, level, rtol=1e-4, atol=1e-5)
    exact = np.tanh(sums * shift.d + scale.d) / (level * level + 1)
    np.testing.assert_allclose(bent.d, exact, rtol=1e-3, atol=1e-5)


def test_a_sum_joins_an_earlier_group_that_reads_the_same(labels: list[str]) -> None:
    x, y = variable((8, 40), 20), variable((40, 8), 21)
    product = F.matmul(x, y)
    scaled, total = F.sum(product * 2.0, 0), F.sum(product, 0)
    nnl.forward_all([scaled, total])
    assert len([label for label in labels if "sum" in label]) == 1
    exact = x.d.astype(np.float64) @ y.d
    np.testing.assert_allclose(scaled.d, 2 * exact.sum(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(total.d, exact.sum(0), rtol=1e-4, atol=1e-4)


def test_sums_that_leave_different_axes_are_apart(labels: list[str]) -> None:
    x = variable((6, 8), 6)
    y = F.exp(x)
    rows, columns = F.sum(y, 1), F.sum(y, 0)
    nnl.forward_all([rows, columns])
    assert len(labels) == 2
    np.testing.assert_allclose(rows.d, np.exp(x.d).sum(1), rtol=1e-5)
    np.testing.assert_allclose(columns.d, np.exp(x.d).sum(0), rtol=1e-5)


def test_terms_of_half_precision_are_added_in_single(labels: list[str]) -> None:
    x = Variable.from_numpy_array(np.full((2, 5000), 2, np.float16))
    mean = F.mean(x * x, 1)
    mean.forward()
    assert len(labels) == 1 and mean.d.tolist() == [4.0, 4.0] and mean.dtype == np.float16


def gradients_of_batch_normalisation() -> list[Array]:
    """Return those of input, gain and shift, rectified and weighed behind it."""
    x, w = variable((4, 3, 5, 5), 7, "float64"), variable((4, 3, 5, 5), 8, "float64")
    gamma, beta = (variable((1, 3, 1, 1), seed, "float64") for seed in (9, 10))
    for one in (x, gamma, beta):
        one.need_grad = True
    loss = F.sum(F.relu(F.batch_normalization(x, beta, gamma, None, None)) * w)
    loss.forward()
    loss.backward()
    return [np.array(one.g) for one in (x, gamma, beta)]


def test_gradients_of_batch_normalisation_take_all_sums_at_once(labels: list[str]) -> None:
    results = gradients_of_batch_normalisation()
    assert len([label for label in labels if "sum" in label]) == 1
    with nnl.backend_scope("numpy"):
        expected = gradients_of_batch_normalisation()
    for result, target in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, target, rtol=1e-9, atol=1e-9)


def running_statistics() -> list[Array]:
    """Train two batch normalisations for two steps, and return what they keep."""
    x = variable((6, 3, 4, 4), 11)
    kept = [variable((1, 3, 1, 1), seed) for seed in range(12, 16)]
    y = F.batch_normalization(x, None, None, kept[0], kept[1], decay_rate=0.75)
    y = F.batch_normalization(y * y, None, None, kept[2], kept[3], decay_rate=0.5)
    for _ in range(2):
        y.forward(clear_buffer=True)
    return [np.array(one.d) for one in kept]


def test_running_statistics_are_kept_by_one_kernel(labels: list[str]) -> None:
    results = running_statistics()
    assert len([label for label in labels if "mul_scalar" in label]) == 1
    with nnl.backend_scope("numpy"):
        expected = running_statistics()
    for result, target in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, target, rtol=1e-4, atol=1e-5)


def test_small_groups_that_share_nothing_are_one_kernel(labels: list[str]) -> None:
    results = [F.exp(variable((5, 3), seed)) for seed in range(3)]
    nnl.forward_all(results)
    assert labels == ["exp+exp+exp"]
    for seed, result in enumerate(results):
        np.testing.assert_allclose(result.d, np.exp(variable((5, 3), seed).d), rtol=1e-6)
