// nvcuda::wmma, one warp at a time. cuemu_mma.h has the instructions below it.
#pragma once
#include "cuda_bf16.h"
#include "cuemu_mma.h"
extern "C++" {
namespace nvcuda {
namespace wmma {
struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int m, int n, int k> struct cuemu_shape {
    static constexpr int rows = m, columns = n;
};
template <int m, int n, int k> struct cuemu_shape<matrix_a, m, n, k> {
    static constexpr int rows = m, columns = k;
};
template <int m, int n, int k> struct cuemu_shape<matrix_b, m, n, k> {
    static constexpr int rows = k, columns = n;
};
template <class Layout> struct cuemu_is_row_major {
    static constexpr bool value = true;
};
template <> struct cuemu_is_row_major<col_major> {
    static constexpr bool value = false;
};

// Element e of the matrix (row major) is in slot e / 32 of lane e % 32; CUDA leaves that open.
template <class Use, int m, int n, int k, class T, class Layout = void> struct fragment {
    typedef T element_type;
    typedef cuemu_shape<Use, m, n, k> shape;
    static constexpr int rows = shape::rows, columns = shape::columns;
    static constexpr int num_elements = rows * columns / 32, num_storage_elements = num_elements;
    static constexpr bool is_row_major = cuemu_is_row_major<Layout>::value;
    T x[num_elements];
};

template <class Fragment, class T>
static inline void fill_fragment(Fragment &fragment, const T &value) {
    for (int i = 0; i < Fragment::num_elements; i++) fragment.x[i] = value;
}

template <class T> static inline void cuemu_check_place(const T *memory, unsigned leading) {
    if ((size_t)memory % 32 || leading * sizeof(T) % 16)
        cuemu_trap("wmma: the pointer must be 32-byte aligned and the leading dimension a "
                   "multiple of 16 bytes");
}

template <class Fragment, class Visit>
static inline void cuemu_visit(unsigned leading, bool row_major, Visit visit) {
    for (int slot = 0; slot < Fragment::num_elements; slot++) {
        int element = slot * 32 + cuemu_lane();
        int row = element / Fragment::columns, column = element % Fragment::columns;
        visit(slot, row_major ? row * leading + column : column * leading + row);
    }
    __syncwarp();
}

template <class Fragment, class T>
static inline void cuemu_load(Fragment &fragment, const T *memory, unsigned leading,
                              bool row_major) {
    cuemu_check_place(memory, leading);
    cuemu_visit<Fragment>(leading, row_major,
                          [&](int slot, unsigned at) { fragment.x[slot] = memory[at]; });
}
template <class Use, int m, int n, int k, class T, class Layout, class P>
static inline void load_matrix_sync(fragment<Use, m, n, k, T, Layout> &f, const P *memory,
                                    unsigned leading) {
    cuemu_load(f, memory, leading, fragment<Use, m, n, k, T, Layout>::is_row_major);
}
template <int m, int n, int k, class T, class P>
static inline void load_matrix_sync(fragment<accumulator, m, n, k, T> &f, const P *memory,
                                    unsigned leading, layout_t layout) {
    cuemu_load(f, memory, leading, layout == mem_row_major);
}
template <class Fragment, class T>
static inline void store_matrix_sync(T *memory, const Fragment &fragment, unsigned leading,
                                     layout_t layout) {
    cuemu_check_place(memory, leading);
    cuemu_visit<Fragment>(leading, layout == mem_row_major,
                          [&](int slot, unsigned at) { memory[at] = fragment.x[slot]; });
}

template <class D, class A, class B> struct cuemu_mma_argument {
    D *d;
    const A *a;
    const B *b;
    const D *c;
};
template <class D, class A, class B>
CUEMU_RAW static void cuemu_mma_all(void **arguments, unsigned mask) {
    if (mask != ~0u) cuemu_trap("mma_sync needs all 32 lanes");
    auto **lane = (cuemu_mma_argument<D, A, B> **)arguments;
    constexpr int M = A::rows, K = A::columns, N = B::columns;
    float a[M][K], b[K][N], c[M][N];
    for (int e = 0; e < M * K; e++) a[e / K][e % K] = lane[e % 32]->a->x[e / 32];
    for (int e = 0; e < K * N; e++) b[e / N][e % N] = lane[e % 32]->b->x[e / 32];
    for (int e = 0; e < M * N; e++) c[e / N][e % N] = lane[e % 32]->c->x[e / 32];
    for (int i = 0; i < M; i++)
        for (int k = 0; k < K; k++)
            for (int j = 0; j < N; j++) c[i][j] += a[i][k] * b[k][j];
    for (int e = 0; e < M * N; e++) lane[e % 32]->d->x[e / 32] = c[e / N][e % N];
}
template <class D, class A, class B>
CUEMU_RAW static void mma_sync(D &d, const A &a, const B &b, const D &c) {
    cuemu_mma_argument<D, A, B> argument{&d, &a, &b, &c};
    cuemu_warp(~0u, &argument, cuemu_mma_all<D, A, B>);
}
} // namespace wmma
} // namespace nvcuda
}
