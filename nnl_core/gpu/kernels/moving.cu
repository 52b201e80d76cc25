// Parts of examples by lists of positions along each axis: row e of `rows` has those of example e,
// one axis after the other; axes below BASE, which number the examples, have theirs in row 0.
// Launched by `over_rows`. A negative position is none, and reads as `fill`.
struct Lists {
    int64_t length[RANK], start[RANK], given[RANK], stride[RANK];
};

#ifdef PICKED
// `length` of the result, where its list starts, `given` length and stride of x.
extern "C" __global__ void KERNEL(pick)(
    const T *__restrict__ x, Numbers lists, T *__restrict__ y, Lists axes, int64_t width,
    T fill, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows) {
        int64_t at[RANK], rest = row, example = 0, from = 0;
        for (int axis = RANK - 2; axis >= 0; --axis) at[axis] = split(rest, axes.length[axis]);
        bool exists = true;
        for (int axis = 0; axis < RANK - 1; ++axis) {
            int64_t own = axis < BASE ? 0 : example;
            int64_t place = whole_at(lists, own * width + axes.start[axis] + at[axis]);
            if (axis < BASE) example = example * axes.length[axis] + at[axis];
            exists = exists && place >= 0 && place < axes.given[axis];
            from += place * axes.stride[axis];
        }
        int64_t last = (RANK - 1 < BASE ? 0 : example) * width + axes.start[RANK - 1];
        FOR_COLUMNS(column, columns) {
            int64_t place = whole_at(lists, last + column);
            T found = fill;
            if (exists && place >= 0 && place < axes.given[RANK - 1]) found = x[from + place * axes.stride[RANK - 1]];
            y[row * columns + column] = found;
        }
    }
}
#else
// The first position, and that after the last one, that takes each place along one axis: those that
// may put something there. Rows are examples, columns places.
extern "C" __global__ void KERNEL(spans)(
    Numbers lists, int2 *__restrict__ spans, int64_t start, int64_t length, int64_t width,
    int64_t place_start, int64_t places, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows) {
        int64_t list = row * width + start;
        FOR_COLUMNS(column, columns) {
            int first = 0, stop = 0;
            for (int64_t at = 0; at < length; ++at)
                if (whole_at(lists, list + at) == column) {
                    if (stop == 0) first = (int)at;
                    stop = (int)at + 1;
                }
            spans[row * places + place_start + column] = make_int2(first, stop);
        }
    }
}

struct Put {
    const T *g;
    Numbers lists;
    const int2 *spans;
    int64_t width, places, at[RANK];
};

template <int AXIS> INLINE Computing<T>::type collected(const Put &put, const Lists &axes, int64_t from, int64_t example) {
    if constexpr (AXIS == RANK) {
        return wide(put.g[from]);
    } else {
        int64_t own = AXIS < BASE ? 0 : example;
        int2 span = put.spans[own * put.places + axes.start[AXIS] + put.at[AXIS]];
        int64_t list = own * put.width + axes.given[AXIS];
        Computing<T>::type sum = 0;
        for (int at = span.x; at < span.y; ++at)
            if (whole_at(put.lists, list + at) == put.at[AXIS])
                sum += collected<AXIS + 1>(
                    put, axes, from * axes.stride[AXIS] + at, AXIS < BASE ? example * axes.stride[AXIS] + at : example);
        return sum;
    }
}

// Here `length` is that of the result, `start` where its spans are, `given` where the list of g
// starts, `stride` the length of g. Each element collects what was taken from it, in order.
extern "C" __global__ void KERNEL(put)(
    const T *__restrict__ g, Numbers lists, const int2 *__restrict__ spans, T *__restrict__ y,
    Lists axes, int64_t width, int64_t places, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows) {
        Put put = {g, lists, spans, width, places, {}};
        int64_t rest = row;
        for (int axis = RANK - 2; axis >= 0; --axis) put.at[axis] = split(rest, axes.length[axis]);
        FOR_COLUMNS(column, columns) {
            put.at[RANK - 1] = column;
            y[row * columns + column] = narrow<T>(collected<0>(put, axes, 0, 0));
        }
    }
}
#endif
