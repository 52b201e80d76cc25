// Products of matrices by tiles, whatever their elements are read from.
//
// C (m, n) = sum over k of A (m, k) B (k, n). A block computes a square of SIDE x SIDE elements of C,
// DEPTH of k at a time: loaders bring the next tiles of A and B to shared memory while the block
// computes with those before. A frame says who computes what: `Cores` multiplies and adds on CUDA
// cores, `Tensors` on tensor cores. A loader has
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
    static const bool ON_TENSORS = false;
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

// Tensor cores: two rows of warps, each of which computes SIDE / 2 x 32 elements. Tiles keep the order
// in which operands are read; rows are 16 bytes longer, so that eight of them lie in different banks.
template <class T, int EDGE, int DEEP> struct Tensors {
    typedef T Stored;
    typedef float Sum;
    static const int SIDE = EDGE, THREADS = 2 * SIDE, DEPTH = 32, STAGES = DEEP;
    static const int PITCH_ALONG = DEPTH + 8, PITCH_ACROSS = SIDE + 8, TILE = SIDE * PITCH_ALONG;
    static const int ELEMENTS = 16, DOWN = SIDE / 32, RIGHT = 4;
    static const bool ON_TENSORS = true;
    float sum[DOWN][RIGHT][4];

    template <bool ALONG> static __device__ __forceinline__ int at(int i, int k) {
        return ALONG ? i * PITCH_ALONG + k : k * PITCH_ACROSS + i;
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < DOWN; i++)
#pragma unroll
            for (int j = 0; j < RIGHT; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) sum[i][j][e] = 0;
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

// A matrix in memory, of which element (i, k) is at data[i * pitch + k].
//
// `vector`: pitch and beginning are multiples of 16 bytes.
template <class F, class T> struct Along {
    static const bool ALONG = true;
    const T *data;
    int64_t pitch;
    int first, count, last;
    bool vector;
    T held[F::ON_TENSORS ? 1 : F::ELEMENTS];

    __device__ __forceinline__ Along(const T *data, int64_t pitch, int first, int count, int last,
                                     bool vector)
        : data(data), pitch(pitch), first(first), count(count), last(last), vector(vector) {}
    __device__ __forceinline__ void prepare(int) {}

    __device__ __forceinline__ void begin(typename F::Stored *tile, int k0) {
        if constexpr (F::ON_TENSORS) {
            const int runs = F::DEPTH / 8;
#pragma unroll
            for (int part = 0; part < F::ELEMENTS / 8; part++) {
                const int run = threadIdx.x + part * F::THREADS;
                const int i = run / runs, k = run % runs * 8;
                T *to = tile + F::template at<true>(i, k);
                const int there = first + i < count ? max(0, min(8, last - k0 - k)) : 0;
                const T *from = data + (first + i) * pitch + k0 + k;
                if (vector) {
                    const int absent = (8 - there) * (int)sizeof(T);
                    __pipeline_memcpy_async(to, there ? from : data, 16, absent);
                } else {
                    for (int e = 0; e < 8; e++) to[e] = e < there ? from[e] : narrow<T>(0.f);
                }
            }
        } else {
            const int quads = F::DEPTH / 4, i = threadIdx.x / quads, k = threadIdx.x % quads * 4;
            const int there = first + i < count ? max(0, min(4, last - k0 - k)) : 0;
            const T *from = data + (first + i) * pitch + k0 + k;
            read(from, there);
        }
    }

    __device__ __forceinline__ void read(const T *from, int there) {
        if (vector && there == 4) {
            Run<T, 4> run = *(const Run<T, 4> *)from;
#pragma unroll
            for (int e = 0; e < 4; e++) held[e] = run.at[e];
        } else {
#pragma unroll
            for (int e = 0; e < 4; e++) held[e] = e < there ? from[e] : narrow<T>(0.f);
        }
    }

    __device__ __forceinline__ void finish(typename F::Stored *tile) {
        if constexpr (!F::ON_TENSORS) {
            const int quads = F::DEPTH / 4, i = threadIdx.x / quads, k = threadIdx.x % quads * 4;
#pragma unroll
            for (int e = 0; e < 4; e++) tile[F::template at<true>(i, k + e)] = wide(held[e]);
        }
    }
};

// A matrix in memory, of which element (i, k) is at data[k * pitch + i].
template <class F, class T> struct Across {
    static const bool ALONG = false;
    const T *data;
    int64_t pitch;
    int first, count, last;
    bool vector;
    T held[F::ON_TENSORS ? 1 : F::ELEMENTS];

    __device__ __forceinline__ Across(const T *data, int64_t pitch, int first, int count, int last,
                                      bool vector)
        : data(data), pitch(pitch), first(first), count(count), last(last), vector(vector) {}
    __device__ __forceinline__ void prepare(int) {}

    __device__ __forceinline__ void begin(typename F::Stored *tile, int k0) {
        if constexpr (F::ON_TENSORS) {
            const int runs = F::SIDE / 8;
#pragma unroll
            for (int part = 0; part < F::ELEMENTS / 8; part++) {
                const int run = threadIdx.x + part * F::THREADS;
                const int k = run / runs, i = run % runs * 8;
                T *to = tile + F::template at<false>(i, k);
                const int there = k0 + k < last ? max(0, min(8, count - first - i)) : 0;
                const T *from = data + (k0 + k) * pitch + first + i;
                if (vector) {
                    const int absent = (8 - there) * (int)sizeof(T);
                    __pipeline_memcpy_async(to, there ? from : data, 16, absent);
                } else {
                    for (int e = 0; e < 8; e++) to[e] = e < there ? from[e] : narrow<T>(0.f);
                }
            }
        } else {
            const int quads = F::SIDE / 4, k = threadIdx.x / quads, i = threadIdx.x % quads * 4;
            const int there = k0 + k < last ? max(0, min(4, count - first - i)) : 0;
            const T *from = data + (k0 + k) * pitch + first + i;
            if (vector && there == 4) {
                Run<T, 4> run = *(const Run<T, 4> *)from;
#pragma unroll
                for (int e = 0; e < 4; e++) held[e] = run.at[e];
            } else {
#pragma unroll
                for (int e = 0; e < 4; e++) held[e] = e < there ? from[e] : narrow<T>(0.f);
            }
        }
    }

    __device__ __forceinline__ void finish(typename F::Stored *tile) {
        if constexpr (!F::ON_TENSORS) {
            const int quads = F::SIDE / 4, k = threadIdx.x / quads, i = threadIdx.x % quads * 4;
#pragma unroll
            for (int e = 0; e < 4; e++) tile[F::template at<false>(i + e, k)] = wide(held[e]);
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
