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

# A panel of two vectors' columns is copied, padded with zeros; rows are computed a few at a time,
# so that sums stay in registers. Each sum goes over k in order, whatever else is computed.
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
enum { LANES_TYPE = NNL_TINY_BYTES / sizeof(TYPE) };

INLINE void nnl_tiny_rows_TYPE(int rows, int vectors, const TYPE *a, int64_t a_row, int64_t a_col,
                               const TYPE *panel, int64_t k, TYPE *c, int64_t c_row) {
    nnl_tiny_TYPE sum[NNL_TINY_ROWS][2];
    #pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        #pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sum[r][v] = *(const nnl_tiny_TYPE *)(c + r * c_row + v * LANES_TYPE);
    for (int64_t i = 0; i < k; i++) {
        const nnl_tiny_TYPE *w = (const nnl_tiny_TYPE *)(panel + i * 2 * LANES_TYPE);
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

/* Add rows of a times the panel to full columns of c. */
static __attribute__((noinline)) void nnl_tiny_panel_TYPE(
        int64_t rows, int vectors, const TYPE *a, int64_t a_row, int64_t a_col, const TYPE *panel,
        int64_t k, TYPE *c, int64_t c_row) {
    int64_t r = 0;
    #define NNL_TINY_LOOP(N, V) \\
        for (; r + N <= rows; r += N) \\
            nnl_tiny_rows_TYPE(N, V, a + r * a_row, a_row, a_col, panel, k, c + r * c_row, c_row);
    if (vectors == 1) {
        NNL_TINY_LOOP(NNL_TINY_ROWS, 1)
        NNL_TINY_LOOP(1, 1)
    } else {
        NNL_TINY_LOOP(NNL_TINY_ROWS, 2)
        NNL_TINY_LOOP(1, 2)
    }
    #undef NNL_TINY_LOOP
}

static void nnl_tiny_TYPE_product(
        int64_t rows, int64_t inner, int64_t columns, const TYPE *a, int64_t a_row, int64_t a_col,
        const TYPE *b, int64_t b_row, int64_t b_col, const TYPE *bias, TYPE *c, int64_t c_row) {
    TYPE panel[NNL_TINY_DEPTH * 2 * LANES_TYPE] __attribute__((aligned(64)));
    TYPE part[ROWS * 2 * LANES_TYPE] __attribute__((aligned(64)));
    for (int64_t j = 0; j < columns; j += 2 * LANES_TYPE) {
        const int64_t n = MIN(2 * LANES_TYPE, columns - j);
        const int vectors = n > LANES_TYPE ? 2 : 1, whole = n == 2 * LANES_TYPE;
        TYPE *out = whole ? c + j : part;
        const int64_t out_row = whole ? c_row : vectors * LANES_TYPE;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < vectors * LANES_TYPE; i++)
                out[r * out_row + i] = bias && i < n ? bias[j + i] : 0;
        for (int64_t k = 0; k < inner; k += NNL_TINY_DEPTH) {
            const int64_t depth = MIN(NNL_TINY_DEPTH, inner - k);
            const TYPE *from = b + k * b_row + j * b_col;
            if (!whole) memset(panel, 0, depth * 2 * LANES_TYPE * sizeof(TYPE));
            if (b_col == 1)
                for (int64_t i = 0; i < depth; i++)
                    for (int64_t t = 0; t < n; t++)
                        panel[i * 2 * LANES_TYPE + t] = from[i * b_row + t];
            else
                for (int64_t t = 0; t < n; t++)
                    for (int64_t i = 0; i < depth; i++)
                        panel[i * 2 * LANES_TYPE + t] = from[i * b_row + t * b_col];
            nnl_tiny_panel_TYPE(rows, vectors, a + k * a_col, a_row, a_col, panel, depth, out,
                                out_row);
        }
        if (!whole)
            for (int64_t r = 0; r < rows; r++)
                for (int64_t i = 0; i < n; i++) c[r * c_row + j + i] = part[r * out_row + i];
    }
}
"""


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
        cost=product.work // 8,
        support=_SOURCE.replace("TYPE", c_type).replace("ROWS *", f"{ROWS} *"),
    )
