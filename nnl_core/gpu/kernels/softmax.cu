// Softmax and its kin along one axis. Memory-bound: each input is read once and each output written
// once, where a row fits into registers; of longer rows the second reading comes from the cache.
//
// `families/softmax.py` sees arrays as (outer, n, inner), and defines
//   T, C       an element, and what it is computed in
//   OPERATION  one of the structures below
//   VECTOR     elements that are read at once
//   HELD       chunks of a row that a thread holds; 0: none, for rows of any length
//
// rows:    inner is 1. A team of 1 to 32 threads or a block for each row.
// columns: blocks of (along inner, along the axis).

typedef Vector<T, VECTOR> Chunk;

// What operations have in common: `term` is what is added up along the axis, `result` what is
// written, of an element of the first input and one of the second.
struct OfOne {
    static const bool FALLS = true, PAIR = false;
    static __device__ C base(C top) { return top; }
    static __device__ C term(C x, C other, C top) { return exp_of(x - top); }
};

struct Softmax : OfOne {
    static __device__ C prepared(C sum, C number) { return 1 / sum; }
    static __device__ C result(C x, C other, C top, C share) { return exp_of(x - top) * share; }
};

struct MaskedSoftmax : Softmax {  // 0 where all are minus infinity
    static __device__ C base(C top) { return top == -infinite<C>() ? (C)0 : top; }
    static __device__ C prepared(C sum, C number) { return sum == 0 ? (C)1 : 1 / sum; }
};

struct LogSoftmax : OfOne {
    static __device__ C prepared(C sum, C number) { return log_of(sum); }
    static __device__ C result(C x, C other, C top, C log_sum) { return (x - top) - log_sum; }
};

struct OfTwo {
    static const bool FALLS = false, PAIR = true;
    static __device__ C base(C top) { return top; }
    static __device__ C prepared(C sum, C number) { return sum; }
};

struct SoftmaxGradient : OfTwo {  // of the gradient and the result
    static __device__ C term(C g, C y, C top) { return g == 0 ? (C)0 : g * y; }
    static __device__ C result(C g, C y, C top, C along) {
        C d = g - along;
        return d == 0 ? (C)0 : y * d;
    }
};

struct LogSoftmaxGradient : OfTwo {
    static __device__ C term(C g, C y, C top) { return g; }
    static __device__ C result(C g, C y, C top, C total) {
        return total == 0 ? g : g - exp_of(y) * total;
    }
};

struct ToLength {  // brings each row to the length `number`
    static const bool FALLS = false, PAIR = false;
    static __device__ C base(C top) { return top; }
    static __device__ C prepared(C sum, C number) { return number / sqrt_of(sum + (C)1e-8); }
    static __device__ C term(C x, C other, C top) { return x * x; }
    static __device__ C result(C x, C other, C top, C factor) { return x * factor; }
};

typedef OPERATION Operation;

// The result of elements of a chunk.
INLINE Chunk results(const C *x, const C *other, C top, C known) {
    Chunk made;
#pragma unroll
    for (int j = 0; j < VECTOR; j++)
        made.at[j] = narrow<T>(Operation::result(x[j], Operation::PAIR ? other[j] : (C)0, top, known));
    return made;
}

INLINE void widen(C *to, Chunk chunk) {
#pragma unroll
    for (int j = 0; j < VECTOR; j++) to[j] = wide(chunk.at[j]);
}

// `n` are chunks of a row.
extern "C" __global__ void __launch_bounds__(512)
    KERNEL(rows)(const T *__restrict__ x, const T *__restrict__ other, T *__restrict__ y,
                 int64_t rows, int32_t n, double number, int32_t team) {
    __shared__ Falling<C> room[32];
    C *sums = (C *)room;
    int lane = threadIdx.x % team;
    int64_t row = (int64_t)blockIdx.x * (blockDim.x / team) + threadIdx.x / team;
    int end = row < rows ? n - lane : 0;  // chunks from the thread's first one on
    int64_t start = row < rows ? (row * n + lane) * VECTOR : 0;
    x += start, y += start;
    if (Operation::PAIR) other += start;
    C top = 0, sum = 0;
#if HELD
    C held[HELD][VECTOR], pair[Operation::PAIR ? HELD : 1][VECTOR];
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        int i = k * team;
        if (i < end) {
            widen(held[k], load<VECTOR>(x + i * VECTOR));
            if (Operation::PAIR) widen(pair[Operation::PAIR ? k : 0], load<VECTOR>(other + i * VECTOR));
        }
    }
    if (Operation::FALLS) {
        top = -infinite<C>();
#pragma unroll
        for (int k = 0; k < HELD; k++)
            if (k * team < end)
#pragma unroll
                for (int j = 0; j < VECTOR; j++) top = larger(top, held[k][j]);
        top = Operation::base(team_all<Larger>(top, -infinite<C>(), team, sums));
    }
#pragma unroll
    for (int k = 0; k < HELD; k++)
        if (k * team < end)
#pragma unroll
            for (int j = 0; j < VECTOR; j++)
                sum += Operation::term(
                    held[k][j], Operation::PAIR ? pair[Operation::PAIR ? k : 0][j] : (C)0, top);
    C known = Operation::prepared(team_all<Add>(sum, (C)0, team, sums), (C)number);
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        int i = k * team;
        if (i < end) store(y + i * VECTOR, results(held[k], pair[Operation::PAIR ? k : 0], top, known));
    }
#else
    C mine[VECTOR], its[VECTOR];
    if (Operation::FALLS) {
        Falling<C> falling = Falling<C>::nothing();
        for (int i = 0; i < end; i += team) {
            widen(mine, load<VECTOR>(x + i * VECTOR));
#pragma unroll
            for (int j = 0; j < VECTOR; j++) falling.add(mine[j]);
        }
        falling = team_all<JoinFalling>(falling, Falling<C>::nothing(), team, room);
        top = Operation::base(falling.top), sum = falling.sum;
    } else {
        for (int i = 0; i < end; i += team) {
            widen(mine, load<VECTOR>(x + i * VECTOR));
            if (Operation::PAIR) widen(its, load<VECTOR>(other + i * VECTOR));
#pragma unroll
            for (int j = 0; j < VECTOR; j++)
                sum += Operation::term(mine[j], Operation::PAIR ? its[j] : (C)0, top);
        }
        sum = team_all<Add>(sum, (C)0, team, sums);
    }
    C known = Operation::prepared(sum, (C)number);
    for (int i = 0; i < end; i += team) {
        widen(mine, load<VECTOR>(x + i * VECTOR));
        if (Operation::PAIR) widen(its, load<VECTOR>(other + i * VECTOR));
        store(y + i * VECTOR, results(mine, its, top, known));
    }
#endif
}

extern "C" __global__ void KERNEL(columns)(const T *__restrict__ x, const T *__restrict__ other,
                                           T *__restrict__ y, int32_t n, int64_t inner, double number) {
    __shared__ Falling<C> room[256];
    C *sums = (C *)room;
    int64_t tiles = (inner + blockDim.x - 1) / blockDim.x, outer = blockIdx.x / tiles;
    int64_t column = (blockIdx.x - outer * tiles) * blockDim.x + threadIdx.x;
    bool there = column < inner;
    int64_t start = there ? outer * n * inner + column : 0;
    x += start, y += start;
    if (Operation::PAIR) other += start;
    int first = there ? threadIdx.y : n;
    C top = 0, sum = 0;
    if (Operation::FALLS) {
        Falling<C> falling = Falling<C>::nothing();
#pragma unroll 4
        for (int i = first; i < n; i += blockDim.y) falling.add(wide(x[i * inner]));
        falling = column_all<JoinFalling>(falling, room);
        top = Operation::base(falling.top), sum = falling.sum;
    } else {
#pragma unroll 4
        for (int i = first; i < n; i += blockDim.y)
            sum += Operation::term(wide(x[i * inner]), Operation::PAIR ? wide(other[i * inner]) : (C)0, top);
        sum = column_all<Add>(sum, sums);
    }
    C known = Operation::prepared(sum, (C)number);
#pragma unroll 4
    for (int i = first; i < n; i += blockDim.y)
        y[i * inner] = narrow<T>(Operation::result(
            wide(x[i * inner]), Operation::PAIR ? wide(other[i * inner]) : (C)0, top, known));
}
