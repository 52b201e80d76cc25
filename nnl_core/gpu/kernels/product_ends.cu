// What comes before and after a product: a bias in each row, and the sum of slices.

// c (rows, columns) = bias (columns). Launch: a thread an element; writes all of c.
extern "C" __global__ void KERNEL(begin_with_bias)(const T *bias, T *c, Divisor columns, int64_t count) {
    FOR_EACH(item, count) c[item] = bias[columns.rest((uint32_t)item)];
}

// c = the sum of `slices` arrays one behind the other, in order, and a bias for each column where there
// is one. Launch: a thread an element; reads all slices once.
extern "C" __global__ void KERNEL(add_slices)(const W *parts, const B *bias, T *c, int slices,
                                              Divisor columns, int64_t count) {
    FOR_EACH(item, count) {
        W sum = parts[item];
        for (int part = 1; part < slices; part++) sum += parts[part * count + item];
        if (bias) sum += wide(bias[columns.rest((uint32_t)item)]);
        c[item] = narrow<T>(sum);
    }
}
