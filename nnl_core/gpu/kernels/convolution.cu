// Convolution and its two adjoints as products of matrices that are never written out.
//
// A source (images, groups x channels, axes) is read by windows, each of which has a place in a target
// (images, groups x maps, axes). Place i and tap j of an axis read the source at
// i * scale + base + j * spread. So go a convolution (scale: its stride, spread: its dilation), and that
// part of its data gradient whose places all have the same taps (scale 1, spread negative); the weight
// gradient multiplies what the windows read with what stands at their places.
//
// AXES are the spatial axes, the last of three.

struct Windows {
    int groups, channels, maps, images;
    int source[3], scale[3], base[3], spread[3];
    int source_size, target_size;  // elements of a channel, of a map
    int origin, step[3];           // of places in a map of the target
    Divisor places[3], taps[3];    // in these and all following axes
};

// Where a window begins; far outside where there is none.
struct Position {
    const T *data;
    int at[AXES];
};
// How far a tap is from there; far outside where there is none.
struct __align__(16) Tap {
    int offset;
    int at[3];
};
const int ABSENT_PLACE = -(1 << 29), ABSENT_TAP = 1 << 30;

INLINE Position position_of(const Windows &w, const T *source, int group, int n, int count) {
    Position position;
    uint32_t place = n < count ? n : 0;
    const int image = w.places[3 - AXES].split(place);
    position.data = source + ((int64_t)image * w.groups + group) * w.channels * w.source_size;
    int offset = 0;
#pragma unroll
    for (int axis = 3 - AXES; axis < 3; axis++) {
        const int i = axis < 2 ? w.places[axis + 1].split(place) : place;
        const int at = i * w.scale[axis] + w.base[axis];
        position.at[axis - 3 + AXES] = at;
        offset = offset * w.source[axis] + at;
    }
    position.data += offset;
    if (n >= count) position.at[AXES - 1] = ABSENT_PLACE;
    return position;
}

INLINE Tap tap_of(const Windows &w, int k, int count) {
    Tap tap;
    uint32_t left = k < count ? k : 0;
    const int channel = w.taps[3 - AXES].split(left);
    int offset = 0;
    tap.at[0] = tap.at[1] = tap.at[2] = 0;
#pragma unroll
    for (int axis = 3 - AXES; axis < 3; axis++) {
        const int j = axis < 2 ? w.taps[axis + 1].split(left) : left;
        tap.at[axis] = j * w.spread[axis];
        offset = offset * w.source[axis] + tap.at[axis];
    }
    tap.offset = channel * w.source_size + offset;
    if (k >= count) tap.at[2] = ABSENT_TAP;
    return tap;
}

INLINE T read_at(const Windows &w, const Position &position, const Tap &tap) {
    bool inside = true;
#pragma unroll
    for (int axis = 3 - AXES; axis < 3; axis++)
        inside &= (unsigned)(position.at[axis - 3 + AXES] + tap.at[axis]) < (unsigned)w.source[axis];
    return inside ? position.data[tap.offset] : narrow<T>(0.f);
}

// B of a convolution: element (n, k) is what window n reads at tap k of all channels. A thread has one
// window; the taps of a tile stand in shared memory.
template <class F> struct WindowSource {
    const Windows &w;
    Position position;
    const T *source;
    int group, first, count, last;
    Tap *table;  // 2 x DEPTH
    const Tap *taps;

    __device__ __forceinline__ void prepare(int k0) {
        if (threadIdx.x < F::DEPTH)
            table[k0 / F::DEPTH % 2 * F::DEPTH + threadIdx.x] = tap_of(w, k0 + threadIdx.x, last);
    }
    __device__ __forceinline__ void bind_i(int i) {
        position = position_of(w, source, group, first + i, count);
    }
    __device__ __forceinline__ void begin(int k0) {
        taps = table + k0 / F::DEPTH % 2 * F::DEPTH - k0;
    }
    __device__ __forceinline__ T get_k(int k) const { return read_at(w, position, taps[k]); }
};

// B of a weight gradient: element (n, k) is what window k reads at tap n. A thread has one window a
// tile; the taps, which are the same for all tiles, stand in shared memory.
struct TapSource {
    const Windows &w;
    const T *source;
    int group, last;
    const Tap *table;
    Position position;

    __device__ __forceinline__ void prepare(int) {}
    __device__ __forceinline__ void bind_k(int k) {
        position = position_of(w, source, group, k, last);
    }
    __device__ __forceinline__ T get_i(int i) const { return read_at(w, position, table[i]); }
};

// A of a weight gradient: element (m, k) is what map m of the target has at place k, all images one
// after the other.
struct PlaceSource {
    const Windows &w;
    const T *data;
    int group, first, count, last;
    const T *bound;
    bool there;

    __device__ __forceinline__ const T *column(int k) const {
        uint32_t place = k;
        const int image = w.places[3 - AXES].split(place);
        return data + ((int64_t)image * w.groups + group) * w.maps * w.target_size + place;
    }
    __device__ __forceinline__ void prepare(int) {}
    __device__ __forceinline__ void bind_k(int k) {
        there = k < last;
        bound = column(there ? k : 0);
    }
    __device__ __forceinline__ T get_i(int i) const {
        return there && first + i < count ? bound[(int64_t)(first + i) * w.target_size]
                                          : narrow<T>(0.f);
    }
    __device__ __forceinline__ const T *at(int i, int k) const {
        return column(k) + (int64_t)(first + i) * w.target_size;
    }
};

// Where a place is in map 0 of its group.
INLINE T *target_of(const Windows &w, T *target, int group, uint32_t place) {
    const int image = w.places[3 - AXES].split(place);
    int at = w.origin;
#pragma unroll
    for (int axis = 3 - AXES; axis < 3; axis++) {
        const int i = axis < 2 ? w.places[axis + 1].split(place) : place;
        at += i * w.step[axis];
    }
    return target + ((int64_t)image * w.groups + group) * w.maps * w.target_size + at;
}

// Stores places of a target, with a bias for each map where there is one.
struct Places {
    const Windows &w;
    T *target;
    const T *bias;
    int group, count;
    bool vector;  // whether places of a map lie behind each other, in multiples of four

    template <int COUNT> struct Place {
        T *at[COUNT];
        int n;
    };
    template <int COUNT> __device__ __forceinline__ Place<COUNT> place(int n) {
        Place<COUNT> found;
        found.n = n;
#pragma unroll
        for (int e = 0; e < COUNT; e++)
            found.at[e] = vector && e ? found.at[0] + e
                                      : target_of(w, target, group, n + e < count ? n + e : 0);
        return found;
    }
    template <class W, int COUNT>
    __device__ __forceinline__ void store(const Place<COUNT> &place, int m, W (&values)[COUNT]) {
        if (m >= w.maps || place.n >= count) return;
        const int64_t offset = (int64_t)m * w.target_size;
        const W shift = bias ? (W)wide(bias[group * w.maps + m]) : 0;
        if (vector) {
            Run<T, COUNT> run;
#pragma unroll
            for (int e = 0; e < COUNT; e++) run.at[e] = narrow<T>(values[e] + shift);
            *(Run<T, COUNT> *)(place.at[0] + offset) = run;
        } else {
#pragma unroll
            for (int e = 0; e < COUNT; e++)
                if (place.n + e < count) place.at[e][offset] = narrow<T>(values[e] + shift);
        }
    }
};

#ifdef FRAME
typedef FRAME Frame;
#endif

#if defined(FRAME) && !defined(SLOPES)

// target = the windows of the source times a weight (groups, maps, inner), rows `pitch` apart.
//
// Launch: one dimension of THREADS threads, those of the frame, and its shared memory; blocks are tiles
// of maps, then of places, then groups. Reads the source about taps * maps / SIDE times, from caches
// where windows overlap; writes the target once; 2 * maps * inner operations a place.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    KERNEL(from_windows)(const T *source, const T *weight, const T *bias, T *target, const Windows w,
                         int inner, int pitch, bool vector) {
    extern __shared__ __align__(16) unsigned char room[];
    __shared__ Tap table[2 * Frame::DEPTH];
    const int count = w.images * w.places[3 - AXES].by;
    const int down = (w.maps + Frame::SIDE - 1) / Frame::SIDE;
    const int right = (count + Frame::SIDE - 1) / Frame::SIDE;
    unsigned block = blockIdx.x;
    const int m0 = block % down * Frame::SIDE;
    block /= down;
    const int n0 = block % right * Frame::SIDE, group = block / right;
    const T *rows = weight + (int64_t)group * w.maps * pitch;
    Frame frame;
    frame.clear();
    Runs<Frame, T, Straight<T>, true> a(Straight<T>{rows, pitch, 1, m0, w.maps, inner});
    typedef WindowSource<Frame> Source;
    AcrossElements<Frame, T, Source> b(Source{w, {}, source, group, n0, count, inner, table});
    multiply_tiles(frame, a, b, (Frame::Stored *)room, 0, inner);
    Places to{w, target, bias, group, count, vector};
    frame.store(to, m0, n0);
}

#elif defined(FRAME)
// result (slices, groups, maps, columns) = the target times the windows of the source, where columns
// are taps of channels; a slice is a range of all windows.
//
// Launch: as above; blocks are tiles of maps, then of columns, then groups, then slices. Reads the
// source about taps * maps / SIDE times; 2 * maps * columns operations a window.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    KERNEL(to_weight)(const T *source, const T *target, RESULT *result, const Windows w, int columns,
                      int slice) {
    extern __shared__ __align__(16) unsigned char room[];
    __shared__ Tap table[Frame::SIDE];
    const int count = w.images * w.places[3 - AXES].by;
    const int down = (w.maps + Frame::SIDE - 1) / Frame::SIDE;
    const int right = (columns + Frame::SIDE - 1) / Frame::SIDE;
    unsigned block = blockIdx.x;
    const int m0 = block % down * Frame::SIDE;
    block /= down;
    const int n0 = block % right * Frame::SIDE;
    block /= right;
    const int group = block % w.groups, part = block / w.groups;
    const int first = part * slice, last = min(count, first + slice);
    for (int n = threadIdx.x; n < Frame::SIDE; n += THREADS) table[n] = tap_of(w, n0 + n, columns);
    Frame frame;
    frame.clear();
    typedef PlaceSource Slopes;
    SLOPES a(Slopes{w, target, group, m0, w.maps, last});
    AlongElements<Frame, T, TapSource> b(TapSource{w, source, group, last, table});
    multiply_tiles(frame, a, b, (Frame::Stored *)room, first, last);
    result += ((int64_t)part * w.groups + group) * w.maps * columns;
    Rows<T, RESULT> to{result, nullptr, columns, w.maps, columns, false};
    frame.store(to, m0, n0);
}

#else  // few maps a group, of which a tile would be empty for the most part

// The same as `from_windows`, with all MAPS of a group in a thread; weight (groups, maps, pitch).
//
// Launch: 256 threads, in x a thread a place of all images, in y a group. Reads the source once, but
// for what caches do, and the weight from caches.
extern "C" __global__ void __launch_bounds__(256)
    KERNEL(few_from_windows)(const T *source, const T *weight, const T *bias, T *target,
                             const Windows w, int inner, int pitch) {
    typedef Computing<T>::type W;
    const int n = blockIdx.x * 256 + threadIdx.x, count = w.images * w.places[3 - AXES].by;
    for (int group = blockIdx.y; group < w.groups; group += gridDim.y) {
        const Position position = position_of(w, source, group, n, count);
        const T *rows = weight + (int64_t)group * MAPS * pitch;
        W sums[MAPS];
#pragma unroll
        for (int m = 0; m < MAPS; m++) sums[m] = 0;
        __shared__ Tap table[64];
        for (int k0 = 0; k0 < inner; k0 += 64) {
            __syncthreads();
            if (threadIdx.x < 64) table[threadIdx.x] = tap_of(w, k0 + threadIdx.x, inner);
            __syncthreads();
            const int depth = min(64, inner - k0);
            for (int k = 0; k < depth; k++) {
                const W x = wide(read_at(w, position, table[k]));
#pragma unroll
                for (int m = 0; m < MAPS; m++) sums[m] += x * wide(rows[m * pitch + k0 + k]);
            }
        }
        if (n < count) {
            T *to = target_of(w, target, group, n);
#pragma unroll
            for (int m = 0; m < MAPS; m++)
                to[(int64_t)m * w.target_size] =
                    narrow<T>(bias ? sums[m] + wide(bias[group * MAPS + m]) : sums[m]);
        }
    }
}

// The same as `to_weight`, a block for each tap of each group, with all MAPS: result (groups, maps,
// columns), without slices.
//
// Launch: 256 threads, in x a block a tap of all channels, in y a group. Reads the source and the
// target, which is cached, once a tap.
extern "C" __global__ void __launch_bounds__(256)
    KERNEL(few_to_weight)(const T *source, const T *target, T *result, const Windows w, int columns) {
    typedef Computing<T>::type W;
    __shared__ W room[32];
    const int column = blockIdx.x, places = w.places[3 - AXES].by, count = w.images * places;
    const Tap tap = tap_of(w, column, columns);
    for (int group = blockIdx.y; group < w.groups; group += gridDim.y) {
        W sums[MAPS];
#pragma unroll
        for (int m = 0; m < MAPS; m++) sums[m] = 0;
        PlaceSource slopes{w, target, group, 0, MAPS, count};
        for (int n = threadIdx.x; n < count; n += 256) {
            const W x = wide(read_at(w, position_of(w, source, group, n, count), tap));
            slopes.bind_k(n);
#pragma unroll
            for (int m = 0; m < MAPS; m++) sums[m] += x * wide(slopes.get_i(m));
        }
        for (int m = 0; m < MAPS; m++) {
            const W sum = block_all<Add>(sums[m], (W)0, room);
            if (threadIdx.x == 0)
                result[((int64_t)group * MAPS + m) * columns + column] = narrow<T>(sum);
        }
    }
}
#endif
