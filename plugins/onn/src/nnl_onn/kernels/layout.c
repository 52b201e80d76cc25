/* Where data lies while a kernel works: the planes of a map, and the placements of its kernel.

   A plane holds a map split by stride: elements that lie a whole number of strides apart are
   neighbours. So what a tap reads lies at a fixed distance from the placement, wherever that is,
   and a loop over placements is one over neighbours, for each tap. Rows of placements are as long as
   rows of the plane; what the last columns read there is used by nobody. */
enum { VECTOR = 16, SPATIAL = 3 };

/* Placements that are dealt with at a time; what is kept of each tap of theirs is to stay near. */
#ifdef ONN_SELECTS
enum { BLOCK = 256 };
#else
enum { BLOCK = 1024 };
#endif

static const int64_t KERNEL[] = ONN_KERNEL, STRIDE[] = ONN_STRIDE, DILATION[] = ONN_DILATION;

struct layout {
    int64_t batch, channels, maps, inner, each; /* input and output maps of a group */
    int64_t size[SPATIAL], count[SPATIAL], part[SPATIAL]; /* of data, of placements, of a part */
    int64_t plane, room;                        /* elements of a plane, and what it is given */
    int64_t length;                             /* from the first placement to the last */
    int64_t offset[TAPS];
};

static struct layout find_layout(const struct nnl_array *x, const struct nnl_array *w) {
    struct layout l = {.batch = x->shape[0], .channels = x->shape[1], .maps = w->shape[0],
                       .inner = w->shape[1], .plane = 1};
    l.each = l.inner ? l.maps * l.inner / l.channels : 0;
    int64_t parts = 1;
    for (int axis = 0; axis < SPATIAL; axis++) {
        const int64_t from = axis + x->rank - SPATIAL;
        l.size[axis] = from < 2 ? 1 : x->shape[from];
        l.count[axis] = (l.size[axis] - (KERNEL[axis] - 1) * DILATION[axis] - 1) / STRIDE[axis] + 1;
        l.part[axis] = (l.size[axis] + STRIDE[axis] - 1) / STRIDE[axis];
        l.plane *= l.part[axis] * STRIDE[axis];
        parts *= l.part[axis];
    }
    l.room = (l.plane + 2 * VECTOR - 1) / VECTOR * VECTOR;
    l.length = ((l.count[0] - 1) * l.part[1] + l.count[1] - 1) * l.part[2] + l.count[2];
    for (int64_t tap = 0; tap < TAPS; tap++) {
        int64_t rest = tap, which = 0, within = 0, phases = 1, step = 1;
        for (int axis = SPATIAL - 1; axis >= 0; axis--) {
            const int64_t at = rest % KERNEL[axis] * DILATION[axis];
            which += at % STRIDE[axis] * phases;
            within += at / STRIDE[axis] * step;
            rest /= KERNEL[axis], phases *= STRIDE[axis], step *= l.part[axis];
        }
        l.offset[tap] = which * parts + within;
    }
    return l;
}

/* Copy a map into a plane, or back. */
static void move_map(const struct layout *l, T *map, T *plane, int back) {
    if (STRIDE[0] * STRIDE[1] * STRIDE[2] == 1) {
        memcpy(back ? map : plane, back ? plane : map, l->plane * sizeof(T));
        return;
    }
    for (int64_t z = 0; z < l->size[0]; z++)
        for (int64_t y = 0; y < l->size[1]; y++) {
            T *row = map + (z * l->size[1] + y) * l->size[2];
            const int64_t which = z % STRIDE[0] * STRIDE[1] + y % STRIDE[1];
            for (int64_t phase = 0; phase < STRIDE[2]; phase++) {
                T *to = plane + ((((which * STRIDE[2] + phase) * l->part[0] + z / STRIDE[0])
                                  * l->part[1]) + y / STRIDE[1]) * l->part[2];
                for (int64_t k = phase; k < l->size[2]; k += STRIDE[2], to++)
                    if (back) row[k] = *to;
                    else *to = row[k];
            }
        }
}

/* Make the planes of a map: x, those that follow from it, and the factor a. */
static void make_planes(const struct layout *l, const T *x, const T *a, T *p) {
    const int64_t room = l->room;
    T *x_ = p, *a_ = p + (PLANES - 1) * room;
    memset(p, 0, PLANES * room * sizeof(T));
    move_map(l, (T *)x, x_, 0);
    if (a) move_map(l, (T *)a, a_, 0);
    ONN_PLANES
}

/* Placements are gone through block by block: all at once, or row by row without what lies between
   them, which is slower and reads nothing that has no meaning. */
struct block {
    int64_t begin, count;
};

static int64_t count_blocks(const struct layout *l, int by_rows) {
    const int64_t length = by_rows ? l->count[2] : l->length;
    return (length + BLOCK - 1) / BLOCK * (by_rows ? l->count[0] * l->count[1] : 1);
}

static struct block find_block(const struct layout *l, int by_rows, int64_t number) {
    if (!by_rows) {
        const int64_t left = (l->length + VECTOR - 1) / VECTOR * VECTOR - number * BLOCK;
        return (struct block){number * BLOCK, left < BLOCK ? left : BLOCK};
    }
    const int64_t each = (l->count[2] + BLOCK - 1) / BLOCK, row = number / each;
    const int64_t at = number % each * BLOCK, left = l->count[2] - at;
    const int64_t begin = (row / l->count[1] * l->part[1] + row % l->count[1]) * l->part[2] + at;
    return (struct block){begin, left < BLOCK ? left : BLOCK};
}

/* Copy rows of placements between an output and a plane's rows. */
static void move_rows(const struct layout *l, T *rows, T *plane, int back) {
    for (int64_t z = 0; z < l->count[0]; z++)
        for (int64_t y = 0; y < l->count[1]; y++) {
            T *row = rows + (z * l->count[1] + y) * l->count[2];
            T *at = plane + (z * l->part[1] + y) * l->part[2];
            memcpy(back ? row : at, back ? at : row, l->count[2] * sizeof(T));
        }
}

static int is_wasteful(const struct layout *l) {
    return l->length > 2 * l->count[0] * l->count[1] * l->count[2];
}
