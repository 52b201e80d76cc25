"""Instructions on small matrices, asynchronous copies to shared memory, and half precision."""

from __future__ import annotations

import numpy as np
import pytest

from tools import cuemu

pytestmark = pytest.mark.usefixtures("order")
ml_dtypes = pytest.importorskip("ml_dtypes")


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)


def bits(array):
    return np.ascontiguousarray(array).view(np.uint16)


def test_wmma_fed_by_asynchronous_copies_multiplies_matrices(compiled, upload, empty, rng):
    m, n, k = 128, 64, 96
    a, b, c = normal(rng, m, k), normal(rng, k, n), empty((m, n), np.float32)
    gemm = compiled("tensor.cu").get_function("gemm_wmma")
    sizes = map(np.int32, (m, n, k))
    gemm(upload(bits(a)), upload(bits(b)), c, *sizes, block=(128, 1, 1), grid=(n // 64, m // 64))
    np.testing.assert_allclose(c.get(), a.astype(float) @ b.astype(float), rtol=1e-4, atol=1e-4)


def test_a_missing_barrier_after_asynchronous_copies_is_reported(compiled, upload, empty, report):
    gemm = compiled("tensor.cu", "-DNO_SYNC").get_function("gemm_wmma")
    x, c = upload(np.zeros((64, 64), np.uint16)), empty((64, 64), np.float32)
    sizes = [np.int32(64)] * 3
    text = report(lambda: gemm(x, x, c, *sizes, block=(128, 1, 1)))
    assert "race" in text or "uninitialised" in text


def test_the_twin_of_a_ptx_instruction_multiplies_matrices(compiled, upload, empty, rng):
    m, n, k = 32, 16, 48
    a, b, c = normal(rng, m, k), normal(rng, k, n), empty((m, n), np.float32)
    gemm = compiled("tensor.cu").get_function("gemm_ptx")
    arrays = upload(bits(a)), upload(bits(b.T)), c
    gemm(*arrays, np.int32(n), np.int32(k), block=(32, 1, 1), grid=(n // 8, m // 16))
    np.testing.assert_allclose(c.get(), a.astype(float) @ b.astype(float), rtol=1e-4, atol=1e-4)


def test_operations_of_half_precision_round_to_nearest_even(compiled, upload, empty, rng):
    x = rng.standard_normal(500).astype(np.float16)
    y = empty(500, np.float16)
    half_ops = compiled("tensor.cu").get_function("half_ops")
    half_ops(upload(x), y, np.int32(500), block=(128, 1, 1), grid=(4, 1))
    wide = x.astype(np.float32)
    fused = (wide * wide + 1).astype(np.float16)  # exact in float32, rounded once
    wanted = fused.astype(np.float32) / (x + np.float16(3)).astype(np.float32)
    assert np.array_equal(y.get(), wanted.astype(np.float16))


def test_what_was_not_waited_for_has_not_arrived(compiled, upload, empty):
    early = compiled("tensor.cu").get_function("read_before_wait")
    y = empty(4, np.float32)
    with cuemu.option(initcheck=0, racecheck=0):
        early(upload(np.ones(4, np.float32)), y, block=(1, 1, 1))
        assert np.isnan(y.get()[0])
        assert y.get()[1] == 1
