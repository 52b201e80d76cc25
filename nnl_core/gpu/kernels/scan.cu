// Scans along one axis: running sums, products, extremes, recurrences. Memory-bound: each element is
// read once (twice, where lines are scanned in chunks) and each result written once.
//
// `families/scan.py` sees arrays as (outer, n, inner), and defines
//   T, C       an element, and what it is computed in
//   OUT, ACC   a result, and what is added up
//   OPERATION  one of the structures below: `of(a, b)` joins what comes before with what comes after
//
// rows:    inner is 1. A block goes through a row, or a chunk of it (grid.y), in tiles.
// columns: a thread goes through a line, or a chunk of it (grid.y).
// Where there are too few lines to fill the device, `..._totals` joins each chunk first, laid out
// (lines, chunks) for rows and (chunks, lines) for columns.

#ifdef OPERATION
static const int ITEMS = 4;  // of a thread in a tile

struct Adding {
    typedef ACC State;
    static __device__ State nothing() { return 0; }
    static __device__ State term(C x, C factor, int64_t place) { return (ACC)x; }
    static __device__ State of(State a, State b) { return a + b; }
    static __device__ ACC value(State a) { return a; }
};

struct Multiplying : Adding {
    static __device__ State nothing() { return 1; }
    static __device__ State of(State a, State b) { return a * b; }
};

#ifdef FLOATS
INLINE C infinite() { return (C)__longlong_as_double(0x7ff0000000000000ll); }

// Logarithms of sums of exponentials.
struct LogAdding : Adding {
    static __device__ State nothing() { return -infinite(); }
    static __device__ State of(State a, State b) {
        if (a == b) return a + (C)0.69314718055994530942;  // also of two infinities
        C top = larger(a, b), below = a > b ? b - a : a - b;
        return top + log1p_of(exp_of(below));
    }
};

// s = term + factor * (s before).
struct Recurring {
    struct State {
        C factor, sum;
    };
    static __device__ State nothing() { return {1, 0}; }
    static __device__ State term(C x, C factor, int64_t place) { return {factor, x}; }
    static __device__ State of(State a, State b) {
        return {a.factor * b.factor, b.sum + b.factor * a.sum};
    }
    static __device__ C value(State a) { return a.sum; }
};
#endif

// The most extreme so far, and where it was first met; NaN is more so than all. A negative place is
// none.
struct Rising {
    struct State {
        C value;
        int64_t place;
    };
    static __device__ State nothing() { return {0, -1}; }
    static __device__ State term(C x, C factor, int64_t place) { return {x, place}; }
    static __device__ bool exceeds(C a, C b) { return a > b; }
    template <class Order> static __device__ State later(State a, State b) {
        if (a.place < 0 || b.place < 0) return a.place < 0 ? b : a;
        bool replaced = a.value == a.value && (b.value != b.value || Order::exceeds(b.value, a.value));
        return replaced ? b : a;
    }
    static __device__ State of(State a, State b) { return later<Rising>(a, b); }
    static __device__ C value(State a) { return a.value; }
};

struct Sinking : Rising {
    static __device__ bool exceeds(C a, C b) { return a < b; }
    static __device__ State of(State a, State b) { return later<Sinking>(a, b); }
};

typedef OPERATION Operation;
typedef Operation::State State;

template <class S> INLINE int64_t place_of(S state) { return 0; }
INLINE int64_t place_of(Rising::State state) { return state.place; }

// One line of an array: its elements in the order of the scan.
struct Line {
    const T *x, *factors;
    OUT *y;
    int64_t *index;
    int64_t n, inner;
    bool reverse, exclusive;
    __device__ __forceinline__ int64_t at(int64_t k) const {
        return (reverse ? n - 1 - k : k) * inner;
    }
    __device__ __forceinline__ State term(int64_t k) const {
        int64_t i = at(k);
        return Operation::term(wide(x[i]), factors ? wide(factors[i]) : (C)0, reverse ? n - 1 - k : k);
    }
    // Writes the result of element k, given what comes before it and what comes with it.
    __device__ __forceinline__ void write(int64_t k, State before, State with) const {
        int64_t i = at(k);
        State state = exclusive ? before : with;
        y[i] = narrow<OUT>(Operation::value(state));
        if (index) index[i] = place_of(state);
    }
};

#define ARGUMENTS                                                                                 \
    const T *__restrict__ x, const T *__restrict__ factors, OUT *__restrict__ y,                  \
        int64_t *__restrict__ index, State *__restrict__ totals, int64_t lines, int64_t n,        \
        int64_t inner, int64_t chunks, int64_t each, int32_t reverse, int32_t exclusive

INLINE State shuffle_up(State x, int distance) {
    int words[(sizeof(State) + 3) / 4] = {};
    memcpy(words, &x, sizeof(State));
#pragma unroll
    for (int i = 0; i < (int)((sizeof(State) + 3) / 4); i++)
        words[i] = __shfl_up_sync(0xffffffffu, words[i], distance);
    memcpy(&x, words, sizeof(State));
    return x;
}

// Returns what all threads before this one have together; `all` becomes what the block has.
INLINE State before_this(State mine, State *room, State &all) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int distance = 1; distance < 32; distance *= 2) {
        State other = shuffle_up(mine, distance);
        if (lane >= distance) mine = Operation::of(other, mine);
    }
    if (lane == 31) room[warp] = mine;
    State before = shuffle_up(mine, 1);
    if (lane == 0) before = Operation::nothing();
    __syncthreads();
    State ahead = Operation::nothing();
    all = Operation::nothing();
    for (int i = 0; i < (int)blockDim.x / 32; i++) {
        if (i == warp) ahead = all;
        all = Operation::of(all, room[i]);
    }
    __syncthreads();
    return Operation::of(ahead, before);
}

// Goes through a chunk, tile by tile; threads have neighbouring elements.
template <bool WRITES>
INLINE State through_chunk(Line line, State carry, int64_t begin, int64_t end, State *room) {
    for (int64_t tile = begin; tile < end; tile += blockDim.x * ITEMS) {
        int64_t first = tile + threadIdx.x * ITEMS;
        State terms[ITEMS], mine = Operation::nothing();
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            terms[j] = first + j < end ? line.term(first + j) : Operation::nothing();
            mine = Operation::of(mine, terms[j]);
        }
        State all, before = Operation::of(carry, before_this(mine, room, all));
        if (WRITES) {
#pragma unroll
            for (int j = 0; j < ITEMS; j++) {
                State with = Operation::of(before, terms[j]);
                if (first + j < end) line.write(first + j, before, with);
                before = with;
            }
        }
        carry = Operation::of(carry, all);
    }
    return carry;
}

extern "C" __global__ void __launch_bounds__(256) KERNEL(rows_totals)(ARGUMENTS) {
    __shared__ State room[8];
    int64_t row = blockIdx.x, begin = blockIdx.y * each;
    int64_t end = begin + each < n ? begin + each : n, start = row * n;
    Line line = {x + start, factors ? factors + start : 0, 0, 0, n, 1, reverse != 0, false};
    State total = through_chunk<false>(line, Operation::nothing(), begin, end, room);
    if (threadIdx.x == 0) totals[row * chunks + blockIdx.y] = total;
}

extern "C" __global__ void __launch_bounds__(256) KERNEL(rows)(ARGUMENTS) {
    __shared__ State room[8];
    int64_t row = blockIdx.x, begin = blockIdx.y * each;
    int64_t end = begin + each < n ? begin + each : n, start = row * n;
    Line line = {x + start, factors ? factors + start : 0, y + start, index ? index + start : 0,
                 n,         1, reverse != 0, exclusive != 0};
    State carry = Operation::nothing();
    if (blockIdx.y) {  // no more chunks than threads
        bool earlier = threadIdx.x < blockIdx.y;
        before_this(earlier ? totals[row * chunks + threadIdx.x] : Operation::nothing(), room, carry);
    }
    through_chunk<true>(line, carry, begin, end, room);
}

extern "C" __global__ void __launch_bounds__(256) KERNEL(columns_totals)(ARGUMENTS) {
    int64_t which = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (which >= lines) return;
    int64_t begin = blockIdx.y * each, end = begin + each < n ? begin + each : n;
    int64_t outer = which, column = split(outer, inner), start = outer * n * inner + column;
    Line line = {x + start, factors ? factors + start : 0, 0, 0, n, inner, reverse != 0, false};
    State carry = Operation::nothing();
#pragma unroll 4
    for (int64_t k = begin; k < end; k++) carry = Operation::of(carry, line.term(k));
    totals[blockIdx.y * lines + which] = carry;
}

extern "C" __global__ void __launch_bounds__(256) KERNEL(columns)(ARGUMENTS) {
    int64_t which = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (which >= lines) return;
    int64_t begin = blockIdx.y * each, end = begin + each < n ? begin + each : n;
    int64_t outer = which, column = split(outer, inner), start = outer * n * inner + column;
    Line line = {x + start, factors ? factors + start : 0, y + start, index ? index + start : 0,
                 n,         inner, reverse != 0, exclusive != 0};
    State carry = Operation::nothing();
    for (int64_t i = 0; i < blockIdx.y; i++) carry = Operation::of(carry, totals[i * lines + which]);
#pragma unroll 4
    for (int64_t k = begin; k < end; k++) {
        State with = Operation::of(carry, line.term(k));
        line.write(k, carry, with);
        carry = with;
    }
}
#undef ARGUMENTS

#else
// Moves elements one place along an axis, a zero coming first; a thread for each element.
extern "C" __global__ void KERNEL(delay)(const T *__restrict__ x, T *__restrict__ y, int64_t n,
                                         int64_t inner, int32_t reverse, int64_t count) {
    FOR_EACH(i, count) {
        int64_t rest = i;
        split(rest, inner);
        int64_t k = split(rest, n);
        bool is_first = reverse ? k == n - 1 : k == 0;
        y[i] = is_first ? (T)0.0f : x[reverse ? i + inner : i - inner];
    }
}
#endif
