// Moments, and what is normalised by them.
//
// Macros: T element type; I type of indices (int32_t where the sizes allow); VEC elements that are
// loaded at once, 16 bytes or 1 element; PER such loads of a thread (kernels of rows); KEPT number
// of the moment that element i belongs to, AT element r of those that moment k is of.

typedef Computing<T>::type C;

INLINE void load_wide(const T *from, C (&into)[VEC]) {
    Vector<T, VEC> v = load<VEC>(from);
#pragma unroll
    for (int e = 0; e < VEC; e++) into[e] = wide(v.at[e]);
}

INLINE void store_narrow(T *to, const C (&from)[VEC]) {
    Vector<T, VEC> v;
#pragma unroll
    for (int e = 0; e < VEC; e++) v.at[e] = narrow<T>(from[e]);
    store(to, v);
}

// Element (i / inner) % size of a gain belongs to element i. The elements of a load have one in
// common, or as many that lie together.
struct Gain {
    const T *values;
    I inner, size;
    __device__ __forceinline__ void at(I i, C (&into)[VEC]) const {
        I first = i / inner % size;
        if (inner == 1 && size > 1) return load_wide(values + first, into);
        C value = wide(values[first]);
#pragma unroll
        for (int e = 0; e < VEC; e++) into[e] = value;
    }
};

#ifdef PER
// Rows ------------------------------------------------------------------------------------------
//
// A row is blockDim.x threads': part of a warp, of which a block has blockDim.y, or a whole block.
// It is read once and stays in registers. Grid: rows / blockDim.y.

INLINE C total(C x, C *room) { return team_all<Add>(x, (C)0, blockDim.x, room); }

// Mean and variance of rows and, where there is a y, the rows normalised: reads x, writes y.
extern "C" __global__ void KERNEL(standardize_rows)(
    const T *__restrict__ x, const T *__restrict__ gamma, const T *__restrict__ beta,
    T *__restrict__ y, T *__restrict__ mean, T *__restrict__ variance, int64_t rows, int32_t length,
    C eps, I gamma_inner, I gamma_size, I beta_inner, I beta_size) {
    __shared__ C room[32];
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    int mine = row < rows ? length / VEC : 0;
    I first = (I)(row * length);
    C v[PER][VEC];
    C sum = 0;
#pragma unroll
    for (int j = 0; j < PER; j++) {
        int at = j * blockDim.x + threadIdx.x;
        if (at < mine) {
            load_wide(x + first + at * VEC, v[j]);
#pragma unroll
            for (int e = 0; e < VEC; e++) sum += v[j][e];
        }
    }
    C count = (C)max(length, 1);
    C center = total(sum, room) / count;
    sum = 0;
#pragma unroll
    for (int j = 0; j < PER; j++)
        if (j * blockDim.x + threadIdx.x < mine)
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                v[j][e] -= center;
                sum += v[j][e] * v[j][e];
            }
    C spread = total(sum, room) / count;
    if (threadIdx.x == 0 && row < rows) {
        mean[row] = narrow<T>(center);
        variance[row] = narrow<T>(spread);
    }
    if (!y) return;
    C factor = 1 / sqrt(spread + eps);
    Gain gain = {gamma, gamma_inner, gamma_size}, shift = {beta, beta_inner, beta_size};
#pragma unroll
    for (int j = 0; j < PER; j++) {
        int at = j * blockDim.x + threadIdx.x;
        if (at < mine) {
            I i = first + at * VEC;
            C a[VEC], b[VEC];
            gain.at(i, a);
            shift.at(i, b);
#pragma unroll
            for (int e = 0; e < VEC; e++) v[j][e] = v[j][e] * (factor * a[e]) + b[e];
            store_narrow(y + i, v[j]);
        }
    }
}

// (h - M(h) - s M(h s)) f with h = g gamma, s = (x - mean) f: reads g and x, writes dx.
extern "C" __global__ void KERNEL(gradient_rows)(
    const T *__restrict__ g, const T *__restrict__ x, const T *__restrict__ mean,
    const T *__restrict__ variance, const T *__restrict__ gamma, T *__restrict__ dx, int64_t rows,
    int32_t length, C eps, I gamma_inner, I gamma_size) {
    __shared__ C room[32];
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    int mine = row < rows ? length / VEC : 0;
    I first = (I)(row * length);
    C center = 0, factor = 0;
    if (mine) {
        center = wide(mean[row]);
        factor = 1 / sqrt(wide(variance[row]) + eps);
    }
    Gain gain = {gamma, gamma_inner, gamma_size};
    C h[PER][VEC], s[PER][VEC];
    C level = 0, along = 0;
#pragma unroll
    for (int j = 0; j < PER; j++) {
        int at = j * blockDim.x + threadIdx.x;
        if (at < mine) {
            I i = first + at * VEC;
            C a[VEC];
            load_wide(g + i, h[j]);
            load_wide(x + i, s[j]);
            gain.at(i, a);
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                h[j][e] *= a[e];
                s[j][e] = (s[j][e] - center) * factor;
                level += h[j][e];
                along += h[j][e] * s[j][e];
            }
        }
    }
    C count = (C)max(length, 1);
    level = total(level, room) / count;
    along = total(along, room) / count;
#pragma unroll
    for (int j = 0; j < PER; j++) {
        int at = j * blockDim.x + threadIdx.x;
        if (at < mine) {
#pragma unroll
            for (int e = 0; e < VEC; e++) h[j][e] = (h[j][e] - level - s[j][e] * along) * factor;
            store_narrow(dx + first + at * VEC, h[j]);
        }
    }
}

#else
// Other axes ------------------------------------------------------------------------------------
//
// Blocks sum parts, which one warp then joins, always in the same order; a last kernel goes through
// the elements again. Each reads its inputs once.

// Of (outer, count, inner), outer and inner are summed over, where nothing else is said.
#ifndef AT
#define AT (r / inner * count + k) * inner + r % inner
#endif
#ifndef KEPT
#define KEPT i / inner % count
#endif
INLINE I at_member(I k, I r, I inner, I count) { return AT; }
INLINE I moment_of(I i, I inner, I count) { return KEPT; }

const int LOADS = sizeof(I) == 8 ? 2 : 4;  // of a thread, on their way at once

// Number, sum and squared distances from the mean, in two passes over what is in registers; parts
// are joined as T. Chan, G. Golub and R. LeVeque, "Algorithms for computing the sample variance",
// 1983, do it.
struct Moments {
    C n, sum, squares;

    __device__ __forceinline__ void join(C n_, C sum_, C squares_) {
        if (n_ == 0) return;
        if (n == 0) {
            n = n_, sum = sum_, squares = squares_;
            return;
        }
        C apart = sum_ / n_ - sum / n, both = n + n_;
        squares = (squares + squares_) + apart * apart * (n * n_ / both);
        sum += sum_;
        n = both;
    }
    __device__ __forceinline__ void join(const Moments &other) {
        join(other.n, other.sum, other.squares);
    }
    __device__ __forceinline__ Moments from(int distance) const {
        return {__shfl_xor_sync(0xffffffffu, n, distance),
                __shfl_xor_sync(0xffffffffu, sum, distance),
                __shfl_xor_sync(0xffffffffu, squares, distance)};
    }
};

// Reads the elements that moments are of.
struct Values {
    typedef Moments Result;
    const T *x;

    __device__ __forceinline__ void begin(I) {}
    __device__ __forceinline__ void take(Moments &into, const I (&at)[LOADS], int loads) const {
        C v[LOADS][VEC];
        C sum = 0, squares = 0;
#pragma unroll
        for (int j = 0; j < LOADS; j++)
            if (j < loads) load_wide(x + at[j], v[j]);
#pragma unroll
        for (int j = 0; j < LOADS; j++)
            if (j < loads)
#pragma unroll
                for (int e = 0; e < VEC; e++) sum += v[j][e];
        C n = (C)(loads * VEC), center = sum / n;
#pragma unroll
        for (int j = 0; j < LOADS; j++)
            if (j < loads)
#pragma unroll
                for (int e = 0; e < VEC; e++) squares += (v[j][e] - center) * (v[j][e] - center);
        into.join(n, sum, squares);
    }
};

struct Two {
    C level, along;

    __device__ __forceinline__ void join(const Two &other) {
        level += other.level;
        along += other.along;
    }
    __device__ __forceinline__ Two from(int distance) const {
        return {__shfl_xor_sync(0xffffffffu, level, distance),
                __shfl_xor_sync(0xffffffffu, along, distance)};
    }
};

// Reads what the gradient sums: h, and h s.
struct Gradients {
    typedef Two Result;
    const T *g, *x, *mean, *variance;
    Gain gain;
    C eps, center, factor;

    __device__ __forceinline__ void begin(I k) {
        center = wide(mean[k]);
        factor = 1 / sqrt(wide(variance[k]) + eps);
    }
    __device__ __forceinline__ void take(Two &into, const I (&at)[LOADS], int loads) const {
        C h[LOADS][VEC], s[LOADS][VEC];
#pragma unroll
        for (int j = 0; j < LOADS; j++)
            if (j < loads) {
                load_wide(g + at[j], h[j]);
                load_wide(x + at[j], s[j]);
            }
#pragma unroll
        for (int j = 0; j < LOADS; j++)
            if (j < loads) {
                C a[VEC];
                gain.at(at[j], a);
#pragma unroll
                for (int e = 0; e < VEC; e++) {
                    into.level += h[j][e] * a[e];
                    into.along += h[j][e] * a[e] * ((s[j][e] - center) * factor);
                }
            }
    }
};

// Sums of every `parts`-th run of elements: block `part + parts * k`, 256 threads.
template <class Source>
INLINE void sum_elements(Source source, typename Source::Result *into, I inner, I count,
                         I members, int parts) {
    typedef typename Source::Result Result;
    __shared__ Result room[8];
    I k = (I)(blockIdx.x / parts);
    int part = blockIdx.x % parts;
    source.begin(k);
    Result mine = {};
    I step = (I)blockDim.x * VEC, turn = step * LOADS;
    for (int64_t r = (int64_t)part * turn; r < members; r += (int64_t)parts * turn) {
        I at[LOADS];
        int loads = 0;
#pragma unroll
        for (int j = 0; j < LOADS; j++) {
            int64_t member = r + j * step + threadIdx.x * VEC;
            if (member < members) {
                at[j] = at_member(k, (I)member, inner, count);
                loads = j + 1;
            }
        }
        if (loads) source.take(mine, at, loads);
    }
    for (int distance = 16; distance > 0; distance /= 2) mine.join(mine.from(distance));
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < 8; warp++) mine.join(room[warp]);
        into[blockIdx.x] = mine;
    }
}

// The same of (outer, members, inner), summed over the axis in the middle: block (32, 8), of which
// each thread has a column; grid (inner / 32, parts, outer).
template <class Source>
INLINE void sum_columns(Source source, typename Source::Result *into, I inner, I outer,
                        I members, int parts) {
    typedef typename Source::Result Result;
    __shared__ Result room[8][32];
    I column = (I)blockIdx.x * 32 + threadIdx.x;
    for (I z = blockIdx.z; z < outer; z += gridDim.z) {
        I k = z * inner + column;
        Result mine = {};
        if (column < inner) {
            source.begin(k);
            for (int64_t r = (int64_t)blockIdx.y * 8 * LOADS + threadIdx.y; r < members;
                 r += (int64_t)parts * 8 * LOADS) {
                I at[LOADS];
                int loads = 0;
#pragma unroll
                for (int j = 0; j < LOADS; j++)
                    if (r + j * 8 < members) {
                        at[j] = (z * members + (I)(r + j * 8)) * inner + column;
                        loads = j + 1;
                    }
                source.take(mine, at, loads);
            }
        }
        room[threadIdx.y][threadIdx.x] = mine;
        __syncthreads();
        if (threadIdx.y == 0 && column < inner) {
            for (int y = 1; y < 8; y++) mine.join(room[y][threadIdx.x]);
            into[(int64_t)k * parts + blockIdx.y] = mine;
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(256)
    KERNEL(moments_of_elements)(const T *__restrict__ x, Moments *into, I inner, I count, I members,
                                int32_t parts) {
    sum_elements(Values{x}, into, inner, count, members, parts);
}

extern "C" __global__ void __launch_bounds__(256)
    KERNEL(gradients_of_elements)(const T *__restrict__ g, const T *__restrict__ x,
                                  const T *__restrict__ mean, const T *__restrict__ variance,
                                  const T *__restrict__ gamma, I gamma_inner, I gamma_size, C eps,
                                  Two *into, I inner, I count, I members, int32_t parts) {
    Gradients source = {g, x, mean, variance, {gamma, gamma_inner, gamma_size}, eps};
    sum_elements(source, into, inner, count, members, parts);
}

#if VEC == 1
extern "C" __global__ void __launch_bounds__(256)
    KERNEL(moments_of_columns)(const T *__restrict__ x, Moments *into, I inner, I outer, I members,
                               int32_t parts) {
    sum_columns(Values{x}, into, inner, outer, members, parts);
}

extern "C" __global__ void __launch_bounds__(256, 2)  // without the 2, registers spill on sm_80
    KERNEL(gradients_of_columns)(const T *__restrict__ g, const T *__restrict__ x,
                                 const T *__restrict__ mean, const T *__restrict__ variance,
                                 const T *__restrict__ gamma, I gamma_inner, I gamma_size, C eps,
                                 Two *into, I inner, I outer, I members, int32_t parts) {
    Gradients source = {g, x, mean, variance, {gamma, gamma_inner, gamma_size}, eps};
    sum_columns(source, into, inner, outer, members, parts);
}
#endif

// Joins the parts of a moment: a warp for each, block (32, 8). What follows reads center and
// factor, which are not rounded, where they are wanted.
template <class Result> INLINE Result joined(const Result *parts, int number) {
    Result mine = {};
    for (int part = threadIdx.x; part < number; part += 32) mine.join(parts[part]);
    for (int distance = 16; distance > 0; distance /= 2) mine.join(mine.from(distance));
    return mine;
}

extern "C" __global__ void __launch_bounds__(256)
    KERNEL(finish_moments)(const Moments *__restrict__ from, int32_t parts, int64_t moments,
                           C members, C eps, T *__restrict__ mean, T *__restrict__ variance,
                           C *__restrict__ center, C *__restrict__ factor) {
    int64_t k = (int64_t)blockIdx.x * 8 + threadIdx.y;
    if (k >= moments) return;
    Moments whole = joined(from + k * parts, parts);
    if (threadIdx.x) return;
    C level = whole.sum / members, spread = whole.squares / members;
    mean[k] = narrow<T>(level);
    variance[k] = narrow<T>(spread);
    if (center) {
        center[k] = level;
        factor[k] = 1 / sqrt(spread + eps);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    KERNEL(finish_gradients)(const Two *__restrict__ from, int32_t parts, int64_t moments,
                             C members, C *__restrict__ level, C *__restrict__ along) {
    int64_t k = (int64_t)blockIdx.x * 8 + threadIdx.y;
    if (k >= moments) return;
    Two whole = joined(from + k * parts, parts);
    if (threadIdx.x) return;
    level[k] = whole.level / members;
    along[k] = whole.along / members;
}

// One thread for each load.
extern "C" __global__ void KERNEL(apply_moments)(
    const T *__restrict__ x, const C *__restrict__ center, const C *__restrict__ factor,
    const T *__restrict__ gamma, const T *__restrict__ beta, T *__restrict__ y, I inner, I count,
    I gamma_inner, I gamma_size, I beta_inner, I beta_size, int64_t loads) {
    Gain gain = {gamma, gamma_inner, gamma_size}, shift = {beta, beta_inner, beta_size};
    FOR_EACH(item, loads) {
        I i = (I)item * VEC, k = moment_of(i, inner, count);
        C v[VEC], a[VEC], b[VEC];
        load_wide(x + i, v);
        gain.at(i, a);
        shift.at(i, b);
        C from = center[k], times = factor[k];
#pragma unroll
        for (int e = 0; e < VEC; e++) v[e] = (v[e] - from) * (times * a[e]) + b[e];
        store_narrow(y + i, v);
    }
}

extern "C" __global__ void KERNEL(apply_gradients)(
    const T *__restrict__ g, const T *__restrict__ x, const T *__restrict__ mean,
    const T *__restrict__ variance, const T *__restrict__ gamma, const C *__restrict__ level,
    const C *__restrict__ along, T *__restrict__ dx, C eps, I inner, I count, I gamma_inner,
    I gamma_size, int64_t loads) {
    Gain gain = {gamma, gamma_inner, gamma_size};
    FOR_EACH(item, loads) {
        I i = (I)item * VEC, k = moment_of(i, inner, count);
        C h[VEC], s[VEC], a[VEC];
        load_wide(g + i, h);
        load_wide(x + i, s);
        gain.at(i, a);
        C center = wide(mean[k]), factor = 1 / sqrt(wide(variance[k]) + eps);
        C less = level[k], times = along[k];
#pragma unroll
        for (int e = 0; e < VEC; e++)
            h[e] = (h[e] * a[e] - less - (s[e] - center) * factor * times) * factor;
        store_narrow(dx + i, h);
    }
}

#if VEC == 1
// A gain by element of what it is broadcast to: for gains whose axes do not lie together.
#ifdef SPREAD
extern "C" __global__ void KERNEL(spread_gain)(const T *__restrict__ gain, T *__restrict__ into,
                                               int64_t size) {
    FOR_EACH(i, size) into[i] = gain[SPREAD];
}
#endif

// decay * running + share * value, one thread for each; without a value, running as it is.
extern "C" __global__ void KERNEL(running_statistic)(const T *running, const T *value, T *z,
                                                     C decay, C share, int64_t size) {
    FOR_EACH(i, size) {
        z[i] = value ? narrow<T>(decay * wide(running[i]) + share * wide(value[i])) : running[i];
    }
}
#endif
#undef AT
#undef KEPT
#endif
