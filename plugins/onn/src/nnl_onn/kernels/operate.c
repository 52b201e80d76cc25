/* onn::operate. A unit is one output map of one sample. */
#ifndef ONN_SELECTS
static __attribute__((noinline)) void add_tap(const T *restrict p, int64_t room, T w, T b,
                                              T *restrict sum, int64_t count) {
    ONN_POINTERS
    ONN_CONSTANTS
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        ONN_LOAD
        ONN_RESULTS
        sum[i] += y;
    }
}
#elif defined(ONN_FOLLOWS)
static __attribute__((noinline)) void add_selected(const T *restrict best, T *restrict sum,
                                                   int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        const T m = best[i];
        ONN_RESULTS
        sum[i] += y;
    }
}
#else
static __attribute__((noinline)) void add_picked(T picked[][BLOCK], T *restrict sum,
                                                 int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        ONN_PICKED
        ONN_RESULTS
        sum[i] += y;
    }
}
#endif

static void add_connection(const struct layout *l, const T *p, const T *w, const T *b, T *sum,
                           int64_t count) {
#ifndef ONN_SELECTS
    for (int64_t k = 0; k < TAPS; k++)
        add_tap(p + l->offset[k], l->room, w[k], b ? b[k] : 1, sum, count);
#else
    T best[BLOCK];
    M chosen[BLOCK];
#ifdef ONN_FOLLOWS
    select_taps(l, p, w, b, best, chosen, NULL, count);
    add_selected(best, sum, count);
#else
    T picked[PLANES + 2][BLOCK];
    select_taps(l, p, w, b, best, chosen, picked, count);
    add_picked(picked, sum, count);
#endif
#endif
}

int onn_operate(const struct nnl_array *inputs, struct nnl_array *outputs, int64_t begin,
                int64_t end) {
    const struct layout l = find_layout(inputs, inputs + 1);
    const T *x = inputs[0].data, *w = inputs[1].data, *a = inputs[2].data, *b = inputs[3].data;
    const int64_t map = l.size[0] * l.size[1] * l.size[2], weights = l.inner * TAPS;
    const int64_t places = l.count[0] * l.count[1] * l.count[2];
    const int by_rows = is_wasteful(&l);
    T *planes = malloc((l.channels * PLANES + 1) * l.room * sizeof(T));
    if (!planes) return 1;
    T *sum = planes + l.channels * PLANES * l.room;
    int64_t made = -1; /* the sample that planes are of */
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t n = unit / l.maps, o = unit % l.maps, first = o / l.each * l.inner;
        for (int64_t c = 0; n != made && c < l.channels; c++) {
            const int64_t at = (n * l.channels + c) * map;
            make_planes(&l, x + at, a ? a + at : NULL, planes + c * PLANES * l.room);
        }
        made = n;
        memset(sum, 0, l.room * sizeof(T));
        const int64_t blocks = count_blocks(&l, by_rows);
        for (int64_t number = 0; number < blocks; number++) {
            const struct block block = find_block(&l, by_rows, number);
            for (int64_t c = 0; c < l.inner; c++) {
                const T *p = planes + (first + c) * PLANES * l.room + block.begin;
                const int64_t at = o * weights + c * TAPS;
                add_connection(&l, p, w + at, b ? b + at : NULL, sum + block.begin, block.count);
            }
        }
        move_rows(&l, (T *)outputs[0].data + unit * places, sum, 1);
    }
    free(planes);
    return 0;
}
