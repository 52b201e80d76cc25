// Elements in other places: what they mean does not matter, so T is any type of their size (of
// several together, where runs are long enough). All kernels read and write each element once.
// Launched by `over_rows`, but `transposed`.

#ifdef RANK
// The outer axes, the last one fastest: up to RANK of them (loops over all of these can be unrolled,
// so that what is said of each stays where parameters are).
struct Axes {
    int64_t axes, length[RANK], source[RANK], target[RANK];
};
#endif

#ifdef STRIDED
// Copies what lies in strides into a contiguous array, row by row along its innermost axis.
extern "C" __global__ void KERNEL(strided)(
    const T *__restrict__ x, T *__restrict__ y, Axes axes, int64_t offset, int64_t step, int64_t rows,
    int64_t columns) {
    FOR_ROWS(row, rows) {
        int64_t rest = row, from = offset;
#pragma unroll
        for (int axis = RANK - 1; axis > 0; --axis)
            if (axis < axes.axes) from += split(rest, axes.length[axis]) * axes.source[axis];
        from += rest * axes.source[0];
        FOR_COLUMNS(column, columns) y[row * columns + column] = x[from + column * step];
    }
}
#endif

#ifdef TILE
// Swaps two axes, tile by tile through shared memory: "down" is the innermost axis of the result
// (`along` elements apart in the source), "across" one along which the source is contiguous
// (`place` elements apart in the result). Blocks of (32, 8) threads, one a tile and outer index.
extern "C" __global__ void __launch_bounds__(256) KERNEL(transposed)(
    const T *__restrict__ x, T *__restrict__ y, Axes axes, int64_t offset, int64_t down, int64_t along,
    int64_t across, int64_t step, int64_t place, int64_t tiles_down, int64_t tiles_across) {
    __shared__ T tile[TILE][TILE + 1];
    int64_t rest = blockIdx.x;
    int64_t first_across = split(rest, tiles_across) * TILE;
    int64_t first_down = split(rest, tiles_down) * TILE;
    int64_t from = offset, to = 0;
#pragma unroll
    for (int axis = RANK - 1; axis >= 0; --axis) {
        if (axis >= axes.axes) continue;
        int64_t at = axis ? split(rest, axes.length[axis]) : rest;
        from += at * axes.source[axis];
        to += at * axes.target[axis];
    }
    int column = threadIdx.x, row = threadIdx.y;
#pragma unroll
    for (int j = 0; j < TILE; j += 8)
#pragma unroll
        for (int i = 0; i < TILE; i += 32) {
            int64_t a = first_across + column + i, d = first_down + row + j;
            if (a < across && d < down) tile[row + j][column + i] = x[from + a * step + d * along];
        }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < TILE; j += 8)
#pragma unroll
        for (int i = 0; i < TILE; i += 32) {
            int64_t a = first_across + row + j, d = first_down + column + i;
            if (a < across && d < down) y[to + a * place + d] = tile[column + i][row + j];
        }
}
#endif

#ifdef PARTS
// Several arrays beside each other: part p has the columns from start[p] to before start[p + 1].
struct Parts {
    T *part[PARTS];
    int64_t start[PARTS + 1];
};

extern "C" __global__ void KERNEL(joined)(
    T *__restrict__ whole, Parts parts, int64_t length, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows) {
        int p = 0;
        FOR_COLUMNS(column, columns) {
            int64_t at = parts.start[0] + column;
            while (at >= parts.start[p + 1]) ++p;
            int64_t own = parts.start[p + 1] - parts.start[p];
            whole[row * length + at] = parts.part[p][row * own + at - parts.start[p]];
        }
    }
}

extern "C" __global__ void KERNEL(parted)(
    const T *__restrict__ whole, Parts parts, int64_t length, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows) {
        int p = 0;
        FOR_COLUMNS(column, columns) {
            int64_t at = parts.start[0] + column;
            while (at >= parts.start[p + 1]) ++p;
            int64_t own = parts.start[p + 1] - parts.start[p];
            parts.part[p][row * own + at - parts.start[p]] = whole[row * length + at];
        }
    }
}
#endif

#ifdef S
// Rows of another element type into some of the columns.
extern "C" __global__ void KERNEL(converted)(
    const S *__restrict__ x, T *__restrict__ y, int64_t length, int64_t start, int64_t rows,
    int64_t columns) {
    FOR_ROWS(row, rows)
        FOR_COLUMNS(column, columns)
            y[row * length + start + column] = narrow<T>(wide(x[row * columns + column]));
}
#endif

#ifdef FILLED
extern "C" __global__ void KERNEL(filled)(T *__restrict__ y, T value, int64_t count) {
    FOR_EACH(item, count) y[item] = value;
}
#endif
