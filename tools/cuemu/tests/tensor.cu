#include <cuda_bf16.h>
#include <cuda_pipeline.h>
#include <mma.h>
using namespace nvcuda;

// 64x64 tile a block, 4 warps, two shared-memory stages filled by cp.async, WMMA bf16 -> fp32. M,
// N, K multiples of 64, 64, 32.
extern "C" __global__ void __launch_bounds__(128)
    gemm_wmma(const __nv_bfloat16 *A, const __nv_bfloat16 *B, float *C, int M, int N, int K) {
    __shared__ __align__(32) __nv_bfloat16 As[2][64][48], Bs[2][32][80];
    int warp = threadIdx.x / 32, row0 = blockIdx.y * 64, col0 = blockIdx.x * 64;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[4];
    for (int j = 0; j < 4; j++) wmma::fill_fragment(acc[j], 0.f);
    auto fetch = [&](int s, int k0) {
        for (int i = threadIdx.x; i < 64 * 4; i += 128)
            __pipeline_memcpy_async(&As[s][i / 4][i % 4 * 8],
                                    &A[(row0 + i / 4) * K + k0 + i % 4 * 8], 16);
        for (int i = threadIdx.x; i < 32 * 8; i += 128)
            __pipeline_memcpy_async(&Bs[s][i / 8][i % 8 * 8],
                                    &B[(k0 + i / 8) * N + col0 + i % 8 * 8], 16);
        __pipeline_commit();
    };
    fetch(0, 0);
    for (int k0 = 0, s = 0; k0 < K; k0 += 32, s ^= 1) {
        if (k0 + 32 < K) {
            fetch(s ^ 1, k0 + 32);
            __pipeline_wait_prior(1);
        } else
            __pipeline_wait_prior(0);
#ifndef NO_SYNC
        __syncthreads();
#endif
        for (int kk = 0; kk < 32; kk += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> a;
            wmma::load_matrix_sync(a, &As[s][warp * 16][kk], 48);
            for (int j = 0; j < 4; j++) {
                wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> b;
                wmma::load_matrix_sync(b, &Bs[s][kk][j * 16], 80);
                wmma::mma_sync(acc[j], a, b, acc[j]);
            }
        }
        __syncthreads();
    }
    for (int j = 0; j < 4; j++)
        wmma::store_matrix_sync(&C[(row0 + warp * 16) * N + col0 + j * 16], acc[j], N,
                                wmma::mem_row_major);
}

// The same product by raw PTX, one 16x8 tile a warp: the only place with asm, with the emulator's
// twin beside it.
__device__ __forceinline__ void mma_bf16(float *d, const unsigned *a, const unsigned *b,
                                         const float *c) {
#ifdef __CUEMU__
    cuemu_mma_m16n8k16<__nv_bfloat16>(d, a, b, c);
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]),
                   "f"(c[1]), "f"(c[2]), "f"(c[3]));
#endif
}
extern "C" __global__ void gemm_ptx(const __nv_bfloat16 *A, const __nv_bfloat16 *Bt, float *C,
                                    int N, int K) {
    int g = threadIdx.x / 4, t = threadIdx.x % 4 * 2, row0 = blockIdx.y * 16, col0 = blockIdx.x * 8;
    float d[4] = {0, 0, 0, 0};
    for (int k0 = 0; k0 < K; k0 += 16) {
        unsigned a[4], b[2];
        for (int r = 0; r < 4; r++)
            a[r] = *(const unsigned *)&A[(row0 + g + 8 * (r & 1)) * K + k0 + t + 8 * (r >> 1)];
        for (int r = 0; r < 2; r++) b[r] = *(const unsigned *)&Bt[(col0 + g) * K + k0 + t + 8 * r];
        mma_bf16(d, a, b, d);
    }
    for (int r = 0; r < 4; r++) C[(row0 + g + 8 * (r >> 1)) * N + col0 + t + (r & 1)] = d[r];
}
extern "C" __global__ void half_ops(const __half *x, __half *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __hfma(x[i], x[i], __float2half(1.f)) / (x[i] + __half(3.f));
}

extern "C" __global__ void read_before_wait(const float *x, float *y) {
    __shared__ float s[4];
    __pipeline_memcpy_async(s, x, 16);
    __pipeline_commit();
    y[0] = s[0];
    __pipeline_wait_prior(0);
    y[1] = s[0];
    y[2] = y[3] = 0;
}
