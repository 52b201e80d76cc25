// Sorting along one axis, and what follows from it. Equal elements stay in their order, and NaN counts
// as larger than all numbers: no two elements are equal in rank, so that results are always the same.
//
// `families/sorting.py` sees arrays as lines of n elements, and defines
//   T, C     an element, and what is compared
//   REVERSE  whether the largest comes first
//   SIZES    whether elements are compared by absolute value
//
// sort_tiles: a block sorts up to 2048 elements of a line in shared memory.
// merge:      a thread for each element of two neighbouring runs finds its place among both by
//             counting, with a binary search, how many of the other run come before it. Of each run
//             only as many elements are kept as the result has: memory-bound where it has few, else
//             12 to 20 bytes read and written for each element and doubling of the runs.

#ifdef REVERSE
static const int TILE = 2048;

struct Ranked {
    C key;
    int32_t place;  // in the line; those of n and more are not there, and come last
};

INLINE bool comes_before(Ranked a, Ranked b, int32_t n) {
    if (a.place >= n || b.place >= n) return a.place < b.place;
    bool a_nan = a.key != a.key, b_nan = b.key != b.key;
    if (a_nan != b_nan) return REVERSE ? a_nan : b_nan;
    if (!a_nan && a.key != b.key) return REVERSE ? a.key > b.key : a.key < b.key;
    return a.place < b.place;
}

// Where results are: `kept` elements of each line, `inner` apart. Either may be null.
struct Results {
    T *y;
    int64_t *index;
    int64_t inner, kept;
    __device__ __forceinline__ void write(int64_t line, int64_t rank, Ranked element) const {
        int64_t outer = line, column = split(outer, inner);
        int64_t at = (outer * kept + rank) * inner + column;
        if (y) y[at] = narrow<T>(element.key);
        if (index) index[at] = element.place;
    }
};

// Sorts tiles of `size` elements, a power of two, by size / 2 threads (at least a warp); keeps the
// first `held` of each in `keys` and `places`, or, where there is one tile in a line, in the results.
extern "C" __global__ void __launch_bounds__(1024)
    KERNEL(sort_tiles)(const T *__restrict__ x, T *y, int64_t *index, C *keys, int32_t *places,
                       int32_t n, int64_t inner, int64_t kept, int32_t size, int64_t held) {
    __shared__ Ranked tile[TILE];
    int64_t line = blockIdx.x, outer = line / inner;
    const T *start = x + outer * n * inner + (line - outer * inner);
    int32_t first = blockIdx.y * size;
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
        C key = first + i < n ? (C)wide(start[(int64_t)(first + i) * inner]) : (C)0;
        tile[i] = {SIZES && key < 0 ? -key : key, first + i};
    }
    __syncthreads();
    for (int run = 2; run <= size; run *= 2)
        for (int distance = run / 2; distance > 0; distance /= 2) {
            int t = threadIdx.x;
            if (t < size / 2) {
                int i = 2 * t - (t & (distance - 1));
                Ranked a = tile[i], b = tile[i + distance];
                if (comes_before(b, a, n) == ((i & run) == 0)) tile[i] = b, tile[i + distance] = a;
            }
            __syncthreads();
        }
    Results results = {y, index, inner, kept};
    for (int i = threadIdx.x; i < size && i < held && first + i < n; i += blockDim.x) {
        if (!keys) {
            results.write(line, i, tile[i]);
            continue;
        }
        int64_t at = (line * gridDim.y + blockIdx.y) * held + i;
        keys[at] = tile[i].key, places[at] = tile[i].place;
    }
}

// Merges runs of `span` elements, of which `held` are kept, to runs of which `next` are.
extern "C" __global__ void KERNEL(merge)(const C *__restrict__ keys, const int32_t *__restrict__ places,
                                         C *next_keys, int32_t *next_places, T *y, int64_t *index,
                                         int32_t n, int64_t inner, int64_t kept, int64_t runs,
                                         int64_t span, int64_t held, int64_t next, int64_t count) {
    Results results = {y, index, inner, kept};
    FOR_EACH(item, count) {
        int64_t line = item, i = split(line, held), run = split(line, runs);
        int64_t begin = run * span, other = run ^ 1, other_begin = other * span;
        int64_t there = n - begin < span ? n - begin : span;
        if (i >= there) continue;
        int64_t among = other_begin >= n ? 0 : n - other_begin < span ? n - other_begin : span;
        if (among > held) among = held;
        Ranked mine = {keys[item], places[item]};
        int64_t start = (line * runs + other) * held, low = 0, high = among;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (comes_before({keys[start + middle], places[start + middle]}, mine, n))
                low = middle + 1;
            else
                high = middle;
        }
        int64_t rank = i + low;
        if (rank >= next) continue;
        if (next_keys) {
            int64_t at = (line * ((runs + 1) / 2) + run / 2) * next + rank;
            next_keys[at] = mine.key, next_places[at] = mine.place;
        } else {
            results.write(line, rank, mine);
        }
    }
}

// 0 where the size is below the threshold.
extern "C" __global__ void KERNEL(prune)(const T *__restrict__ x, const T *__restrict__ threshold,
                                         T *__restrict__ y, int64_t count) {
    C least = wide(*threshold);
    FOR_EACH(i, count) {
        C size = wide(x[i]);
        y[i] = (size < 0 ? -size : size) < least ? narrow<T>((C)0) : x[i];
    }
}
#endif

#ifdef KEEPS
// Copies the elements at `kept` positions of each row of n; negative ones count from the end. A
// position beyond the row is of no element.
extern "C" __global__ void KERNEL(keep)(const T *__restrict__ x, Numbers index, T *__restrict__ y,
                                        int64_t n, int64_t kept, int64_t count) {
    FOR_EACH(i, count) {
        int64_t place = whole_at(index, i);
        if (place < 0) place += n;
        int64_t at = i / kept * n + place;
        if (place >= 0 && place < n) y[at] = x[at];
    }
}
#endif

#ifdef SEQUENCE
INLINE bool is_less(C a, C b) { return a < b || (b != b && a == a); }

// The place of each value in a sorted row: behind equal elements (`right`) or before them.
extern "C" __global__ void KERNEL(search)(const SEQUENCE *__restrict__ sorted,
                                          const T *__restrict__ values, int64_t *__restrict__ y,
                                          int64_t n, int64_t each, int32_t right, int64_t count) {
    FOR_EACH(i, count) {
        const SEQUENCE *row = sorted + i / each * n;
        C value = (C)wide(values[i]);
        int64_t low = 0, high = n;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            C element = (C)wide(row[middle]);
            if (right ? !is_less(value, element) : is_less(element, value))
                low = middle + 1;
            else
                high = middle;
        }
        y[i] = low;
    }
}
#endif
