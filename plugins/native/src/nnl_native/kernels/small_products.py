"""Generated products of few rows with a packed matrix, for kernels that multiply in a loop.

The matrix is packed once: panels of two vectors' width, padded with zeros, in each the rows of the
matrix one after the other. Each element is one sum over ``k`` in order, whatever rows are computed
together: how rows are shared out among threads changes no bit.
"""

from __future__ import annotations

from nnl_native.kernel import CStep, Reference

PANEL_BYTES = 128
"""Widths are rounded up to multiples of it: two vectors of the widest kind."""

_SOURCE = """
#ifndef NNL_SMALL_PRODUCTS_TYPE
#define NNL_SMALL_PRODUCTS_TYPE
#ifndef NNL_SMALL_PRODUCTS
#define NNL_SMALL_PRODUCTS
#if defined(__AVX512F__)
#define NNL_VECTOR_BYTES 64
#define NNL_TILE_ROWS 12
#elif defined(__AVX__)
#define NNL_VECTOR_BYTES 32
#define NNL_TILE_ROWS 6
#else
#define NNL_VECTOR_BYTES 16
#define NNL_TILE_ROWS 6
#endif
#ifdef __SANITIZE_ADDRESS__ /* checks of each load of each tile take minutes to compile */
#undef NNL_TILE_ROWS
#define NNL_TILE_ROWS 2
#endif
#endif
typedef TYPE nnl_vector_TYPE
    __attribute__((vector_size(NNL_VECTOR_BYTES), aligned(sizeof(TYPE)), may_alias));
#define LANES_TYPE ((int64_t)(NNL_VECTOR_BYTES / sizeof(TYPE)))

/* Rows r of c = rows r of a (k long) times one panel; of its two vectors, `vectors` are needed. */
INLINE void nnl_tile_TYPE(int rows, int vectors, const TYPE *a, int64_t a_row, const TYPE *panel,
                          int64_t k, TYPE *c, int64_t c_row) {
    nnl_vector_TYPE sum[NNL_TILE_ROWS][2];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) sum[r][v] = (nnl_vector_TYPE){0};
    for (int64_t i = 0; i < k; i++) {
        const nnl_vector_TYPE *w = (const nnl_vector_TYPE *)(panel + i * 2 * LANES_TYPE);
        #pragma GCC unroll 12
        for (int r = 0; r < rows; r++)
            #pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) sum[r][v] += a[r * a_row + i] * w[v];
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            *(nnl_vector_TYPE *)(c + r * c_row + v * LANES_TYPE) = sum[r][v];
}

#define NNL_TILE(R) \\
    case R: \\
        if (both) nnl_tile_TYPE(R, 2, a, a_row, panel, k, c, c_row); \\
        else nnl_tile_TYPE(R, 1, a, a_row, panel, k, c, c_row); \\
        break;
static __attribute__((noinline)) void nnl_rows_TYPE(int rows, int both, const TYPE *a,
                                                    int64_t a_row, const TYPE *panel, int64_t k,
                                                    TYPE *c, int64_t c_row) {
    switch (rows) {
        NNL_TILE(1) NNL_TILE(2)
#if NNL_TILE_ROWS > 2
        NNL_TILE(3) NNL_TILE(4) NNL_TILE(5) NNL_TILE(6)
#endif
#if NNL_TILE_ROWS > 6
        NNL_TILE(7) NNL_TILE(8) NNL_TILE(9) NNL_TILE(10) NNL_TILE(11) NNL_TILE(12)
#endif
    }
}
#undef NNL_TILE

/* c (rows, n rounded up to whole panels) = a (rows, k) times the packed matrix (k, n). */
static void nnl_small_product_TYPE(int64_t rows, const TYPE *a, int64_t a_row, const TYPE *packed,
                                   int64_t k, int64_t n, TYPE *c, int64_t c_row) {
    int64_t tiles = (rows + NNL_TILE_ROWS - 1) / NNL_TILE_ROWS;
    for (int64_t at = 0; at < n; at += 2 * LANES_TYPE)
        for (int64_t tile = 0; tile < tiles; tile++) {
            int64_t first = rows * tile / tiles, last = rows * (tile + 1) / tiles;
            nnl_rows_TYPE((int)(last - first), n - at > LANES_TYPE, a + first * a_row, a_row,
                          packed + at * k, k, c + first * c_row + at, c_row);
        }
}

/* Pack a matrix whose element (i, j) is at i * row + j * column; a unit is two vectors of AVX-512
   wide, whatever the machine has. */
static void nnl_pack_TYPE(int64_t begin, int64_t end, const TYPE *matrix, int64_t row,
                          int64_t column, int64_t k, int64_t n, TYPE *packed) {
    const int64_t panels = 64 / NNL_VECTOR_BYTES;
    for (int64_t p = begin * panels; p < end * panels && p * 2 * LANES_TYPE < n; p++) {
        int64_t at = p * 2 * LANES_TYPE, width = MIN(2 * LANES_TYPE, n - at);
        TYPE *restrict panel = packed + at * k;
        const TYPE *restrict from = matrix + at * column;
        if (width < 2 * LANES_TYPE) {
            for (int64_t i = 0; i < k; i++)
                for (int64_t j = 0; j < 2 * LANES_TYPE; j++)
                    panel[i * 2 * LANES_TYPE + j] = j < width ? from[i * row + j * column] : 0;
        } else if (column == 1) {
            for (int64_t i = 0; i < k; i++)
                memcpy(panel + i * 2 * LANES_TYPE, from + i * row, 2 * NNL_VECTOR_BYTES);
        } else {
            for (int64_t i = 0; i < k; i++)
                #pragma GCC unroll 16
                for (int64_t j = 0; j < 2 * LANES_TYPE; j++)
                    panel[i * 2 * LANES_TYPE + j] = from[i * row + j * column];
        }
    }
}
#endif
"""


def small_product_source(c_type: str) -> str:
    """Return the functions ``nnl_small_product_TYPE`` and ``nnl_pack_TYPE`` for a type of C."""
    return _SOURCE.replace("TYPE", c_type)


def padded(width: int, itemsize: int) -> int:
    """Return the width of a product's rows, and of a packed matrix, that has ``width`` columns."""
    panel = PANEL_BYTES // itemsize
    return -(-width // panel) * panel


def pack_step(
    matrix: Reference,
    packed: Reference,
    c_type: str,
    itemsize: int,
    shape: tuple[int, int],
    strides: tuple[int, int],
) -> CStep:
    """Return the step that packs a matrix, given where its elements are."""
    name = packed.partition(":")[0]
    return CStep(
        f"nnl_pack_{c_type}(begin, end, {matrix}, d[2], d[3], d[0], d[1], {name});",
        (matrix, packed),
        (*shape, *strides),
        units=padded(shape[1], itemsize) * itemsize // PANEL_BYTES,
        cost=shape[0] * shape[1],
        support=small_product_source(c_type),
    )
