// Pooling over windows of up to three axes, its gradients, and unpooling.
//
// Data is (rows, axes, inner) and results are (rows, places, inner); windows of length `kernel` begin
// at place * stride - before, and what of them lies outside the data is padding. All gradients gather:
// each element of the data goes through the windows that it is in, in order.
//
// Launch of all: a thread an element of the result, neighbours along the innermost axis. They are bound
// by memory: each reads and writes every element once, but for what overlapping windows read again
// from caches.

struct Pool {
    int length[3], places[3], kernel[3], stride[3], before[3], after[3];
    Divisor by_length[3], by_places[3], by_stride[3], by_inner;
};

// A range of taps of a window, or of windows of an element, along each axis.
struct Ranges {
    int row, inner, at[3], low[3], high[3];
};

INLINE Ranges decoded(uint32_t item, const Pool &pool, const Divisor (&lengths)[3]) {
    Ranges found;
    uint32_t rest = item;
    item = pool.by_inner.quotient(item);
    found.inner = rest - item * pool.by_inner.by;
#pragma unroll
    for (int axis = 2; axis >= 0; axis--) {
        const uint32_t next = lengths[axis].quotient(item);
        found.at[axis] = item - next * lengths[axis].by;
        item = next;
    }
    found.row = item;
    return found;
}

// The taps of a window that lie in the data; `at` becomes where the window begins.
INLINE Ranges taps_of(uint32_t item, const Pool &pool) {
    Ranges window = decoded(item, pool, pool.by_places);
#pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        const int start = window.at[axis] * pool.stride[axis] - pool.before[axis];
        window.at[axis] = start;
        window.low[axis] = max(0, -start);
        window.high[axis] = min(pool.kernel[axis], pool.length[axis] - start);
    }
    return window;
}

// The windows that an element is in; `at` becomes its distance from the beginning of window 0.
INLINE Ranges windows_of(uint32_t item, const Pool &pool) {
    Ranges element = decoded(item, pool, pool.by_length);
#pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        const int reached = element.at[axis] + pool.before[axis];
        const int first = reached - pool.kernel[axis] + pool.stride[axis];
        element.at[axis] = reached;
        element.low[axis] = first <= 0 ? 0 : pool.by_stride[axis].quotient(first);
        element.high[axis] =
            min(pool.places[axis], (int)pool.by_stride[axis].quotient(reached) + 1);
    }
    return element;
}

INLINE int64_t index_of(const Ranges &r, const int (&lengths)[3], int inner, int i, int j, int k) {
    return ((((int64_t)r.row * lengths[0] + i) * lengths[1] + j) * lengths[2] + k) * inner + r.inner;
}

#define FOR_RANGES(r, i, j, k)                                                                    \
    for (int i = r.low[0]; i < r.high[0]; i++)                                                    \
        for (int j = r.low[1]; j < r.high[1]; j++)                                                \
            for (int k = r.low[2]; k < r.high[2]; k++)

#ifdef T
typedef Computing<T>::type W;

INLINE T in_window(const T *x, const Pool &pool, const Ranges &window, int i, int j, int k) {
    return x[index_of(window, pool.length, pool.by_inner.by, window.at[0] + i, window.at[1] + j,
                      window.at[2] + k)];
}

extern "C" __global__ void KERNEL(largest)(const T *x, T *y, const Pool pool, int64_t count) {
    FOR_EACH(item, count) {
        const Ranges window = taps_of((uint32_t)item, pool);
        W top = -INFINITY;
        FOR_RANGES(window, i, j, k) top = larger(top, wide(in_window(x, pool, window, i, j, k)));
        y[item] = narrow<T>(top);
    }
}

// `divides`: by the size of the window, of which padding is a part or not.
extern "C" __global__ void KERNEL(total)(const T *x, T *y, const Pool pool, bool divides,
                                         bool including_pad, int64_t count) {
    FOR_EACH(item, count) {
        const Ranges window = taps_of((uint32_t)item, pool);
        W sum = 0;
        FOR_RANGES(window, i, j, k) sum += wide(in_window(x, pool, window, i, j, k));
        if (divides) {
            int size = 1;
#pragma unroll
            for (int axis = 0; axis < 3; axis++)
                size *= including_pad ? min(pool.kernel[axis], pool.length[axis] + pool.after[axis] -
                                                                   window.at[axis])
                                      : window.high[axis] - window.low[axis];
            sum /= (W)size;
        }
        y[item] = narrow<T>(sum);
    }
}

// Which tap of a window holds its maximum: the first, or the first NaN.
INLINE int winner_of(const T *x, const Pool &pool, const Ranges &window) {
    int winner = -1;
    W top = 0;
    FOR_RANGES(window, i, j, k) {
        const W value = wide(in_window(x, pool, window, i, j, k));
        if (winner < 0 || value > top || (value != value && top == top)) {
            winner = (i * pool.kernel[1] + j) * pool.kernel[2] + k;
            top = value;
        }
    }
    return winner;
}

extern "C" __global__ void KERNEL(winners)(const T *x, WINNER *winners, const Pool pool,
                                           int64_t count) {
    FOR_EACH(item, count)
        winners[item] = (WINNER)winner_of(x, pool, taps_of((uint32_t)item, pool));
}

// z = what of h stands where the winners of x are.
extern "C" __global__ void KERNEL(take_winners)(const T *h, const T *x, T *z, const Pool pool,
                                                int64_t count) {
    FOR_EACH(item, count) {
        const Ranges window = taps_of((uint32_t)item, pool);
        int tap = winner_of(x, pool, window);
        const int k = tap % pool.kernel[2];
        tap /= pool.kernel[2];
        z[item] = in_window(h, pool, window, tap / pool.kernel[1], tap % pool.kernel[1], k);
    }
}

// dx = the sum of dy over the windows that an element wins.
extern "C" __global__ void KERNEL(from_winners)(const T *dy, const WINNER *winners, T *dx,
                                                const Pool pool, int64_t count) {
    FOR_EACH(item, count) {
        const Ranges element = windows_of((uint32_t)item, pool);
        W sum = 0;
        FOR_RANGES(element, i, j, k) {
            const int64_t window = index_of(element, pool.places, pool.by_inner.by, i, j, k);
            const int tap = ((element.at[0] - i * pool.stride[0]) * pool.kernel[1] +
                             element.at[1] - j * pool.stride[1]) * pool.kernel[2] +
                            element.at[2] - k * pool.stride[2];
            if (winners[window] == tap) sum += wide(dy[window]);
        }
        dx[item] = narrow<T>(sum);
    }
}

// dx = the sum of dy over the windows that an element is in.
extern "C" __global__ void KERNEL(from_windows)(const T *dy, T *dx, const Pool pool, int64_t count) {
    FOR_EACH(item, count) {
        const Ranges element = windows_of((uint32_t)item, pool);
        W sum = 0;
        FOR_RANGES(element, i, j, k)
            sum += wide(dy[index_of(element, pool.places, pool.by_inner.by, i, j, k)]);
        dx[item] = narrow<T>(sum);
    }
}

#else
// y = each element of x over a block; BITS has the elements' size. `length` are the axes of y, `places`
// those of x.
extern "C" __global__ void KERNEL(repeated)(const BITS *x, BITS *y, const Pool pool, int64_t count) {
    FOR_EACH(item, count) {
        const Ranges element = decoded((uint32_t)item, pool, pool.by_length);
        int from[3];
#pragma unroll
        for (int axis = 0; axis < 3; axis++)
            from[axis] = pool.by_stride[axis].quotient(element.at[axis]);
        y[item] = x[index_of(element, pool.places, pool.by_inner.by, from[0], from[1], from[2])];
    }
}
#endif
