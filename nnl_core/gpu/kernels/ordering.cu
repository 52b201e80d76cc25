// Numbers in rising order, and which elements are chosen: what scattering is made of. All of it
// gives the same result each time: ranks are counted in order, never taken from a counter that
// threads race for.

[[maybe_unused]] constexpr int THREADS_ = 256, WARPS = THREADS_ / 32, ROUNDS = 8, TILE_ = THREADS_ * ROUNDS;

// Exclusive sums over a block of 256 threads; `total` is the sum of all.
INLINE uint32_t sums_before(uint32_t own, uint32_t *room, uint32_t &total) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t sum = own;
    for (int distance = 1; distance < 32; distance *= 2) {
        uint32_t other = __shfl_up_sync(0xffffffffu, sum, distance);
        if (lane >= distance) sum += other;
    }
    if (lane == 31) room[warp] = sum;
    __syncthreads();
    uint32_t before = 0;
    total = 0;
    for (int i = 0; i < WARPS; ++i) {
        uint32_t one = room[i];
        if (i < warp) before += one;
        total += one;
    }
    __syncthreads();
    return before + sum - own;
}

// Exclusive sums of any number of counts, in place: one block of 256 threads.
extern "C" __global__ void __launch_bounds__(256) KERNEL(sum_counts)(uint32_t *counts, int64_t count) {
    __shared__ uint32_t room[WARPS];
    int64_t each = (count + THREADS_ - 1) / THREADS_;
    int64_t first = threadIdx.x * each, stop = first + each < count ? first + each : count;
    uint32_t own = 0, total;
    for (int64_t i = first; i < stop; ++i) own += counts[i];
    uint32_t before = sums_before(own, room, total);
    for (int64_t i = first; i < stop; ++i) {
        uint32_t one = counts[i];
        counts[i] = before;
        before += one;
    }
}

#ifdef MASK
// How many of each tile of 2048 elements are not 0: a block for each tile.
extern "C" __global__ void __launch_bounds__(256) KERNEL(count_chosen)(
    Numbers mask, uint32_t *__restrict__ counts, int64_t count) {
    __shared__ uint32_t room[WARPS];
    int64_t first = (int64_t)blockIdx.x * TILE_ + threadIdx.x;
    uint32_t own = 0, total;
    for (int i = 0; i < ROUNDS; ++i) {
        int64_t at = first + i * THREADS_;
        own += at < count && truth_at(mask, at);
    }
    sums_before(own, room, total);
    if (threadIdx.x == 0) counts[blockIdx.x] = total;
}

// The places of the elements that are not 0, in order: as many as there is room for, or it is said
// that there are others.
extern "C" __global__ void __launch_bounds__(256) KERNEL(list_chosen)(
    Numbers mask, const uint32_t *__restrict__ before, int64_t *__restrict__ places, Failure bad,
    int64_t room_for, int64_t count) {
    __shared__ uint32_t room[WARPS];
    int64_t first = (int64_t)blockIdx.x * TILE_ + threadIdx.x;
    int64_t next = before[blockIdx.x];
    for (int i = 0; i < ROUNDS; ++i) {
        int64_t at = first + i * THREADS_;
        uint32_t own = at < count && truth_at(mask, at), total;
        int64_t place = next + sums_before(own, room, total);
        if (own && place < room_for) places[place] = at;
        next += total;
    }
    if (threadIdx.x == 0 && blockIdx.x == gridDim.x - 1 && next != room_for) bad.raise();
}
#endif

#ifdef SORTED
// Stable radix sort, eight bits at a time: count the digits of each tile, sum the counts, put each
// number where its digit begins. Without `ids` numbers are numbered from 0 on.
INLINE void count_digits(const uint32_t *keys, uint32_t *digits, int shift, int64_t first, int64_t stop) {
    digits[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t at = first + threadIdx.x; at < stop; at += THREADS_)
        atomicAdd(&digits[keys[at] >> shift & 255], 1u);
    __syncthreads();
}

// `next` is where the next number with each digit belongs.
INLINE void place_digits(
    const uint32_t *keys, const uint32_t *ids, uint32_t *new_keys, uint32_t *new_ids, uint32_t *next,
    uint32_t (*counts)[256], int shift, int64_t first, int64_t stop) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int64_t start = first; start < stop; start += THREADS_) {
        for (int i = 0; i < WARPS; ++i) counts[i][threadIdx.x] = 0;
        __syncthreads();
        int64_t at = start + threadIdx.x;
        bool exists = at < stop;
        uint32_t key = exists ? keys[at] : 0, id = ids && exists ? ids[at] : (uint32_t)at;
        uint32_t digit = key >> shift & 255;
        unsigned peers = __ballot_sync(0xffffffffu, exists);
        for (int bit = 0; bit < 8; ++bit) {
            bool own = digit >> bit & 1;
            unsigned others = __ballot_sync(0xffffffffu, own);
            peers &= own ? others : ~others;
        }
        uint32_t rank = __popc(peers & ((1u << lane) - 1));
        if (exists && rank == 0) counts[warp][digit] = __popc(peers);
        __syncthreads();
        uint32_t before = next[threadIdx.x];
        for (int i = 0; i < WARPS; ++i) {
            uint32_t one = counts[i][threadIdx.x];
            counts[i][threadIdx.x] = before;
            before += one;
        }
        next[threadIdx.x] = before;
        __syncthreads();
        if (exists) {
            uint32_t place = counts[warp][digit] + rank;
            new_keys[place] = key;
            new_ids[place] = id;
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(256) KERNEL(digit_counts)(
    const uint32_t *__restrict__ keys, uint32_t *__restrict__ counts, int32_t shift, int64_t count) {
    __shared__ uint32_t digits[256];
    int64_t first = (int64_t)blockIdx.x * TILE_, stop = first + TILE_ < count ? first + TILE_ : count;
    count_digits(keys, digits, shift, first, stop);
    counts[(int64_t)threadIdx.x * gridDim.x + blockIdx.x] = digits[threadIdx.x];
}

extern "C" __global__ void __launch_bounds__(256) KERNEL(digit_places)(
    const uint32_t *__restrict__ keys, const uint32_t *__restrict__ ids, uint32_t *__restrict__ new_keys,
    uint32_t *__restrict__ new_ids, const uint32_t *__restrict__ counts, int32_t shift, int64_t count) {
    __shared__ uint32_t next[256], tile[WARPS][256];
    int64_t first = (int64_t)blockIdx.x * TILE_, stop = first + TILE_ < count ? first + TILE_ : count;
    next[threadIdx.x] = counts[(int64_t)threadIdx.x * gridDim.x + blockIdx.x];
    place_digits(keys, ids, new_keys, new_ids, next, tile, shift, first, stop);
}

// All passes of a few numbers: one block. The result is in the second arrays after an odd number of
// passes.
extern "C" __global__ void __launch_bounds__(256) KERNEL(sort_few)(
    uint32_t *keys, uint32_t *ids, uint32_t *new_keys, uint32_t *new_ids, int32_t passes, int64_t count) {
    __shared__ uint32_t next[256], tile[WARPS][256], room[WARPS];
    for (int pass = 0; pass < passes; ++pass) {
        count_digits(keys, next, 8 * pass, 0, count);
        uint32_t own = next[threadIdx.x], total;
        next[threadIdx.x] = sums_before(own, room, total);
        place_digits(keys, pass ? ids : nullptr, new_keys, new_ids, next, tile, 8 * pass, 0, count);
        uint32_t *other = keys;
        keys = new_keys, new_keys = other;
        other = ids, ids = new_ids, new_ids = other;
    }
}
#endif

#ifdef COMBINE
// Where element n of `group`, repeated for each column (outer, inner), is in an array of
// (groups, outer, group, inner).
struct Layout {
    int64_t group, outer, inner;
};
INLINE int64_t place_of(Layout layout, int64_t n, int64_t column) {
    int64_t repetition = layout.inner == 1 ? column : column / layout.inner;
    int64_t inner = layout.inner == 1 ? 0 : column - repetition * layout.inner;
    int64_t number = n;
    int64_t own = split(number, layout.group);
    return ((number * layout.outer + repetition) * layout.group + own) * layout.inner + inner;
}

typedef Computing<T>::type Sum;
constexpr int PIECE = 32;

// Combines values that have the same key with what is at its place. Entries are sorted by key, a run
// of one key being cut where PIECE entries end: what begins and ends within is finished here, a
// thread for each entry (of which those at a beginning work) and column; of others the parts go to
// `firsts` (of what is at the beginning of PIECE entries) and `lasts`. Keys from `slots` on are of
// no place.
extern "C" __global__ void KERNEL(combine_runs)(
    const uint32_t *__restrict__ keys, const uint32_t *__restrict__ ids, const S *__restrict__ values,
    const WEIGHT *__restrict__ weights, T *__restrict__ y, Sum *__restrict__ firsts,
    Sum *__restrict__ lasts, Layout from, Layout to, int64_t taps, int64_t slots, int64_t rows,
    int64_t columns) {
    FOR_ROWS(entry, rows) {
        uint32_t key = keys[entry];
        bool head = entry == 0 || keys[entry - 1] != key, start = entry % PIECE == 0;
        if (key >= slots || !(head || start)) continue;
        int64_t stop = (entry / PIECE + 1) * PIECE;
        if (stop > rows) stop = rows;
        FOR_COLUMNS(column, columns) {
            Sum sum = Sum();
            int64_t at = entry;
            do {
                int64_t id = ids[at];
                Sum value = (Sum)wide(values[place_of(from, taps == 1 ? id : id / taps, column)]);
                if (weights) value = value * (Sum)wide(weights[id]);
                sum = at == entry ? value : COMBINE::of(sum, value);
                ++at;
            } while (at < stop && keys[at] == key);
            bool goes_on = at == stop && at < rows && keys[at] == key;
            if (head && !goes_on) {
                T *target = y + place_of(to, key, column);
                *target = narrow<T>(COMBINE::of((Sum)wide(*target), sum));
            } else {
                Sum *parts = start ? firsts : lasts;
                parts[entry / PIECE * columns + column] = sum;
            }
        }
    }
}

// Combines the parts of runs that go beyond PIECE entries, in order: a thread for each PIECE (of
// which those work where such a run begins) and column.
extern "C" __global__ void KERNEL(combine_parts)(
    const uint32_t *__restrict__ keys, T *__restrict__ y, const Sum *__restrict__ firsts,
    const Sum *__restrict__ lasts, Layout to, int64_t slots, int64_t count, int64_t rows, int64_t columns) {
    FOR_ROWS(piece, rows) {
        int64_t first = piece * PIECE, next = first + PIECE;
        if (next >= count) continue;
        uint32_t key = keys[next - 1];
        bool start = keys[first] == key;
        if (key >= slots || keys[next] != key || (start && first > 0 && keys[first - 1] == key)) continue;
        FOR_COLUMNS(column, columns) {
            const Sum *parts = start ? firsts : lasts;
            Sum sum = parts[piece * columns + column];
            int64_t other = piece + 1;
            do {
                sum = COMBINE::of(sum, firsts[other * columns + column]);
                ++other;
            } while (other * PIECE < count && keys[other * PIECE] == key);
            T *target = y + place_of(to, key, column);
            *target = narrow<T>(COMBINE::of((Sum)wide(*target), sum));
        }
    }
}
#endif
