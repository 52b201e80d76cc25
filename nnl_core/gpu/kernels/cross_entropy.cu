// Losses and errors of classification. Memory-bound: scores are read once from memory and once from
// the cache, probabilities written once.
//
// `families/cross_entropy.py` sees scores as (outer, n, inner) with n classes, labels as (outer, inner),
// and defines
//   T, C    a score, and what it is computed in
//   W       a weight, OUT a result, of class_targets
//
// ..._rows:    inner is 1. A team of 1 to 32 threads or a block for each row (`team`, blockDim.x).
// ..._columns: blocks of (along inner, along the classes).

static const int64_t IGNORED = -1;

// Labels, and where to say that one is no whole number or of no class.
struct Labels {
    Numbers all;
    Failure bad;
};

// A label that counts, or IGNORED, as wrong ones are, too.
INLINE int64_t label_of(const Labels &labels, int64_t i, int64_t classes, int64_t ignored) {
    int64_t label = whole_at(labels.all, i);
    bool wrong = label == INT64_MIN || (label >= classes && label != ignored);
    if (wrong) labels.bad.raise();
    return wrong || label < 0 || label == ignored ? IGNORED : label;
}

// The threads of a row, or of a column: who one is, and how to combine.
struct OfRow {
    int lane, size;
    template <class Join, class S> __device__ S all(S x, S nothing, S *room) const {
        return team_all<Join>(x, nothing, size, room);
    }
};

struct OfColumn {
    int lane, size;
    template <class Join, class S> __device__ S all(S a, S nothing, S *room) const {
        return column_all<Join>(a, room);
    }
};

// Where the scores of one label are: n of them, `inner` apart; `there` if this is a label at all.
struct Place {
    int64_t label, start;
    bool there;
};

INLINE Place place_of_row(int64_t rows, int32_t n, int team) {
    int64_t row = (int64_t)blockIdx.x * (blockDim.x / team) + threadIdx.x / team;
    bool there = row < rows;
    return {there ? row : 0, there ? row * n : 0, there};
}

INLINE Place place_of_column(int32_t n, int64_t inner) {
    int64_t tiles = (inner + blockDim.x - 1) / blockDim.x, outer = blockIdx.x / tiles;
    int64_t column = (blockIdx.x - outer * tiles) * blockDim.x + threadIdx.x;
    bool there = column < inner;
    return {there ? outer * inner + column : 0, there ? outer * n * inner + column : 0, there};
}

#ifdef T
// The loss w (log(sum) - x) at the label, of which `smoothing` is spread over all classes.
template <class Team>
INLINE void loss(Team team, Place at, const T *__restrict__ x, Labels target,
                 const T *__restrict__ weight, T *__restrict__ y, T *__restrict__ p, int32_t n,
                 int64_t inner, int64_t ignored, double smoothing) {
    __shared__ Falling<C> room[256];
    C *sums = (C *)room;
    int end = at.there ? n : 0;
    x += at.start, p += at.start;
    Falling<C> falling = Falling<C>::nothing();
#pragma unroll 2
    for (int i = team.lane; i < end; i += team.size)
        falling.add(wide(x[i * inner]));
    falling = team.template all<JoinFalling>(falling, Falling<C>::nothing(), room);
    C top = falling.top, share = 1 / falling.sum, weighted = 0, weights = 0;
#pragma unroll 2
    for (int i = team.lane; i < end; i += team.size) {
        C below = wide(x[i * inner]) - top;
        p[i * inner] = narrow<T>(exp_of(below) * share);
        if (smoothing != 0) {
            C w = weight ? wide(weight[i]) : (C)1;
            weighted += below * w;
            weights += w;
        }
    }
    if (smoothing != 0) {
        weighted = team.template all<Add>(weighted, (C)0, sums);
        weights = team.template all<Add>(weights, (C)0, sums);
    }
    if (team.lane || !at.there) return;
    int64_t label = label_of(target, at.label, n, ignored);
    C total = log_of(falling.sum), result = 0;
    if (label >= 0) {
        result = total - (wide(x[label * inner]) - top);
        if (weight) result *= wide(weight[label]);
        if (smoothing != 0)
            result = (C)(1 - smoothing) * result + (C)smoothing * ((total * weights - weighted) / n);
    }
    y[at.label] = narrow<T>(result);
}

extern "C" __global__ void __launch_bounds__(512)
    KERNEL(loss_rows)(const T *x, Labels target, const T *weight, T *y, T *p, int64_t rows,
                      int32_t n, int64_t inner, int64_t ignored, double smoothing, int32_t team) {
    loss(OfRow{(int)threadIdx.x % team, team}, place_of_row(rows, n, team), x, target, weight, y, p,
         n, 1, ignored, smoothing);
}

extern "C" __global__ void __launch_bounds__(512)
    KERNEL(loss_columns)(const T *x, Labels target, const T *weight, T *y, T *p, int64_t rows,
                         int32_t n, int64_t inner, int64_t ignored, double smoothing, int32_t team) {
    loss(OfColumn{(int)threadIdx.y, (int)blockDim.y}, place_of_column(n, inner), x, target, weight,
         y, p, n, inner, ignored, smoothing);
}

// The sum of all weights, by one block.
extern "C" __global__ void KERNEL(total)(const T *__restrict__ weight, C *__restrict__ sum, int32_t n) {
    __shared__ C room[32];
    C a = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) a += wide(weight[i]);
    a = team_all<Add>(a, (C)0, blockDim.x, room);
    if (threadIdx.x == 0) *sum = a;
}

// g (p sum(t) - t), where t are the shares of the classes; a thread for each element. `weights` is
// the sum of all weights.
extern "C" __global__ void KERNEL(gradient)(const T *__restrict__ g, const T *__restrict__ p,
                                            Labels target,
                                            const T *__restrict__ weight, const C *__restrict__ weights,
                                            T *__restrict__ dx, int32_t n, int64_t inner,
                                            int64_t ignored, double smoothing, int64_t count) {
    FOR_EACH(i, count) {
        int64_t outer = i, column = split(outer, inner), at = split(outer, n);
        int64_t where = outer * inner + column, label = label_of(target, where, n, ignored);
        C own = 0, each = 0, all = 0;
        if (label >= 0) {
            own = (C)(1 - smoothing) * (weight ? wide(weight[label]) : (C)1);
            each = (C)smoothing / n;
            all = own + each * (weights ? *weights : (C)n);
            if (weight) each *= wide(weight[at]);
        }
        C t = at == label ? own + each : each, from = wide(g[where]);
        C change = from == 0 ? (C)0 : from * (wide(p[i]) * all - t);
        dx[i] = narrow<T>(change);
    }
}

// -log of the probability of the label; a thread for each label.
extern "C" __global__ void KERNEL(categorical)(const T *__restrict__ x, Labels target,
                                               T *__restrict__ y, int32_t n, int64_t inner,
                                               int64_t count) {
    FOR_EACH(i, count) {
        int64_t label = label_of(target, i, n, IGNORED), outer = i, column = split(outer, inner);
        C result = 0;
        if (label >= 0)  // at least the smallest normal float
            result = -log_of(larger(wide(x[(outer * n + label) * inner + column]), (C)0x1p-126));
        y[i] = narrow<T>(result);
    }
}

// Whether more than `most` classes score at least as high as the label, or are NaN.
template <class Team>
INLINE void top_n(Team team, Place at, const T *__restrict__ x, Labels target,
                  T *__restrict__ y, int32_t n, int64_t inner, int32_t most) {
    __shared__ int room[256];
    x += at.start;
    int64_t label = at.there ? label_of(target, at.label, n, IGNORED) : IGNORED;
    int above = 0;
    if (label >= 0) {
        C score = wide(x[label * inner]);
#pragma unroll 4
        for (int i = team.lane; i < n; i += team.size) above += !(wide(x[i * inner]) < score);
    }
    above = team.template all<Add>(above, 0, room);
    if (team.lane || !at.there) return;
    y[at.label] = narrow<T>((C)(above > most));
}

extern "C" __global__ void KERNEL(top_n_rows)(const T *x, Labels target, T *y, int64_t rows,
                                              int32_t n, int64_t inner, int32_t most, int32_t team) {
    top_n(OfRow{(int)threadIdx.x % team, team}, place_of_row(rows, n, team), x, target, y, n, 1, most);
}

extern "C" __global__ void KERNEL(top_n_columns)(const T *x, Labels target, T *y, int64_t rows,
                                                 int32_t n, int64_t inner, int32_t most, int32_t team) {
    top_n(OfColumn{(int)threadIdx.y, (int)blockDim.y}, place_of_column(n, inner), x, target, y, n,
          inner, most);
}
#endif

#ifdef OUT
// The share of each class in the loss; a thread for each element.
extern "C" __global__ void KERNEL(targets)(Labels target, const W *__restrict__ weight,
                                           OUT *__restrict__ y, int32_t n, int64_t inner,
                                           int64_t ignored, double smoothing, int64_t count) {
    FOR_EACH(i, count) {
        int64_t outer = i, column = split(outer, inner), at = split(outer, n);
        int64_t label = label_of(target, outer * inner + column, n, ignored);
        double share = (at == label ? 1 - smoothing : 0) + smoothing / n;
        if (weight) share *= wide(weight[at]);
        y[i] = narrow<OUT>(label == IGNORED ? 0 : share);
    }
}
#else
// Counts pairs of a label and the class that was chosen. Sums of integers do not depend on their
// order, so that atomic ones do no harm.
extern "C" __global__ void KERNEL(clear)(unsigned long long *table, int64_t count) {
    FOR_EACH(i, count) table[i] = 0;
}

extern "C" __global__ void KERNEL(confusion)(Labels target,
                                             const int64_t *__restrict__ chosen,
                                             unsigned long long *table, int32_t n, int64_t count) {
    FOR_EACH(i, count) {
        int64_t label = label_of(target, i, n, IGNORED);
        if (label >= 0) atomicAdd(table + label * n + chosen[i], 1ull);
    }
}
#endif
