// Arithmetic and bit operations of device code. Fast approximations are the exact functions here.
#pragma once
extern "C++" {
#define CUEMU_MIN_MAX(T)                                                                           \
    static inline T min(T a, T b) { return a < b ? a : b; }                                        \
    static inline T max(T a, T b) { return a > b ? a : b; }
CUEMU_MIN_MAX(int)
CUEMU_MIN_MAX(unsigned)
CUEMU_MIN_MAX(long)
CUEMU_MIN_MAX(unsigned long)
CUEMU_MIN_MAX(long long)
CUEMU_MIN_MAX(unsigned long long)
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }

static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline float rsqrt(float x) { return 1 / sqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
static inline void sincos(float x, float *s, float *c) { sincosf(x, s, c); }
static inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678f); }
static inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752); }

#define __expf expf
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __powf powf
#define __exp10f exp10f
#define __sincosf sincosf
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }

// Rounded once each: the compiler may fuse a plain product and sum, but not these.
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
#define CUEMU_UNFUSED CUEMU_UNCHECKED __attribute__((noinline)) static
CUEMU_UNFUSED float __fadd_rn(float a, float b) { return a + b; }
CUEMU_UNFUSED float __fsub_rn(float a, float b) { return a - b; }
CUEMU_UNFUSED float __fmul_rn(float a, float b) { return a * b; }
CUEMU_UNFUSED float __fdiv_rn(float a, float b) { return a / b; }
CUEMU_UNFUSED double __dadd_rn(double a, double b) { return a + b; }
CUEMU_UNFUSED double __dsub_rn(double a, double b) { return a - b; }
CUEMU_UNFUSED double __dmul_rn(double a, double b) { return a * b; }
static inline float __frcp_rn(float x) { return 1 / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __frsqrt_rn(float x) { return 1 / sqrtf(x); }

// ---- conversions

static inline int __float2int_rn(float x) { return (int)rintf(x); }
static inline int __float2int_rz(float x) { return (int)x; }
static inline int __float2int_rd(float x) { return (int)floorf(x); }
static inline int __float2int_ru(float x) { return (int)ceilf(x); }
static inline unsigned __float2uint_rn(float x) { return (unsigned)rintf(x); }
static inline unsigned __float2uint_rz(float x) { return (unsigned)x; }
static inline float __int2float_rn(int x) { return x; }
static inline float __uint2float_rn(unsigned x) { return x; }
static inline float __double2float_rn(double x) { return x; }

template <class Target, class Source> static inline Target cuemu_bits(Source source) {
    static_assert(sizeof(Target) == sizeof(Source), "");
    Target target;
    __builtin_memcpy(&target, &source, sizeof target);
    return target;
}
static inline int __float_as_int(float x) { return cuemu_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return cuemu_bits<unsigned>(x); }
static inline float __int_as_float(int x) { return cuemu_bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return cuemu_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return cuemu_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return cuemu_bits<double>(x); }

// ---- bits

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x) {
    unsigned result = 0;
    for (int i = 0; i < 32; i++) result |= (x >> i & 1) << (31 - i);
    return result;
}
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }
static inline int __mulhi(int a, int b) { return (long long)a * b >> 32; }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned __int128)a * b >> 64;
}
static inline int __mul24(int a, int b) { return a * b; }
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned result = 0;
    for (int i = 0; i < 4; i++)
        result |= unsigned(both >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return result;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return ((unsigned long long)high << 32 | low) << (shift & 31) >> 32;
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return ((unsigned long long)high << 32 | low) >> (shift & 31);
}

// ---- memory

template <class T> static inline T __ldg(const T *address) { return *address; }
template <class T> static inline T __ldcs(const T *address) { return *address; }
template <class T> static inline T __ldcg(const T *address) { return *address; }
template <class T> static inline T __ldca(const T *address) { return *address; }
template <class T> static inline void __stcs(T *address, T value) { *address = value; }
template <class T> static inline void __stcg(T *address, T value) { *address = value; }
static inline size_t __cvta_generic_to_shared(const void *address) { return (size_t)address; }
static inline long long clock64() { return __builtin_ia32_rdtsc(); }
}
