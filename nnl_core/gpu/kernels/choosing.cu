// Elements of populations by weight. Behind `stochastic.cu`, whose words it reads. T carries an
// element, W is a weight. Populations are rows of `length`.

// Running totals of the weights, in double: a block of 256 threads for each population. Weights are
// read once, totals written once. Fails where a weight is negative or no number, or a total not
// positive and finite.
extern "C" __global__ void __launch_bounds__(256) KERNEL(run_totals)(
    const W *__restrict__ weights, double *__restrict__ totals, Failure bad, int64_t length) {
    __shared__ double room[8];
    weights += blockIdx.x * length, totals += blockIdx.x * length;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    double before = 0;
    bool wrong = false;
    for (int64_t first = 0; first < length; first += 256) {
        int64_t i = first + threadIdx.x;
        double weight = i < length ? (double)wide(weights[i]) : 0, sum = weight;
        wrong |= !(weight >= 0);
        for (int distance = 1; distance < 32; distance *= 2) {
            double other = __shfl_up_sync(0xffffffffu, sum, distance);
            if (lane >= distance) sum += other;
        }
        if (lane == 31) room[warp] = sum;
        __syncthreads();
        double offset = before;
        for (int other = 0; other < 8; other++) {
            if (other < warp) offset += room[other];
            before += room[other];
        }
        if (i < length) totals[i] = offset + sum;
        __syncthreads();
    }
    if (wrong || !(before > 0) || before - before != 0) bad.raise();
}

// One thread for each draw: looks a number below its population's total up among the running totals.
extern "C" __global__ void KERNEL(choose)(
    const T *__restrict__ x, const uint64_t *__restrict__ key, const double *__restrict__ totals,
    T *__restrict__ y, int64_t *__restrict__ places, int64_t length, int64_t draws, int64_t count) {
    FOR_EACH(i, count) {
        int64_t start = i / draws * length, low = 0, high = length - 1;
        const double *ends = totals + start;
        double total = ends[length - 1], number = Words(key, i).next_double() * total;
        number = smaller(number, nextafter(total, 0.0));  // rounding can reach the total
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (ends[middle] > number) high = middle;
            else low = middle + 1;
        }
        y[i] = x[start + low];
        places[i] = start + low;
    }
}
