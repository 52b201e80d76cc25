// Lists of positions that move each example in its own way, by the numbers that NumPy's generators
// draw: behind `stochastic.cu`, whose Words they are.
struct Drawn {
    int64_t length[RANK], start[RANK], given[RANK], low[RANK], range[RANK];
};

// A number from 0 to `range`, by multiplying 32 bits (D. Lemire, "Fast random integer generation in
// an interval", 2019). `rejected` says that these bits do not do.
INLINE int64_t bounded(uint32_t bits, uint32_t range, bool &rejected) {
    uint64_t product = (uint64_t)bits * (range + 1);
    rejected = (uint32_t)product < (0xffffffffu - range) % (range + 1);
    return (int64_t)(product >> 32);
}

// For each example and axis a number from `low` to `low + range`: one block. Numbers are drawn in
// order, 32 bits each, and where there is no choice none is. Rejections are so rare that all is
// drawn at once first; where one occurs, a thread draws again in turn.
extern "C" __global__ void __launch_bounds__(256) KERNEL(draw_integers)(
    const uint64_t *__restrict__ key, int64_t *__restrict__ drawn, Drawn axes, int64_t examples) {
    int choices = 0, before[RANK];
    for (int axis = 0; axis < RANK; ++axis) before[axis] = choices, choices += axes.range[axis] > 0;
    int failed = 0;
    for (int64_t item = threadIdx.x; item < examples * RANK; item += blockDim.x) {
        int axis = (int)(item % RANK);
        int64_t found = 0;
        if (axes.range[axis] > 0) {
            Words words(key, (uint64_t)(item / RANK * choices + before[axis]));
            bool rejected;
            found = bounded(words.next32(), (uint32_t)axes.range[axis], rejected);
            failed |= rejected;
        }
        drawn[item] = axes.low[axis] + found;
    }
    failed = __syncthreads_or(failed);
    if (!failed || threadIdx.x != 0) return;
    Words words(key, 0);
    for (int64_t item = 0; item < examples * RANK; ++item) {
        int axis = (int)(item % RANK);
        int64_t found = 0;
        bool rejected = axes.range[axis] > 0;
        while (rejected) found = bounded(words.next32(), (uint32_t)axes.range[axis], rejected);
        drawn[item] = axes.low[axis] + found;
    }
}

// For each example and axis 1 with probability one half, where `range` says that it may be.
extern "C" __global__ void KERNEL(draw_flips)(
    const uint64_t *__restrict__ key, int64_t *__restrict__ drawn, Drawn axes, int64_t count) {
    FOR_EACH(item, count) {
        Words words(key, (uint64_t)item);
        drawn[item] = axes.range[item % RANK] && words.next_double() < 0.5;
    }
}

// Rows of positions, made of what was drawn. MOVE 0: parts that begin there; 1: reversed; 2: moved,
// and the outermost element repeated; 3: moved, mirrored; 4: moved, nothing beside.
extern "C" __global__ void KERNEL(positions)(
    const int64_t *__restrict__ drawn, int64_t *__restrict__ lists, Drawn axes, int64_t move, int64_t rows,
    int64_t columns) {
    FOR_ROWS(row, rows)
        FOR_COLUMNS(column, columns) {
            int axis = 0;
            while (axis + 1 < RANK && column >= axes.start[axis + 1]) ++axis;
            int64_t own = column - axes.start[axis], length = axes.given[axis], by = drawn[row * RANK + axis], at;
            if (move == 0) {
                at = by + own;
            } else if (move == 1) {
                at = by ? length - 1 - own : own;
            } else {
                at = own - by;
                if (move == 2) {
                    at = at < 0 ? 0 : at >= length ? length - 1 : at;
                } else if (move == 3) {
                    at %= 2 * length;
                    if (at < 0) at += 2 * length;
                    if (at >= length) at = 2 * length - 1 - at;
                } else if (at < 0 || at >= length) {
                    at = -1;
                }
            }
            lists[row * columns + column] = at;
        }
}
