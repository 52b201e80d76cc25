// What all kernels may use: element types, loads and stores that convert, sums over warps and blocks.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#define INLINE static __device__ __forceinline__

typedef __nv_bfloat16 bfloat16;

// The name of a kernel of this unit; UNIT is defined around it.
#define NNL_JOINED(entry, unit) entry##_##unit
#define NNL_NAMED(entry, unit) NNL_JOINED(entry, unit)
#define KERNEL(entry) NNL_NAMED(entry, UNIT)

// Goes through all items, however many threads there are.
#define FOR_EACH(item, count)                                                                     \
    for (int64_t item = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; item < (count);           \
         item += (int64_t)gridDim.x * blockDim.x)

// Elements as they are computed with: half precision as float, all else as it is.
template <class T> struct Computing { typedef T type; };
template <> struct Computing<half> { typedef float type; };
template <> struct Computing<bfloat16> { typedef float type; };

template <class T> INLINE T wide(T x) { return x; }
INLINE float wide(half x) { return __half2float(x); }
INLINE float wide(bfloat16 x) { return __bfloat162float(x); }

// Rounds to an element type, to nearest even where it is half precision.
template <class T> struct Rounding {
    template <class S> static __device__ __forceinline__ T of(S x) { return (T)x; }
};
template <> struct Rounding<half> {
    template <class S> static __device__ __forceinline__ half of(S x) { return __float2half_rn((float)x); }
};
template <> struct Rounding<bfloat16> {
    template <class S> static __device__ __forceinline__ bfloat16 of(S x) {
        return __float2bfloat16_rn((float)x);
    }
};
template <class T, class S> INLINE T narrow(S x) { return Rounding<T>::of(x); }

// Larger and smaller of two; NaN wins, as in NumPy.
template <class T> INLINE T larger(T a, T b) { return a != a || a > b ? a : b; }
template <class T> INLINE T smaller(T a, T b) { return a != a || a < b ? a : b; }

struct Add {
    template <class T> static __device__ __forceinline__ T of(T a, T b) { return a + b; }
};
struct Larger {
    template <class T> static __device__ __forceinline__ T of(T a, T b) { return larger(a, b); }
};
struct Smaller {
    template <class T> static __device__ __forceinline__ T of(T a, T b) { return smaller(a, b); }
};

// Combines over a warp; every lane gets the result.
template <class Operation, class T> INLINE T warp_all(T x) {
    for (int distance = 16; distance > 0; distance /= 2)
        x = Operation::of(x, __shfl_xor_sync(0xffffffffu, x, distance));
    return x;
}

// Combines over a block of whole warps; every thread gets the result. `room` is shared memory for
// 32 values, and may be used again at once.
template <class Operation, class T> INLINE T block_all(T x, T nothing, T *room) {
    int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    int warps = (blockDim.x * blockDim.y * blockDim.z + 31) / 32;
    x = warp_all<Operation>(x);
    if (thread % 32 == 0) room[thread / 32] = x;
    __syncthreads();
    x = warp_all<Operation>(thread % 32 < warps ? room[thread % 32] : nothing);
    __syncthreads();
    return x;
}
