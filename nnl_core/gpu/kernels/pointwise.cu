// Elementwise kernels of several results. T is an element, C what it is computed in. Memory-bound.

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
