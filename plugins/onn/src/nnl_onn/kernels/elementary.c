/* Elementary functions in float, in C and in CUDA, that compilers vectorise: no branches, no tables.
   NaN stays NaN. */

ONN_INLINE float onn_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

ONN_INLINE uint32_t onn_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

/* Added to a float it rounds it to a whole number, which stands in the lowest bits of the sum. */
#define ONN_ROUND 12582912.0f

/* sin(r + k pi) for |r| <= pi / 2, k in the lowest bit of `whole`; fitted to 5e-9. Where
   a float no longer tells multiples of pi apart, the result is at least within [-1, 1]. */
ONN_INLINE float onn_half_turn(float r, float whole) {
    const float s = r * r;
    float p = 2.5997514e-6f;
    p = p * s - 1.9806479e-4f;
    p = p * s + 8.3330154e-3f;
    p = p * s - 1.66666570e-1f;
    float y = r + r * s * p;
    y = onn_from_bits(onn_bits(y) ^ (onn_bits(whole) << 31));
    y = y > 1.0f ? 1.0f : y;
    return y < -1.0f ? -1.0f : y;
}

/* Arguments are brought to half a turn by pi in two floats: exact for up to a million of turns. */
ONN_INLINE float onn_sin(float a) {
    const float whole = fmaf(a, 0.318309886f, ONN_ROUND), k = whole - ONN_ROUND;
    const float r = fmaf(k, 8.74227766e-8f, fmaf(k, -3.14159274f, a));
    return onn_half_turn(r, whole);
}

ONN_INLINE float onn_cos(float a) {
    const float whole = fmaf(a, 0.318309886f, 0.5f) + ONN_ROUND;
    const float k = whole - ONN_ROUND - 0.5f;
    const float r = fmaf(k, 8.74227766e-8f, fmaf(k, -3.14159274f, a));
    return onn_half_turn(r, whole);
}

/* exp(a) is 2^n exp(r) with |r| <= ln 2 / 2, where exp(r) is c + s r, as of a hyperbola: c and s are
   even in r. The halves of both exponentials, with a and -a, are made of the same. Powers of two
   below the normal numbers are 0. */
struct onn_parts {
    float even, odd, up, down; /* c, s r, 2^(n - 1), 2^(-n - 1) */
};

ONN_INLINE struct onn_parts onn_exponential(float a, float least, float most) {
    a = a > most ? most : a;
    a = a < least ? least : a;
    const float whole = fmaf(a, 1.44269504f, ONN_ROUND), n = whole - ONN_ROUND;
    const float r = fmaf(n, -1.42860677e-6f, fmaf(n, -0.693145752f, a));
    const float s = r * r;
    float even = 1.3888889e-3f, odd = 1.9841270e-4f;
    even = even * s + 4.1666667e-2f;
    odd = odd * s + 8.3333333e-3f;
    even = even * s + 0.5f;
    odd = odd * s + 1.6666667e-1f;
    even = even * s + 1.0f;
    const uint32_t shift = onn_bits(whole) << 23;
    const struct onn_parts parts = {even, r + r * s * odd, onn_from_bits(shift + (126 << 23)),
                                    onn_from_bits((126 << 23) - shift)};
    return parts;
}

ONN_INLINE float onn_exp(float a) {
    const struct onn_parts e = onn_exponential(a, -87.6f, 89.0f);
    return (e.even + e.odd) * e.up * 2.0f;
}

/* Beyond 87.6 both stay what they are there, 5e37. */
ONN_INLINE float onn_sinh(float a) {
    const struct onn_parts e = onn_exponential(a, -87.6f, 87.6f);
    return e.even * (e.up - e.down) + e.odd * (e.up + e.down);
}

ONN_INLINE float onn_cosh(float a) {
    const struct onn_parts e = onn_exponential(a, -87.6f, 87.6f);
    return e.even * (e.up + e.down) + e.odd * (e.up - e.down);
}

ONN_INLINE float onn_tanh(float a) {
    const struct onn_parts e = onn_exponential(a, -10.0f, 10.0f);
    const float sum = e.up + e.down, difference = e.up - e.down;
    return (e.even * difference + e.odd * sum) / (e.even * sum + e.odd * difference);
}

/* The larger and the smaller of two; NaN if one of them is. */
ONN_INLINE T onn_max(T a, T b) {
    const T c = a > b ? a : b;
    return a != a ? a : c;
}

ONN_INLINE T onn_min(T a, T b) {
    const T c = a < b ? a : b;
    return a != a ? a : c;
}
