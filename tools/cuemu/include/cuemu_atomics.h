// Atomics: one thread of the CPU runs the grid, so that a plain update is atomic, and is checked as
// one.
#pragma once
extern "C++" {
template <class T> struct cuemu_same {
    typedef T type;
};
#define CUEMU_ATOMIC(NAME, EXPRESSION)                                                             \
    template <class T> CUEMU_RAW static T NAME(T *address, typename cuemu_same<T>::type value) {   \
        cuemu_tick();                                                                              \
        cuemu_atomic(address, sizeof(T));                                                          \
        T old = *address;                                                                          \
        *address = (EXPRESSION);                                                                   \
        return old;                                                                                \
    }                                                                                              \
    template <class T>                                                                             \
    static inline T NAME##_block(T *address, typename cuemu_same<T>::type value) {                 \
        return NAME(address, value);                                                               \
    }
CUEMU_ATOMIC(atomicAdd, old + value)
CUEMU_ATOMIC(atomicSub, old - value)
CUEMU_ATOMIC(atomicExch, value)
CUEMU_ATOMIC(atomicMin, old < value ? old : value)
CUEMU_ATOMIC(atomicMax, old > value ? old : value)
CUEMU_ATOMIC(atomicAnd, old &value)
CUEMU_ATOMIC(atomicOr, old | value)
CUEMU_ATOMIC(atomicXor, old ^ value)
CUEMU_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
CUEMU_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)

template <class T>
CUEMU_RAW static T atomicCAS(T *address, typename cuemu_same<T>::type compare,
                             typename cuemu_same<T>::type value) {
    cuemu_tick();
    cuemu_atomic(address, sizeof(T));
    T old = *address;
    if (old == compare) *address = value;
    return old;
}
}
