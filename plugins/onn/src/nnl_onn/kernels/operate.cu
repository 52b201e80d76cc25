// onn::operate: a thread for each element of the output. onn::operate_data, onn::operate_weight and
// both at once: a thread for each element of the data, which gathers from all placements that reach
// it, and a block for each connection, which sums over samples and placements. Where a pool selects,
// a stage before them notes the selected taps of some samples at a time.
#define ONN_UNUSED [[maybe_unused]]
static __device__ constexpr int KERNEL[] = ONN_KERNEL, STRIDE[] = ONN_STRIDE,
                               DILATION[] = ONN_DILATION;
constexpr int UNROLL = TAPS <= 32 ? TAPS : 1, THREADS = 256;

struct onn_layout {
    int batch, channels, maps, inner, each;  // input and output maps of a group
    int size[3], count[3];                   // of data, of placements
    int map, places;                         // products of these
};

static __device__ onn_layout onn_find_layout(const nnl_array<const T> &x,
                                             const nnl_array<const T> &w) {
    onn_layout l;
    l.batch = (int)x.shape[0], l.channels = (int)x.shape[1];
    l.maps = (int)w.shape[0], l.inner = (int)w.shape[1];
    l.each = l.maps / (l.channels / l.inner);
    l.map = l.places = 1;
    for (int axis = 0; axis < 3; axis++) {
        const int from = axis + (int)x.rank - 3;
        l.size[axis] = from < 2 ? 1 : (int)x.shape[from];
        l.count[axis] = (l.size[axis] - (KERNEL[axis] - 1) * DILATION[axis] - 1) / STRIDE[axis] + 1;
        l.map *= l.size[axis];
        l.places *= l.count[axis];
    }
    return l;
}

// Where a placement begins in a map.
static __device__ int onn_start(const onn_layout &l, int place) {
    const int x = place % l.count[2], y = place / l.count[2] % l.count[1];
    const int z = place / l.count[2] / l.count[1];
    return (z * STRIDE[0] * l.size[1] + y * STRIDE[1]) * l.size[2] + x * STRIDE[2];
}

// How far a tap is from where its placement begins.
ONN_INLINE int onn_offset(const onn_layout &l, int tap) {
    const int x = tap % KERNEL[2], y = tap / KERNEL[2] % KERNEL[1];
    const int z = tap / KERNEL[2] / KERNEL[1];
    return (z * DILATION[0] * l.size[1] + y * DILATION[1]) * l.size[2] + x * DILATION[2];
}

#ifdef ONN_SELECTS
static __device__ int onn_select_slowly(const T *value, T &best) {
    int q = 0;
    while (q < TAPS && value[q] == value[q]) q++;
    for (q = q < TAPS ? q - TAPS : 0; q >= 0; q++) {
        int below = 0, equal = 0;
        for (int k = 0; k < TAPS; k++) {
            below += value[k] < value[q];
            equal += value[k] == value[q];
        }
        if (below <= RANK && RANK < below + equal) break;
    }
    q = q < 0 ? q + TAPS : q;
    best = value[q];
    return q;
}

// The selected tap of a connection, and what it is selected by.
static __device__ int onn_select(const onn_layout &l, const T *x_, const T *w_, T &best) {
    T value[TAPS];
#pragma unroll UNROLL
    for (int k = 0; k < TAPS; k++) {
        ONN_UNUSED const T x = x_[onn_offset(l, k)], w = w_[k], b = 1;
        ONN_PLANES
        ONN_CONSTANTS
        ONN_VALUE
        value[k] = v;
    }
#ifdef ONN_CHOOSE
    T odd = 0;
    ONN_CHOOSE
    best = m;
    if (odd == 0) return q;
#endif
    return onn_select_slowly(value, best);
}
#endif

#ifndef ONN_GRADIENTS
static __device__ void onn_operate(nnl_array<T> to, nnl_array<const T> xs, nnl_array<const T> ws,
                                   nnl_array<const T> as, nnl_array<const T> bs) {
    const onn_layout l = onn_find_layout(xs, ws);
    const int size = (int)to.size;
    for (int at = blockIdx.x * THREADS + threadIdx.x; at < size; at += gridDim.x * THREADS) {
        const int place = at % l.places, o = at / l.places % l.maps, n = at / l.places / l.maps;
        const int first = n * l.channels + o / l.each * l.inner, start = onn_start(l, place);
        T sum = 0;
        for (int c = 0; c < l.inner; c++) {
            const int from = (first + c) * l.map + start, weight = (o * l.inner + c) * TAPS;
            const T *x_ = xs.data + from, *w_ = ws.data + weight;
#ifdef ONN_FOLLOWS
            T m;
            onn_select(l, x_, w_, m);
            ONN_Y
            sum += y;
#else
#ifdef ONN_SELECTS
            T best;
            const int k = onn_select(l, x_, w_, best);
            {
#else
#pragma unroll UNROLL
            for (int k = 0; k < TAPS; k++) {
#endif
                const int offset = onn_offset(l, k);
                ONN_UNUSED const T x = x_[offset], w = w_[k];
                ONN_UNUSED const T a = as.data ? as.data[from + offset] : 1;
                ONN_UNUSED const T b = bs.data ? bs.data[weight + k] : 1;
                ONN_PLANES
                ONN_CONSTANTS
                ONN_Y
                sum += y;
            }
#endif
        }
        to.data[at] = sum;
    }
}
#else
struct onn_arrays {
    const T *g, *x, *w, *a, *b;
    uint8_t *chosen;
    int first, last;  // samples that are dealt with
};

#ifdef ONN_SELECTS
static __device__ void onn_note(const onn_layout &l, const onn_arrays &s) {
    const int size = (s.last - s.first) * l.maps * l.inner * l.places;
    for (int at = blockIdx.x * THREADS + threadIdx.x; at < size; at += gridDim.x * THREADS) {
        const int place = at % l.places, c = at / l.places % l.inner;
        const int o = at / l.places / l.inner % l.maps, n = at / l.places / l.inner / l.maps;
        const int map = (s.first + n) * l.channels + o / l.each * l.inner + c;
        T best;
        s.chosen[at] = (uint8_t)onn_select(l, s.x + map * l.map + onn_start(l, place),
                                           s.w + (o * l.inner + c) * TAPS, best);
    }
}
#endif

#ifdef HAS_DX
// The placement whose tap reaches an element, or -1.
static __device__ int onn_reaching(const onn_layout &l, int element, int tap) {
    const int at[] = {element / l.size[2] / l.size[1], element / l.size[2] % l.size[1],
                      element % l.size[2]};
    const int k[] = {tap / KERNEL[2] / KERNEL[1], tap / KERNEL[2] % KERNEL[1], tap % KERNEL[2]};
    int place = 0;
    for (int axis = 0; axis < 3; axis++) {
        const int from = at[axis] - k[axis] * DILATION[axis];
        if (from < 0 || from % STRIDE[axis] || from / STRIDE[axis] >= l.count[axis]) return -1;
        place = place * l.count[axis] + from / STRIDE[axis];
    }
    return place;
}

static __device__ void onn_find_data(const onn_layout &l, const onn_arrays &s, T *to) {
    const int size = (s.last - s.first) * l.channels * l.map, before = s.first * l.channels * l.map;
    for (int at = blockIdx.x * THREADS + threadIdx.x; at < size; at += gridDim.x * THREADS) {
        const int element = at % l.map, channel = at / l.map % l.channels;
        const int n = at / l.map / l.channels, c = channel % l.inner;
        ONN_UNUSED const T x = s.x[before + at], a = 1;
        ONN_PLANES
        T sum = 0;
        for (int k = 0; k < TAPS; k++) {
            const int place = onn_reaching(l, element, k);
            if (place < 0) continue;
            for (int o = channel / l.inner * l.each; o < (channel / l.inner + 1) * l.each; o++) {
#ifdef ONN_SELECTS
                if (s.chosen[((n * l.maps + o) * l.inner + c) * l.places + place] != k) continue;
#endif
                const int weight = (o * l.inner + c) * TAPS + k;
                ONN_UNUSED const T w = s.w[weight], b = s.b ? s.b[weight] : 1;
                ONN_CONSTANTS
                ONN_DX
                sum += s.g[((s.first + n) * l.maps + o) * l.places + place] * dx;
            }
        }
        to[before + at] = sum;
    }
}
#endif

#ifdef HAS_DW
static __device__ void onn_find_weights(const onn_layout &l, const onn_arrays &s, T *to) {
    __shared__ T shares[THREADS];
    for (int at = blockIdx.x; at < l.maps * l.inner; at += gridDim.x) {
        const int c = at % l.inner, o = at / l.inner, group = o / l.each * l.inner;
        T sums[TAPS] = {};
        for (int i = threadIdx.x; i < (s.last - s.first) * l.places; i += THREADS) {
            const int place = i % l.places, n = s.first + i / l.places;
            const int from = (n * l.channels + group + c) * l.map + onn_start(l, place);
            const T g = s.g[(n * l.maps + o) * l.places + place];
#ifdef ONN_SELECTS
            const int k = s.chosen[(((n - s.first) * l.maps + o) * l.inner + c) * l.places + place];
            {
#else
#pragma unroll UNROLL
            for (int k = 0; k < TAPS; k++) {
#endif
                const int offset = onn_offset(l, k);
                ONN_UNUSED const T x = s.x[from + offset], a = s.a ? s.a[from + offset] : 1;
                ONN_UNUSED const T w = s.w[at * TAPS + k], b = 1;
                ONN_PLANES
                ONN_CONSTANTS
                ONN_DW
#ifdef ONN_SELECTS
#pragma unroll UNROLL
                for (int tap = 0; tap < TAPS; tap++) sums[tap] += tap == k ? g * dw : 0;
#else
                sums[k] += g * dw;
#endif
            }
        }
#pragma unroll UNROLL
        for (int k = 0; k < TAPS; k++) {
            shares[threadIdx.x] = sums[k];
            __syncthreads();
            for (int half = THREADS / 2; half; half /= 2) {
                if (threadIdx.x < half) shares[threadIdx.x] += shares[threadIdx.x + half];
                __syncthreads();
            }
            if (threadIdx.x == 0) {
                T *sum = to + at * TAPS + k;
                *sum = s.first ? *sum + shares[0] : shares[0];
            }
            __syncthreads();
        }
    }
}
#endif

static __device__ void onn_gradients(
#ifdef HAS_DX
    nnl_array<T> dx,
#endif
#ifdef HAS_DW
    nnl_array<T> dw,
#endif
#ifdef ONN_SELECTS
    nnl_array<uint8_t> chosen,
#endif
    nnl_array<const T> g, nnl_array<const T> x, nnl_array<const T> w,
#ifdef ONN_FACTOR
    nnl_array<const T> ONN_FACTOR,
#endif
    int32_t stage) {
    const onn_layout l = onn_find_layout(x, w);
    onn_arrays s = {g.data, x.data, w.data};
#ifdef ONN_FACTOR
    s.ONN_FACTOR = ONN_FACTOR.data;
#endif
    const int chunk = stage / KINDS;
    int kind = stage % KINDS;
    s.first = (int)((int64_t)l.batch * chunk / CHUNKS);
    s.last = (int)((int64_t)l.batch * (chunk + 1) / CHUNKS);
#ifdef ONN_SELECTS
    s.chosen = chosen.data;
    if (kind-- == 0) return onn_note(l, s);
#endif
#ifdef HAS_DX
    if (kind-- == 0) return onn_find_data(l, s, dx.data);
#endif
#ifdef HAS_DW
    if (kind-- == 0) return onn_find_weights(l, s, dw.data);
#endif
}
#endif
#undef ONN_UNUSED
