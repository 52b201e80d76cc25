// Stand-in for libcublas.so.13: matrix products by plain loops, in stream order, with their
// operands checked. It rounds as the library's formats do, not as its algorithms would.
#include <cstdint>
#include <cstring>
#include <vector>

typedef struct CUstream_st *CUstream;
extern "C" {
int cuemu_enqueue(CUstream, void (*function)(void *), void *argument, void (*release)(void *));
int cuemu_check(uint64_t address, size_t bytes, int must_be_written);
void cuemu_mark_written(uint64_t address, size_t bytes);
}

enum Status {
    SUCCESS = 0,
    NOT_INITIALIZED = 1,
    INVALID_VALUE = 7,
    EXECUTION_FAILED = 13,
    NOT_SUPPORTED = 15
};
enum Type { FLOAT32 = 0, FLOAT64 = 1, FLOAT16 = 2, BFLOAT16 = 14 };
enum Compute {
    COMPUTE_32F = 68,
    COMPUTE_32F_PEDANTIC = 69,
    COMPUTE_64F = 70,
    COMPUTE_32F_FAST_TF32 = 77
};
enum MathMode { DEFAULT_MATH = 0, TF32_TENSOR_OP_MATH = 3 };

struct Handle {
    CUstream stream;
    int math_mode;
};

static bool is_type(int type) {
    return type == FLOAT32 || type == FLOAT64 || type == FLOAT16 || type == BFLOAT16;
}

static size_t width(int type) { return type == FLOAT64 ? 8 : type == FLOAT32 ? 4 : 2; }

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double get(const void *memory, int64_t index, int type) {
    switch (type) {
    case FLOAT64: return static_cast<const double *>(memory)[index];
    case FLOAT32: return static_cast<const float *>(memory)[index];
    case FLOAT16: return static_cast<const _Float16 *>(memory)[index];
    default: return from_bits(uint32_t(static_cast<const uint16_t *>(memory)[index]) << 16);
    }
}

static uint16_t round_bfloat16(float value) {
    uint32_t bits = to_bits(value);
    return value != value ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static void put(void *memory, int64_t index, int type, double value) {
    switch (type) {
    case FLOAT64: static_cast<double *>(memory)[index] = value; break;
    case FLOAT32: static_cast<float *>(memory)[index] = float(value); break;
    case FLOAT16: static_cast<_Float16 *>(memory)[index] = _Float16(float(value)); break;
    default: static_cast<uint16_t *>(memory)[index] = round_bfloat16(float(value));
    }
}

static double round_tf32(double value) {
    uint32_t bits = to_bits(float(value));
    return from_bits((bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu);
}

struct Operand { // column-major matrices, one every `stride` elements
    void *memory;
    int type, leading;
    long long stride;
    bool transposed;

    int64_t at(int batch, int row, int column) const {
        int64_t inside =
            transposed ? column + int64_t(row) * leading : row + int64_t(column) * leading;
        return batch * stride + inside;
    }
    double value(int batch, int row, int column) const {
        return get(memory, at(batch, row, column), type);
    }
    size_t bytes(int rows, int columns, int batches) const {
        if (!rows || !columns || !batches) return 0;
        return (at(batches - 1, rows - 1, columns - 1) + 1) * width(type);
    }
};

struct Product { // C (m x n) = alpha op(A) op(B) + beta C, for each matrix of the batch
    int m, n, k, batches;
    double alpha, beta;
    Operand a, b, c;
    bool tf32;

    bool operands_are_good() const {
        auto good = [&](const Operand &operand, int rows, int columns, bool read) {
            return !cuemu_check(uint64_t(operand.memory), operand.bytes(rows, columns, batches),
                                read);
        };
        return good(a, m, k, alpha != 0) && good(b, k, n, alpha != 0) && good(c, m, n, beta != 0);
    }

    void store(int batch, int row, int column, double sum) const {
        int64_t place = c.at(batch, row, column);
        double old = beta != 0 ? beta * get(c.memory, place, c.type) : 0;
        put(c.memory, place, c.type, alpha * sum + old);
        cuemu_mark_written(uint64_t(c.memory) + place * width(c.type), width(c.type));
    }

    void run() const {
        if (!operands_are_good()) return;
        auto rounded = [&](double value) { return tf32 ? round_tf32(value) : value; };
        std::vector<double> left(size_t(m) * k), sums(m);
        for (int batch = 0; batch < batches; batch++) {
            for (int p = 0; p < k; p++)
                for (int i = 0; i < m; i++) left[size_t(p) * m + i] = rounded(a.value(batch, i, p));
            for (int j = 0; j < n; j++) {
                sums.assign(m, 0);
                for (int p = 0; p < k; p++) {
                    double right = rounded(b.value(batch, p, j));
                    for (int i = 0; i < m; i++) sums[i] += left[size_t(p) * m + i] * right;
                }
                for (int i = 0; i < m; i++) store(batch, i, j, sums[i]);
            }
        }
    }
};

static int enqueue(Handle *handle, const Product &product) {
    if (!handle) return NOT_INITIALIZED;
    const Product &p = product;
    if (p.m < 0 || p.n < 0 || p.k < 0 || p.batches < 0) return INVALID_VALUE;
    auto too_short = [](const Operand &operand, int rows, int columns) {
        return operand.leading < (operand.transposed ? columns : rows) || operand.leading < 1;
    };
    if (too_short(p.a, p.m, p.k) || too_short(p.b, p.k, p.n) || too_short(p.c, p.m, p.n))
        return INVALID_VALUE;
    auto run = [](void *job) { static_cast<Product *>(job)->run(); };
    auto release = [](void *job) { delete static_cast<Product *>(job); };
    int failed = cuemu_enqueue(handle->stream, run, new Product(product), release);
    return failed ? EXECUTION_FAILED : SUCCESS;
}

#pragma GCC visibility push(default)
extern "C" {

int cublasCreate_v2(Handle **handle) {
    *handle = new Handle{};
    return SUCCESS;
}

int cublasDestroy_v2(Handle *handle) {
    delete handle;
    return SUCCESS;
}

int cublasGetVersion_v2(Handle *, int *version) {
    *version = 130000;
    return SUCCESS;
}

int cublasSetStream_v2(Handle *handle, CUstream stream) {
    handle->stream = stream;
    return SUCCESS;
}

int cublasSetMathMode(Handle *handle, int mode) {
    handle->math_mode = mode;
    return SUCCESS;
}

int cublasSetWorkspace_v2(Handle *, void *workspace, size_t bytes) {
    return uint64_t(workspace) % 256 || (!workspace && bytes) ? INVALID_VALUE : SUCCESS;
}

int cublasGemmStridedBatchedEx(Handle *handle, int a_transposed, int b_transposed, int m, int n,
                               int k, const void *alpha, const void *a, int a_type, int a_leading,
                               long long a_stride, const void *b, int b_type, int b_leading,
                               long long b_stride, const void *beta, void *c, int c_type,
                               int c_leading, long long c_stride, int batches, int compute, int) {
    bool in_double = compute == COMPUTE_64F, tf32 = compute == COMPUTE_32F_FAST_TF32;
    if (!in_double && !tf32 && compute != COMPUTE_32F && compute != COMPUTE_32F_PEDANTIC)
        return NOT_SUPPORTED;
    if (!is_type(a_type) || a_type != b_type || !is_type(c_type) ||
        in_double != (a_type == FLOAT64) || in_double != (c_type == FLOAT64))
        return NOT_SUPPORTED;
    tf32 |= compute == COMPUTE_32F && handle && handle->math_mode == TF32_TENSOR_OP_MATH;
    auto scalar = [&](const void *value) {
        return in_double ? *static_cast<const double *>(value) : *static_cast<const float *>(value);
    };
    Operand left{const_cast<void *>(a), a_type, a_leading, a_stride, a_transposed != 0};
    Operand right{const_cast<void *>(b), b_type, b_leading, b_stride, b_transposed != 0};
    Operand result{c, c_type, c_leading, c_stride, false};
    return enqueue(handle, {m, n, k, batches, scalar(alpha), scalar(beta), left, right, result,
                            tf32 && a_type == FLOAT32});
}

int cublasGemmEx(Handle *handle, int a_transposed, int b_transposed, int m, int n, int k,
                 const void *alpha, const void *a, int a_type, int a_leading, const void *b,
                 int b_type, int b_leading, const void *beta, void *c, int c_type, int c_leading,
                 int compute, int algorithm) {
    return cublasGemmStridedBatchedEx(handle, a_transposed, b_transposed, m, n, k, alpha, a, a_type,
                                      a_leading, 0, b, b_type, b_leading, 0, beta, c, c_type,
                                      c_leading, 0, 1, compute, algorithm);
}

int cublasSgemmStridedBatched(Handle *handle, int a_transposed, int b_transposed, int m, int n,
                              int k, const float *alpha, const float *a, int a_leading,
                              long long a_stride, const float *b, int b_leading, long long b_stride,
                              const float *beta, float *c, int c_leading, long long c_stride,
                              int batches) {
    return cublasGemmStridedBatchedEx(handle, a_transposed, b_transposed, m, n, k, alpha, a,
                                      FLOAT32, a_leading, a_stride, b, FLOAT32, b_leading, b_stride,
                                      beta, c, FLOAT32, c_leading, c_stride, batches, COMPUTE_32F,
                                      0);
}

int cublasSgemm_v2(Handle *handle, int a_transposed, int b_transposed, int m, int n, int k,
                   const float *alpha, const float *a, int a_leading, const float *b, int b_leading,
                   const float *beta, float *c, int c_leading) {
    return cublasSgemmStridedBatched(handle, a_transposed, b_transposed, m, n, k, alpha, a,
                                     a_leading, 0, b, b_leading, 0, beta, c, c_leading, 0, 1);
}

int cublasDgemm_v2(Handle *handle, int a_transposed, int b_transposed, int m, int n, int k,
                   const double *alpha, const double *a, int a_leading, const double *b,
                   int b_leading, const double *beta, double *c, int c_leading) {
    return cublasGemmStridedBatchedEx(handle, a_transposed, b_transposed, m, n, k, alpha, a,
                                      FLOAT64, a_leading, 0, b, FLOAT64, b_leading, 0, beta, c,
                                      FLOAT64, c_leading, 0, 1, COMPUTE_64F, 0);
}

} // extern "C"
#pragma GCC visibility pop
