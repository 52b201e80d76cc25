// Elements by position. Positions are numbers of any type, along up to ELEMENTS or DEPTH
// axes; one that is out of range, or no whole
// number, reads as 0 and writes nothing. Launched by `over_rows`: each thread goes through columns
// of a row, which are neighbours in memory; what is read and written is moved once.

// A position from 0 on, or with `from_end` from -length on; -1 for what is none.
INLINE int64_t position(const Numbers &numbers, int64_t item, int64_t length, bool from_end, const Failure &bad) {
    int64_t at = whole_at(numbers, item);
    if (from_end && at < 0 && at >= -length) at += length;
    if (at >= 0 && at < length) return at;
    bad.raise();
    return -1;
}

#ifdef GATHER
// Rows are (batch, outer, positions), of x as (batch, outer, length, columns).
extern "C" __global__ void KERNEL(gather)(
    const T *__restrict__ x, Numbers indices, Failure bad, T *__restrict__ y, int64_t outer,
    int64_t length, int64_t positions, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows) {
        int64_t rest = row;
        int64_t own = split(rest, positions), lines = rest;
        split(rest, outer);
        int64_t at = position(indices, rest * positions + own, length, false, bad);
        const T *from = x + (lines * length + at) * columns;
        FOR_COLUMNS(column, columns) {
            T found = {};
            if (at >= 0) found = from[column];
            y[row * columns + column] = found;
        }
    }
}

// For each position of (batch, positions), the row of (batch, length) that it names; else `slots`.
extern "C" __global__ void KERNEL(row_keys)(
    Numbers indices, Failure bad, uint32_t *__restrict__ keys, int64_t length, int64_t slots,
    int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows)
        FOR_COLUMNS(column, columns) {
            int64_t at = position(indices, row * columns + column, length, false, bad);
            keys[row * columns + column] = (uint32_t)(at < 0 ? slots : row * length + at);
        }
}
#endif

#ifdef ELEMENTS
// Single elements: rows and columns are those of the indices, `outer` being all axes but the last,
// with the strides of x; `along` is the stride of the indexed axis of x, `step` that of the last,
// either of which may be 0 where the other counts.
struct Outer {
    int64_t axes, length[ELEMENTS], stride[ELEMENTS];
};
INLINE int64_t element_place(
    const Numbers &indices, const Failure &bad, const Outer &outer, int64_t along, int64_t length, int64_t step, int64_t row,
    int64_t column, int64_t columns) {
    int64_t rest = row, from = column * step;
#pragma unroll
    for (int axis = ELEMENTS - 1; axis >= 0; --axis)
        if (axis < outer.axes) from += split(rest, outer.length[axis]) * outer.stride[axis];
    int64_t at = position(indices, row * columns + column, length, false, bad);
    return at < 0 ? -1 : from + at * along;
}

extern "C" __global__ void KERNEL(gather_elements)(
    const T *__restrict__ x, Numbers indices, Failure bad, T *__restrict__ y, Outer outer,
    int64_t along, int64_t length, int64_t step, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows)
        FOR_COLUMNS(column, columns) {
            int64_t place = element_place(indices, bad, outer, along, length, step, row, column, columns);
            T found = {};
            if (place >= 0) found = x[place];
            y[row * columns + column] = found;
        }
}

extern "C" __global__ void KERNEL(element_keys)(
    Numbers indices, Failure bad, uint32_t *__restrict__ keys, Outer outer, int64_t along,
    int64_t length, int64_t step, int64_t slots, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows)
        FOR_COLUMNS(column, columns) {
            int64_t place = element_place(indices, bad, outer, along, length, step, row, column, columns);
            keys[row * columns + column] = (uint32_t)(place < 0 ? slots : place);
        }
}

// The number of the last element that writes to each place: the largest.
extern "C" __global__ void KERNEL(last_writers)(
    Numbers indices, Failure bad, long long *__restrict__ y, Outer outer, int64_t along,
    int64_t length, int64_t step, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows)
        FOR_COLUMNS(column, columns) {
            int64_t place = element_place(indices, bad, outer, along, length, step, row, column, columns);
            if (place >= 0) atomicMax(y + place, (long long)(row * columns + column));
        }
}
#endif

#ifdef DEPTH
// Positions along DEPTH axes: number d of entry n is at indices[d * apart + n * step].
struct Places {
    int64_t axes, length[DEPTH], stride[DEPTH];
};
INLINE int64_t slot_of(const Numbers &indices, const Failure &bad, const Places &places, int64_t apart, int64_t step, int64_t entry) {
    int64_t slot = 0;
#pragma unroll
    for (int d = 0; d < DEPTH; ++d) {
        if (d >= places.axes) continue;
        int64_t at = position(indices, d * apart + entry * step, places.length[d], true, bad);
        if (at < 0) return -1;
        slot += at * places.stride[d];
    }
    return slot;
}

extern "C" __global__ void KERNEL(gather_nd)(
    const T *__restrict__ x, Numbers indices, Failure bad, T *__restrict__ y, Places places,
    int64_t apart, int64_t step, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows) {
        int64_t slot = slot_of(indices, bad, places, apart, step, row);
        FOR_COLUMNS(column, columns) {
            T found = {};
            if (slot >= 0) found = x[slot * columns + column];
            y[row * columns + column] = found;
        }
    }
}

#ifdef NUMBERS
extern "C" __global__ void KERNEL(one_hot)(
    Numbers indices, Failure bad, T *__restrict__ y, Places places, int64_t apart, int64_t step,
    int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows) {
        int64_t slot = slot_of(indices, bad, places, apart, step, row);
        FOR_COLUMNS(column, columns) y[row * columns + column] = T(column == slot);
    }
}
#endif

extern "C" __global__ void KERNEL(slot_keys)(
    Numbers indices, Failure bad, uint32_t *__restrict__ keys, Places places, int64_t apart,
    int64_t step, int64_t slots, int64_t count) {
    FOR_EACH(entry, count) {
        int64_t slot = slot_of(indices, bad, places, apart, step, entry);
        keys[entry] = (uint32_t)(slot < 0 ? slots : slot);
    }
}

extern "C" __global__ void KERNEL(last_entries)(
    Numbers indices, Failure bad, long long *__restrict__ last, Places places, int64_t apart,
    int64_t step, int64_t count) {
    FOR_EACH(entry, count) {
        int64_t slot = slot_of(indices, bad, places, apart, step, entry);
        if (slot >= 0) atomicMax(last + slot, (long long)entry);
    }
}
#endif

#ifdef BASE
// Rows of `x` whose number is not negative; else what is there already, or 0.
extern "C" __global__ void KERNEL(chosen_rows)(
    const S *__restrict__ x, const BASE *__restrict__ base, const int64_t *__restrict__ last,
    T *__restrict__ y, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows) {
        int64_t from = last[row];
        FOR_COLUMNS(column, columns) {
            int64_t item = row * columns + column;
            if (from >= 0)
                y[item] = narrow<T>(wide(x[from * columns + column]));
            else
                y[item] = base ? narrow<T>(wide(base[item])) : narrow<T>(0);
        }
    }
}
#endif

#ifdef LISTED
// Rows at places, of which -1 is none.
extern "C" __global__ void KERNEL(listed_rows)(
    const T *__restrict__ x, const int64_t *__restrict__ places, T *__restrict__ y, int64_t rows,
    int64_t columns) {
    FOR_ROWS(row, rows) {
        int64_t from = places[row];
        FOR_COLUMNS(column, columns) {
            T found = {};
            if (from >= 0) found = x[from * columns + column];
            y[row * columns + column] = found;
        }
    }
}

extern "C" __global__ void KERNEL(numbered)(
    const int64_t *__restrict__ places, long long *__restrict__ numbers, int64_t count) {
    FOR_EACH(item, count) if (places[item] >= 0) numbers[places[item]] = item;
}

// Positions along each axis of flat places.
struct Lengths {
    int64_t axes, length[LISTED];
};
extern "C" __global__ void KERNEL(unraveled)(
    const int64_t *__restrict__ places, int64_t *__restrict__ y, Lengths lengths, int64_t count) {
    FOR_EACH(item, count) {
        int64_t rest = places[item] < 0 ? 0 : places[item];
#pragma unroll
        for (int axis = LISTED - 1; axis >= 0; --axis)
            if (axis < lengths.axes) y[axis * count + item] = split(rest, lengths.length[axis]);
    }
}
#endif

#ifdef RECURRENCE
// `x = x a + b` at one position after the other: a thread for each column of (outer, steps, inner),
// whose elements of the state (outer', length, inner') nobody else touches. Nothing is shared.
extern "C" __global__ void KERNEL(recurrence)(
    Numbers indices, Failure bad, const A *__restrict__ a, const B *__restrict__ b, Computing<T>::type *state,
    T *__restrict__ seen, Outer outer, int64_t along, int64_t length, int64_t steps, int64_t inner,
    int64_t reverse, int64_t count) {
    FOR_EACH(item, count) {
        int64_t rest = item, from = 0;
#pragma unroll
        for (int axis = ELEMENTS - 1; axis >= 0; --axis)
            if (axis < outer.axes) from += split(rest, outer.length[axis]) * outer.stride[axis];
        int64_t before = item / inner, own = item - before * inner;
        for (int64_t k = 0; k < steps; ++k) {
            int64_t at = (before * steps + (reverse ? steps - 1 - k : k)) * inner + own;
            int64_t place = position(indices, at, length, false, bad);
            Computing<T>::type found = 0;
            if (place >= 0) {
                found = state[from + place * along];
                state[from + place * along] = found * wide(a[at]) + wide(b[at]);
            }
            seen[at] = narrow<T>(found);
        }
    }
}
#endif
