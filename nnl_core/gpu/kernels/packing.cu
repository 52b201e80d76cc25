// Sequences of several lengths, packed step by step: where their elements lie. All is small:
// a thread for each step, sequence or pair of both.

// Whether numbers go down from `most` or less (the first is `first`, if that is not negative) to 0 or
// more, and sum to `count`: one block.
extern "C" __global__ void KERNEL(check)(Numbers numbers, Failure bad, int64_t given, int64_t first,
                                         int64_t most, int64_t count) {
    __shared__ int64_t room[32];
    bool wrong = false;
    int64_t sum = 0;
    for (int64_t i = threadIdx.x; i < given; i += blockDim.x) {
        int64_t number = whole_at(numbers, i);
        wrong |= number < 0 || number > (i ? whole_at(numbers, i - 1) : most);
        wrong |= i == 0 && first >= 0 && number != first;
        sum += number;
    }
    sum = block_all<Add>(sum, (int64_t)0, room);
    if (wrong || sum != count) bad.raise();
}

// Of each step, how many of `batch` sequences have it, and how many elements come before it.
extern "C" __global__ void KERNEL(steps)(Numbers lengths, int64_t *__restrict__ sizes,
                                         int64_t *__restrict__ starts, int64_t batch, int64_t steps) {
    FOR_EACH(step, steps) {
        int64_t size = 0, start = 0;
        for (int64_t i = 0; i < batch; i++) {
            int64_t length = whole_at(lengths, i);
            size += length > step;
            start += length < step ? length : step;
        }
        sizes[step] = size;
        starts[step] = start;
    }
}

// Of each sequence, how many of `given` steps have it.
extern "C" __global__ void KERNEL(sequences)(Numbers sizes,
                                             int64_t *__restrict__ lengths, int64_t given,
                                             int64_t batch) {
    FOR_EACH(sequence, batch) {
        int64_t length = 0;
        for (int64_t step = 0; step < given; step++) length += whole_at(sizes, step) > sequence;
        lengths[sequence] = length;
    }
}

// Where each of `count` packed elements lies in the flat padded array, 0 for what the sizes do not
// name. `starts` are null where they follow from the sizes of the steps before.
extern "C" __global__ void KERNEL(places)(Numbers sizes, const int64_t *starts, int64_t *to,
                                          int64_t batch, int64_t steps, int64_t count,
                                          int32_t batch_first, int64_t pairs) {
    FOR_EACH(pair, pairs) {
        int64_t step = pair / batch, sequence = pair - step * batch, start = 0;
        if (sequence >= whole_at(sizes, step)) continue;
        if (starts)
            start = starts[step];
        else
            for (int64_t before = 0; before < step; before++) start += whole_at(sizes, before);
        int64_t at = start + sequence;
        if (at >= 0 && at < count) to[at] = batch_first ? sequence * steps + step : pair;
    }
}
