// Kernels written as they would be for a GPU; nothing here knows about the emulator.
#define TILE 16

extern "C" __global__ void vadd(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

extern "C" __global__ void __launch_bounds__(TILE *TILE)
    gemm(const float *A, const float *B, float *C, int M, int N, int K) {
    __shared__ float As[TILE][TILE + 1], Bs[TILE][TILE + 1];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty,
        col = blockIdx.x * TILE + tx;
    float acc = 0;
    for (int k0 = 0; k0 < K; k0 += TILE) {
        As[ty][tx] = row < M && k0 + tx < K ? A[row * K + k0 + tx] : 0.f;
        Bs[ty][tx] = k0 + ty < K && col < N ? B[(k0 + ty) * N + col] : 0.f;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE; k++) acc += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = acc;
}

__device__ float warp_sum(float v) {
    for (int d = 16; d; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
    return v;
}

extern "C" __global__ void block_sum(const float *x, float *out, int n) {
    __shared__ float part[32];
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        v += x[i];
    v = warp_sum(v);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = warp_sum(threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.f);
        if (threadIdx.x == 0) atomicAdd(out, v);
    }
}

extern "C" __global__ void histogram(const unsigned char *x, unsigned *bins, int n) {
    extern __shared__ unsigned local[];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&local[x[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}

// The last block to finish adds up what the others left (threadfence pattern).
__device__ unsigned done_blocks = 0;
extern "C" __global__ void last_block_sum(const float *x, float *part, float *out, int n) {
    __shared__ float s[128];
    __shared__ bool last;
    float v = 0;
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) v += x[i];
    s[threadIdx.x] = v;
    __syncthreads();
    for (int d = 64; d; d >>= 1) {
        if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        part[blockIdx.x] = s[0];
        __threadfence();
        last = atomicInc(&done_blocks, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float t = 0;
        for (int b = 0; b < gridDim.x; b++) t += part[b];
        *out = t;
    }
}

__constant__ float scale[4];
extern "C" __global__ void vec4(const float4 *x, float4 *y, int n4) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n4) {
        float4 v = x[i];
        v.x *= scale[0];
        v.y *= scale[1];
        v.z *= scale[2];
        v.w *= scale[3];
        y[i] = v;
    }
}

extern "C" __global__ void softmax_rows(const float *x, float *y, int cols) { // one warp a row
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    const float *p = x + row * cols;
    float m = -1e30f, s = 0;
    for (int i = threadIdx.x; i < cols; i += 32) m = fmaxf(m, p[i]);
    for (int d = 16; d; d >>= 1) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, d));
    for (int i = threadIdx.x; i < cols; i += 32) s += __expf(p[i] - m);
    for (int d = 16; d; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);
    for (int i = threadIdx.x; i < cols; i += 32) y[row * cols + i] = __expf(p[i] - m) / s;
}

extern "C" __global__ void match_lanes(const int *values, unsigned *masks) {
    masks[threadIdx.x] = __match_any_sync(0xffffffffu, values[threadIdx.x]);
}

// Shared memory of device functions, inlined and not, with which one kernel has no room for another's.
template <class T> __device__ __forceinline__ T turned(T x) {
    __shared__ T room[4000];
    room[threadIdx.x] = x;
    __syncthreads();
    return room[blockDim.x - 1 - threadIdx.x];
}
static __device__ __noinline__ float turned_apart(float x) {
    __shared__ float room[8000];
    room[threadIdx.x] = x;
    __syncthreads();
    return room[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void turn(float *x) { x[threadIdx.x] = turned(x[threadIdx.x]); }
extern "C" __global__ void turn_wide(double *x) { x[threadIdx.x] = turned(x[threadIdx.x]); }
extern "C" __global__ void turn_apart(float *x) { x[threadIdx.x] = turned_apart(x[threadIdx.x]); }
