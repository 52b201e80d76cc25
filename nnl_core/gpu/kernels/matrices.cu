// Inverse, determinant, cofactors and Cholesky factor of small square matrices.
//
// Launch of all: a block a matrix, of a whole number of warps that is a power of two; `space` is global
// memory for what a block works on where dynamic shared memory has not the room (then it is null).
// About n^3 operations a matrix, a barrier or more for each of its rows; matrices are read and written
// once.
typedef Computing<T>::type W;

struct Candidate {
    W size;
    int row, column;
};
// The larger; of equal ones the first, so that the order of threads does not matter.
struct Better {
    static __device__ __forceinline__ Candidate of(Candidate a, Candidate b) {
        const bool before = a.row < b.row || (a.row == b.row && a.column < b.column);
        return a.size > b.size || (a.size == b.size && before) ? a : b;
    }
};

INLINE W *work_space(W *space, int64_t size) {
    extern __shared__ __align__(16) unsigned char room[];
    return space ? space + blockIdx.x * size : (W *)room;
}

// Reads a matrix to the beginning of rows `pitch` apart; answers whether all of it is finite.
INLINE bool read_matrix(const T *x, W *a, int n, int pitch) {
    bool strange = false;
    for (int at = threadIdx.x; at < n * n; at += blockDim.x) {
        const W value = wide(x[at]);
        a[at / n * pitch + at % n] = value;
        strange |= value - value != 0;
    }
    return !__syncthreads_or(strange);
}

INLINE void swap(W &a, W &b) {
    const W kept = a;
    a = b;
    b = kept;
}

// Exchanges rows; no barrier.
INLINE void swap_rows(W *a, int pitch, int first, int second, int columns) {
    if (first != second)
        for (int j = threadIdx.x; j < columns; j += blockDim.x)
            swap(a[first * pitch + j], a[second * pitch + j]);
}

// Finds the largest element of some columns from row k on. The matrix may be written to at once.
INLINE Candidate find_pivot(const W *a, int n, int pitch, int k, int columns) {
    __shared__ Candidate room[32];
    Candidate best{-1, n, n};
    for (int at = threadIdx.x; at < (n - k) * columns; at += blockDim.x) {
        const int i = k + at / columns, j = k + at % columns;
        const W value = a[i * pitch + j];
        best = Better::of(best, Candidate{value < 0 ? -value : value, i, j});
    }
    best = team_all<Better>(best, Candidate{-1, n, n}, blockDim.x, room);
    __syncthreads();
    // Nothing is larger than NaN, nor smaller.
    return best.row < n ? best : Candidate{0, k, k};
}

// Takes row k times a factor from all rows below it, in columns k + 1 to n.
INLINE void eliminate_below(W *a, int n, int pitch, int k) {
    const W pivot = a[k * pitch + k];
    for (int i = k + 1 + threadIdx.x; i < n; i += blockDim.x) a[i * pitch + k] /= pivot;
    __syncthreads();
    const int left = n - k - 1;
    for (int at = threadIdx.x; at < left * left; at += blockDim.x) {
        const int i = k + 1 + at / left, j = k + 1 + at % left;
        a[i * pitch + j] -= a[i * pitch + k] * a[k * pitch + j];
    }
    __syncthreads();
}

// y = the determinant, or the logarithm of its magnitude.
extern "C" __global__ void KERNEL(determinant)(const T *x, T *y, W *space, int n, bool logarithm) {
    W *a = work_space(space, (int64_t)n * n);
    read_matrix(x + (int64_t)blockIdx.x * n * n, a, n, n);
    W product = 1, sum = 0;
    for (int k = 0; k < n; k++) {
        const Candidate pivot = find_pivot(a, n, n, k, 1);
        swap_rows(a, n, k, pivot.row, n);
        __syncthreads();
        const W value = a[k * n + k];
        product *= pivot.row == k ? value : -value;
        sum += log_of(abs_of(value));
        if (value == 0) break;
        eliminate_below(a, n, n, k);
    }
    if (threadIdx.x == 0) y[blockIdx.x] = narrow<T>(logarithm ? sum : product);
}

// y = the inverse, by elimination in (x, 1); NaN where x is not finite, fails where it is singular.
extern "C" __global__ void KERNEL(inverse)(const T *x, T *y, W *space, int n, Failure bad) {
    const int pitch = 2 * n;
    W *a = work_space(space, (int64_t)n * pitch);
    const int64_t start = (int64_t)blockIdx.x * n * n;
    for (int at = threadIdx.x; at < n * n; at += blockDim.x)
        a[at / n * pitch + n + at % n] = at / n == at % n;
    const bool finite = read_matrix(x + start, a, n, pitch);
    bool regular = finite;
    for (int k = 0; k < n && regular; k++) {
        const Candidate pivot = find_pivot(a, n, pitch, k, 1);
        swap_rows(a, pitch, k, pivot.row, pitch);
        __syncthreads();
        const W value = a[k * pitch + k];
        regular = value != 0;
        const int left = pitch - k - 1;
        for (int j = k + 1 + threadIdx.x; j < pitch; j += blockDim.x) a[k * pitch + j] /= value;
        __syncthreads();
        for (int at = threadIdx.x; at < n * left; at += blockDim.x) {
            const int i = at / left, j = k + 1 + at % left;
            if (i != k) a[i * pitch + j] -= a[i * pitch + k] * a[k * pitch + j];
        }
        __syncthreads();
    }
    if (finite && !regular && threadIdx.x == 0) bad.raise();
    for (int at = threadIdx.x; at < n * n; at += blockDim.x)
        y[start + at] = narrow<T>(regular ? a[at / n * pitch + n + at % n] : (W)NAN);
}

// y = the Cholesky factor of the symmetric part; NaN where that is not finite, fails where it is not
// positive definite.
extern "C" __global__ void KERNEL(cholesky)(const T *x, T *y, W *space, int n, bool upper, Failure bad) {
    W *a = work_space(space, (int64_t)n * n);
    x += (int64_t)blockIdx.x * n * n;
    y += (int64_t)blockIdx.x * n * n;
    const bool finite = read_matrix(x, a, n, n);
    bool definite = finite;
    for (int at = threadIdx.x; at < n * n; at += blockDim.x) {
        const int i = at / n, j = at % n;
        if (j < i) a[at] = (a[at] + a[j * n + i]) / 2;
    }
    __syncthreads();
    for (int k = 0; k < n && definite; k++) {
        const W root = sqrt_of(a[k * n + k]);
        definite = a[k * n + k] > 0;
        __syncthreads();
        for (int i = k + threadIdx.x; i < n; i += blockDim.x)
            a[i * n + k] = i == k ? root : a[i * n + k] / root;
        __syncthreads();
        const int left = n - k - 1;
        for (int at = threadIdx.x; at < left * left; at += blockDim.x) {
            const int i = k + 1 + at / left, j = k + 1 + at % left;
            if (j <= i) a[i * n + j] -= a[i * n + k] * a[j * n + k];
        }
        __syncthreads();
    }
    if (finite && !definite && threadIdx.x == 0) bad.raise();
    for (int at = threadIdx.x; at < n * n; at += blockDim.x) {
        const int i = at / n, j = at % n;
        const W value = upper ? (i <= j ? a[j * n + i] : (W)0) : (j <= i ? a[at] : (W)0);
        y[at] = narrow<T>(definite ? value : (W)NAN);
    }
}

// y = the cofactors, also of singular matrices; NaN where x is not finite.
//
// With both rows and columns exchanged, x is l u, l with ones on its diagonal and u with the smallest
// pivot last. Cofactors of a product are the product of cofactors: those of l are l^-T. With
// u = ((v, w), (0, p)) and d = det v, the adjugate of u is ((p d v^-1, -d v^-1 w), (0, d)), which
// divides by no p. Where a pivot before it is 0, all are. (The space is 2 n^2 and 2 n more.)
extern "C" __global__ void KERNEL(cofactors)(const T *x, T *y, W *space, int n) {
    W *a = work_space(space, (int64_t)n * (2 * n + 2)), *adjugate = a + n * n;
    W *rows = adjugate + n * n, *columns = rows + n;  // where they came from; W holds such numbers
    const int64_t start = (int64_t)blockIdx.x * n * n;
    for (int i = threadIdx.x; i < n; i += blockDim.x) rows[i] = columns[i] = i;
    const bool finite = read_matrix(x + start, a, n, n);
    W sign = 1, before = 1;
    bool zero = false;
    for (int k = 0; k < n; k++) {
        const Candidate pivot = find_pivot(a, n, n, k, n - k);
        swap_rows(a, n, k, pivot.row, n);
        __syncthreads();
        if (pivot.column != k)
            for (int i = threadIdx.x; i < n; i += blockDim.x) swap(a[i * n + k], a[i * n + pivot.column]);
        if (threadIdx.x == 0) {
            swap(rows[k], rows[pivot.row]);
            swap(columns[k], columns[pivot.column]);
        }
        __syncthreads();
        if (pivot.row != k) sign = -sign;
        if (pivot.column != k) sign = -sign;
        if (k == n - 1) break;
        before *= a[k * n + k];
        zero = a[k * n + k] == 0;
        if (zero) break;
        eliminate_below(a, n, n, k);
    }
    // A thread a column c of the adjugate, stored as a row; those of v^-1 by substitution.
    const W last = n ? a[n * n - 1] : (W)0;
    for (int c = threadIdx.x; c < n && !zero; c += blockDim.x) {
        for (int i = n - 1; i >= 0; i--) {
            W value = 0;
            if (i == n - 1) {
                value = c == n - 1 ? before : (W)0;
            } else if (c == n - 1 || i <= c) {
                const int end = c == n - 1 ? n - 1 : c + 1;
                value = c == n - 1 ? -before * a[i * n + n - 1] : (i == c ? last * before : (W)0);
                for (int j = i + 1; j < end; j++) value -= a[i * n + j] * adjugate[c * n + j];
                value /= a[i * n + i];
            }
            adjugate[c * n + i] = value;
        }
    }
    __syncthreads();
    // The cofactors of u are rows of the adjugate: a thread solves l^T z = row r, in place.
    for (int r = threadIdx.x; r < n && !zero; r += blockDim.x)
        for (int i = n - 1; i >= 0; i--) {
            W value = adjugate[i * n + r];
            for (int j = i + 1; j < n; j++) value -= a[j * n + i] * adjugate[j * n + r];
            adjugate[i * n + r] = value;
        }
    __syncthreads();
    for (int at = threadIdx.x; at < n * n; at += blockDim.x) {
        const int i = at / n, j = at % n;
        const W value = finite ? (zero ? (W)0 : sign * adjugate[i * n + j]) : (W)NAN;
        y[start + (int)rows[i] * n + (int)columns[j]] = narrow<T>(value);
    }
}
