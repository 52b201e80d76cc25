// One bug a kernel; each must be reported.
extern "C" __global__ void oob_write(float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] = 1;
}
extern "C" __global__ void oob_read(const float *x, float *y, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = x[i + 1];
}
extern "C" __global__ void underflow(float *y) { y[(int)threadIdx.x - 1] = 1; }
extern "C" __global__ void host_ptr(float *y) { y[threadIdx.x] = 1; }
extern "C" __global__ void misaligned(const float *x, float4 *y) {
    y[threadIdx.x] = *(const float4 *)(x + 1 + 4 * threadIdx.x);
}
extern "C" __global__ void shared_oob(float *y) {
    __shared__ float s[32];
    s[threadIdx.x + 1] = 1;
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void dyn_oob(float *y) {
    extern __shared__ float s[];
    s[threadIdx.x] = 1;
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void uninit_shared(float *y) {
    __shared__ float s[64];
    if (threadIdx.x < 32) s[threadIdx.x] = 1;
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void uninit_global(const float *x, float *y) {
    y[threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void missing_sync(float *y) {
    __shared__ float s[64];
    s[threadIdx.x] = threadIdx.x;
    y[threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void
missing_second_sync(float *y) { // the next round overwrites what slow threads still read
    __shared__ float s[64];
    float a = 0;
    for (int k = 0; k < 4; k++) {
        s[threadIdx.x] = k;
        __syncthreads();
        a += s[63 - threadIdx.x];
    }
    y[threadIdx.x] = a;
}
extern "C" __global__ void block_race(float *y) {
    if (threadIdx.x == 0) y[0] += 1;
}
extern "C" __global__ void divergent_barrier(float *y) {
    if (threadIdx.x < 32) {
        y[threadIdx.x] = 0;
        __syncthreads();
    } else {
        y[threadIdx.x] = 1;
        __syncthreads();
    }
}
extern "C" __global__ void bad_mask(float *y) {
    float v = 1;
    if (threadIdx.x < 16)
        v = __shfl_down_sync(0xffffffffu, v, 1);
    else
        __syncthreads();
    y[threadIdx.x] = v;
}
extern "C" __global__ void stack_overflow(float *y, int n) {
    volatile float a[100000];
    for (int i = 0; i < n; i++) a[i] = i;
    y[0] = a[n - 1];
}
extern "C" __global__ void div_zero(int *y, int n) { y[threadIdx.x] = 10 / (n - (int)threadIdx.x); }
extern "C" __global__ void __launch_bounds__(64) bounded(float *y) { y[threadIdx.x] = 1; }
