// Barriers, fences and warp operations. The last lane to arrive does a warp operation for all.
#pragma once
extern "C++" {
// __COUNTER__ tells the barriers of the source apart, which is how divergent ones are found.
#define __syncthreads() cuemu_syncthreads(__COUNTER__)
#define __syncthreads_count(p) int(cuemu_syncthreads_count(p, __COUNTER__))
#define __syncthreads_or(p) int(cuemu_syncthreads_count(p, __COUNTER__) != 0)
#define __syncthreads_and(p) int(cuemu_syncthreads_count(!(p), __COUNTER__) == 0)
static inline void __syncwarp(unsigned mask = ~0u) { cuemu_warp(mask, nullptr, nullptr); }
static inline void __threadfence() { cuemu_fence(); }
static inline void __threadfence_block() {}
static inline void __threadfence_system() { cuemu_fence(); }
static inline unsigned __activemask() { return cuemu_live_lanes(); }
static inline void __nanosleep(unsigned) { cuemu_tick(); }
static inline void __trap() { cuemu_trap("__trap()"); }

// ---- shuffles

enum cuemu_shuffle_kind { CUEMU_INDEX, CUEMU_UP, CUEMU_DOWN, CUEMU_XOR };
template <class T> struct cuemu_shuffle_argument {
    T value, result;
    int operand;
    cuemu_shuffle_kind kind;
    int width;
    int source(int lane) const {
        int begin = lane & ~(width - 1), end = begin + width;
        int from = kind == CUEMU_INDEX  ? begin + (operand & (width - 1))
                   : kind == CUEMU_UP   ? lane - operand
                   : kind == CUEMU_DOWN ? lane + operand
                                        : lane ^ operand;
        return from >= end || (kind == CUEMU_UP && from < begin) ? lane : from;
    }
};
template <class T> CUEMU_RAW static void cuemu_shuffle_all(void **arguments, unsigned mask) {
    for (int lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        auto *argument = (cuemu_shuffle_argument<T> *)arguments[lane];
        auto *from = (cuemu_shuffle_argument<T> *)arguments[argument->source(lane)];
        if (!from) cuemu_trap("warp shuffle reads from a lane that does not take part");
        argument->result = from->value;
    }
}
template <class T>
CUEMU_RAW static T cuemu_shuffle(unsigned mask, T value, int operand, cuemu_shuffle_kind kind,
                                 int width) {
    cuemu_shuffle_argument<T> argument{value, value, operand, kind, width};
    cuemu_warp(mask, &argument, cuemu_shuffle_all<T>);
    return argument.result;
}
template <class T> static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
    return cuemu_shuffle(mask, value, source, CUEMU_INDEX, width);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    return cuemu_shuffle(mask, value, int(delta), CUEMU_UP, width);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    return cuemu_shuffle(mask, value, int(delta), CUEMU_DOWN, width);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
    return cuemu_shuffle(mask, value, lanes, CUEMU_XOR, width);
}

// ---- votes and reductions

CUEMU_RAW static void cuemu_ballot_all(void **arguments, unsigned mask) {
    unsigned result = 0;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1 && *(unsigned *)arguments[i]) result |= 1u << i;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1) *(unsigned *)arguments[i] = result;
}
CUEMU_RAW static unsigned __ballot_sync(unsigned mask, int predicate) {
    unsigned argument = predicate != 0;
    cuemu_warp(mask, &argument, cuemu_ballot_all);
    return argument;
}
static inline int __any_sync(unsigned mask, int p) { return __ballot_sync(mask, p) != 0; }
static inline int __all_sync(unsigned mask, int p) { return __ballot_sync(mask, !p) == 0; }

template <class T> CUEMU_RAW static void cuemu_match_all(void **arguments, unsigned mask) {
    unsigned result[32];
    for (int i = 0; i < 32; i++) {
        result[i] = 0;
        for (int j = 0; j < 32; j++)
            if (mask >> i & mask >> j & 1 && *(T *)arguments[i] == *(T *)arguments[j])
                result[i] |= 1u << j;
    }
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1) *(unsigned *)arguments[i] = result[i];
}
template <class T> CUEMU_RAW static unsigned __match_any_sync(unsigned mask, T value) {
    union {
        T value;
        unsigned result;
    } argument{value};
    cuemu_warp(mask, &argument, cuemu_match_all<T>);
    return argument.result;
}

#define CUEMU_REDUCE(NAME, T, EXPRESSION)                                                          \
    CUEMU_RAW static void cuemu_reduce_##NAME##T(void **arguments, unsigned mask) {                \
        T a = 0;                                                                                   \
        bool first = true;                                                                         \
        for (int i = 0; i < 32; i++) {                                                             \
            if (!(mask >> i & 1)) continue;                                                        \
            T b = *(T *)arguments[i];                                                              \
            a = first ? b : (EXPRESSION);                                                          \
            first = false;                                                                         \
        }                                                                                          \
        for (int i = 0; i < 32; i++)                                                               \
            if (mask >> i & 1) *(T *)arguments[i] = a;                                             \
    }                                                                                              \
    CUEMU_RAW static T __reduce_##NAME##_sync(unsigned mask, T value) {                            \
        cuemu_warp(mask, &value, cuemu_reduce_##NAME##T);                                          \
        return value;                                                                              \
    }
CUEMU_REDUCE(add, int, a + b)
CUEMU_REDUCE(add, unsigned, a + b)
CUEMU_REDUCE(min, int, a < b ? a : b)
CUEMU_REDUCE(min, unsigned, a < b ? a : b)
CUEMU_REDUCE(max, int, a > b ? a : b)
CUEMU_REDUCE(max, unsigned, a > b ? a : b)
CUEMU_REDUCE(and, unsigned, a &b)
CUEMU_REDUCE(or, unsigned, a | b)
CUEMU_REDUCE(xor, unsigned, a ^ b)
}
