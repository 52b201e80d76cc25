// Boxes of pictures, pooled to `bins`: along each axis a bin is a weighted sum of neighbours. The
// weights are found first: for each box and bin those of all places of an axis (a table), and the
// first place and that after the last one which count (a span).
typedef Computing<B>::type Scaled;

struct Sizes {
    int64_t boxes, bins_y, bins_x, height, width, channels, batch;
};

#ifdef TABLES
// A thread for each box and bin along one axis (0: y, 1: x). What cannot be pooled fails.
extern "C" __global__ void KERNEL(box_weights)(
    const B *__restrict__ boxes, double *__restrict__ table, int2 *__restrict__ spans, Failure bad,
    Sizes s, double scale, int64_t axis, int64_t ratio, int64_t most, int64_t count) {
    int64_t bins = axis ? s.bins_x : s.bins_y, length = axis ? s.width : s.height;
    FOR_EACH(item, count) {
        int64_t box = item / bins, bin = item - box * bins;
        double *row = table + item * length;
        for (int64_t at = 0; at < length; ++at) row[at] = 0;
        Scaled start = wide(boxes[box * 5 + 2 - axis]) * (Scaled)scale;
        Scaled end = wide(boxes[box * 5 + 4 - axis]) * (Scaled)scale;
        Scaled width = (end - start) / (Scaled)bins, needed = ceil(width);
        int first = (int)length, stop = 0;
        double points = ratio > 0 ? (double)ratio : needed > 1 ? (double)needed : 1.0;
        if (!(points * (double)count <= (double)most) || !(start - start == 0) || !(end - end == 0)) {
            bad.raise();
            points = 0;
        }
        for (int64_t point = 0; point < (int64_t)points; ++point) {
            double at = (double)start + ((double)bin + ((double)point + 0.5) / points) * (double)width - 0.5;
            if (!(at >= -1 && at <= (double)length)) continue;
            at = at < 0 ? 0 : at > (double)(length - 1) ? (double)(length - 1) : at;
            int low = (int)at;
            double above = at - low;
            row[low] += (1 - above) / points;
            if (low < first) first = low;
            if (low + 1 > stop) stop = low + 1;
            if (above > 0) {
                row[low + 1] += above / points;
                if (low + 2 > stop) stop = low + 2;
            }
        }
        spans[item] = make_int2(first, stop);
    }
}

// Which picture a box is in (-1: none), and what encloses all its bins: a thread for each box.
extern "C" __global__ void KERNEL(box_hulls)(
    const B *__restrict__ boxes, const int2 *__restrict__ spans_y, const int2 *__restrict__ spans_x,
    int *__restrict__ pictures, int4 *__restrict__ hulls, Failure bad, Sizes s, int64_t count) {
    FOR_EACH(box, count) {
        int64_t picture = whole_of(wide(boxes[box * 5]));
        if (picture < 0 || picture >= s.batch) {
            picture = -1;
            bad.raise();
        }
        pictures[box] = (int)picture;
        int4 hull = make_int4((int)s.height, 0, (int)s.width, 0);
        for (int64_t bin = 0; bin < s.bins_y; ++bin) {
            int2 span = spans_y[box * s.bins_y + bin];
            if (span.x < hull.x) hull.x = span.x;
            if (span.y > hull.y) hull.y = span.y;
        }
        for (int64_t bin = 0; bin < s.bins_x; ++bin) {
            int2 span = spans_x[box * s.bins_x + bin];
            if (span.x < hull.z) hull.z = span.x;
            if (span.y > hull.w) hull.w = span.y;
        }
        hulls[box] = hull;
    }
}
#else
typedef Computing<T>::type Sum;

// Rows are (boxes, channels, bins_y): a thread for each result.
extern "C" __global__ void KERNEL(roi_align)(
    const T *__restrict__ x, T *__restrict__ y, const double *__restrict__ table_y,
    const double *__restrict__ table_x, const int2 *__restrict__ spans_y, const int2 *__restrict__ spans_x,
    const int *__restrict__ pictures, Sizes s, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows) {
        int64_t box = row;
        int64_t bin_y = split(box, s.bins_y), channel = split(box, s.channels);
        int64_t picture = pictures[box], item_y = box * s.bins_y + bin_y;
        int2 down = spans_y[item_y];
        const T *plane = x + (picture * s.channels + channel) * s.height * s.width;
        FOR_COLUMNS(bin_x, columns) {
            int64_t item_x = box * s.bins_x + bin_x;
            int2 across = spans_x[item_x];
            Sum sum = 0;
            for (int v = picture < 0 ? down.y : down.x; v < down.y; ++v)
                for (int u = across.x; u < across.y; ++u) {
                    Sum weight = (Sum)(table_y[item_y * s.height + v] * table_x[item_x * s.width + u]);
                    if (weight != 0) sum += weight * wide(plane[v * s.width + u]);
                }
            y[row * columns + bin_x] = narrow<T>(sum);
        }
    }
}

// Rows are (batch, channels, height): each pixel looks for the bins that it counts in, box by box.
extern "C" __global__ void KERNEL(roi_align_adjoint)(
    const T *__restrict__ g, T *__restrict__ y, const double *__restrict__ table_y,
    const double *__restrict__ table_x, const int2 *__restrict__ spans_y, const int2 *__restrict__ spans_x,
    const int *__restrict__ pictures, const int4 *__restrict__ hulls, Sizes s, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows) {
        int64_t batch = row;
        int64_t v = split(batch, s.height), channel = split(batch, s.channels);
        FOR_COLUMNS(u, columns) {
            Sum sum = 0;
            for (int64_t box = 0; box < s.boxes; ++box) {
                int4 hull = hulls[box];
                if (pictures[box] != batch || v < hull.x || v >= hull.y || u < hull.z || u >= hull.w) continue;
                const T *own = g + (box * s.channels + channel) * s.bins_y * s.bins_x;
                for (int64_t i = 0; i < s.bins_y; ++i) {
                    int64_t item_y = box * s.bins_y + i;
                    int2 down = spans_y[item_y];
                    if (v < down.x || v >= down.y) continue;
                    for (int64_t j = 0; j < s.bins_x; ++j) {
                        int64_t item_x = box * s.bins_x + j;
                        int2 across = spans_x[item_x];
                        if (u < across.x || u >= across.y) continue;
                        Sum weight = (Sum)(table_y[item_y * s.height + v] * table_x[item_x * s.width + u]);
                        if (weight != 0) sum += weight * wide(own[i * s.bins_x + j]);
                    }
                }
            }
            y[row * columns + u] = narrow<T>(sum);
        }
    }
}
#endif
