// Fourier transforms of any length.
//
// Lines whose lengths have small factors and fit into shared memory are transformed there, in stages
// that leave everything in order (T. Stockham, "High-speed convolution and correlation", 1966); longer
// ones in two such launches with a turn between (D. Bailey, "FFTs in external or hierarchical
// memory", 1990); all others as a convolution with a chirp (L. Bluestein, "A linear filtering
// approach to the computation of the discrete Fourier transform", 1970).
//
// Macro: T element type. Numbers are pairs of C; `sign` is -1 forward, 1 back. A launch of `lines`
// reads and writes each number once; stages cost 5 n log2(n) operations a line.

typedef Computing<T>::type C;
struct alignas(2 * sizeof(C)) Pair { C re, im; };

enum { WIDE = 1, REALS = 2, HALVES = 4 };  // of what numbers are, see Numbers

INLINE Pair times(Pair a, Pair b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
INLINE Pair plus(Pair a, Pair b) { return {a.re + b.re, a.im + b.im}; }
INLINE Pair minus(Pair a, Pair b) { return {a.re - b.re, a.im - b.im}; }

// exp(sign pi i x / n), of an x below 2 n.
INLINE Pair turn(int64_t x, int64_t n, C sign) {
    double s, c, angle = (double)x / (double)n;
#ifdef __CUEMU__
    s = sin(3.14159265358979323846 * angle), c = cos(3.14159265358979323846 * angle);
#else
    sincospi(angle, &s, &c);
#endif
    return {(C)c, (C)s * sign};
}

// Numbers along an axis of (outer, length, inner): pairs of T, or of C (WIDE), or T without imaginary
// parts (REALS). HALVES are the frequencies of `of` reals up to half: the others mirror them. What
// is put behind the length is left out.
struct Numbers {
    void *memory;
    int32_t kind;
    int64_t length, inner, of;

    __device__ __forceinline__ Pair get(int64_t outer, int64_t i, int64_t c) const {
        bool mirrored = kind & HALVES && i >= length;
        int64_t at = (outer * length + (mirrored ? of - i : i)) * inner + c;
        if (kind & REALS) return {wide(((const T *)memory)[at]), 0};
        Pair z;
        if (kind & WIDE) {
            z = ((const Pair *)memory)[at];
        } else {
            Vector<T, 2> v = ((const Vector<T, 2> *)memory)[at];
            z = {wide(v.at[0]), wide(v.at[1])};
        }
        if (mirrored) z.im = -z.im;
        if (kind & HALVES && (i == 0 || 2 * i == of)) z.im = 0;
        return z;
    }
    __device__ __forceinline__ void put(int64_t outer, int64_t i, int64_t c, Pair z) const {
        if (i >= length) return;
        int64_t at = (outer * length + i) * inner + c;
        if (kind & REALS) {
            ((T *)memory)[at] = narrow<T>(z.re);
        } else if (kind & WIDE) {
            ((Pair *)memory)[at] = z;
        } else {
            Vector<T, 2> v;
            v.at[0] = narrow<T>(z.re);
            v.at[1] = narrow<T>(z.im);
            ((Vector<T, 2> *)memory)[at] = v;
        }
    }
};

// exp(2 pi i k / n) for each k, one thread for each.
extern "C" __global__ void KERNEL(roots)(Pair *to, int64_t n) {
    FOR_EACH(k, n) to[k] = turn(2 * k, n, 1);
}

INLINE Pair root(const Pair *__restrict__ roots, int k, C sign) {
    Pair w = roots[k];
    return {w.re, w.im * sign};
}

// z times i or -i.
INLINE Pair quarter(Pair z, C sign) { return {-z.im * sign, z.re * sign}; }

// The transform of R numbers.
INLINE void butterfly(Pair (&v)[2], C) {
    Pair a = v[0];
    v[0] = plus(a, v[1]);
    v[1] = minus(a, v[1]);
}
INLINE void butterfly(Pair (&v)[3], C sign) {
    const C HALF_ROOT = (C)0.86602540378443864676;
    Pair sum = plus(v[1], v[2]), apart = quarter(minus(v[1], v[2]), sign * HALF_ROOT);
    Pair level = {v[0].re - sum.re / 2, v[0].im - sum.im / 2};
    v[0] = plus(v[0], sum);
    v[1] = plus(level, apart);
    v[2] = minus(level, apart);
}
INLINE void butterfly(Pair (&v)[4], C sign) {
    Pair a = plus(v[0], v[2]), b = minus(v[0], v[2]);
    Pair c = plus(v[1], v[3]), d = quarter(minus(v[1], v[3]), sign);
    v[0] = plus(a, c);
    v[1] = plus(b, d);
    v[2] = minus(a, c);
    v[3] = minus(b, d);
}
INLINE void butterfly(Pair (&v)[8], C sign) {
    const C ROOT = (C)0.70710678118654752440;
    Pair a[4] = {v[0], v[2], v[4], v[6]}, b[4] = {v[1], v[3], v[5], v[7]};
    butterfly(a, sign);
    butterfly(b, sign);
    b[1] = times(b[1], Pair{ROOT, ROOT * sign});
    b[2] = quarter(b[2], sign);
    b[3] = times(b[3], Pair{-ROOT, ROOT * sign});
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[i] = plus(a[i], b[i]);
        v[i + 4] = minus(a[i], b[i]);
    }
}

// A stage of `lines` in shared memory: `done` is the product of the radices before.
template <int R>
INLINE void stage(const Pair *from, Pair *to, const Pair *roots, int n, int done, int lines,
                  int pitch, C sign) {
    int each = n / R, step = each / done;
    for (int item = threadIdx.x; item < lines * each; item += blockDim.x) {
        int line = item / each, j = item % each, k = j % done;
        Pair v[R];
#pragma unroll
        for (int r = 0; r < R; r++) v[r] = from[line * pitch + j + r * each];
#pragma unroll
        for (int r = 1; r < R; r++) v[r] = times(v[r], root(roots, r * k * step, sign));
        butterfly(v, sign);
        Pair *at = to + line * pitch + (j - k) * R + k;
#pragma unroll
        for (int r = 0; r < R; r++) at[r * done] = v[r];
    }
}

// The same of any radix: a thread sums one result.
INLINE void any_stage(const Pair *from, Pair *to, const Pair *roots, int n, int done, int radix,
                      int lines, int pitch, C sign) {
    int each = n / radix, step = each / done;
    for (int item = threadIdx.x; item < lines * n; item += blockDim.x) {
        int line = item / n, j = item % n % each, q = item % n / each, k = j % done;
        int turned = k * step + q * each, angle = 0;
        Pair sum = {0, 0};
        for (int r = 0; r < radix; r++) {
            sum = plus(sum, times(from[line * pitch + j + r * each], root(roots, angle, sign)));
            angle += turned;
            if (angle >= n) angle -= n;
        }
        to[line * pitch + (j - k) * radix + k + q * done] = sum;
    }
}

// Transforms lines of n numbers: line (outer, m, c) has the numbers i * step + m * apart of its
// axis, and its results go to k * to_step + m * to_apart, times exp(2 pi i m k / turns) where that
// is not 0, and `scale`. `radices` has 6 bits for each stage. A block has `each` lines, which lie
// side by side, 256 threads, and shared memory for two copies of them.
extern "C" __global__ void __launch_bounds__(256) KERNEL(lines)(
    void *from, int32_t from_kind, int64_t from_length, void *to, int32_t to_kind,
    int64_t to_length, int64_t inner, int64_t of, const Pair *__restrict__ roots, int32_t n,
    int64_t radices, int64_t lines, int32_t each, int64_t middle, int64_t step, int64_t apart,
    int64_t to_step, int64_t to_apart, int64_t turns, C sign, C scale) {
    extern __shared__ double memory[];
    Numbers source = {from, from_kind, from_length, inner, of};
    Numbers target = {to, to_kind, to_length, inner, of};
    int pitch = n | 1;  // so that numbers of neighbouring lines are in different banks
    Pair *now = (Pair *)memory, *next = now + each * pitch;
    int64_t first = (int64_t)blockIdx.x * each;
    int have = (int)(lines - first < each ? lines - first : each);

    bool along = inner == 1 && step == 1;  // what lies side by side: a line, or lines
    for (int item = threadIdx.x; item < have * n; item += blockDim.x) {
        int i = along ? item % n : item / have, line = along ? item / n : item % have;
        int64_t c = first + line, outer;
        outer = c / inner;
        c -= outer * inner;
        int64_t m = outer % middle;
        outer /= middle;
        now[line * pitch + i] = source.get(outer, i * step + m * apart, c);
    }
    __syncthreads();
    for (int done = 1; radices; radices >>= 6) {
        int radix = radices & 63;
        switch (radix) {
        case 2: stage<2>(now, next, roots, n, done, have, pitch, sign); break;
        case 3: stage<3>(now, next, roots, n, done, have, pitch, sign); break;
        case 4: stage<4>(now, next, roots, n, done, have, pitch, sign); break;
        case 8: stage<8>(now, next, roots, n, done, have, pitch, sign); break;
        default: any_stage(now, next, roots, n, done, radix, have, pitch, sign);
        }
        __syncthreads();
        Pair *other = now;
        now = next;
        next = other;
        done *= radix;
    }
    along = inner == 1 && to_step == 1;
    for (int item = threadIdx.x; item < have * n; item += blockDim.x) {
        int i = along ? item % n : item / have, line = along ? item / n : item % have;
        int64_t c = first + line, outer;
        outer = c / inner;
        c -= outer * inner;
        int64_t m = outer % middle;
        outer /= middle;
        Pair z = now[line * pitch + i];
        if (turns) z = times(z, turn(2 * (m * i % turns), turns, sign));
        z.re *= scale;
        z.im *= scale;
        target.put(outer, i * to_step + m * to_apart, c, z);
    }
}

// Convolution with a chirp ------------------------------------------------------------------------
//
// Sum of x[i] w^(i k) = w^(k k / 2) times the sum of (x[i] w^(i i / 2)) w^(-(k - i)^2 / 2), with
// w = exp(sign 2 pi i / n): products of transforms of length m >= 2 n - 1. One thread a number.

INLINE Pair chirp(int64_t i, int64_t n, C sign) { return turn(i * i % (2 * n), n, sign); }

extern "C" __global__ void KERNEL(chirp_in)(void *from, int32_t kind, int64_t length, int64_t inner,
                                            Pair *to, int64_t n, int64_t m, C sign, int64_t size) {
    Numbers source = {from, kind, length, inner, n};
    FOR_EACH(item, size) {
        int64_t i = item % m, line = item / m;
        Pair z = {0, 0};
        if (i < n) z = times(source.get(line / inner, i, line % inner), chirp(i, n, sign));
        to[item] = z;
    }
}

extern "C" __global__ void KERNEL(chirp_filter)(Pair *to, int64_t n, C sign, int64_t m) {
    FOR_EACH(i, m) {
        int64_t from_zero = i < m - i ? i : m - i;
        Pair z = {0, 0};
        if (from_zero < n) z = chirp(from_zero, n, -sign);
        to[i] = z;
    }
}

extern "C" __global__ void KERNEL(chirp_product)(Pair *z, const Pair *__restrict__ filter, int64_t m,
                                                 int64_t size) {
    FOR_EACH(item, size) z[item] = times(z[item], filter[item % m]);
}

extern "C" __global__ void KERNEL(chirp_out)(const Pair *__restrict__ from, void *to, int32_t kind,
                                             int64_t length, int64_t inner, int64_t n, int64_t m,
                                             C sign, C scale, int64_t size) {
    Numbers target = {to, kind, length, inner, n};
    FOR_EACH(item, size) {
        int64_t c = item % inner, k = item / inner % n, outer = item / inner / n;
        Pair z = times(from[(outer * inner + c) * m + k], chirp(k, n, sign));
        z.re *= scale;
        z.im *= scale;
        target.put(outer, k, c, z);
    }
}
