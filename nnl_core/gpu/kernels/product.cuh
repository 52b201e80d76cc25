// Products of matrices by tiles, whatever their elements are read from.
//
// C (m, n) = sum over k of A (m, k) B (k, n). A block computes a square of SIDE x SIDE elements of C,
// DEPTH of k at a time: loaders bring the next tiles of A and B to shared memory while the block
// computes with those before. B is seen transposed: both have elements (i, k), i a row of A or a column
// of B. A frame says who computes what: `Cores` multiplies and adds on CUDA cores, `Tensors` (half
// precision) and `Rounded` (tf32) on tensor cores. A loader has
//     prepare(k)        called one tile ahead of `begin`, with a barrier between
//     begin(tile, k)    starts to move the tile that begins at k, into shared memory or registers
//     finish(tile)      moves what is in registers to shared memory
// and gives zeros beyond the ends of its operand. What stores C has `place(n)`, called once for a run
// of columns, and `store(place, m, values)`.
//
// Elements of global memory that a block reads: (m + n) * k / SIDE each for A and B, where caches do
// not help; operations 2 m n k.

// `COUNT` elements in one load, 16 bytes at most.
template <class T, int COUNT> struct __align__(sizeof(T) * COUNT < 16 ? sizeof(T) * COUNT : 16) Run {
    T at[COUNT];
};

// CUDA cores: 256 threads in a square, each EACH x EACH elements in quads, which lie 64 apart.
template <class W, int EACH> struct Cores {
    typedef W Stored;
    typedef W Sum;
    static const int SIDE = 16 * EACH, THREADS = 256, DEPTH = 1024 / SIDE, STAGES = 2;
    static const int PITCH = SIDE + 4, TILE = DEPTH * PITCH, ELEMENTS = 4, QUADS = EACH / 4;
    static const bool COPIES = false;  // runs go through registers, to be converted
    template <class T> static __device__ __forceinline__ W kept(T x) { return (W)wide(x); }
    W sum[EACH][EACH];

    // Where an element is in a tile: both operands lie across k, however they are read.
    template <bool ALONG> static __device__ __forceinline__ int at(int i, int k) {
        return k * PITCH + i;
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < EACH; j++) sum[i][j] = 0;
    }

    template <bool A_ALONG, bool B_ALONG>
    __device__ __forceinline__ void multiply(const W *a, const W *b) {
        const int row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            Run<W, 4> left[QUADS], right[QUADS];
#pragma unroll
            for (int q = 0; q < QUADS; q++) {
                left[q] = *(const Run<W, 4> *)(a + k * PITCH + q * 64 + row);
                right[q] = *(const Run<W, 4> *)(b + k * PITCH + q * 64 + column);
            }
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    sum[i][j] += left[i / 4].at[i % 4] * right[j / 4].at[j % 4];
        }
    }

    template <class C> __device__ __forceinline__ void store(C &c, int m0, int n0) {
        const int row = m0 + threadIdx.x / 16 * 4, column = n0 + threadIdx.x % 16 * 4;
#pragma unroll
        for (int q = 0; q < QUADS; q++) {
            auto place = c.template place<4>(column + q * 64);
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                W values[4];
#pragma unroll
                for (int j = 0; j < 4; j++) values[j] = sum[i][q * 4 + j];
                c.store(place, row + i / 4 * 64 + i % 4, values);
            }
        }
    }
};

// Four 8 x 8 matrices of 16-bit elements from shared memory to the lanes of a warp: lane l gives the
// address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const void *row) {
#ifdef __CUEMU__
    cuemu_ldmatrix(to, row, 4, false);
#else
    const unsigned address = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address));
#endif
}

// The same, each transposed.
__device__ __forceinline__ void load_transposed(uint32_t (&to)[4], const void *row) {
#ifdef __CUEMU__
    cuemu_ldmatrix(to, row, 4, true);
#else
    const unsigned address = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address));
#endif
}

// d (16 x 8) += a (16 x 16) b (16 x 8), sums in float. In lane l, `d` holds of row l / 4 columns
// 2 (l % 4) and the next, then the same of row l / 4 + 8.
__device__ __forceinline__ void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, half) {
#ifdef __CUEMU__
    const uint32_t b[2] = {b0, b1};
    cuemu_mma_m16n8k16<half>(d, a, b, d);
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}
__device__ __forceinline__ void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bfloat16) {
#ifdef __CUEMU__
    const uint32_t b[2] = {b0, b1};
    cuemu_mma_m16n8k16<bfloat16>(d, a, b, d);
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// d (16 x 8) += a (16 x 8) b (8 x 8) of floats rounded to tf32. In lane l, with g = l / 4 and t = l % 4,
// `a` holds (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4), `b` holds (t, g), (t + 4, g).
#ifdef __CUEMU__
struct TensorStep {
    float *d;
    const float *a, *b;
};
CUEMU_RAW static void multiply_add_all(void **lanes, unsigned) {
    TensorStep **all = (TensorStep **)lanes;
    for (int l = 0; l < 32; l++)
        for (int e = 0; e < 4; e++) {
            const int i = l / 4 + e / 2 * 8, j = l % 4 * 2 + e % 2;
            for (int k = 0; k < 8; k++)
                all[l]->d[e] += all[i % 8 * 4 + k % 4]->a[i / 8 + k / 4 * 2] *
                                all[j * 4 + k % 4]->b[k / 4];
        }
}
#endif
__device__ __forceinline__ void multiply_add(float (&d)[4], const float (&a)[4], const float (&b)[2]) {
#ifdef __CUEMU__
    TensorStep step{d, a, b};
    cuemu_warp(~0u, &step, multiply_add_all);
#else
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])),
                   "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
                   "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
#endif
}

// To the nearest number with 11 bits; infinities and NaN stay.
__device__ __forceinline__ float to_tf32(float x) {
#ifdef __CUEMU__
    const uint32_t bits = __float_as_uint(x);
    return isfinite(x) ? __uint_as_float((bits + 0x1000u) & ~0x1fffu) : x;
#else
    uint32_t rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
    return __uint_as_float(rounded);
#endif
}

// Tensor cores: two rows of warps, each of which computes SIDE / 2 x 32 elements. Sums are as the
// instructions leave them: of 16 x 8 elements, a lane has four.
template <int EDGE> struct TensorSums {
    static const int SIDE = EDGE, THREADS = 2 * SIDE, DOWN = SIDE / 32, RIGHT = 4;
    float sum[DOWN][RIGHT][4];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < DOWN; i++)
#pragma unroll
            for (int j = 0; j < RIGHT; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) sum[i][j][e] = 0;
    }

    template <class C> __device__ __forceinline__ void store(C &c, int m0, int n0) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const int row = m0 + warp % 2 * (SIDE / 2) + lane / 4;
        const int column = n0 + warp / 2 * 32 + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < RIGHT; j++) {
            auto place = c.template place<2>(column + j * 8);
#pragma unroll
            for (int i = 0; i < DOWN; i++)
#pragma unroll
                for (int below = 0; below < 2; below++) {
                    float values[2] = {sum[i][j][below * 2], sum[i][j][below * 2 + 1]};
                    c.store(place, row + i * 16 + below * 8, values);
                }
        }
    }
};

// Half precision on tensor cores. Tiles keep the order in which operands are read; rows are 16 bytes
// longer, so that eight of them lie in different banks.
template <class T, int EDGE, int DEEP> struct Tensors : TensorSums<EDGE> {
    typedef T Stored;
    using TensorSums<EDGE>::SIDE;
    using TensorSums<EDGE>::DOWN;
    using TensorSums<EDGE>::RIGHT;
    using TensorSums<EDGE>::sum;
    static const int DEPTH = 32, STAGES = DEEP, ELEMENTS = 16;
    static const int PITCH_ALONG = DEPTH + 8, PITCH_ACROSS = SIDE + 8, TILE = SIDE * PITCH_ALONG;
    static const bool COPIES = true;  // runs go to shared memory as they are
    static __device__ __forceinline__ T kept(T x) { return x; }

    template <bool ALONG> static __device__ __forceinline__ int at(int i, int k) {
        return ALONG ? i * PITCH_ALONG + k : k * PITCH_ACROSS + i;
    }

    template <bool A_ALONG, bool B_ALONG>
    __device__ __forceinline__ void multiply(const T *a, const T *b) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const int row = warp % 2 * (SIDE / 2), column = warp / 2 * 32;
        const int r = lane % 8, first = lane / 8 % 2 * 8, second = lane / 16 * 8;
#pragma unroll
        for (int k = 0; k < DEPTH; k += 16) {
            uint32_t left[DOWN][4], right[RIGHT / 2][4];
#pragma unroll
            for (int i = 0; i < DOWN; i++) {
                const int m = row + i * 16;
                if (A_ALONG) load_matrices(left[i], a + at<true>(m + first + r, k + second));
                else load_transposed(left[i], a + at<false>(m + first, k + second + r));
            }
#pragma unroll
            for (int j = 0; j < RIGHT / 2; j++) {
                const int n = column + j * 16;
                if (B_ALONG) load_matrices(right[j], b + at<true>(n + second + r, k + first));
                else load_transposed(right[j], b + at<false>(n + second, k + first + r));
            }
#pragma unroll
            for (int i = 0; i < DOWN; i++)
#pragma unroll
                for (int j = 0; j < RIGHT; j++)
                    multiply_add(sum[i][j], left[i], right[j / 2][j % 2 * 2],
                                 right[j / 2][j % 2 * 2 + 1], T());
        }
    }
};

// Floats on tensor cores, rounded to tf32 on the way to shared memory. Pitches are such that the 32
// elements that a warp reads at once lie in different banks.
template <int EDGE> struct Rounded : TensorSums<EDGE> {
    typedef float Stored;
    using TensorSums<EDGE>::SIDE;
    using TensorSums<EDGE>::DOWN;
    using TensorSums<EDGE>::RIGHT;
    using TensorSums<EDGE>::sum;
    static const int DEPTH = 16, STAGES = 2, ELEMENTS = 8;
    static const int PITCH_ALONG = DEPTH + 4, PITCH_ACROSS = SIDE + 8, TILE = SIDE * PITCH_ALONG;
    static const bool COPIES = false;  // runs go through registers, to be converted
    static __device__ __forceinline__ float kept(float x) { return to_tf32(x); }

    template <bool ALONG> static __device__ __forceinline__ int at(int i, int k) {
        return ALONG ? i * PITCH_ALONG + k : k * PITCH_ACROSS + i;
    }

    template <bool A_ALONG, bool B_ALONG>
    __device__ __forceinline__ void multiply(const float *a, const float *b) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
        const int row = warp % 2 * (SIDE / 2) + g, column = warp / 2 * 32 + g;
#pragma unroll 1  // unrolled, it needs more registers than there are
        for (int k = t; k < DEPTH; k += 8) {
            float left[DOWN][4], right[RIGHT][2];
#pragma unroll
            for (int i = 0; i < DOWN; i++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    left[i][e] = a[at<A_ALONG>(row + i * 16 + e % 2 * 8, k + e / 2 * 4)];
#pragma unroll
            for (int j = 0; j < RIGHT; j++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    right[j][e] = b[at<B_ALONG>(column + j * 8, k + e * 4)];
#pragma unroll
            for (int i = 0; i < DOWN; i++)
#pragma unroll
                for (int j = 0; j < RIGHT; j++) multiply_add(sum[i][j], left[i], right[j]);
        }
    }
};

// Shared memory of a frame, in elements as they are stored there.
template <class F> struct Room {
    static const int SIZE = 2 * F::STAGES * F::TILE;
};

// Adds to a frame the product over k from `first`, a multiple of DEPTH, to `last`.
template <class F, class A, class B>
INLINE void multiply_tiles(F &frame, A &a, B &b, typename F::Stored *room, int first, int last) {
    typedef typename F::Stored Stored;
    const int ahead = F::STAGES - 1, tiles = (last - first + F::DEPTH - 1) / F::DEPTH;
    auto left = [&](int tile) -> Stored * { return room + tile % F::STAGES * 2 * F::TILE; };
    auto right = [&](int tile) -> Stored * { return left(tile) + F::TILE; };
    auto prepare = [&](int tile) {
        a.prepare(first + tile * F::DEPTH);
        b.prepare(first + tile * F::DEPTH);
    };
    auto begin = [&](int tile) {
        if (tile < tiles) {
            a.begin(left(tile), first + tile * F::DEPTH);
            b.begin(right(tile), first + tile * F::DEPTH);
        }
        __pipeline_commit();
    };
    auto finish = [&](int tile) {
        if (tile < tiles) {
            a.finish(left(tile));
            b.finish(right(tile));
        }
    };
    prepare(0);
    for (int tile = 0; tile < ahead; tile++) {
        __syncthreads();
        begin(tile);
        prepare(tile + 1);
        finish(tile);
    }
    for (int tile = 0; tile < tiles; tile++) {
        __pipeline_wait_prior(F::STAGES - 2);
        __syncthreads();
        begin(tile + ahead);
        frame.template multiply<A::ALONG, B::ALONG>(left(tile), right(tile));
        prepare(tile + ahead + 1);
        finish(tile + ahead);
    }
}

// Loaders -----------------------------------------------------------------------------------------

// A matrix in memory with element (i, k) at data[i * row + k * column], one of which is 1, as whoever
// reads element after element sees it. `bind` is called for what a thread reads at, `get` for each.
template <class T> struct Straight {
    const T *data;
    int row, column;
    int first, count, last;  // rows from `first` to `count`, and k to `last`
    const T *bound;
    bool there;

    __device__ __forceinline__ void prepare(int) {}
    __device__ __forceinline__ void bind_k(int k) {
        there = k < last;
        bound = data + (int64_t)k * column;
    }
    __device__ __forceinline__ T get_i(int i) const {
        return there && first + i < count ? bound[(int64_t)(first + i) * row] : narrow<T>(0.f);
    }
    __device__ __forceinline__ void bind_i(int i) {
        there = first + i < count;
        bound = data + (int64_t)(first + i) * row;
    }
    __device__ __forceinline__ void begin(int) {}
    __device__ __forceinline__ T get_k(int k) const {
        return there && k < last ? bound[(int64_t)k * column] : narrow<T>(0.f);
    }
    // Where a run of elements begins.
    __device__ __forceinline__ const T *at(int i, int k) const {
        return data + (int64_t)(first + i) * row + (int64_t)k * column;
    }
};

// Reads element after element, neighbouring threads along k.
template <class F, class T, class Source> struct AlongElements {
    static const bool ALONG = true;
    static const int DOWN = F::THREADS / F::DEPTH;
    Source source;
    T held[F::ELEMENTS];

    __device__ __forceinline__ explicit AlongElements(const Source &source) : source(source) {}
    __device__ __forceinline__ void prepare(int k0) { source.prepare(k0); }
    __device__ __forceinline__ void begin(typename F::Stored *, int k0) {
        source.bind_k(k0 + threadIdx.x % F::DEPTH);
#pragma unroll
        for (int e = 0; e < F::ELEMENTS; e++)
            held[e] = source.get_i(threadIdx.x / F::DEPTH + e * DOWN);
    }
    __device__ __forceinline__ void finish(typename F::Stored *tile) {
#pragma unroll
        for (int e = 0; e < F::ELEMENTS; e++)
            tile[F::template at<true>(threadIdx.x / F::DEPTH + e * DOWN, threadIdx.x % F::DEPTH)] =
                F::kept(held[e]);
    }
};

// Reads element after element, neighbouring threads across k.
template <class F, class T, class Source> struct AcrossElements {
    static const bool ALONG = false;
    static const int DOWN = F::THREADS / F::SIDE;
    Source source;
    T held[F::ELEMENTS];

    __device__ __forceinline__ explicit AcrossElements(const Source &source) : source(source) {
        this->source.bind_i(threadIdx.x % F::SIDE);
    }
    __device__ __forceinline__ void prepare(int k0) { source.prepare(k0); }
    __device__ __forceinline__ void begin(typename F::Stored *, int k0) {
        source.begin(k0);
#pragma unroll
        for (int e = 0; e < F::ELEMENTS; e++)
            held[e] = source.get_k(k0 + threadIdx.x / F::SIDE + e * DOWN);
    }
    __device__ __forceinline__ void finish(typename F::Stored *tile) {
#pragma unroll
        for (int e = 0; e < F::ELEMENTS; e++)
            tile[F::template at<false>(threadIdx.x % F::SIDE, threadIdx.x / F::SIDE + e * DOWN)] =
                F::kept(held[e]);
    }
};

// Reads runs, which begin at multiples of their size in memory: 8 elements that are copied, or 4 that
// go through registers. `LIES_ALONG`: they lie along k. Where they do, the source may put rows of k
// in pieces that are multiples of a run.
template <class F, class T, class Source, bool LIES_ALONG> struct Runs {
    static const bool ALONG = LIES_ALONG;
    static const int RUN = F::COPIES ? 8 : 4, PARTS = F::ELEMENTS / RUN;
    static const int EACH = (LIES_ALONG ? F::DEPTH : F::SIDE) / RUN;  // runs of a line
    Source source;
    T held[F::COPIES ? 1 : PARTS][RUN];

    __device__ __forceinline__ explicit Runs(const Source &source) : source(source) {}
    __device__ __forceinline__ void prepare(int) {}

    __device__ __forceinline__ void begin(typename F::Stored *tile, int k0) {
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            const int run = threadIdx.x + part * F::THREADS;
            const int i = LIES_ALONG ? run / EACH : run % EACH * RUN;
            const int k = k0 + (LIES_ALONG ? run % EACH * RUN : run / EACH);
            const int rows = source.count - source.first - i, depth = source.last - k;
            const bool any = rows > 0 && depth > 0;
            const int there = any ? min(RUN, LIES_ALONG ? depth : rows) : 0;
            const T *from = any ? source.at(i, k) : source.data;
            if constexpr (F::COPIES) {
                T *to = tile + F::template at<LIES_ALONG>(i, k - k0);
                __pipeline_memcpy_async(to, from, 16, (RUN - there) * sizeof(T));
            } else if (there == RUN) {
                const Run<T, RUN> elements = *(const Run<T, RUN> *)from;
#pragma unroll
                for (int e = 0; e < RUN; e++) held[part][e] = elements.at[e];
            } else {
#pragma unroll
                for (int e = 0; e < RUN; e++)
                    held[part][e] = e < there ? from[e] : narrow<T>(0.f);
            }
        }
    }

    __device__ __forceinline__ void finish(typename F::Stored *tile) {
        if constexpr (!F::COPIES) {
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                const int run = threadIdx.x + part * F::THREADS;
                const int i = LIES_ALONG ? run / EACH : run % EACH * RUN;
                const int k = LIES_ALONG ? run % EACH * RUN : run / EACH;
#pragma unroll
                for (int e = 0; e < RUN; e++)
                    tile[F::template at<LIES_ALONG>(i + (LIES_ALONG ? 0 : e), k + (LIES_ALONG ? e : 0))] =
                        F::kept(held[part][e]);
            }
        }
    }
};

// Stores C by rows, with a bias for each column where there is one.
template <class T, class O> struct Rows {
    O *data;
    const T *bias;
    int64_t pitch;
    int rows, columns;
    bool vector;  // whether pitch and beginning are multiples of four elements

    template <int COUNT> struct Place {
        int n;
    };
    template <int COUNT> __device__ __forceinline__ Place<COUNT> place(int n) {
        return Place<COUNT>{n};
    }

    template <class W, int COUNT>
    __device__ __forceinline__ void store(const Place<COUNT> &place, int m, W (&values)[COUNT]) {
        if (m >= rows) return;
        O *to = data + m * pitch + place.n;
        if (bias)
#pragma unroll
            for (int e = 0; e < COUNT; e++)
                if (place.n + e < columns) values[e] += wide(bias[place.n + e]);
        if (vector && place.n + COUNT <= columns) {
            Run<O, COUNT> run;
#pragma unroll
            for (int e = 0; e < COUNT; e++) run.at[e] = narrow<O>(values[e]);
            *(Run<O, COUNT> *)to = run;
        } else {
#pragma unroll
            for (int e = 0; e < COUNT; e++)
                if (place.n + e < columns) to[e] = narrow<O>(values[e]);
        }
    }
};
