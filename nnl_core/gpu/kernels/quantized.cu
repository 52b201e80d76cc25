// Weights that are fixed to powers of two, more and more of them. T is an element, C what it is computed
// in, BITS an unsigned integer of the size of C, MARK an indicator, ITERATIONS the steps at
// which more weights are fixed. A thread for each weight; memory-bound, but for the sorting
// between `sizes` and `choose`.

__device__ const int64_t iterations[] = {ITERATIONS};

INLINE bool is_fixing(int64_t step) {
    bool found = false;
    for (int i = 0; i < (int)(sizeof(iterations) / sizeof(*iterations)) - 1; i++)
        found |= iterations[i] == step;
    return found;
}

INLINE bool is_last(int64_t step) {
    int count = (int)(sizeof(iterations) / sizeof(*iterations)) - 1;
    return count > 0 && iterations[count - 1] == step;
}

struct Found {
    unsigned long long free;  // weights
    unsigned long long top;   // bits of the largest size: in their order, NaN being the largest
};

INLINE C value_of(T weight, T held) {
    C kept = wide(held);
    return kept != kept ? wide(weight) : kept;
}

// By what weights are ranked, the largest first: numbers, then NaN, then those that are fixed. Counts
// and maxima of integers do not depend on their order.
extern "C" __global__ void KERNEL(sizes)(const T *__restrict__ weight, const MARK *__restrict__ marks,
                                         const T *__restrict__ held, C *__restrict__ sizes, Found *found,
                                         int64_t count) {
    FOR_EACH(i, count) {
        C size = abs_of(value_of(weight[i], held[i]));
        bool is_free = wide(marks[i]) == 0;
        BITS bits;
        memcpy(&bits, &size, sizeof(bits));
        if (sizes) sizes[i] = !is_free ? (C)-2 : size != size ? (C)-1 : size;
        if (is_free) atomicAdd(&found->free, 1ull);
        atomicMax(&found->top, (unsigned long long)bits);
    }
}

// Whether each weight is one of the larger half; `order` has the largest first.
extern "C" __global__ void KERNEL(choose)(const int64_t *__restrict__ order, bool *__restrict__ chosen,
                                          const Found *found, int64_t count) {
    FOR_EACH(rank, count) chosen[order[rank]] = rank < (int64_t)(found->free / 2);
}

// The exponent of the nearest power of two; the middle is nearest to the greater.
INLINE int nearest_exponent(C size) {
    int exponent = 0;
    double mantissa = frexp((double)size, &exponent);
    if (size - size != 0) exponent = 0;  // of no number, and of infinity
    return exponent - 1 + (mantissa >= 0.75);
}

extern "C" __global__ void KERNEL(fix)(const T *__restrict__ weight, const MARK *__restrict__ marks,
                                       const T *__restrict__ held, Numbers counter,
                                       const uint64_t *__restrict__ key,
                                       const bool *__restrict__ chosen, const Found *found,
                                       T *__restrict__ new_weight, MARK *__restrict__ new_marks,
                                       T *__restrict__ new_held, int32_t span, int64_t count) {
    int64_t step = whole_at(counter, 0);
    bool fixing = is_fixing(step), last = fixing && is_last(step);
    BITS bits = (BITS)found->top;
    C top_size;
    memcpy(&top_size, &bits, sizeof(bits));
    int top = nearest_exponent(top_size == 0 ? (C)1 : top_size), bottom = top + 1 - span;
    FOR_EACH(i, count) {
        C value = value_of(weight[i], held[i]), size = abs_of(value);
        bool was_fixed = wide(marks[i]) != 0, fixed = was_fixed || last;
#ifdef BY_CHANCE
        if (fixing && !fixed) fixed = Words(key, i).next_double() < 0.5;
#else
        if (fixing && !fixed) fixed = chosen[i];
#endif
        C result = value;
        if (fixed && value == value) {
            int exponent = nearest_exponent(size);
            exponent = exponent < bottom ? bottom : exponent > top ? top : exponent;
            bool is_zero = size == 0 || (double)size < ldexp(1.0, bottom - 1);
            result = is_zero ? (C)0 : (C)copysign(ldexp(1.0, exponent), (double)value);
        }
        new_weight[i] = narrow<T>(result);
        new_marks[i] = fixed ? (was_fixed ? marks[i] : (MARK)1.0f) : (MARK)0.0f;
        C nothing = (C)__longlong_as_double(0x7ff8000000000000ll);
        new_held[i] = narrow<T>(fixed ? result : nothing);
    }
}
