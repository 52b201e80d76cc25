// Vector types, aligned as CUDA's are, and dim3.
#pragma once
extern "C++" {
#define CUEMU_VECTORS(T, NAME, ALIGN2, ALIGN4)                                                     \
    struct NAME##1 { T x; };                                                                       \
    struct __attribute__((aligned(ALIGN2))) NAME##2 { T x, y; };                                   \
    struct NAME##3 { T x, y, z; };                                                                 \
    struct __attribute__((aligned(ALIGN4))) NAME##4 { T x, y, z, w; };                             \
    static inline NAME##1 make_##NAME##1(T x) { return {x}; }                                      \
    static inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }                              \
    static inline NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; }                      \
    static inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }
CUEMU_VECTORS(signed char, char, 2, 4)
CUEMU_VECTORS(unsigned char, uchar, 2, 4)
CUEMU_VECTORS(short, short, 4, 8)
CUEMU_VECTORS(unsigned short, ushort, 4, 8)
CUEMU_VECTORS(int, int, 8, 16)
CUEMU_VECTORS(unsigned, uint, 8, 16)
CUEMU_VECTORS(long, long, 16, 16)
CUEMU_VECTORS(unsigned long, ulong, 16, 16)
CUEMU_VECTORS(long long, longlong, 16, 16)
CUEMU_VECTORS(unsigned long long, ulonglong, 16, 16)
CUEMU_VECTORS(float, float, 8, 16)
CUEMU_VECTORS(double, double, 16, 16)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
}
