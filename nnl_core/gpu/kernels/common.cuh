// What all kernels may use: element types, loads and stores that convert, sums over warps and blocks.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline_primitives.h>
#ifdef __CUEMU__
#include <mma.h>  // the twins of instructions that kernels name
#endif
#include <stdint.h>

#define INLINE __device__ __forceinline__  // not static: a unit may leave some unused

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

// Neighbours that are loaded and stored at once; they begin at a multiple of their size.
template <class T, int COUNT> struct alignas(sizeof(T) * COUNT) Vector {
    T at[COUNT];
};
template <int COUNT, class T> INLINE Vector<T, COUNT> load(const T *from) {
    return *(const Vector<T, COUNT> *)from;
}
template <int COUNT, class T> INLINE void store(T *to, const Vector<T, COUNT> &elements) {
    *(Vector<T, COUNT> *)to = elements;
}

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

// Go through the rows and columns of a plane, blocks being (across, down) threads.
#define FOR_ROWS(row, rows)                                                                       \
    for (int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; row < (rows);              \
         row += (int64_t)gridDim.x * blockDim.y)
#define FOR_COLUMNS(column, columns)                                                              \
    for (int64_t column = (int64_t)blockIdx.y * blockDim.x + threadIdx.x; column < (columns);     \
         column += (int64_t)gridDim.y * blockDim.x)

// Divides by a length and keeps the remainder; in 32 bits, which is faster, where both fit.
INLINE int64_t split(int64_t &rest, int64_t length) {
    if ((uint64_t)rest <= 0xffffffffu && (uint64_t)length <= 0xffffffffu) {
        uint32_t whole = (uint32_t)rest / (uint32_t)length, left = (uint32_t)rest % (uint32_t)length;
        rest = whole;
        return left;
    }
    int64_t left = rest % length;
    rest /= length;
    return left;
}

// Exchanges anything over a warp, word by word.
template <class S> INLINE S shuffle_xor(S x, int distance) {
    int words[(sizeof(S) + 3) / 4] = {};
    memcpy(words, &x, sizeof(S));
#pragma unroll
    for (int i = 0; i < (int)((sizeof(S) + 3) / 4); i++)
        words[i] = __shfl_xor_sync(0xffffffffu, words[i], distance);
    memcpy(&x, words, sizeof(S));
    return x;
}

// Combines over a team of threads, 1 to 32 of a warp or a whole block of whole warps (a power of
// two); every one of them gets the result. All threads of a warp have to come here. `room` is shared
// memory for 32 values, and may be used again at once.
template <class Operation, class S> INLINE S team_all(S x, S nothing, int team, S *room) {
    for (int distance = (team < 32 ? team : 32) / 2; distance > 0; distance /= 2)
        x = Operation::of(x, shuffle_xor(x, distance));
    if (team <= 32) return x;
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
    __syncthreads();
    x = threadIdx.x % 32 < team / 32 ? room[threadIdx.x % 32] : nothing;
    for (int distance = 16; distance > 0; distance /= 2)
        x = Operation::of(x, shuffle_xor(x, distance));
    __syncthreads();
    return x;
}

// Combines over threadIdx.y; all get their column's. `room` is shared memory for as many values as the
// block has threads, and may be used again at once.
template <class Operation, class S> INLINE S column_all(S a, S *room) {
    int x = threadIdx.x, y = threadIdx.y, width = blockDim.x;
    room[y * width + x] = a;
    __syncthreads();
    for (int half = blockDim.y / 2; half > 0; half /= 2) {
        if (y < half) room[y * width + x] = Operation::of(room[y * width + x], room[(y + half) * width + x]);
        __syncthreads();
    }
    a = room[x];
    __syncthreads();
    return a;
}

// Functions that C++ names by the type.
INLINE float exp_of(float x) { return expf(x); }
INLINE double exp_of(double x) { return exp(x); }
INLINE float log_of(float x) { return logf(x); }
INLINE double log_of(double x) { return log(x); }
INLINE float log1p_of(float x) { return log1pf(x); }
INLINE double log1p_of(double x) { return log1p(x); }
INLINE float sqrt_of(float x) { return sqrtf(x); }
INLINE double sqrt_of(double x) { return sqrt(x); }
INLINE float pow_of(float x, float y) { return powf(x, y); }
INLINE double pow_of(double x, double y) { return pow(x, y); }
INLINE float abs_of(float x) { return fabsf(x); }
INLINE double abs_of(double x) { return fabs(x); }

// Where a kernel says that it met bad values (`failing` in Python): of several messages the last one
// that was given stays.
struct Failure {
    int *flag;
    int64_t number;
    __device__ __forceinline__ void raise() const { atomicMax(flag, (int)number); }
};

// Whole numbers and truths whose type is told at run time (`any_type` in Python): what is not worth
// a module for each type.
struct Numbers {
    const void *at;
    int64_t type;
};
template <class F> INLINE int64_t whole_of(F x) {
    int64_t whole = (int64_t)x;
    return (F)whole == x ? whole : INT64_MIN;
}
// A number, INT64_MIN for one that is not whole.
INLINE int64_t whole_at(const Numbers &numbers, int64_t item) {
    switch (numbers.type) {
        case 0: return ((const int64_t *)numbers.at)[item];
        case 1: return ((const int32_t *)numbers.at)[item];
        case 2: return ((const int16_t *)numbers.at)[item];
        case 3: return ((const int8_t *)numbers.at)[item];
        case 4: return (int64_t)((const uint64_t *)numbers.at)[item];
        case 5: return ((const uint32_t *)numbers.at)[item];
        case 6: return ((const uint16_t *)numbers.at)[item];
        case 7: case 8: return ((const uint8_t *)numbers.at)[item];
        case 9: return whole_of(((const float *)numbers.at)[item]);
        case 10: return whole_of(((const double *)numbers.at)[item]);
        case 11: return whole_of(wide(((const half *)numbers.at)[item]));
        default: return whole_of(wide(((const bfloat16 *)numbers.at)[item]));
    }
}
// Whether a number is not 0; NaN is not.
INLINE bool truth_at(const Numbers &numbers, int64_t item) {
    switch (numbers.type) {
        case 9: return ((const float *)numbers.at)[item] != 0;
        case 10: return ((const double *)numbers.at)[item] != 0;
        case 11: return wide(((const half *)numbers.at)[item]) != 0;
        case 12: return wide(((const bfloat16 *)numbers.at)[item]) != 0;
        default: return whole_at(numbers, item) != 0;
    }
}
