// Pictures read between pixels, at points that are given. Elements of P (float or double) weigh
// pixels; where a weight is 0 nothing is read. Launched by `over_rows`: rows are (batch, groups of
// channels), columns points. Bytes: the points, the results, and each pixel as often as the cache
// forgets it.
// Of TAPS pixels along each of AXES axes the one at step s weighs a polynomial of TERMS
// coefficients, polynomials[axis][s].
constexpr int CORNERS = AXES == 1 ? TAPS : AXES == 2 ? TAPS * TAPS : TAPS * TAPS * TAPS;

// `method` 0: nearest, halves away from zero; 1: nearest, halves to even; 2: between pixels.
// `padding` 0: nothing outside; 1: the outermost pixel; 2: the picture mirrored (with `cells` at the
// border of its outermost pixels, else at their centres).
struct Picture {
    int64_t length[AXES], method, padding, cells;
    double polynomials[AXES][TAPS][TERMS];
};
struct Taps {
    int64_t at[AXES][TAPS];
    P weight[AXES][TAPS];
};

INLINE P remainder_of(P x, P period) {
    P rest = fmod(x, period);
    return rest < 0 ? rest + period : rest;
}

// `point` has the coordinate of the last axis first.
INLINE Taps taps_at(const Q *point, const Picture &picture) {
    Taps taps;
#pragma unroll
    for (int axis = 0; axis < AXES; ++axis) {
        int64_t length = picture.length[axis], span = picture.cells ? length : length - 1;
        P p = (P)wide(point[AXES - 1 - axis]);
        if (picture.padding == 2) {
            P low = picture.cells ? P(-0.5) : P(0);
            p = span ? low + remainder_of(p - low, P(2 * span)) : 0 * p;
            if (picture.method < 2) p = smaller(p, 2 * (low + span) - p);
        } else {
            p = p < P(-4) ? P(-4) : p > P(length + 3) ? P(length + 3) : p;
        }
        P base = picture.method == 0 ? trunc(p + copysign(P(0.5), p)) : picture.method == 1 ? rint(p) : floor(p);
        P fraction = picture.method < 2 ? 0 * p : p - base;
        int64_t first = (p == p ? (int64_t)base : 0) + 1 - (TAPS + 1) / 2;
#pragma unroll
        for (int tap = 0; tap < TAPS; ++tap) {
            int64_t at = first + tap;
            P weight = 0 * fraction + (P)picture.polynomials[axis][tap][TERMS - 1];
#pragma unroll
            for (int term = TERMS - 2; term >= 0; --term)
                weight = weight * fraction + (P)picture.polynomials[axis][tap][term];
            if (picture.padding == 0 && (at < 0 || at >= length)) weight = 0;
            if (picture.padding == 2 && span) {
                at %= 2 * span;
                if (at < 0) at += 2 * span;
                int64_t mirrored = 2 * span - picture.cells - at;
                at = mirrored < at ? mirrored : at;
            }
            taps.at[axis][tap] = at < 0 ? 0 : at >= length ? length - 1 : at;
            taps.weight[axis][tap] = weight;
        }
    }
    return taps;
}

// Pixel and weight of one of the corners around a point.
INLINE P corner(const Taps &taps, const Picture &picture, int number, int64_t &pixel) {
    P weight = 1;
    int rest = number, step[AXES];
#pragma unroll
    for (int axis = AXES - 1; axis >= 0; --axis) step[axis] = rest % TAPS, rest /= TAPS;
    pixel = 0;
#pragma unroll
    for (int axis = 0; axis < AXES; ++axis) {
        pixel = pixel * picture.length[axis] + taps.at[axis][step[axis]];
        weight *= taps.weight[axis][step[axis]];
    }
    return weight;
}

#ifdef READING
extern "C" __global__ void KERNEL(sample_points)(
    const T *__restrict__ x, const Q *__restrict__ points, T *__restrict__ y, Picture picture,
    int64_t channels, int64_t groups, int64_t each, int64_t pixels, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows) {
        int64_t batch = row;
        int64_t first = split(batch, groups) * each, stop = first + each < channels ? first + each : channels;
        FOR_COLUMNS(column, columns) {
            Taps taps = taps_at(points + (batch * columns + column) * AXES, picture);
            for (int64_t channel = first; channel < stop; ++channel) {
                const T *plane = x + (batch * channels + channel) * pixels;
                P sum = 0;
#pragma unroll(CORNERS <= 16 ? CORNERS : 1)
                for (int number = 0; number < CORNERS; ++number) {
                    int64_t pixel;
                    P weight = corner(taps, picture, number, pixel);
                    if (weight != 0) sum += weight * (P)wide(plane[pixel]);
                }
                y[(batch * channels + channel) * columns + column] = narrow<T>(sum);
            }
        }
    }
}
#endif

// For each corner of each point its pixel, among those of all pictures, and its weight.
extern "C" __global__ void KERNEL(sample_keys)(
    const Q *__restrict__ points, uint32_t *__restrict__ keys, P *__restrict__ weights, Picture picture,
    int64_t pixels, int64_t slots, int64_t rows, int64_t columns) {
    FOR_ROWS(row, rows)
        FOR_COLUMNS(column, columns) {
            int64_t point = row * columns + column;
            Taps taps = taps_at(points + point * AXES, picture);
#pragma unroll(CORNERS <= 16 ? CORNERS : 1)
            for (int number = 0; number < CORNERS; ++number) {
                int64_t pixel;
                P weight = corner(taps, picture, number, pixel);
                keys[point * CORNERS + number] = (uint32_t)(weight != 0 ? row * pixels + pixel : slots);
                weights[point * CORNERS + number] = weight;
            }
        }
}
