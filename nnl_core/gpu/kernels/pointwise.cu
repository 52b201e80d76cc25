// Elementwise kernels that no C expression is. Memory-bound.

#ifdef T
// Of several results: T is an element, C what it is computed in.
INLINE float half_away(float x) { return roundf(x); }
INLINE double half_away(double x) { return round(x); }

// A range moved so that 0 is one of its levels.
extern "C" __global__ void KERNEL(range)(const T *__restrict__ lows, const T *__restrict__ highs,
                                         const T *__restrict__ firsts, const T *__restrict__ lasts,
                                         T *__restrict__ low, T *__restrict__ high,
                                         T *__restrict__ scales, T *__restrict__ tops, double eps,
                                         int64_t count) {
    FOR_EACH(i, count) {
        C bottom = wide(lows[i]), top = wide(highs[i]), first = wide(firsts[i]), last = wide(lasts[i]);
        if (top - bottom < (C)eps) top = bottom + (C)eps;
        C scale = (top - bottom) / (last - first), exact = first - bottom / scale;
        C zero = exact <= first ? first : exact >= last ? last : half_away(exact);
        low[i] = narrow<T>((first - zero) * scale);
        high[i] = narrow<T>((last - zero) * scale);
        scales[i] = narrow<T>(scale);
        tops[i] = narrow<T>(top);
    }
}

// A multiple of each element, and nothing.
extern "C" __global__ void KERNEL(kept)(const T *__restrict__ g, T *__restrict__ scaled,
                                        T *__restrict__ nothing, double factor, int64_t count) {
    FOR_EACH(i, count) {
        scaled[i] = narrow<T>(wide(g[i]) * (C)factor);
        nothing[i] = narrow<T>((C)0);
    }
}

#else
// Where elements of an output lie in both operands: along each axis, how far apart.
struct Operands {
    int64_t axes, length[RANK], left[RANK], right[RANK];
};

// BITS moved by whole numbers, 0 where all of them are moved out.
extern "C" __global__ void KERNEL(shift)(const BITS *__restrict__ x, Numbers shifts, Failure bad,
                                         BITS *__restrict__ y, Operands operands, int64_t is_left,
                                         int64_t count) {
    FOR_EACH(i, count) {
        int64_t rest = i, from = 0, by = 0;
#pragma unroll
        for (int axis = RANK - 1; axis >= 0; axis--)
            if (axis < operands.axes) {
                int64_t at = split(rest, operands.length[axis]);
                from += at * operands.left[axis];
                by += at * operands.right[axis];
            }
        int64_t shift = whole_at(shifts, by);
        BITS bits = x[from];
        if (shift == INT64_MIN) bad.raise();
        bool inside = shift >= 0 && shift < 8 * (int)sizeof(BITS);
        y[i] = (BITS)(!inside ? 0 : is_left ? bits << shift : bits >> shift);
    }
}
#endif
