// Arrays with something around their elements, or between them: each result looks for what it is
// made of. Launched by `over_rows`, a thread for each result; what is read, is read once (or, by
// overlapping windows, from the cache).

#ifdef BORDERS
// Positions before 0 and beyond the end, as BORDERS says: 0 nothing, 1 the outermost element, 2 the
// array mirrored at its outermost element, 3 mirrored at its border. -1 for nothing.
INLINE int64_t inside(int64_t at, int64_t length) {
    if (at >= 0 && at < length) return at;
#if BORDERS == 0
    return -1;
#elif BORDERS == 1
    return at < 0 ? 0 : length - 1;
#else
    int64_t last = BORDERS == 2 ? length - 1 : 2 * length - 1;
    int64_t period = BORDERS == 2 ? 2 * last : 2 * length;
    if (period == 0) return 0;
    at %= period;
    if (at < 0) at += period;
    return at < length ? at : (BORDERS == 2 ? period : last) - at;
#endif
}

// Up to RANK axes, the `last` one being the columns.
struct Margins {
    int64_t last, length[RANK], before[RANK], source[RANK], stride[RANK];
};

// `length` of the result, `before` it begins, of `source` elements that are `stride` apart.
extern "C" __global__ void KERNEL(bordered)(
    const T *__restrict__ x, T *__restrict__ y, Margins axes, T fill, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows) {
        int64_t rest = row, from = 0;
        bool exists = true;
#pragma unroll
        for (int axis = RANK - 2; axis >= 0; --axis) {
            if (axis >= axes.last) continue;
            int64_t at = inside(split(rest, axes.length[axis]) - axes.before[axis], axes.source[axis]);
            exists = exists && at >= 0;
            from += at * axes.stride[axis];
        }
        FOR_COLUMNS(column, columns) {
            int64_t at = inside(column - axes.before[axes.last], axes.source[axes.last]);
            y[row * columns + column] = exists && at >= 0 ? x[from + at * axes.stride[axes.last]] : fill;
        }
    }
}
#endif

#ifdef FOLDED
// Sums along one axis of (outer, before + length + after, columns) what bordered copies of one
// element. Rows are (outer, length).
extern "C" __global__ void KERNEL(border_sums)(
    const S *__restrict__ g, T *__restrict__ y, int64_t length, int64_t before, int64_t after,
    int64_t rows, int64_t columns) {
    int64_t whole = before + length + after;
    FOR_ROWS(row, rows) {
        int64_t outer = row;
        int64_t at = split(outer, length);
        FOR_COLUMNS(column, columns) {
            const S *line = g + outer * whole * columns + column;
            Computing<S>::type sum = 0;
#if FOLDED == 1
            int64_t first = at == 0 ? 0 : before + at;
            int64_t stop = at == length - 1 ? whole : before + at + 1;
            for (int64_t p = first; p < stop; ++p) sum += wide(line[p * columns]);
#else
            // Those at a distance of whole periods, and their mirror images where these are others.
            int64_t last = length - 1, period = last ? 2 * last : 1, mirrored = period - at;
            for (int64_t p = (before + at) % period; p < whole; p += period)
                sum += wide(line[p * columns]);
            if (last && at != 0 && at != last)
                for (int64_t p = (before + mirrored) % period; p < whole; p += period)
                    sum += wide(line[p * columns]);
#endif
            y[row * columns + column] = narrow<T>(sum);
        }
    }
}
#endif

#ifdef SLICED
// Up to RANK axes, the `last` one being the columns.
struct Slices {
    int64_t last, length[RANK], start[RANK], step[RANK], count[RANK], stride[RANK];
};

// Zeros, but for the elements that a slice takes.
extern "C" __global__ void KERNEL(unsliced)(
    const T *__restrict__ g, T *__restrict__ y, Slices axes, T zero, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows) {
        int64_t rest = row, from = 0;
        bool taken = true;
#pragma unroll
        for (int axis = RANK - 2; axis >= 0; --axis) {
            if (axis >= axes.last) continue;
            int64_t away = split(rest, axes.length[axis]) - axes.start[axis], step = axes.step[axis];
            int64_t at = step == 1 ? away : away / step;
            taken = taken && at >= 0 && at < axes.count[axis] && at * step == away;
            from += at * axes.stride[axis];
        }
        FOR_COLUMNS(column, columns) {
            int64_t away = column - axes.start[axes.last], step = axes.step[axes.last];
            int64_t at = step == 1 ? away : away / step;
            bool own = taken && at >= 0 && at < axes.count[axes.last] && at * step == away;
            y[row * columns + column] = own ? g[from + at * axes.stride[axes.last]] : zero;
        }
    }
}
#endif

#ifdef WINDOWS
// Windows that slide over WINDOWS axes.
struct Windows {
    int64_t size[WINDOWS], kernel[WINDOWS], places[WINDOWS], stride[WINDOWS], before[WINDOWS],
        dilation[WINDOWS];
};

// (batch, channels, kernel, places) from (batch, channels, size). Rows are all but the last places.
extern "C" __global__ void KERNEL(unfolded)(
    const T *__restrict__ x, T *__restrict__ y, Windows w, T zero, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows) {
        int64_t rest = row, at[WINDOWS], from = 0, stride = 1;
        for (int axis = WINDOWS - 2; axis >= 0; --axis)
            at[axis] = split(rest, w.places[axis]) * w.stride[axis] - w.before[axis];
        at[WINDOWS - 1] = -w.before[WINDOWS - 1];
        for (int axis = WINDOWS - 1; axis >= 0; --axis)
            at[axis] += split(rest, w.kernel[axis]) * w.dilation[axis];
        bool exists = true;
        for (int axis = WINDOWS - 1; axis >= 0; --axis) {
            if (axis < WINDOWS - 1) {
                exists = exists && at[axis] >= 0 && at[axis] < w.size[axis];
                from += at[axis] * stride;
            }
            stride *= w.size[axis];
        }
        from += rest * stride;
        FOR_COLUMNS(column, columns) {
            int64_t last = at[WINDOWS - 1] + column * w.stride[WINDOWS - 1];
            bool own = exists && last >= 0 && last < w.size[WINDOWS - 1];
            y[row * columns + column] = own ? x[from + last] : zero;
        }
    }
}

#ifdef SUMMED
// The sum of what windows show of each element. Rows are (batch, channels, size but the last axis).
extern "C" __global__ void KERNEL(refolded)(
    const T *__restrict__ x, T *__restrict__ y, Windows w, int64_t rows, int64_t columns) {
    int64_t taps = 1, places = 1;
    for (int axis = 0; axis < WINDOWS; ++axis) taps *= w.kernel[axis], places *= w.places[axis];
    FOR_ROWS(row, rows) {
        int64_t rest = row, at[WINDOWS];
        for (int axis = WINDOWS - 2; axis >= 0; --axis) at[axis] = split(rest, w.size[axis]) + w.before[axis];
        const T *own = x + rest * taps * places;
        FOR_COLUMNS(column, columns) {
            at[WINDOWS - 1] = column + w.before[WINDOWS - 1];
            Computing<T>::type sum = 0;
            for (int64_t tap = 0; tap < taps; ++tap) {
                int64_t left = tap, from = 0, stride = 1;
                bool exists = true;
                for (int axis = WINDOWS - 1; axis >= 0; --axis) {
                    int64_t away = at[axis] - split(left, w.kernel[axis]) * w.dilation[axis];
                    int64_t place = away / w.stride[axis];
                    exists = exists && away >= 0 && place * w.stride[axis] == away && place < w.places[axis];
                    from += place * stride;
                    stride *= w.places[axis];
                }
                if (exists) sum += wide(own[tap * places + from]);
            }
            y[row * columns + column] = narrow<T>(sum);
        }
    }
}
#endif
#endif

#ifdef OVERLAPPED
// Adds up pieces of `size` that begin every `stride` elements: rows of `columns`.
extern "C" __global__ void KERNEL(overlapped)(
    const T *__restrict__ x, T *__restrict__ y, int64_t count, int64_t size, int64_t stride,
    int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows)
        FOR_COLUMNS(column, columns) {
            int64_t last = column / stride, first = column < size ? 0 : (column - size) / stride + 1;
            Computing<T>::type sum = 0;
            for (int64_t piece = last < count ? last : count - 1; piece >= first; --piece)
                sum += wide(x[(row * count + piece) * size + column - piece * stride]);
            y[row * columns + column] = narrow<T>(sum);
        }
}
#endif

#ifdef DIAGONALS
// Rows are those of matrices of `height`.
extern "C" __global__ void KERNEL(diagonal)(
    const T *__restrict__ x, T *__restrict__ y, T zero, int64_t height, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows) {
        int64_t matrix = row;
        int64_t at = split(matrix, height);
        FOR_COLUMNS(column, columns) y[row * columns + column] = column == at ? x[row] : zero;
    }
}

// `keep` 1: from diagonal k on; -1: up to it; 0: ones on it.
extern "C" __global__ void KERNEL(triangle)(
    const T *__restrict__ x, T *__restrict__ y, T zero, T one, int64_t height, int64_t k, int64_t keep,
    int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows) {
        int64_t matrix = row;
        int64_t at = split(matrix, height);
        FOR_COLUMNS(column, columns) {
            int64_t away = column - at - k, item = row * columns + column;
            if (keep)
                y[item] = away * keep >= 0 ? x[item] : zero;
            else
                y[item] = away == 0 ? one : zero;
        }
    }
}
#endif
