"""Kernels written as for a GPU give on the emulator what NumPy gives."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("order")


@pytest.fixture
def kernel(compiled):
    return compiled("kernels.cu").get_function


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def test_one_thread_adds_one_pair(kernel, cuda, rng):
    a, b, c = normal(rng, 1000), normal(rng, 1000), np.empty(1000, np.float32)
    vadd = kernel("vadd")
    vadd(cuda.In(a), cuda.In(b), cuda.Out(c), np.int32(1000), block=(128, 1, 1), grid=(8, 1))
    assert np.array_equal(c, a + b)


@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 64), (50, 33, 17)])
def test_tiles_in_shared_memory_multiply_matrices(kernel, cuda, rng, m, n, k):
    a, b, c = normal(rng, m, k), normal(rng, k, n), np.empty((m, n), np.float32)
    sizes = map(np.int32, (m, n, k))
    grid = (-(-n // 16), -(-m // 16))
    kernel("gemm")(cuda.In(a), cuda.In(b), cuda.Out(c), *sizes, block=(16, 16, 1), grid=grid)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "dtype", "shared"),
    [
        ("turn", np.float32, 16000),
        ("turn_wide", np.float64, 32000),
        ("turn_apart", np.float32, 32000),
    ],
)
def test_a_kernel_has_the_shared_memory_of_the_functions_it_calls(
    kernel, cuda, rng, name, dtype, shared
):
    x = rng.standard_normal(64).astype(dtype)
    y = x.copy()
    kernel(name)(cuda.InOut(y), block=(64, 1, 1), grid=(1, 1))
    assert np.array_equal(y, x[::-1])
    assert kernel(name).shared_size_bytes == shared


def test_shuffles_and_atomics_sum(kernel, cuda, rng):
    x, total = normal(rng, 5000), np.zeros(1, np.float32)
    kernel("block_sum")(
        cuda.In(x), cuda.InOut(total), np.int32(5000), block=(256, 1, 1), grid=(4, 1)
    )
    np.testing.assert_allclose(total[0], x.sum(dtype=np.float64), atol=1e-2)


def test_atomics_in_dynamic_shared_memory_count(kernel, cuda, rng):
    x, bins = rng.integers(0, 256, 4000).astype(np.uint8), np.zeros(256, np.uint32)
    histogram = kernel("histogram")
    histogram(
        cuda.In(x),
        cuda.InOut(bins),
        np.int32(4000),
        block=(96, 1, 1),
        grid=(3, 1),
        shared=1024,
    )
    assert np.array_equal(bins, np.bincount(x, minlength=256))


def test_the_last_block_may_read_what_others_wrote_before_a_fence(kernel, upload, empty, rng):
    x, total = upload(normal(rng, 3000)), upload(np.zeros(1, np.float32))
    parts = empty(5, np.float32)
    kernel("last_block_sum")(x, parts, total, np.int32(3000), block=(128, 1, 1), grid=(5, 1))
    np.testing.assert_allclose(total.get()[0], x.get().sum(dtype=np.float64), atol=1e-2)


def test_constant_memory_scales_vectors_of_four(compiled, kernel, cuda, rng):
    scale, x = normal(rng, 4), normal(rng, 256, 4)
    y = np.empty_like(x)
    cuda.memcpy_htod(compiled("kernels.cu").get_global("scale")[0], scale)
    kernel("vec4")(cuda.In(x), cuda.Out(y), np.int32(256), block=(64, 1, 1), grid=(4, 1))
    assert np.array_equal(y, x * scale)


def test_a_warp_takes_the_softmax_of_a_row(kernel, cuda, rng):
    x = normal(rng, 12, 100)
    y = np.empty_like(x)
    kernel("softmax_rows")(cuda.In(x), cuda.Out(y), np.int32(100), block=(32, 4, 1), grid=(3, 1))
    exponents = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, exponents / exponents.sum(1, keepdims=True), rtol=1e-5)


def test_pycudas_own_elementwise_and_reduction_kernels_run(upload, empty, rng):
    from pycuda.elementwise import ElementwiseKernel
    from pycuda.reduction import ReductionKernel

    a = normal(rng, 700)
    x, y = upload(a), empty(700, np.float32)
    relu = ElementwiseKernel("float a, float *x, float *y", "y[i] = a*x[i] > 0 ? a*x[i] : 0")
    relu(2.0, x, y)
    assert np.array_equal(y.get(), np.maximum(2 * a, 0))
    squares = ReductionKernel(np.float32, "0", "a+b", "x[i]*x[i]", "float *x")
    np.testing.assert_allclose(squares(x).get(), (a * a).sum(dtype=np.float64), rtol=1e-5)


def test_lanes_with_equal_values_find_each_other(kernel, cuda):
    values = (np.arange(32) % 3).astype(np.int32)
    masks = np.empty(32, np.uint32)
    kernel("match_lanes")(cuda.In(values), cuda.Out(masks), block=(32, 1, 1))
    same = values[:, None] == values
    assert np.array_equal(masks, (same * (1 << np.arange(32, dtype=np.uint64))).sum(1))
