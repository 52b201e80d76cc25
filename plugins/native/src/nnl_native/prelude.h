/* What every generated kernel may use: types, and elementary functions that vectorise. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define INLINE static inline __attribute__((always_inline))

/* The larger and the smaller of two; NaN if one of them is. Two plain choices, one after the other:
   loops over a choice between choices do not vectorise. */
#define NNL_CHOOSE(a, b, sign)                                   \
    ({                                                           \
        const __typeof__(a) a_ = (a);                            \
        const __typeof__(b) b_ = (b);                            \
        const __typeof__(1 ? a_ : b_) c_ = a_ sign b_ ? a_ : b_; \
        a_ != a_ ? a_ : c_;                                      \
    })
#define NNL_MAX(a, b) NNL_CHOOSE(a, b, >)
#define NNL_MIN(a, b) NNL_CHOOSE(a, b, <)

INLINE float nnl_from_bits(int32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

INLINE int32_t nnl_bits(float value) {
    int32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

/* exp(x): x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial in r, scaled by 2^n in two halves, so
   that results down to the denormals and up to infinity come out. No branches: loops vectorise. */
INLINE float nnl_expf(float x) {
    float clamped = x > 89.0f ? 89.0f : (x < -104.0f ? -104.0f : x);
    float n = __builtin_rintf(clamped * 1.44269504088896341f);
    float r = clamped - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.9841270e-4f;
    p = p * r + 1.3888889e-3f;
    p = p * r + 8.3333333e-3f;
    p = p * r + 4.1666667e-2f;
    p = p * r + 1.6666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    int32_t whole = (int32_t)(n == n ? n : 0.0f);
    int32_t half = whole >> 1;
    p = p * nnl_from_bits((half + 127) << 23);
    p = p * nnl_from_bits((whole - half + 127) << 23);
    return x == x ? p : x;
}

/* tanh(x) within 3 units in the last place, at half the price of an exponential: x times a ratio of
   polynomials of x squared, fitted to the least relative error (2e-8) up to 9, from where on the
   tangent is 1. */
INLINE float nnl_tanhf(float x) {
    const float a = fabsf(x) > 9.0f ? 9.0f : fabsf(x), s = a * a;
    float p = 1.3419769e-8f, q = 7.8047071e-7f;
    p = p * s + 2.0661222e-5f;
    q = q * s + 3.2910343e-4f;
    p = p * s + 3.4989936e-3f;
    q = q * s + 2.5890196e-2f;
    p = p * s + 1.3383978e-1f;
    q = q * s + 4.6717300e-1f;
    p = p * s + 1.0f;
    q = q * s + 1.0f;
    const float y = a * p / q;
    return copysignf(y > 1.0f ? 1.0f : y, x);
}

/* log(x): x = 2^e m with m in [sqrt(1/2), sqrt(2)), a rational series in (m - 1) / (m + 1). */
INLINE float nnl_logf(float x) {
    float scaled = x < 1.17549435e-38f ? x * 8388608.0f : x;
    int32_t bits = nnl_bits(scaled);
    int32_t exponent = ((bits - 0x3f3504f3) >> 23);
    float e = (float)exponent - (x < 1.17549435e-38f ? 23.0f : 0.0f);
    float m = nnl_from_bits(bits - (exponent << 23)) - 1.0f;
    float z = m * m;
    float p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    float y = m * z * p;
    y = y + e * -2.12194440e-4f;
    y = y - 0.5f * z;
    float result = m + y;
    result = result + e * 0.693359375f;
    result = x == INFINITY ? x : result;
    result = x == 0.0f ? -INFINITY : result;
    return (x < 0.0f || x != x) ? NAN : result;
}

/* log(1 + x), exact where 1 + x rounds: the error of the sum is put back. */
INLINE float nnl_log1pf(float x) {
    float u = 1.0f + x;
    float corrected = nnl_logf(u) + (x - (u - 1.0f)) / u;
    return (u == 1.0f || x == INFINITY) ? x : (x == -1.0f ? -INFINITY : corrected);
}

INLINE double nnl_exp(double x) { return exp(x); }
INLINE double nnl_tanh(double x) { return tanh(x); }
INLINE double nnl_log(double x) { return log(x); }
INLINE double nnl_log1p(double x) { return log1p(x); }
