// Random numbers: the same that NumPy's generators draw.
//
// The generator counts: four words of 64 bits, or eight of 32, are a function of the key and of how
// many came before (Philox 4x64 with ten rounds: J. Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3", 2011). Draws that take one word each are made where they belong. Others reject some
// of what they tried, so that where a draw begins follows from all before it: see `walk` below.
// Products and sums are rounded one after the other, as NumPy does: no contraction.

struct Words {
    uint64_t key0, key1, held, r0, r1, r2, r3;
    uint64_t at;  // of the next word, of 32 or of 64 bits

    __device__ __forceinline__ Words(const uint64_t *key, uint64_t begin)
        : key0(key[0]), key1(key[1]), held(~0ull), at(begin) {}

    __device__ __forceinline__ void make(uint64_t count) {
        uint64_t a = count + 1, b = 0, c = 0, d = 0, k0 = key0, k1 = key1;
#pragma unroll
        for (int round = 0; round < 10; round++) {
            uint64_t left = 0xD2E7470EE14C6C93ull * a, over = __umul64hi(0xD2E7470EE14C6C93ull, a);
            uint64_t right = 0xCA5A826395121157ull * c, up = __umul64hi(0xCA5A826395121157ull, c);
            a = up ^ b ^ k0;
            b = right;
            c = over ^ d ^ k1;
            d = left;
            k0 += 0x9E3779B97F4A7C15ull;
            k1 += 0xBB67AE8584CAA73Bull;
        }
        held = count, r0 = a, r1 = b, r2 = c, r3 = d;
    }
    __device__ __forceinline__ uint64_t word(uint64_t i) {
        if (i / 4 != held) make(i / 4);
        uint64_t low = i & 1 ? r1 : r0, high = i & 1 ? r3 : r2;
        return i & 2 ? high : low;
    }
    __device__ __forceinline__ uint64_t next64() { return word(at++); }
    __device__ __forceinline__ uint32_t next32() {
        uint64_t both = word(at / 2);
        return (uint32_t)(at++ & 1 ? both >> 32 : both);
    }
    __device__ __forceinline__ float next_float() { return (next32() >> 8) * 0x1p-24f; }
    __device__ __forceinline__ double next_double() { return (next64() >> 11) * 0x1p-53; }
};

#ifdef UNIFORM
// One thread for eight numbers, which are one count of the generator.

INLINE float uniform_of(uint64_t word, int half) {
    return ((uint32_t)(half ? word >> 32 : word) >> 8) * 0x1p-24f;
}

extern "C" __global__ void KERNEL(random_key)(const uint64_t *start, const uint64_t *counter,
                                              uint64_t *key) {
    key[0] = start[0];
    key[1] = counter[0] - start[1];
}

// Of draws that have one result: a number of 32 bits for each.
extern "C" __global__ void KERNEL(certain)(int32_t *y, int32_t value, int64_t size) {
    FOR_EACH(i, size) y[i] = value;
}

// Writes 4 bytes for each number.
extern "C" __global__ void KERNEL(rand)(const uint64_t *__restrict__ key, float *__restrict__ y,
                                        float width, float low, float last, int64_t size,
                                        int64_t counts) {
    Words words(key, 0);
    FOR_EACH(count, counts) {
        words.make(count);
        float v[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = smaller(
                __fadd_rn(__fmul_rn(uniform_of(words.word(4 * count + i / 2), i & 1), width), low),
                last);
        if (8 * count + 8 <= size) {
            float4 *to = (float4 *)(y + 8 * count);
            to[0] = make_float4(v[0], v[1], v[2], v[3]);
            to[1] = make_float4(v[4], v[5], v[6], v[7]);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (8 * count + i < size) y[8 * count + i] = v[i];
        }
    }
}

#ifdef T
typedef Computing<T>::type C;
typedef Vector<T, 16 / sizeof(T)> Sixteen;
typedef Vector<bool, 8> Eight;

// Reads x, writes y and a byte for each.
extern "C" __global__ void KERNEL(dropout)(const T *__restrict__ x, const uint64_t *__restrict__ key,
                                           T *__restrict__ y, bool *__restrict__ mask, float p,
                                           C factor, int64_t size, int64_t counts) {
    const int PART = 16 / sizeof(T);
    Words words(key, 0);
    FOR_EACH(count, counts) {
        words.make(count);
        Eight stays;
#pragma unroll
        for (int i = 0; i < 8; i++)
            stays.at[i] = uniform_of(words.word(4 * count + i / 2), i & 1) >= p;
        if (8 * count + 8 <= size) {
            *(Eight *)(mask + 8 * count) = stays;
#pragma unroll
            for (int part = 0; part < 8; part += PART) {
                Sixteen v = *(const Sixteen *)(x + 8 * count + part);
#pragma unroll
                for (int e = 0; e < PART; e++)
                    v.at[e] = narrow<T>(wide(v.at[e]) * (C)stays.at[part + e] * factor);
                *(Sixteen *)(y + 8 * count + part) = v;
            }
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (8 * count + i < size) {
                    mask[8 * count + i] = stays.at[i];
                    y[8 * count + i] = narrow<T>(wide(x[8 * count + i]) * (C)stays.at[i] * factor);
                }
        }
    }
}
#endif

#else
// Draws that take as many words as they need ----------------------------------------------------

#if defined(NORMAL_KEPT)
// Normal numbers of 32 bits (G. Marsaglia and W. Tsang, "The ziggurat method for generating random
// variables", 2000): 256 layers of one area, by the table, whose lowest has the tail from EDGE on.
static __device__ const uint32_t kept[256] = {NORMAL_KEPT};
static __device__ const float widths[256] = {NORMAL_WIDTHS}, heights[256] = {NORMAL_HEIGHTS};

INLINE float draw(Words &words, double sigma, double mean, double) {
    for (;;) {
        uint32_t bits = words.next32();
        int layer = bits & 255;
        uint32_t size = bits >> 9;
        float x = size * widths[layer];
        bool negative = bits >> 8 & 1;
        if (size >= kept[layer]) {
            if (layer == 0) {
                float beyond, y;
                do {
                    beyond = __fmul_rn((float)(-1 / EDGE), log1pf(-words.next_float()));
                    y = -log1pf(-words.next_float());
                } while (!(__fadd_rn(y, y) > __fmul_rn(beyond, beyond)));
                x = __fadd_rn((float)EDGE, beyond);
                negative = size >> 8 & 1;
            } else {
                float rise = __fadd_rn(heights[layer - 1], -heights[layer]);
                float y = __fadd_rn(__fmul_rn(rise, words.next_float()), heights[layer]);
                if (!(y < exp(-0.5 * x * x))) continue;
            }
        }
        return __fadd_rn(__fmul_rn(negative ? -x : x, (float)sigma), (float)mean);
    }
}

#elif defined(INTEGERS)
// Integers below `span`, which is 2 to 2**32 - 1 (D. Lemire, "Fast random integer generation in an
// interval", 2019).
INLINE int32_t draw(Words &words, double low, double span, double least) {
    for (;;) {
        uint64_t product = words.next32() * (uint64_t)span;
        if ((uint32_t)product >= (uint32_t)least)
            return (int32_t)((int64_t)low + (int64_t)(product >> 32));
    }
}

#elif defined(BINOMIAL)
const double SMALL_MEAN = 30;

// The least number whose distribution function is not below a uniform number; `none` is the
// probability of no success.
INLINE double invert(Words &words, double n, double p, double none) {
    double q = 1 - p, mean = n * p;
    double bound = floor(fmin(n, mean + 10 * sqrt(mean * q + 1)));
    double x = 0, mass = none, u = words.next_double();
    while (u > mass) {
        x += 1;
        if (x > bound) {
            x = 0, mass = none, u = words.next_double();
        } else {
            u -= mass;
            mass = (n - x + 1) * p * mass / (x * q);
        }
    }
    return x;
}

INLINE double tail_of_stirling(double x) {
    double s = x * x;
    return (13680 - (462 - (132 - (99 - 140 / s) / s) / s) / s) / x / 166320;
}

// V. Kachitvichyanukul and B. Schmeiser, "Binomial random variate generation", 1988 (BTPE): a
// triangle, a parallelogram and two exponential tails above the distribution.
INLINE double reject(Words &words, double n, double r) {
    double q = 1 - r, peak = n * r + r, m = floor(peak), nrq = n * r * q;
    double p1 = floor(2.195 * sqrt(nrq) - 4.6 * q) + 0.5;
    double middle = m + 0.5, left = middle - p1, right = middle + p1, c = 0.134 + 20.5 / (15.3 + m);
    double a = (peak - left) / (peak - left * r), down = a * (1 + a / 2);
    a = (right - peak) / (right * q);
    double up = a * (1 + a / 2);
    double p2 = p1 * (1 + 2 * c), p3 = p2 + c / down, p4 = p3 + c / up;
    for (;;) {
        double u = words.next_double() * p4, v = words.next_double(), y;
        if (u <= p1) return floor(middle - p1 * v + u);
        if (u <= p2) {
            double x = left + (u - p1) / c;
            v = v * c + 1 - fabs(m - x + 0.5) / p1;
            if (v > 1) continue;
            y = floor(x);
        } else if (u <= p3) {
            y = floor(left + log(v) / down);
            if (y < 0 || v == 0) continue;
            v *= (u - p2) * down;
        } else {
            y = floor(right - log(v) / up);
            if (y > n || v == 0) continue;
            v *= (u - p3) * up;
        }
        double k = fabs(y - m);
        if (k <= 20 || k >= nrq / 2 - 1) {
            double s = r / q, t = s * (n + 1), f = 1;
            for (double i = m + 1; i <= y; i++) f *= t / i - s;
            for (double i = y + 1; i <= m; i++) f /= t / i - s;
            if (v <= f) return y;
            continue;
        }
        double rho = k / nrq * ((k * (k / 3 + 0.625) + 1.0 / 6) / nrq + 0.5), t = -k * k / (2 * nrq);
        double level = log(v);
        if (level < t - rho) return y;
        if (level > t + rho) continue;
        double x1 = y + 1, f1 = m + 1, z = n + 1 - m, w = n - y + 1;
        double bound = middle * log(f1 / x1) + (n - m + 0.5) * log(z / w) +
                       (y - m) * log(w * r / (x1 * q)) + tail_of_stirling(f1) + tail_of_stirling(z) +
                       tail_of_stirling(x1) + tail_of_stirling(w);
        if (level <= bound) return y;
    }
}

INLINE float draw(Words &words, double n, double p, double none) {
    double rarer = p <= 0.5 ? p : 1 - p;
    double x = rarer * n <= SMALL_MEAN ? invert(words, n, rarer, none) : reject(words, n, rarer);
    return (float)(p <= 0.5 ? x : n - x);
}

#else
// Normal and exponential numbers of 64 bits, by the same method.
static __device__ const uint64_t kept[256] = {DOUBLE_KEPT}, wait_kept[256] = {WAIT_KEPT};
static __device__ const double widths[256] = {DOUBLE_WIDTHS}, heights[256] = {DOUBLE_HEIGHTS};
static __device__ const double wait_widths[256] = {WAIT_WIDTHS}, wait_heights[256] = {WAIT_HEIGHTS};

INLINE double normal(Words &words) {
    for (;;) {
        uint64_t bits = words.next64();
        int layer = bits & 255;
        bool negative = bits >> 8 & 1;
        uint64_t size = bits >> 9 & 0xfffffffffffffull;
        double x = size * widths[layer];
        if (negative) x = -x;
        if (size < kept[layer]) return x;
        if (layer == 0) {
            for (;;) {
                double beyond = -1 / EDGE * log1p(-words.next_double());
                double y = -log1p(-words.next_double());
                if (y + y > beyond * beyond) return size >> 8 & 1 ? -(EDGE + beyond) : EDGE + beyond;
            }
        }
        double rise = heights[layer - 1] - heights[layer];
        if (rise * words.next_double() + heights[layer] < exp(-0.5 * x * x)) return x;
    }
}

INLINE double exponential(Words &words) {
    for (;;) {
        uint64_t bits = words.next64() >> 3;
        int layer = bits & 255;
        uint64_t size = bits >> 8;
        double x = size * wait_widths[layer];
        if (size < wait_kept[layer]) return x;
        if (layer == 0) return WAIT_EDGE - log1p(-words.next_double());
        double rise = wait_heights[layer - 1] - wait_heights[layer];
        if (rise * words.next_double() + wait_heights[layer] < exp(-x)) return x;
    }
}

// From 1 on: G. Marsaglia and W. Tsang, "A simple method for generating gamma variables", 2000;
// below: J. Ahrens and U. Dieter, "Computer methods for sampling from gamma, beta, Poisson and
// binomial distributions", 1974, with a waiting time for the logarithm.
INLINE double gamma(Words &words, double shape) {
    if (shape == 1) return exponential(words);
    if (shape < 1) {
        for (;;) {
            double u = words.next_double(), v = exponential(words);
            if (u <= 1 - shape) {
                double x = pow(u, 1 / shape);
                if (x <= v) return x;
            } else {
                double y = -log((1 - u) / shape), x = pow(1 - shape + shape * y, 1 / shape);
                if (x <= v + y) return x;
            }
        }
    }
    double b = shape - 1.0 / 3, c = 1 / sqrt(9 * b);
    for (;;) {
        double x, v;
        do {
            x = normal(words);
            v = 1 + c * x;
        } while (v <= 0);
        v = v * v * v;
        double u = words.next_double();
        if (u < 1 - 0.0331 * (x * x) * (x * x)) return b * v;
        if (log(u) < 0.5 * x * x + b * (1 - v + log(v))) return b * v;
    }
}

#ifdef BETA
// Where both are at most 1: M. Johnk, "Erzeugung von betaverteilten und gammaverteilten
// Zufallszahlen", 1964; else of two gamma numbers.
INLINE float draw(Words &words, double alpha, double beta, double) {
    if (alpha > 1 || beta > 1) {
        double x = gamma(words, alpha), y = gamma(words, beta);
        return (float)(x / (x + y));
    }
    for (;;) {
        double u = words.next_double(), v = words.next_double();
        double x = pow(u, 1 / alpha), y = pow(v, 1 / beta);
        if (!(x + y <= 1 && u + v > 0)) continue;
        if (x > 0 && y > 0) return (float)(x / (x + y));
        double log_x = log(u) / alpha, log_y = log(v) / beta, most = fmax(log_x, log_y);
        log_x -= most;
        log_y -= most;
        return (float)exp(log_x - log(exp(log_x) + exp(log_y)));
    }
}
#else
INLINE float draw(Words &words, double shape, double scale, double) {
    return (float)(scale * gamma(words, shape));
}
#endif
#endif

// Each thread has a run of words, and walks from draw to draw: from where the first begins in it, to
// where the first begins in the next run. At first it supposes that one begins with the run, then it
// hears from the thread before it, and walks again where it was wrong, until nobody is: walks that
// begin apart soon meet, so that this takes few turns. `settle` does the same with blocks, whose
// first run begins where a walk of WARM words leads. `write` walks once more, knowing where each
// number belongs. Deterministic: in the end all is as if one had walked alone.

const int THREADS = 256;
const int LONGEST = 32;  // words of a run

struct Walk { int32_t entry, exit, numbers; };  // begin and end from those of the run; how many

INLINE int walk(Words &words, uint64_t end, double a, double b, double c) {
    int numbers = 0;
    while (words.at < end) {
        draw(words, a, b, c);
        numbers++;
    }
    return numbers;
}

// The sum of what the threads before this one have, and of all.
INLINE int64_t sum_before(int64_t x, int64_t *room, int64_t &all) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t sum = x;
    for (int distance = 1; distance < 32; distance *= 2) {
        int64_t other = __shfl_up_sync(0xffffffffu, sum, distance);
        if (lane >= distance) sum += other;
    }
    if (lane == 31) room[warp] = sum;
    __syncthreads();
    int64_t before = 0;
    all = 0;
    for (int i = 0; i < THREADS / 32; i++) {
        if (i < warp) before += room[i];
        all += room[i];
    }
    __syncthreads();
    return before + sum - x;
}

// Walks all runs of a block, the first of which begins with `entry`.
INLINE void walk_block(const uint64_t *key, int64_t block, int entry, int run, double a, double b,
                       double c, Walk *walks, int2 *runs) {
    __shared__ int exits[THREADS];
    __shared__ int64_t room[THREADS / 32];
    uint64_t begin = ((uint64_t)block * THREADS + threadIdx.x) * run;
    int mine = threadIdx.x ? 0 : entry, numbers = 0, exit = 0;
    bool changed = true;
    do {
        if (changed) {
            Words words(key, begin + mine);
            numbers = walk(words, begin + run, a, b, c);
            exit = (int)(words.at - begin - run);
        }
        exits[threadIdx.x] = exit;
        __syncthreads();
        int wanted = threadIdx.x ? exits[threadIdx.x - 1] : entry;
        changed = wanted != mine;
        mine = wanted;
    } while (__syncthreads_or(changed));
    int64_t all, before = sum_before(numbers, room, all);
    runs[block * THREADS + threadIdx.x] = make_int2(mine, (int)before);
    if (threadIdx.x == THREADS - 1) walks[block] = {entry, exit, (int)all};
}

// Grid: blocks of THREADS runs. Computes only.
extern "C" __global__ void __launch_bounds__(THREADS)
    KERNEL(walk)(const uint64_t *key, Walk *walks, int2 *runs, int32_t run, double a, double b,
                 double c) {
    __shared__ int entry;
    if (threadIdx.x == 0) {
        uint64_t begin = (uint64_t)blockIdx.x * THREADS * run;
        Words words(key, begin < WARM ? 0 : begin - WARM);
        walk(words, begin, a, b, c);
        entry = (int)(words.at - begin);
    }
    __syncthreads();
    walk_block(key, blockIdx.x, entry, run, a, b, c, walks, runs);
}

// One block. `firsts` is told which number is the first of each block; what the blocks lack in the
// end, which is hardly ever anything, one thread draws.
extern "C" __global__ void __launch_bounds__(THREADS)
    KERNEL(settle)(const uint64_t *key, Walk *walks, int2 *runs, int64_t *firsts, NUMBER *y,
                   int32_t run, double a, double b, double c, int64_t blocks, int64_t size) {
    __shared__ int least[32];
    __shared__ int64_t room[THREADS / 32];
    int64_t first = 0;
    for (int64_t begin = 0; begin < blocks; begin += THREADS) {
        int64_t block = begin + threadIdx.x;
        for (;;) {
            bool wrong = block < blocks && block && walks[block].entry != walks[block - 1].exit;
            int at = block_all<Smaller>(wrong ? (int)threadIdx.x : THREADS, THREADS, least);
            if (at == THREADS) break;
            walk_block(key, begin + at, walks[begin + at - 1].exit, run, a, b, c, walks, runs);
            __syncthreads();
        }
        int64_t all, before = sum_before(block < blocks ? walks[block].numbers : 0, room, all);
        if (block < blocks) firsts[block] = first + before;
        first += all;
    }
    if (threadIdx.x == 0 && first < size) {
        Words words(key, (uint64_t)blocks * THREADS * run + walks[blocks - 1].exit);
        for (; first < size; first++) y[first] = draw(words, a, b, c);
    }
}

// Grid as of `walk`. Writes 4 bytes for each number, in order, by way of shared memory.
extern "C" __global__ void __launch_bounds__(THREADS)
    KERNEL(write)(const uint64_t *__restrict__ key, const int2 *__restrict__ runs,
                  const int64_t *__restrict__ firsts, NUMBER *__restrict__ y, int32_t run, double a,
                  double b, double c, int64_t size) {
    __shared__ NUMBER room[THREADS * LONGEST];
    __shared__ int all;
    int64_t first = firsts[blockIdx.x];
    if (first >= size) return;
    int64_t mine = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int2 from = runs[mine];
    uint64_t begin = (uint64_t)mine * run;
    Words words(key, begin + from.x);
    int at = from.y;
    while (words.at < begin + run) room[at++] = draw(words, a, b, c);
    if (threadIdx.x == THREADS - 1) all = at;
    __syncthreads();
    for (int i = threadIdx.x; i < all && first + i < size; i += THREADS) y[first + i] = room[i];
}
#endif
