// Sums of products of elements in strides, where no product of matrices does it. An index of the
// result has up to AXES letters, and what is summed over up to AXES others.
typedef Computing<T>::type Sum;
struct Letters {
    int64_t count, length[AXES], left[AXES], right[AXES];
};

INLINE void places(const Letters &letters, int64_t item, int64_t &left, int64_t &right) {
    int64_t rest = item;
#pragma unroll
    for (int axis = AXES - 1; axis >= 0; --axis) {
        if (axis >= letters.count) continue;
        int64_t at = split(rest, letters.length[axis]);
        left += at * letters.left[axis];
        right += at * letters.right[axis];
    }
}

// A thread for each result, which goes through what is summed over.
extern "C" __global__ void KERNEL(sum_products)(
    const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ y, Letters kept, Letters summed,
    int64_t terms, int64_t count) {
    FOR_EACH(item, count) {
        int64_t left = 0, right = 0;
        places(kept, item, left, right);
        Sum sum = 0;
        for (int64_t term = 0; term < terms; ++term) {
            int64_t one = left, other = right;
            places(summed, term, one, other);
            sum += wide(a[one]) * wide(b[other]);
        }
        y[item] = narrow<T>(sum);
    }
}

// A block for each result.
extern "C" __global__ void KERNEL(sum_elements)(
    const T *__restrict__ a, T *__restrict__ y, Letters kept, Letters summed, int64_t terms) {
    __shared__ Sum room[32];
    int64_t left = 0, right = 0;
    places(kept, blockIdx.x, left, right);
    Sum sum = 0;
    for (int64_t term = threadIdx.x; term < terms; term += blockDim.x) {
        int64_t one = left, other = right;
        places(summed, term, one, other);
        sum += wide(a[one]);
    }
    sum = block_all<Add>(sum, Sum(0), room);
    if (threadIdx.x == 0) y[blockIdx.x] = narrow<T>(sum);
}
