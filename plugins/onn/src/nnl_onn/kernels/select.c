/* Which tap a pool selects: `value[k][i]` is what it selects by, `chosen[i]` its number. */
#ifdef ONN_SELECTS
static __attribute__((noinline)) void find_values(const T *restrict p, int64_t room, T w, T b,
                                                  T *restrict value, int64_t count) {
    ONN_POINTERS
    ONN_CONSTANTS
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        ONN_LOAD
        ONN_VALUE
        value[i] = v;
    }
}

/* The rule itself, for values that are no numbers, and for many taps. */
static void choose_slowly(T value[][BLOCK], T *restrict best, M *restrict chosen, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        int64_t q = 0;
        while (q < TAPS && value[q][i] == value[q][i]) q++;
        if (q == TAPS) {
            for (q = 0; q < TAPS; q++) {
                int64_t below = 0, equal = 0;
                for (int64_t k = 0; k < TAPS; k++) {
                    below += value[k][i] < value[q][i];
                    equal += value[k][i] == value[q][i];
                }
                if (below <= RANK && RANK < below + equal) break;
            }
        }
        best[i] = value[q][i];
        chosen[i] = (M)q;
    }
}

static __attribute__((noinline)) void choose(T value[][BLOCK], T *restrict best,
                                             M *restrict chosen, int64_t count) {
#ifdef ONN_CHOOSE
    T odd = 0; /* not 0 where any value is no number, or infinite */
#pragma omp simd reduction(+ : odd)
    for (int64_t i = 0; i < count; i++) {
        ONN_CHOOSE
        best[i] = m;
        chosen[i] = q;
    }
    if (odd == 0) return;
#endif
    choose_slowly(value, best, chosen, count);
}

/* Pick the elements of the selected taps out of those that begin at tap[k], tap[k][0] where they are
   one for all placements: as bits, since compilers make branches of choices between loads. */
typedef M __attribute__((may_alias)) bits;

static __attribute__((noinline)) void pick(const T *const tap[], int is_one,
                                           const M *restrict chosen, T *restrict picked,
                                           int64_t count) {
#ifdef ONN_PICK
    ONN_TAPS
    bits *restrict to = (bits *)picked;
    if (is_one)
#pragma omp simd
        for (int64_t i = 0; i < count; i++) to[i] = ONN_PICK(0);
    else
#pragma omp simd
        for (int64_t i = 0; i < count; i++) to[i] = ONN_PICK(i);
#else
    for (int64_t i = 0; i < count; i++) picked[i] = tap[chosen[i]][is_one ? 0 : i];
#endif
}

/* Select taps of a connection at the placements of a block; pick their data unless `picked` is
   null. Weights begin at w and b. */
static void select_taps(const struct layout *l, const T *p, const T *w, const T *b, T *best,
                        M *chosen, T picked[][BLOCK], int64_t count) {
    T value[TAPS][BLOCK];
    for (int64_t k = 0; k < TAPS; k++)
        find_values(p + l->offset[k], l->room, w[k], b ? b[k] : 1, value[k], count);
    choose(value, best, chosen, count);
    if (!picked) return;
    const T *tap[TAPS];
    for (int plane = 0; plane < PLANES; plane++) {
        if (!(USED >> plane & 1)) continue;
        for (int64_t k = 0; k < TAPS; k++) tap[k] = p + plane * l->room + l->offset[k];
        pick(tap, 0, chosen, picked[plane], count);
    }
    for (int64_t k = 0; k < TAPS; k++) tap[k] = w + k;
    pick(tap, 1, chosen, picked[PLANES], count);
#ifdef HAS_B
    for (int64_t k = 0; k < TAPS; k++) tap[k] = b + k;
    pick(tap, 1, chosen, picked[PLANES + 1], count);
#endif
}
#endif
