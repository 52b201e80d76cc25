// Products of windows: each result reads what it is a sum of, in order. Launched by `over_rows`;
// neighbouring threads have neighbouring columns. Operations: what the sums say, one multiply-add a
// term; what is read comes from the cache but once.
typedef Computing<T>::type Sum;

#ifdef PATCHES
// y[n,s,t,p,q] = sum of x1[n,c,p P+i,q Q+j] x2[n,c,p P+s S+i,q Q+t T+j].
struct Form {
    int64_t channels, patch_y, patch_x, step_y, step_x, shifts_y, shifts_x, shift_y, shift_x, places_y, places_x;
    int64_t height1, width1, height2, width2;
};

extern "C" __global__ void KERNEL(patch_correlation)(
    const T *__restrict__ x1, const T *__restrict__ x2, T *__restrict__ y, Form f, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows) {
        int64_t n = row;
        int64_t p = split(n, f.places_y), t = split(n, f.shifts_x), s = split(n, f.shifts_y);
        FOR_COLUMNS(q, columns) {
            Sum sum = 0;
            for (int64_t c = 0; c < f.channels; ++c)
                for (int64_t i = 0; i < f.patch_y; ++i) {
                    int64_t plane = n * f.channels + c, line = p * f.step_y + i;
                    const T *one = x1 + (plane * f.height1 + line) * f.width1 + q * f.step_x;
                    const T *other = x2 + (plane * f.height2 + line + s * f.shift_y) * f.width2 + q * f.step_x + t * f.shift_x;
                    for (int64_t j = 0; j < f.patch_x; ++j) sum += wide(one[j]) * wide(other[j]);
                }
            y[row * columns + q] = narrow<T>(sum);
        }
    }
}

// By the first image: what moved patches say of each pixel, at the places whose patches show it.
extern "C" __global__ void KERNEL(patch_correlation_first)(
    const T *__restrict__ x2, const T *__restrict__ y, T *__restrict__ x1, Form f, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows) {
        int64_t plane = row;
        int64_t v = split(plane, f.height1), n = plane / f.channels;
        FOR_COLUMNS(u, columns) {
            Sum sum = 0;
            for (int64_t i = v % f.step_y; i < f.patch_y && i <= v; i += f.step_y) {
                int64_t p = (v - i) / f.step_y;
                if (p >= f.places_y) continue;
                for (int64_t j = u % f.step_x; j < f.patch_x && j <= u; j += f.step_x) {
                    int64_t q = (u - j) / f.step_x;
                    if (q >= f.places_x) continue;
                    for (int64_t s = 0; s < f.shifts_y; ++s)
                        for (int64_t t = 0; t < f.shifts_x; ++t)
                            sum += wide(x2[(plane * f.height2 + v + s * f.shift_y) * f.width2 + u + t * f.shift_x]) *
                                wide(y[(((n * f.shifts_y + s) * f.shifts_x + t) * f.places_y + p) * f.places_x + q]);
                }
            }
            x1[row * columns + u] = narrow<T>(sum);
        }
    }
}

// By the second image: what fixed patches say of each pixel, for all shifts that show it.
extern "C" __global__ void KERNEL(patch_correlation_second)(
    const T *__restrict__ x1, const T *__restrict__ y, T *__restrict__ x2, Form f, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows) {
        int64_t plane = row;
        int64_t down = split(plane, f.height2), n = plane / f.channels;
        FOR_COLUMNS(across, columns) {
            Sum sum = 0;
            for (int64_t s = 0; s < f.shifts_y; ++s) {
                int64_t v = down - s * f.shift_y;
                if (v < 0 || v >= f.height1) continue;
                for (int64_t t = 0; t < f.shifts_x; ++t) {
                    int64_t u = across - t * f.shift_x;
                    if (u < 0 || u >= f.width1) continue;
                    Sum weight = 0;
                    for (int64_t i = v % f.step_y; i < f.patch_y && i <= v; i += f.step_y) {
                        int64_t p = (v - i) / f.step_y;
                        if (p >= f.places_y) continue;
                        for (int64_t j = u % f.step_x; j < f.patch_x && j <= u; j += f.step_x) {
                            int64_t q = (u - j) / f.step_x;
                            if (q < f.places_x)
                                weight += wide(y[(((n * f.shifts_y + s) * f.shifts_x + t) * f.places_y + p) * f.places_x + q]);
                        }
                    }
                    sum += weight * wide(x1[(plane * f.height1 + v) * f.width1 + u]);
                }
            }
            x2[row * columns + across] = narrow<T>(sum);
        }
    }
}
#endif

#ifdef SEPARABLE
// y[n,c,p,q] = sum of v[n,j,p,q] h[n,i,p,q] x[n,c,p+j,q+i].
struct Form {
    int64_t channels, height, width, taps_v, taps_h, places_y, places_x;
};

extern "C" __global__ void KERNEL(separable)(
    const T *__restrict__ x, const T *__restrict__ v, const T *__restrict__ h, T *__restrict__ y, Form f,
    int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows) {
        int64_t plane = row, places = f.places_y * f.places_x;
        int64_t p = split(plane, f.places_y), n = plane / f.channels;
        FOR_COLUMNS(q, columns) {
            int64_t place = p * f.places_x + q;
            Sum sum = 0;
            for (int64_t j = 0; j < f.taps_v; ++j) {
                const T *line = x + (plane * f.height + p + j) * f.width + q;
                Sum across = 0;
                for (int64_t i = 0; i < f.taps_h; ++i)
                    across += wide(line[i]) * wide(h[(n * f.taps_h + i) * places + place]);
                sum += across * wide(v[(n * f.taps_v + j) * places + place]);
            }
            y[row * columns + q] = narrow<T>(sum);
        }
    }
}

// By v (`down`) or h: rows are (batch, taps, places_y); `other` are the taps along the other axis.
extern "C" __global__ void KERNEL(separable_taps)(
    const T *__restrict__ x, const T *__restrict__ other, const T *__restrict__ y, T *__restrict__ result,
    Form f, int64_t down, int64_t rows, int64_t columns) {
    int64_t places = f.places_y * f.places_x;
    FOR_ROWS(row, rows) {
        int64_t n = row;
        int64_t p = split(n, f.places_y), own = split(n, down ? f.taps_v : f.taps_h);
        int64_t others = down ? f.taps_h : f.taps_v;
        FOR_COLUMNS(q, columns) {
            int64_t place = p * f.places_x + q;
            Sum sum = 0;
            for (int64_t c = 0; c < f.channels; ++c) {
                int64_t plane = n * f.channels + c;
                Sum part = 0;
                for (int64_t k = 0; k < others; ++k) {
                    int64_t line = p + (down ? own : k), at = q + (down ? k : own);
                    part += wide(x[(plane * f.height + line) * f.width + at]) * wide(other[(n * others + k) * places + place]);
                }
                sum += part * wide(y[plane * places + place]);
            }
            result[row * columns + q] = narrow<T>(sum);
        }
    }
}

extern "C" __global__ void KERNEL(separable_data)(
    const T *__restrict__ v, const T *__restrict__ h, const T *__restrict__ y, T *__restrict__ x, Form f,
    int64_t rows, int64_t columns) {
    int64_t places = f.places_y * f.places_x;
    FOR_ROWS(row, rows) {
        int64_t plane = row;
        int64_t line = split(plane, f.height), n = plane / f.channels;
        FOR_COLUMNS(at, columns) {
            Sum sum = 0;
            for (int64_t j = 0; j < f.taps_v; ++j) {
                int64_t p = line - j;
                if (p < 0 || p >= f.places_y) continue;
                for (int64_t i = 0; i < f.taps_h; ++i) {
                    int64_t q = at - i;
                    if (q < 0 || q >= f.places_x) continue;
                    int64_t place = p * f.places_x + q;
                    sum += wide(y[plane * places + place]) * wide(v[(n * f.taps_v + j) * places + place]) *
                        wide(h[(n * f.taps_h + i) * places + place]);
                }
            }
            x[row * columns + at] = narrow<T>(sum);
        }
    }
}
#endif
