"""The stand-in for cuBLAS multiplies what NumPy multiplies, called through ctypes."""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_void_p

import numpy as np
import pytest

FLOAT32, FLOAT64, FLOAT16, BFLOAT16 = 0, 1, 2, 14
COMPUTE_32F, COMPUTE_64F, COMPUTE_TF32 = 68, 70, 77
INVALID_VALUE, NOT_SUPPORTED = 7, 15


@pytest.fixture
def blas(driver, context):
    return ctypes.CDLL("libcublas.so.13")


@pytest.fixture
def handle(blas):
    made = c_void_p()
    assert blas.cublasCreate_v2(ctypes.byref(made)) == 0
    yield made
    assert blas.cublasDestroy_v2(made) == 0


@pytest.fixture
def gemm(blas, handle, empty):
    """Return a function that multiplies row-major matrices, perhaps many, on a stream."""

    def call(a, b, kind=FLOAT32, compute=COMPUTE_32F, stream=None, alpha=1.0, dtype=np.float32):
        (count, m, k), n = a.shape, b.shape[2]
        c = empty((count, m, n), dtype)
        result = FLOAT64 if dtype == np.float64 else FLOAT32
        scalar = ctypes.c_double if compute == COMPUTE_64F else c_float
        one, zero = ctypes.byref(scalar(alpha)), ctypes.byref(scalar(0))
        strides = [ctypes.c_longlong(size) for size in (k * n, m * k, m * n)]
        address = [c_void_p(int(array.gpudata)) for array in (b, a, c)]
        blas.cublasSetStream_v2(handle, c_void_p(stream.handle if stream else 0))
        # The row-major product is the column-major product of the transposes.
        status = blas.cublasGemmStridedBatchedEx(
            *(handle, 0, 0, n, m, k, one, address[0], kind, n, strides[0]),
            *(address[1], kind, k, strides[1], zero, address[2], result, n, strides[2]),
            *(count, compute, -1),
        )
        assert status == 0
        return c

    return call


def matrices(rng, *shapes, dtype=np.float32):
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def test_a_batch_is_multiplied(gemm, upload, rng):
    a, b = matrices(rng, (3, 5, 7), (3, 7, 4))
    np.testing.assert_allclose(gemm(upload(a), upload(b)).get(), a @ b, rtol=1e-5, atol=1e-5)


def test_half_precision_is_multiplied_exactly_and_summed_wide(gemm, upload, rng):
    a, b = matrices(rng, (1, 5, 7), (1, 7, 4), dtype=np.float16)
    c = gemm(upload(a), upload(b), FLOAT16).get()
    np.testing.assert_allclose(c, a.astype(float) @ b.astype(float), rtol=1e-6, atol=1e-6)


def test_bfloat16_is_multiplied_exactly_and_summed_wide(gemm, upload, rng):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a, b = matrices(rng, (1, 5, 7), (1, 7, 4), dtype=ml_dtypes.bfloat16)
    c = gemm(upload(a.view(np.uint16)), upload(b.view(np.uint16)), BFLOAT16).get()
    np.testing.assert_allclose(c, a.astype(float) @ b.astype(float), rtol=1e-6, atol=1e-6)


def test_double_precision_is_multiplied_in_double_precision(gemm, upload, rng):
    a, b = matrices(rng, (1, 5, 7), (1, 7, 4), dtype=np.float64)
    c = gemm(upload(a), upload(b), FLOAT64, COMPUTE_64F, dtype=np.float64).get()
    np.testing.assert_allclose(c, a @ b, rtol=1e-13, atol=1e-13)


def test_tf32_rounds_operands_to_eleven_bits(gemm, upload):
    a = np.full((1, 1, 1), 1 + 2**-10 + 2**-12, np.float32)
    one = np.ones((1, 1, 1), np.float32)
    assert gemm(upload(a), upload(one), compute=COMPUTE_TF32).get().item() == 1 + 2**-10
    assert gemm(upload(a), upload(one)).get().item() == a.item()


def test_a_product_waits_for_its_stream(gemm, upload, cuda, rng):
    a, b = matrices(rng, (1, 4, 4), (1, 4, 4))
    stream, x, y = cuda.Stream(), upload(np.zeros_like(a)), upload(b)
    cuda.memcpy_htod_async(x.gpudata, a, stream)
    c = gemm(x, y, stream=stream)
    stream.synchronize()
    np.testing.assert_allclose(c.get(), a @ b, rtol=1e-5, atol=1e-5)


def test_a_captured_product_is_computed_at_each_launch(blas, handle, gemm, upload, cuda, driver):
    stream, x = cuda.Stream(), upload(np.full((1, 1, 1), 3, np.float32))
    c = gemm(x, x, stream=stream)  # allocates, so before the capture
    graph, executable, one, zero = c_void_p(), c_void_p(), c_float(1), c_float(0)
    cuda.Context.synchronize()
    driver.cuStreamBeginCapture_v2(c_void_p(stream.handle), 0)
    sgemm = [c_void_p(int(array.gpudata)) for array in (x, c)]
    blas.cublasSgemm_v2(
        *(handle, 0, 0, 1, 1, 1, ctypes.byref(one), sgemm[0], 1, sgemm[0], 1),
        *(ctypes.byref(zero), sgemm[1], 1),
    )
    driver.cuStreamEndCapture(c_void_p(stream.handle), ctypes.byref(graph))
    driver.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
    for value in (5, 6):
        x.set(np.full((1, 1, 1), value, np.float32))
        driver.cuGraphLaunch(executable, c_void_p(stream.handle))
        stream.synchronize()
        assert c.get().item() == value**2


def test_an_operand_that_is_too_small_is_reported(gemm, upload, empty, report, blas, handle):
    x = upload(np.zeros(100, np.float32))
    one = c_float(1)
    address = c_void_p(int(x.gpudata))
    sizes = (20, 20, 20)
    text = report(
        lambda: blas.cublasSgemm_v2(
            *(handle, 0, 0, *sizes, ctypes.byref(one), address, 20, address, 20),
            *(ctypes.byref(one), address, 20),
        )
    )
    assert "library operand: 1600 bytes at offset 0 of an allocation of 400 bytes" in text


def test_an_uninitialised_operand_is_reported(gemm, empty, report):
    x = empty((1, 2, 2), np.float32)
    assert "library call reads uninitialised memory" in report(lambda: gemm(x, x))


@pytest.mark.parametrize("leading", [0, 3])
def test_a_leading_dimension_that_is_too_short_is_refused(blas, handle, upload, leading):
    one, address = c_float(1), c_void_p(int(upload(np.zeros(16, np.float32)).gpudata))
    arguments = (ctypes.byref(one), address, leading, address, 4, ctypes.byref(one), address, 4)
    assert blas.cublasSgemm_v2(handle, 0, 0, 4, 4, 4, *arguments) == INVALID_VALUE


def test_a_workspace_that_is_not_aligned_is_refused(blas, handle, cuda):
    address = int(cuda.mem_alloc(1024))
    size = ctypes.c_size_t(512)
    assert blas.cublasSetWorkspace_v2(handle, c_void_p(address), size) == 0
    assert blas.cublasSetWorkspace_v2(handle, c_void_p(address + 4), size) == INVALID_VALUE
