// Twins of PTX instructions on small matrices, with the register layouts of the PTX manual, for
// code that chooses by #ifdef __CUEMU__ between these and inline PTX.
#pragma once
extern "C++" {

// mma.sync.aligned.m16n8k16.row.col.f32.T.T.f32; T is __half or __nv_bfloat16.
struct cuemu_m16n8k16_argument {
    float *d;
    const unsigned *a, *b;
    const float *c;
};
template <class T> CUEMU_RAW static void cuemu_m16n8k16_all(void **arguments, unsigned mask) {
    if (mask != ~0u) cuemu_trap("mma.sync needs all 32 lanes");
    auto **lanes = (cuemu_m16n8k16_argument **)arguments;
    float A[16][16], B[16][8];
    auto half_of = [](unsigned pair, int half) {
        T value;
        value.x = pair >> 16 * half;
        return float(value);
    };
    for (int lane = 0; lane < 32; lane++)
        for (int half = 0; half < 2; half++) {
            int group = lane / 4, place = lane % 4 * 2 + half;
            for (int r = 0; r < 4; r++)
                A[group + 8 * (r & 1)][place + 8 * (r >> 1)] = half_of(lanes[lane]->a[r], half);
            for (int r = 0; r < 2; r++) B[place + 8 * r][group] = half_of(lanes[lane]->b[r], half);
        }
    for (int lane = 0; lane < 32; lane++)
        for (int r = 0; r < 4; r++) {
            int i = lane / 4 + 8 * (r >> 1), j = lane % 4 * 2 + (r & 1);
            float sum = lanes[lane]->c[r];
            for (int k = 0; k < 16; k++) sum += A[i][k] * B[k][j];
            lanes[lane]->d[r] = sum;
        }
}
template <class T>
CUEMU_RAW static void cuemu_mma_m16n8k16(float *d, const unsigned *a, const unsigned *b,
                                         const float *c) {
    cuemu_m16n8k16_argument argument{d, a, b, c};
    cuemu_warp(~0u, &argument, cuemu_m16n8k16_all<T>);
}

// ldmatrix.sync.aligned.m8n8.xN(.trans).shared.b16: lane i has the address of row i % 8 of matrix
// i / 8.
struct cuemu_ldmatrix_argument {
    const unsigned short *row;
    unsigned *d;
    int count;
    bool transposed;
};
CUEMU_RAW static void cuemu_ldmatrix_all(void **arguments, unsigned) {
    auto **lanes = (cuemu_ldmatrix_argument **)arguments;
    for (int lane = 0; lane < 32; lane++)
        for (int r = 0; r < lanes[lane]->count; r++) {
            unsigned value = 0;
            for (int half = 0; half < 2; half++) {
                int i = lane / 4, j = lane % 4 * 2 + half;
                unsigned element =
                    lanes[lane]->transposed ? lanes[r * 8 + j]->row[i] : lanes[r * 8 + i]->row[j];
                value |= element << 16 * half;
            }
            lanes[lane]->d[r] = value;
        }
}
static inline void cuemu_ldmatrix(unsigned *d, const void *row, int count, bool transposed) {
    if ((size_t)row % 16) cuemu_trap("ldmatrix: row address not 16-byte aligned");
    if (int(cuemu_lane()) < 8 * count) { // so that the row is checked
        volatile char byte;
        for (int i = 0; i < 16; i++) byte = ((const char *)row)[i];
    }
    cuemu_ldmatrix_argument argument{(const unsigned short *)row, d, count, transposed};
    cuemu_warp(~0u, &argument, cuemu_ldmatrix_all);
}
}
