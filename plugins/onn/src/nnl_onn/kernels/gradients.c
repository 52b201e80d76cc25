/* onn::operate_data, onn::operate_weight, and both at once. A unit of the first stage is an input
   map, and some of the samples; its part of the gradient of weights is added to those of other
   samples in the second stage, a unit of which is an output map. */
#ifdef HAS_DX
#define IF_DX(...) __VA_ARGS__
#else
#define IF_DX(...)
#endif
#ifdef HAS_DW
#define IF_DW(...) __VA_ARGS__
#else
#define IF_DW(...)
#endif

#ifndef ONN_SELECTS
static __attribute__((noinline)) T add_tap(const T *restrict p, int64_t room, T w, T b,
                                           const T *restrict g, T *restrict to, int64_t count) {
    ONN_POINTERS
    ONN_CONSTANTS
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) {
        ONN_LOAD
        ONN_RESULTS
        IF_DX(to[i] += g[i] * dx;)
        IF_DW(sum += g[i] * dw;)
    }
    return sum;
}
#else
static __attribute__((noinline)) void find_shares(T picked[][BLOCK], const T *restrict g,
                                                  T *restrict of_x, T *restrict of_w,
                                                  int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        ONN_PICKED
        ONN_RESULTS
        IF_DX(of_x[i] = g[i] * dx;)
        IF_DW(of_w[i] = g[i] * dw;)
    }
}

static __attribute__((noinline)) T give_tap(const T *restrict of_x, const T *restrict of_w, M k,
                                            const M *restrict chosen, T *restrict to,
                                            int64_t count) {
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) {
        IF_DX(to[i] += chosen[i] == k ? of_x[i] : 0;)
        IF_DW(sum += chosen[i] == k ? of_w[i] : 0;)
    }
    return sum;
}
#endif

/* Add the gradients of one connection at the placements of a block to those of x, as a plane, and of
   weights. */
static void add_connection(const struct layout *l, const T *p, const T *w, const T *b, const T *g,
                           T *to, T *sums, int64_t count) {
#ifdef ONN_SELECTS
    T best[BLOCK], picked[PLANES + 2][BLOCK], of_x[BLOCK], of_w[BLOCK];
    M chosen[BLOCK];
    select_taps(l, p, w, b, best, chosen, picked, count);
    find_shares(picked, g, of_x, of_w, count);
    for (int64_t k = 0; k < TAPS; k++)
        sums[k] += give_tap(of_x, of_w, (M)k, chosen, to + l->offset[k], count);
#else
    for (int64_t k = 0; k < TAPS; k++) {
        const int64_t at = l->offset[k];
        sums[k] += add_tap(p + at, l->room, w[k], b ? b[k] : 1, g, to + at, count);
    }
#endif
}

static int is_finite(const T *values, int64_t count) {
    T odd = 0;
#pragma omp simd reduction(+ : odd)
    for (int64_t i = 0; i < count; i++) odd += values[i] - values[i];
    return odd == 0;
}

struct work {
    struct layout l;
    const T *x, *w, *a, *b;
    T *g, *p, *to, *sums; /* gradients of a sample's outputs as planes; planes of an input map, its
                             gradient, and that of its weights: (maps of its group, taps) */
};

/* Find the gradients of one input map. Between rows of placements there is nothing, and 0 times that
   is 0, but for infinities: where any come out, what lies between is left out. */
static void find_gradients(const struct work *work, int64_t group, int64_t c) {
    const struct layout *l = &work->l;
    for (int by_rows = is_wasteful(l); by_rows < 2; by_rows++) {
        memset(work->to, 0, l->room * sizeof(T));
        memset(work->sums, 0, l->each * TAPS * sizeof(T));
        const int64_t blocks = count_blocks(l, by_rows);
        for (int64_t number = 0; number < blocks; number++) {
            const struct block block = find_block(l, by_rows, number);
            const int64_t at = block.begin;
            for (int64_t k = 0; k < l->each; k++) {
                const int64_t o = group * l->each + k, tap = (o * l->inner + c) * TAPS;
                add_connection(l, work->p + at, work->w + tap, work->b ? work->b + tap : NULL,
                               work->g + o * l->room + at, work->to + at, work->sums + k * TAPS,
                               block.count);
            }
        }
        if (is_finite(work->to, l->room) && is_finite(work->sums, l->each * TAPS)) return;
    }
}

static void find_units(const struct work *work, const T *g, T *dx, T *parts, int64_t chunks,
                       int64_t begin, int64_t end) {
    const struct layout *l = &work->l;
    const int64_t map = l->size[0] * l->size[1] * l->size[2];
    const int64_t places = l->count[0] * l->count[1] * l->count[2];
    while (begin < end) {
        const int64_t chunk = begin / l->channels, low = begin % l->channels;
        const int64_t left = end - begin, all = l->channels - low, high = low + (left < all ? left : all);
        const int64_t first = l->batch * chunk / chunks, last = l->batch * (chunk + 1) / chunks;
        T *part = parts ? parts + chunk * l->maps * l->inner * TAPS : NULL;
        for (int64_t c = low; parts && c < high; c++)
            for (int64_t k = 0; k < l->each; k++) {
                const int64_t o = c / l->inner * l->each + k;
                memset(part + (o * l->inner + c % l->inner) * TAPS, 0, TAPS * sizeof(T));
            }
        for (int64_t n = first; n < last; n++) {
            for (int64_t o = 0; o < l->maps; o++)
                move_rows(l, (T *)g + (n * l->maps + o) * places, work->g + o * l->room, 0);
            for (int64_t c = low; c < high; c++) {
                const int64_t at = (n * l->channels + c) * map, group = c / l->inner;
                make_planes(l, work->x + at, work->a ? work->a + at : NULL, work->p);
                find_gradients(work, group, c % l->inner);
                IF_DX(move_map(l, dx + at, work->to, 1);)
                for (int64_t k = 0; parts && k < l->each * TAPS; k++) {
                    const int64_t o = group * l->each + k / TAPS;
                    part[(o * l->inner + c % l->inner) * TAPS + k % TAPS] += work->sums[k];
                }
            }
        }
        begin += high - low;
    }
}

int onn_gradients(const struct nnl_array *inputs, struct nnl_array *outputs, int64_t begin,
                  int64_t end) {
    struct work work = {find_layout(inputs + 1, inputs + 2), inputs[1].data, inputs[2].data};
    const struct layout *l = &work.l;
    work.a = AT_A ? inputs[AT_A].data : NULL;
    work.b = AT_B ? inputs[AT_B].data : NULL;
    T *dx = NULL, *parts = NULL;
    int64_t chunks = l->batch;
    IF_DX(dx = outputs[0].data;)
    IF_DW(const struct nnl_array *dw = outputs + AT_DW; parts = dw[1].data;)
    IF_DW(chunks = dw[1].size / (dw->size * (int64_t)sizeof(T));)
    const int64_t units = chunks * l->channels;
    IF_DW(for (; end > units; end--) {
        const int64_t each = l->inner * TAPS, at = (end - 1 - units) * each;
        if (end <= begin) return 0;
        for (int64_t k = at; k < at + each; k++) {
            T sum = 0;
            for (int64_t chunk = 0; chunk < chunks; chunk++) sum += parts[chunk * dw->size + k];
            ((T *)dw->data)[k] = sum;
        }
    })
    if (begin >= end) return 0;
    work.g = calloc((l->maps + PLANES + 1) * l->room + l->each * TAPS, sizeof(T));
    if (!work.g) return 1;
    work.p = work.g + l->maps * l->room;
    work.to = work.p + PLANES * l->room;
    work.sums = work.to + l->room;
    find_units(&work, inputs[0].data, dx, parts, chunks, begin, end);
    free(work.g);
    return 0;
}
