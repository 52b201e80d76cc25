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

/* Brought to half a turn, |r| <= pi / 2, by pi in two floats: exact for up to a million of turns. The
   polynomials in r are within 5e-9, and 5e-8, of sin and cos. Of arguments so large that multiples of
   pi are not told apart, and r is what it likes, results are at least within [-1, 1]. */
ONN_INLINE float onn_rest(float a, float k) {
    return fmaf(k, 8.74227766e-8f, fmaf(k, -3.14159274f, a));
}

ONN_INLINE float onn_sin(float a) {
    const float whole = fmaf(a, 0.318309886f, ONN_ROUND), r = onn_rest(a, whole - ONN_ROUND);
    const float s = r * r;
    float p = 2.5997514e-6f;
    p = p * s - 1.9806479e-4f;
    p = p * s + 8.3330154e-3f;
    p = p * s - 1.66666570e-1f;
    const uint32_t y = onn_bits(r + r * s * p), size = y & 0x7fffffffu;
    const uint32_t sign = (y & 0x80000000u) ^ (onn_bits(whole) << 31);
    /* As bits, one is 0x3f800000; 0 a is NaN where a is no number. */
    return fmaf(a, 0.0f, onn_from_bits((size < 0x3f800000u ? size : 0x3f800000u) | sign));
}

ONN_INLINE float onn_cos(float a) {
    const float whole = fmaf(a, 0.318309886f, ONN_ROUND), r = onn_rest(a, whole - ONN_ROUND);
    const float s = r * r > 2.47f ? 2.47f : r * r;
    float p = 2.319126783e-5f;
    p = p * s - 1.385579783e-3f;
    p = p * s + 4.166397360e-2f;
    p = p * s - 4.999993176e-1f;
    return onn_from_bits(onn_bits(1.0f + s * p) ^ (onn_bits(whole) << 31));
}

/* Floats are in the order of their bits: positive ones as numbers with a sign, negative ones backwards
   as numbers without. Two such choices take two instructions, where those of floats make branches;
   what is no number becomes one. */
ONN_INLINE float onn_bounded(float a, float least, float most) {
    const int32_t bits = (int32_t)onn_bits(a), top = (int32_t)onn_bits(most);
    const uint32_t below = (uint32_t)(bits < top ? bits : top), bottom = onn_bits(least);
    return onn_from_bits(below < bottom ? below : bottom);
}

/* a = n ln 2 + r with |r| <= ln 2 / 2; n in the lowest bits of `whole`. */
struct onn_powers {
    float r, whole;
};

ONN_INLINE struct onn_powers onn_reduced(float a) {
    const float whole = fmaf(a, 1.44269504f, ONN_ROUND), n = whole - ONN_ROUND;
    const float r = fmaf(n, -1.42860677e-6f, fmaf(n, -0.693145752f, a));
    const struct onn_powers powers = {r, whole};
    return powers;
}

/* exp(a) = 2^n exp(r); the polynomial is within 3e-9 of it. Powers of two below the normal numbers
   are 0. */
ONN_INLINE float onn_exp(float a) {
    const struct onn_powers e = onn_reduced(onn_bounded(a, -87.6f, 89.0f));
    float p = 1.381446667e-3f;
    p = p * e.r + 8.368780440e-3f;
    p = p * e.r + 4.166839422e-2f;
    p = p * e.r + 1.666652011e-1f;
    p = p * e.r + 4.999999341e-1f;
    p = p * e.r + 1.0f;
    p = p * e.r + 1.0f;
    const float y = p * onn_from_bits((onn_bits(e.whole) << 23) + (126 << 23)) * 2.0f;
    return a != a ? a : y;
}

/* The hyperbolic functions are sums of the even part of exp(r), and of the odd one, times half of
   2^n + 2^-n and of 2^n - 2^-n: so small arguments keep all digits. */
struct onn_parts {
    float even, odd, sum, difference;
};

ONN_INLINE struct onn_parts onn_hyperbolic(float a, float most) {
    const struct onn_powers e = onn_reduced(onn_bounded(a, -most, most));
    const float s = e.r * e.r;
    float even = 1.3888889e-3f, odd = 1.9841270e-4f;
    even = even * s + 4.1666667e-2f;
    odd = odd * s + 8.3333333e-3f;
    even = even * s + 0.5f;
    odd = odd * s + 1.6666667e-1f;
    even = even * s + 1.0f;
    const uint32_t shift = onn_bits(e.whole) << 23;
    const float up = onn_from_bits((126 << 23) + shift), down = onn_from_bits((126 << 23) - shift);
    const struct onn_parts parts = {even, e.r + e.r * s * odd, up + down, up - down};
    return parts;
}

/* Beyond 87.6 both stay what they are there, 5e37. */
ONN_INLINE float onn_sinh(float a) {
    const struct onn_parts e = onn_hyperbolic(a, 87.6f);
    const float y = e.even * e.difference + e.odd * e.sum;
    return a != a ? a : y;
}

ONN_INLINE float onn_cosh(float a) {
    const struct onn_parts e = onn_hyperbolic(a, 87.6f);
    const float y = e.even * e.sum + e.odd * e.difference;
    return a != a ? a : y;
}

ONN_INLINE float onn_tanh(float a) {
    const struct onn_parts e = onn_hyperbolic(a, 10.0f);
    const float y =
        (e.even * e.difference + e.odd * e.sum) / (e.even * e.sum + e.odd * e.difference);
    return a != a ? a : y;
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
