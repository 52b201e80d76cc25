// What __half and __nv_bfloat16 have in common: every operation rounds to nearest even, as on a
// GPU.
#pragma once
#define CUEMU_HALF_TYPE(H, H2, ROUND, WIDEN)                                                       \
    struct __attribute__((aligned(2))) H {                                                         \
        unsigned short x;                                                                          \
        H() = default;                                                                             \
        H(float value) : x(ROUND(value)) {}                                                        \
        H(double value) : x(ROUND((float)value)) {}                                                \
        H(int value) : x(ROUND((float)value)) {}                                                   \
        H(unsigned value) : x(ROUND((float)value)) {}                                              \
        H(long long value) : x(ROUND((float)value)) {}                                             \
        operator float() const { return WIDEN(x); }                                                \
        H &operator+=(H b) { return *this = H(float(*this) + float(b)); }                          \
        H &operator-=(H b) { return *this = H(float(*this) - float(b)); }                          \
        H &operator*=(H b) { return *this = H(float(*this) * float(b)); }                          \
        H &operator/=(H b) { return *this = H(float(*this) / float(b)); }                          \
    };                                                                                             \
    struct __attribute__((aligned(4))) H2 {                                                        \
        H x, y;                                                                                    \
    };                                                                                             \
    static inline H operator+(H a, H b) { return a += b; }                                         \
    static inline H operator-(H a, H b) { return a -= b; }                                         \
    static inline H operator*(H a, H b) { return a *= b; }                                         \
    static inline H operator/(H a, H b) { return a /= b; }                                         \
    static inline H operator-(H a) { return H(-float(a)); }                                        \
    static inline H __hadd(H a, H b) { return a + b; }                                             \
    static inline H __hsub(H a, H b) { return a - b; }                                             \
    static inline H __hmul(H a, H b) { return a * b; }                                             \
    static inline H __hdiv(H a, H b) { return a / b; }                                             \
    static inline H __hneg(H a) { return -a; }                                                     \
    static inline H __habs(H a) { return H(fabsf(a)); }                                            \
    static inline H __hfma(H a, H b, H c) {                                                        \
        return H(float(double(float(a)) * float(b) + float(c)));                                   \
    }                                                                                              \
    static inline H __hmax(H a, H b) { return H(fmaxf(a, b)); }                                    \
    static inline H __hmin(H a, H b) { return H(fminf(a, b)); }                                    \
    static inline bool __heq(H a, H b) { return float(a) == float(b); }                            \
    static inline bool __hgt(H a, H b) { return float(a) > float(b); }                             \
    static inline bool __hlt(H a, H b) { return float(a) < float(b); }                             \
    static inline bool __hge(H a, H b) { return float(a) >= float(b); }                            \
    static inline bool __hle(H a, H b) { return float(a) <= float(b); }                            \
    static inline bool __hisnan(H a) { return float(a) != float(a); }                              \
    static inline H hexp(H a) { return H(expf(a)); }                                               \
    static inline H hlog(H a) { return H(logf(a)); }                                               \
    static inline H hsqrt(H a) { return H(sqrtf(a)); }                                             \
    static inline H2 __hadd2(H2 a, H2 b) { return {a.x + b.x, a.y + b.y}; }                        \
    static inline H2 __hsub2(H2 a, H2 b) { return {a.x - b.x, a.y - b.y}; }                        \
    static inline H2 __hmul2(H2 a, H2 b) { return {a.x * b.x, a.y * b.y}; }                        \
    static inline H2 __hfma2(H2 a, H2 b, H2 c) {                                                   \
        return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};                                     \
    }                                                                                              \
    static inline H2 __hmax2(H2 a, H2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }          \
    static inline float __low2float(H2 a) { return a.x; }                                          \
    static inline float __high2float(H2 a) { return a.y; }
