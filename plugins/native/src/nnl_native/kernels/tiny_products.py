"""Products of small matrices in generated C: a library's call would take longer than they do."""

from __future__ import annotations

from typing import NamedTuple

from nnl_native.kernel import CStep, Reference


class Axis(NamedTuple):
    """An axis of a stack of matrices; distances in elements, 0 where an operand is repeated."""

    length: int
    a: int
    b: int
    c: int


class Product(NamedTuple):
    """``c = a b + bias``: lengths, and the distances (along rows, along columns) of each matrix."""

    batch: tuple[Axis, ...]
    rows: int
    inner: int
    columns: int
    a: tuple[int, int]
    b: tuple[int, int]
    c: tuple[int, int]  # columns are neighbours
    bias: bool

    @property
    def matrices(self) -> int:
        """How many products there are."""
        count = 1
        for axis in self.batch:
            count *= axis.length
        return count

    @property
    def work(self) -> int:
        """Multiply-adds."""
        return self.matrices * self.rows * self.inner * self.columns


ROWS = 64  # of a matrix that one unit computes

# Rows are computed a few at a time, two vectors of columns: sums stay in registers. Columns that
# are not neighbours or fill no vector are copied into a panel first, padded with zeros.
# Each sum goes over k in order, whatever else is computed.
_SOURCE = """
#if defined(__AVX512F__)
#define NNL_TINY_BYTES 64
#define NNL_TINY_ROWS 8
#elif defined(__AVX__)
#define NNL_TINY_BYTES 32
#define NNL_TINY_ROWS 4
#else
#define NNL_TINY_BYTES 16
#define NNL_TINY_ROWS 4
#endif
#define NNL_TINY_DEPTH 256
typedef TYPE nnl_tiny_TYPE __attribute__((vector_size(NNL_TINY_BYTES), aligned(sizeof(TYPE))));
enum { LANES_TYPE = NNL_TINY_BYTES / sizeof(TYPE), WIDE_TYPE = 2 * LANES_TYPE };

/* Copy up to two vectors' elements by few moves, which may overlap. */
INLINE void nnl_tiny_copy_TYPE(TYPE *to, const TYPE *from, int64_t count) {
    char *t = (char *)to;
    const char *f = (const char *)from;
    int64_t bytes = count * sizeof(TYPE);
    for (; bytes >= 64; bytes -= 64, t += 64, f += 64) memcpy(t, f, 64);
    #define NNL_TINY_MOVE(SIZE) \\
        if (bytes >= SIZE) { \\
            memcpy(t, f, SIZE); \\
            memmove(t + bytes - SIZE, f + bytes - SIZE, SIZE); \\
            return; \\
        }
    NNL_TINY_MOVE(32) NNL_TINY_MOVE(16) NNL_TINY_MOVE(8) NNL_TINY_MOVE(4)
    #undef NNL_TINY_MOVE
}

/* Rows of c = rows of a times a panel, plus `begin`, or plus what c holds where that is null. */
INLINE void nnl_tiny_rows_TYPE(int rows, int vectors, const TYPE *a, int64_t a_row, int64_t a_col,
                               const TYPE *panel, int64_t panel_row, int64_t k, const TYPE *begin,
                               TYPE *c, int64_t c_row) {
    nnl_tiny_TYPE sum[NNL_TINY_ROWS][2];
    #pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sum[r][v] = *(const nnl_tiny_TYPE *)((begin ? begin : c + r * c_row) + v * LANES_TYPE);
    for (int64_t i = 0; i < k; i++) {
        const nnl_tiny_TYPE *w = (const nnl_tiny_TYPE *)(panel + i * panel_row);
        #pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            #pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) sum[r][v] += a[r * a_row + i * a_col] * w[v];
    }
    #pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            *(nnl_tiny_TYPE *)(c + r * c_row + v * LANES_TYPE) = sum[r][v];
}

static __attribute__((noinline)) void nnl_tiny_panel_TYPE(
        int64_t rows, int vectors, const TYPE *a, int64_t a_row, int64_t a_col, const TYPE *panel,
        int64_t panel_row, int64_t k, const TYPE *begin, TYPE *c, int64_t c_row) {
    int64_t r = 0;
    #define NNL_TINY_LOOP(N, V) \\
        for (; r + N <= rows; r += N) \\
            nnl_tiny_rows_TYPE(N, V, a + r * a_row, a_row, a_col, panel, panel_row, k, begin, \\
                               c + r * c_row, c_row);
    if (vectors == 1) {
        NNL_TINY_LOOP(NNL_TINY_ROWS, 1)
        NNL_TINY_LOOP(2, 1)
        NNL_TINY_LOOP(1, 1)
    } else {
        NNL_TINY_LOOP(NNL_TINY_ROWS, 2)
        NNL_TINY_LOOP(2, 2)
        NNL_TINY_LOOP(1, 2)
    }
    #undef NNL_TINY_LOOP
}

static void nnl_tiny_TYPE_product(
        int64_t rows, int64_t inner, int64_t columns, const TYPE *a, int64_t a_row, int64_t a_col,
        const TYPE *b, int64_t b_row, int64_t b_col, const TYPE *bias, TYPE *c, int64_t c_row) {
    TYPE panel[NNL_TINY_DEPTH * WIDE_TYPE] __attribute__((aligned(64)));
    TYPE part[HEIGHT * WIDE_TYPE] __attribute__((aligned(64)));
    TYPE begin[WIDE_TYPE] __attribute__((aligned(64)));
    for (int64_t j = 0; j < columns; j += WIDE_TYPE) {
        const int64_t n = MIN(WIDE_TYPE, columns - j);
        const int vectors = n > LANES_TYPE ? 2 : 1, whole = n % LANES_TYPE == 0;
        TYPE *out = whole ? c + j : part;
        const int64_t out_row = whole ? c_row : WIDE_TYPE;
        memset(begin, 0, sizeof begin);
        if (bias) nnl_tiny_copy_TYPE(begin, bias + j, n);
        int64_t k = 0;
        do {
            const int64_t depth = MIN(NNL_TINY_DEPTH, inner - k);
            const TYPE *from = b + k * b_row + j * b_col;
            const int direct = b_col == 1 && whole;
            if (!direct) {
                const nnl_tiny_TYPE zero = {0};
                TYPE *last = panel + (vectors - 1) * LANES_TYPE;
                if (!whole)
                    for (int64_t i = 0; i < depth; i++)
                        *(nnl_tiny_TYPE *)(last + i * WIDE_TYPE) = zero;
                if (b_col == 1)
                    for (int64_t i = 0; i < depth; i++)
                        nnl_tiny_copy_TYPE(panel + i * WIDE_TYPE, from + i * b_row, n);
                else
                    for (int64_t t = 0; t < n; t++)
                        for (int64_t i = 0; i < depth; i++)
                            panel[i * WIDE_TYPE + t] = from[i * b_row + t * b_col];
            }
            nnl_tiny_panel_TYPE(rows, vectors, a + k * a_col, a_row, a_col, direct ? from : panel,
                                direct ? b_row : WIDE_TYPE, depth, k ? 0 : begin, out, out_row);
            k += depth;
        } while (k < inner);
        if (!whole)
            for (int64_t r = 0; r < rows; r++)
                nnl_tiny_copy_TYPE(c + r * c_row + j, part + r * WIDE_TYPE, n);
    }
}
"""


def is_tiny(product: Product) -> bool:
    """Whether the loop here takes no longer than a call of oneDNN, for single precision.

    With few rows it reads the second matrix once, and does not copy it as oneDNN does; but columns
    that are not neighbours it copies at a cost that only several rows make up for.
    """
    if product.rows <= 8:
        return product.work <= (1 << 20 if product.b[1] == 1 else 1 << 12)
    return product.work <= 1 << 17


def tiny_product(product: Product, c_type: str) -> CStep:
    """Return a step that multiplies; a unit is some rows of one matrix."""
    first = 10
    indices: list[str] = []
    places = {"a": "a", "b": "b", "c": "c"}
    for k in range(len(product.batch)):
        at = first + 4 * k
        indices.insert(0, f"    const int64_t i{k} = rest % d[{at}]; rest /= d[{at}];")
        for part, name in enumerate("abc", 1):
            places[name] += f" + i{k} * d[{at + part}]"
    lines = "\n".join(indices)
    bias = "in2" if product.bias else "0"
    body = f"""
const {c_type} *a = in0, *b = in1;
{c_type} *c = out0;
const int64_t blocks = (d[0] + {ROWS - 1}) / {ROWS};
for (int64_t unit = begin; unit < end; unit++) {{
    int64_t rest = unit / blocks;
    const int64_t row = unit % blocks * {ROWS};
{lines}
    nnl_tiny_{c_type}_product(MIN({ROWS}, d[0] - row), d[1], d[2],
                              {places["a"]} + row * d[3], d[3], d[4], {places["b"]}, d[5], d[6],
                              {bias}, {places["c"]} + row * d[7], d[7]);
}}"""
    operands: tuple[Reference, ...] = ("in0", "in1", "out0")
    dims = (product.rows, product.inner, product.columns, *product.a, *product.b, *product.c, 0)
    return CStep(
        body,
        (*operands, "in2") if product.bias else operands,
        (*dims, *(value for axis in product.batch for value in axis)),
        units=product.matrices * -(-product.rows // ROWS),
        cost=product.work // 16,
        support=_SOURCE.replace("TYPE", c_type).replace("HEIGHT", str(ROWS)),
    )
