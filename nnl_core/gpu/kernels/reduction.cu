// Reductions over any axes. Memory-bound: each element is read once (of what looks at them twice,
// the second time from the cache, where a row fits), each result is written once.
//
// `families/reduction.py` merges axes until kept and reduced ones take turns, and defines
//   T          an element, OUT a result
//   ACC        what is added up; C, what a term is computed in
//   OPERATION  what is made of the elements: one of the structures below
//   FIRST      nothing, or what has to be known of all elements before: another of them
//   PARTS      whether each result is reduced in several parts
//   VECTOR     elements that are read at once, along the last axis where that is reduced
//   INDEX      an integer that holds the number of elements
//   ROWS       whether the last axis is reduced
//   MAP(x)     what is made of an element before anything else (by default nothing)
// or, without OPERATION, T and INDEX, for single elements of reduced parts.
//
// rows:    the last axis is reduced: a team of 1 to 32 threads or a block goes through a row.
// columns: the last axis is kept: blocks of (along it, through the reduced ones).
// Where there are too few results to fill the device, each is reduced in several PARTS (grid.y), laid
// out (parts, results), and `join` combines these in their order.

// Where the items of up to three merged axes lie, the fastest first.
struct Axes {
    INDEX first, second, stride0, stride1, stride2;
    __device__ __forceinline__ INDEX at(INDEX i) const {
        if (i < first) return i * stride0;
        INDEX rest = i / first;
        i = (i - rest * first) * stride0;
        if (rest < second) return i + rest * stride1;
        INDEX last = rest / second;
        return i + (rest - last * second) * stride1 + last * stride2;
    }
};

#ifdef OPERATION
#ifndef MAP
#define MAP(x) (x)
#define NNL_OWN_MAP
#endif

#define INFINITE __longlong_as_double(0x7ff0000000000000ll)

// What is known of the whole: the result of FIRST for these elements, how many there are (NaN: none),
// and a number of the call.
struct Known {
    C first;
    double total, number;
};

struct Sum {
    typedef ACC State;
    static __device__ State nothing() { return 0; }
    static __device__ State term(C x, int64_t place, Known known) { return (ACC)x; }
    static __device__ State of(State a, State b) { return a + b; }
    static __device__ ACC finish(State a, Known known) { return a; }
};

struct Mean : Sum {
    static __device__ ACC finish(State a, Known known) { return a / (ACC)known.total; }
};

struct Product : Sum {
    static __device__ State nothing() { return 1; }
    static __device__ State of(State a, State b) { return a * b; }
};

// Least and greatest of a type, for whatever has fewer elements than threads.
template <class S> struct Least {
    static __device__ S value() { return (S)-1 < (S)0 ? (S)((S)1 << (sizeof(S) * 8 - 1)) : (S)0; }
};
template <> struct Least<float> {
    static __device__ float value() { return (float)-INFINITE; }
};
template <> struct Least<double> {
    static __device__ double value() { return -INFINITE; }
};
template <class S> struct Greatest {
    static __device__ S value() { return (S)~Least<S>::value(); }
};
template <> struct Greatest<bool> {
    static __device__ bool value() { return true; }
};
template <> struct Least<bool> {
    static __device__ bool value() { return false; }
};
template <> struct Greatest<float> {
    static __device__ float value() { return (float)INFINITE; }
};
template <> struct Greatest<double> {
    static __device__ double value() { return INFINITE; }
};

struct Largest {
    typedef C State;
    static __device__ State nothing() { return Least<C>::value(); }
    static __device__ State term(C x, int64_t place, Known known) { return x; }
    static __device__ State of(State a, State b) { return larger(a, b); }
    static __device__ State finish(State a, Known known) { return a; }
};

struct Smallest : Largest {
    static __device__ State nothing() { return Greatest<C>::value(); }
    static __device__ State of(State a, State b) { return smaller(a, b); }
};

struct Placed {
    C value;
    int64_t place;
};

// The first of the largest, or the first NaN; a negative place is none.
struct LargestPlace {
    typedef Placed State;
    static __device__ State nothing() { return {Least<C>::value(), -1}; }
    static __device__ State term(C x, int64_t place, Known known) { return {x, place}; }
    static __device__ bool exceeds(C a, C b) { return a > b; }
    template <class Order> static __device__ State better(State a, State b) {
        if (a.place < 0 || b.place < 0) return a.place < 0 ? b : a;
        bool a_nan = a.value != a.value, b_nan = b.value != b.value;
        if (a_nan != b_nan) return a_nan ? a : b;
        if (!a_nan && a.value != b.value) return Order::exceeds(a.value, b.value) ? a : b;
        return a.place < b.place ? a : b;
    }
    static __device__ State of(State a, State b) { return better<LargestPlace>(a, b); }
    static __device__ int64_t finish(State a, Known known) { return a.place; }
};

struct SmallestPlace : LargestPlace {
    static __device__ bool exceeds(C a, C b) { return a < b; }
    static __device__ State of(State a, State b) { return better<SmallestPlace>(a, b); }
};

#ifdef FLOATS
// The greatest size, 0 of nothing; infinity and 0 count as 1, to divide by.
struct Scale : Largest {
    static __device__ State nothing() { return 0; }
    static __device__ State term(C x, int64_t place, Known known) { return abs_of(x); }
    static __device__ State finish(State a, Known known) {
        return a == 0 || a == (C)INFINITE ? (C)1 : a;
    }
};

// The norm of order `number`, from parts of the greatest.
struct Norm : Sum {
    static __device__ State term(C x, int64_t place, Known known) {
        C size = abs_of(x) / known.first;
        return known.number == 2 ? size * size : known.number == 1 ? size : pow_of(size, (C)known.number);
    }
    static __device__ ACC finish(State a, Known known) {
        ACC root = known.number == 2   ? sqrt_of(a)
                   : known.number == 1 ? a
                                       : pow_of(a, (ACC)(1 / known.number));
        return known.first * root;
    }
};

// The mean square of what differs from the mean; `number` divides.
struct Variance : Sum {
    static __device__ State term(C x, int64_t place, Known known) {
        return (x - known.first) * (x - known.first);
    }
    static __device__ ACC finish(State a, Known known) { return a / (ACC)known.number; }
};

struct Deviation : Variance {
    static __device__ ACC finish(State a, Known known) { return sqrt_of(a / (ACC)known.number); }
};

// What is taken from the exponents.
struct Top : Largest {
    static __device__ State finish(State a, Known known) { return a - a == 0 ? a : (C)0; }
};

struct LogSum : Sum {
    static __device__ State term(C x, int64_t place, Known known) { return exp_of(x - known.first); }
    static __device__ ACC finish(State a, Known known) { return known.first + log_of(a); }
};
#endif

typedef Vector<T, VECTOR> Chunk;

#ifdef ROWS
static const int AT_ONCE = VECTOR > 4 ? 2 : 4;  // chunks that a thread waits for

// Goes through chunks begin + lane, ... of a row.
template <class Operation>
INLINE typename Operation::State through_row(const T *__restrict__ x, Axes reduced, INDEX begin,
                                             INDEX end, int lane, int team, Known known) {
    typedef typename Operation::State State;
    State a[VECTOR];
#pragma unroll
    for (int j = 0; j < VECTOR; j++) a[j] = Operation::nothing();
    INDEX i = begin + lane;
    for (; i + (AT_ONCE - 1) * (INDEX)team < end; i += AT_ONCE * team) {
        Chunk chunks[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) chunks[k] = load<VECTOR>(x + reduced.at(i + k * team));
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
#pragma unroll
            for (int j = 0; j < VECTOR; j++) {
                int64_t place = (int64_t)(i + k * team) * VECTOR + j;
                a[j] = Operation::of(a[j], Operation::term((C)MAP(wide(chunks[k].at[j])), place, known));
            }
    }
    for (; i < end; i += team) {
        Chunk chunk = load<VECTOR>(x + reduced.at(i));
#pragma unroll
        for (int j = 0; j < VECTOR; j++) {
            int64_t place = (int64_t)i * VECTOR + j;
            a[j] = Operation::of(a[j], Operation::term((C)MAP(wide(chunk.at[j])), place, known));
        }
    }
#pragma unroll
    for (int width = VECTOR / 2; width > 0; width /= 2)
#pragma unroll
        for (int j = 0; j < width; j++) a[j] = Operation::of(a[j], a[j + width]);
    return a[0];
}
#else
// Goes through elements begin + lane, ... of a column.
template <class Operation>
INLINE typename Operation::State through_column(const T *__restrict__ x, Axes reduced, INDEX begin,
                                                INDEX end, int lane, int team, Known known) {
    typename Operation::State a = Operation::nothing();
    INDEX i = begin + lane;
    for (; i + 3 * (INDEX)team < end; i += 4 * team) {
        T elements[4];
#pragma unroll
        for (int k = 0; k < 4; k++) elements[k] = x[reduced.at(i + k * team)];
#pragma unroll
        for (int k = 0; k < 4; k++)
            a = Operation::of(a, Operation::term((C)MAP(wide(elements[k])), i + k * team, known));
    }
    for (; i < end; i += team)
        a = Operation::of(a, Operation::term((C)MAP(wide(x[reduced.at(i)])), i, known));
    return a;
}
#endif

// `first` is what FIRST made of each result's elements, null where it was not asked.
#define ARGUMENTS                                                                                 \
    const T *__restrict__ x, Target *to, const C *__restrict__ first, INDEX results, INDEX count,       \
        INDEX each, Axes kept, Axes reduced, double total, double number
#define GIVEN x, first, results, count, each, kept, reduced, total, number

#ifdef ROWS
// Rows: `count` chunks of each of `results` rows, in parts of `each` chunks.
template <class Operation, class Write>
INLINE void rows(const T *x, const C *first, INDEX results, INDEX count, INDEX each, Axes kept,
                 Axes reduced, double total, double number, int team, Write write) {
    __shared__ typename Operation::State room[32];
    int lane = threadIdx.x % team;
    INDEX row = (INDEX)blockIdx.x * (blockDim.x / team) + threadIdx.x / team;
    INDEX begin = (INDEX)blockIdx.y * each;
    INDEX end = row >= results ? begin : begin + each < count ? begin + each : count;
    const T *start = x + (row < results ? kept.at(row) : 0);
    Known known = {first && row < results ? first[row] : (C)0, total, number};
#ifdef FIRST
    if (!first) {
        __shared__ typename FIRST::State first_room[32];
        known.first = FIRST::finish(
            team_all<FIRST>(through_row<FIRST>(start, reduced, begin, end, lane, team, known),
                            FIRST::nothing(), team, first_room), known);
    }
#endif
    typename Operation::State a = team_all<Operation>(
        through_row<Operation>(start, reduced, begin, end, lane, team, known),
        Operation::nothing(), team, room);
    if (lane == 0 && row < results) write(row, a, known);
}
#else
// Columns: `width` neighbours, for each item of the other kept axes.
template <class Operation, class Write>
INLINE void columns(const T *x, const C *first, INDEX results, INDEX count, INDEX each, Axes kept,
                    Axes reduced, double total, double number, INDEX width, Write write) {
    __shared__ typename Operation::State room[256];
    INDEX tiles = (width + blockDim.x - 1) / blockDim.x;
    INDEX outer = blockIdx.x / tiles;
    INDEX column = (blockIdx.x - outer * tiles) * blockDim.x + threadIdx.x;
    INDEX at = outer * width + column;
    bool there = column < width;
    INDEX begin = (INDEX)blockIdx.y * each;
    INDEX end = !there ? begin : begin + each < count ? begin + each : count;
    const T *start = x + kept.at(outer) + column;
    Known known = {first && there ? first[at] : (C)0, total, number};
#ifdef FIRST
    if (!first) {
        __shared__ typename FIRST::State first_room[256];
        typename FIRST::State all = column_all<FIRST>(
            through_column<FIRST>(start, reduced, begin, end, threadIdx.y, blockDim.y, known),
            first_room);
        known.first = FIRST::finish(all, known);
    }
#endif
    typename Operation::State a = column_all<Operation>(
        through_column<Operation>(start, reduced, begin, end, threadIdx.y, blockDim.y, known), room);
    if (threadIdx.y == 0 && there) write(at, a, known);
}
#endif

#ifdef PARTS
typedef OPERATION::State Target;
#else
typedef OUT Target;
#endif

struct Write {
    Target *to;
    INDEX results;
    template <class State> __device__ void operator()(INDEX at, State a, Known known) const {
#ifdef PARTS
        to[blockIdx.y * results + at] = a;
#else
        to[at] = narrow<OUT>(OPERATION::finish(a, known));
#endif
    }
};

#ifdef ROWS
extern "C" __global__ void __launch_bounds__(512) KERNEL(rows)(ARGUMENTS, int32_t team) {
    rows<OPERATION>(GIVEN, team, Write{to, results});
}
#else
extern "C" __global__ void KERNEL(columns)(ARGUMENTS, INDEX width) {
    columns<OPERATION>(GIVEN, width, Write{to, results});
}
#endif

#ifdef PARTS
// A team of threads for each result; parts of one result lie `results` apart.
extern "C" __global__ void KERNEL(join)(const OPERATION::State *__restrict__ parts, OUT *y,
                                        const C *__restrict__ first, INDEX results, INDEX count,
                                        double total, double number, int32_t team) {
    typedef OPERATION::State State;
    __shared__ State room[32];
    INDEX at = (INDEX)blockIdx.x * (blockDim.x / team) + threadIdx.x / team;
    int lane = threadIdx.x % team;
    State a = OPERATION::nothing();
    if (at < results)
        for (INDEX i = lane; i < count; i += team) a = OPERATION::of(a, parts[i * results + at]);
    a = team_all<OPERATION>(a, OPERATION::nothing(), team, room);
    if (lane || at >= results) return;
    Known known = {first ? first[at] : (C)0, total, number};
    y[at] = narrow<OUT>(OPERATION::finish(a, known));
}
#endif

#undef INFINITE
#undef ARGUMENTS
#undef GIVEN
#ifdef NNL_OWN_MAP
#undef NNL_OWN_MAP
#undef MAP
#endif

#else
// Of each of `results` parts of an array, the element where `index` says; negative ones count from the
// end of the part, those beyond it are of no element.
INLINE INDEX place_of(INDEX at, Numbers index, Axes kept, Axes reduced, INDEX count) {
    int64_t place = whole_at(index, at);
    if (place < 0) place += count;
    return place < 0 || place >= count ? -1 : kept.at(at) + reduced.at((INDEX)place);
}

extern "C" __global__ void KERNEL(pick)(const T *__restrict__ x, Numbers index, T *__restrict__ y,
                                        Axes kept, Axes reduced, INDEX count, int64_t results) {
    FOR_EACH(at, results) {
        INDEX place = place_of(at, index, kept, reduced, count);
        y[at] = place < 0 ? (T)0.0f : x[place];
    }
}

extern "C" __global__ void KERNEL(place)(const T *__restrict__ g, Numbers index, T *__restrict__ y,
                                         Axes kept, Axes reduced, INDEX count, int64_t results) {
    FOR_EACH(at, results) {
        INDEX place = place_of(at, index, kept, reduced, count);
        if (place >= 0) y[place] = g[at];
    }
}
#endif
