// Arrays of other lengths: along some axes, results are weighted sums of a few elements (taps).
// Which ones is found first, once for each axis (a table: `at` and `weights`, (TAPS, size), tap by
// tap); then every result reads its elements. Bytes: what is read and written, once each where
// neighbours share the cache.

#ifdef TABLE
// The rule, as ONNX numbers its parts: see the Python side. A thread for each new element and tap.
extern "C" __global__ void KERNEL(table)(
    int *__restrict__ at, P *__restrict__ weights, double scale, double crop_start, double crop_end,
    double a, int64_t length, int64_t size, int64_t coordinates, int64_t nearest, int64_t exclude,
    int64_t taps, int64_t count) {
    FOR_EACH(item, count) {
        int64_t tap = item / size, i = item - tap * size, last = length - 1;
        if (TABLE == 3) {  // windows that cover the axis
            int64_t first = i * length / size, stop = ((i + 1) * length + size - 1) / size;
            int64_t place = first + tap;
            at[item] = (int)(place < stop ? place : stop - 1);
            weights[item] = place < stop ? P(1.0 / (double)(stop - first)) : P(0);
            continue;
        }
        double x = (double)i;
        // scale 0: none is given, and whole numbers come out whole.
        if (coordinates == 0 || coordinates == 5) {  // half_pixel, pytorch_half_pixel
            x = scale == 0 ? (x + 0.5) * (double)length / (double)size - 0.5 : (x + 0.5) / scale - 0.5;
            if (coordinates == 5 && size == 1) x = 0;
        } else if (coordinates == 1) {  // asymmetric
            x = scale == 0 ? x * (double)length / (double)size : x / scale;
        } else if (coordinates == 2) {  // tf_half_pixel_for_nn
            x = scale == 0 ? (x + 0.5) * (double)length / (double)size : (x + 0.5) / scale;
        } else if (coordinates == 3) {  // align_corners
            x = x * (double)last / (double)(size > 1 ? size - 1 : 1);
        } else if (size == 1) {  // tf_crop_and_resize
            x = 0.5 * (crop_start + crop_end) * (double)last;
        } else {
            x = crop_start * (double)last + x * ((crop_end - crop_start) * (double)last) / (double)(size - 1);
        }
        if (TABLE == 0) {
            double place = nearest == 0 ? ceil(x - 0.5) : nearest == 1 ? floor(x + 0.5) : nearest == 2 ? floor(x) : ceil(x);
            at[item] = (int)(place < 0 ? 0.0 : place > (double)last ? (double)last : place);
            continue;
        }
        double low = floor(x), f = x - low, own = 0, total = 0;
        int64_t first = 1 - taps / 2;
        for (int64_t other = 0; other < taps; ++other) {
            double weight;
            if (TABLE == 1)
                weight = other == 0 ? 1 - f : f;
            else if (other == 0)
                weight = ((a * f - 2 * a) * f + a) * f;
            else if (other == 1)
                weight = ((a + 2) * f - (a + 3)) * f * f + 1;
            else if (other == 2)
                weight = ((-(a + 2) * f + (2 * a + 3)) * f - a) * f;
            else
                weight = (-a * f + a) * f * f;
            double place = low + (double)(first + other);
            if (exclude && (place < 0 || place > (double)last)) weight = 0;
            total += weight;
            if (other == tap) own = weight;
        }
        double place = low + (double)(first + tap);
        at[item] = (int)(place < 0 ? 0.0 : place > (double)last ? (double)last : place);
        weights[item] = (P)(exclude && total != 0 ? own / total : own);
    }
}

// For each tap, from which result on it reads old elements from `place` on: places rise with
// results, or fall where `reverse` says so (then results are counted from the last). A thread for
// each tap and place (one more than there are).
extern "C" __global__ void KERNEL(starts)(
    const int *__restrict__ at, int *__restrict__ starts, int64_t length, int64_t size, int64_t reverse,
    int64_t count) {
    FOR_EACH(item, count) {
        int64_t tap = item / (length + 1), place = item - tap * (length + 1);
        const int *own = at + tap * size;
        int64_t low = 0, high = size;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (own[reverse ? size - 1 - middle : middle] < place)
                low = middle + 1;
            else
                high = middle;
        }
        starts[item] = (int)low;
    }
}
#endif

#ifdef RANK
// Axes of the result, with strides of the source; those of which MASK has a bit are resampled.
struct Axes {
    const int *at[RANK];
    const P *weights[RANK];
    const int *starts[RANK];
    int64_t length[RANK], stride[RANK], size[RANK], taps[RANK], reverse[RANK];
};
typedef Computing<T>::type Sum;

// `size` is the length of the result.
template <int AXIS> INLINE Sum made_of(const T *x, const Axes &axes, const int64_t *at) {
    if constexpr (AXIS == RANK) {
        return wide(*x);
    } else if constexpr (!(MASK >> AXIS & 1)) {
        return made_of<AXIS + 1>(x + at[AXIS] * axes.stride[AXIS], axes, at);
    } else {
        Sum sum = 0;
        for (int64_t tap = 0; tap < axes.taps[AXIS]; ++tap) {
            int64_t item = tap * axes.size[AXIS] + at[AXIS];
            Sum one = made_of<AXIS + 1>(x + axes.at[AXIS][item] * axes.stride[AXIS], axes, at);
            sum += axes.weights[AXIS] ? Sum(one * (Sum)axes.weights[AXIS][item]) : one;
        }
        return sum;
    }
}

// `size` is the length of g, `length` that of the result.
template <int AXIS> INLINE Sum made_from(const T *g, const Axes &axes, const int64_t *at) {
    if constexpr (AXIS == RANK) {
        return wide(*g);
    } else if constexpr (!(MASK >> AXIS & 1)) {
        return made_from<AXIS + 1>(g + at[AXIS] * axes.stride[AXIS], axes, at);
    } else {
        Sum sum = 0;
        for (int64_t tap = 0; tap < axes.taps[AXIS]; ++tap) {
            const int *starts = axes.starts[AXIS] + tap * (axes.length[AXIS] + 1) + at[AXIS];
            for (int place = starts[0]; place < starts[1]; ++place) {
                int64_t i = axes.reverse[AXIS] ? axes.size[AXIS] - 1 - place : place;
                Sum weight = axes.weights[AXIS] ? (Sum)axes.weights[AXIS][tap * axes.size[AXIS] + i] : Sum(1);
                if (weight != 0) sum += Sum(weight * made_from<AXIS + 1>(g + i * axes.stride[AXIS], axes, at));
            }
        }
        return sum;
    }
}

extern "C" __global__ void KERNEL(resampled)(
    const T *__restrict__ x, T *__restrict__ y, Axes axes, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows) {
        int64_t at[RANK], rest = row;
        for (int axis = RANK - 2; axis >= 0; --axis) at[axis] = split(rest, axes.length[axis]);
        FOR_COLUMNS(column, columns) {
            at[RANK - 1] = column;
            y[row * columns + column] = narrow<T>(ADJOINT ? made_from<0>(x, axes, at) : made_of<0>(x, axes, at));
        }
    }
}
#endif
