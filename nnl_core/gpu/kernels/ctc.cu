// The loss of label sequences that no step is aligned to, and its gradient: a block for each sequence
// goes through the steps, its threads through the states. Bound by the chain of steps, two barriers
// each; log probabilities of the sequence's states are read once, of the gradient, what was known
// before each step is written to memory and read back.
//
// `families/ctc.py` defines
//   T, C     a log probability, and what it is computed in
// States are: the start, then blank, label, blank, ..., blank. What no length or label can be fails.

// The labels of one sequence.
struct Targets {
    Numbers all;
    int64_t start, steps, count;  // negative, where one cannot be
};

// `joined`: all labels lie one after the other, `width` together; else in rows of `width`.
INLINE Targets targets_of(int64_t sequence, Numbers targets, Numbers steps, Numbers lengths,
                          int64_t most_steps, int64_t batch, int64_t width, int joined) {
    int64_t count = whole_at(lengths, sequence), of_steps = whole_at(steps, sequence);
    int64_t start = joined ? 0 : sequence * width;
    if (joined)
        for (int64_t i = 0; i < sequence; i++) start += whole_at(lengths, i);
    if (count < 0 || count > width) count = -1;
    // All lengths together must be the width.
    if (joined && (start < 0 || start + count > width)) count = -1;
    if (joined && sequence == batch - 1 && start + count != width) count = -1;
    if (of_steps < 0 || of_steps > most_steps) of_steps = -1;
    return {targets, start, of_steps, count};
}

// The class of a state, negative for a label that is none, or the blank.
INLINE int32_t class_of(Targets targets, int64_t state, int64_t classes, int64_t blank) {
    if (state == 0 || state % 2 || state / 2 > targets.count) return (int32_t)blank;
    int64_t label = whole_at(targets.all, targets.start + state / 2 - 1);
    return label < 0 || label >= classes || label == blank ? -1 : (int32_t)label;
}

#ifdef T
static const double NEVER = -1e30;  // the logarithm of probability 0

// Shares of what arrives at a state: it stayed, stepped, or jumped.
struct Arrivals {
    C stayed, stepped, jumped, top, total;
};

INLINE Arrivals arrivals_at(int state, const C *alpha, const int32_t *names) {
    bool jumps = state == 2 || (state > 2 && state % 2 == 0 && names[state] != names[state - 2]);
    C stayed = alpha[state], stepped = state > 0 ? alpha[state - 1] : (C)NEVER;
    C jumped = state > 1 && jumps ? alpha[state - 2] : (C)NEVER;
    C top = larger(larger(stayed, stepped), jumped);
    stayed = exp_of(stayed - top), stepped = exp_of(stepped - top), jumped = exp_of(jumped - top);
    return {stayed, stepped, jumped, top, stayed + stepped + jumped};
}

INLINE C log_add(C a, C b) {
    C top = larger(a, b);
    return top + log1p_of(exp_of((a > b ? b : a) - top));
}

// Shared memory of a block for `states`.
struct Room {
    C *a, *b, *c;
    int32_t *names, *next;
    __device__ Room(void *memory, int64_t states)
        : a((C *)memory), b(a + states), c(b + states), names((int32_t *)(c + states)),
          next(names + states) {}
};

// Names the states; returns whether there is one that cannot be.
INLINE bool name_states(Room room, Targets targets, int states, int64_t classes, int64_t blank) {
    int wrong = targets.count < 0 || targets.steps < 0;
    for (int s = threadIdx.x; s < states; s += blockDim.x) {
        room.names[s] = class_of(targets, s, classes, blank);
        wrong |= room.names[s] < 0;
    }
    return __syncthreads_or(wrong);
}

// Goes through the steps of a sequence. The log probabilities of all paths to the states end in
// room.a; those before each step go to `history`, if it is given.
INLINE void forward(Room room, const T *x, Targets targets, int states, int64_t stride, C *history) {
    for (int s = threadIdx.x; s < states; s += blockDim.x) room.a[s] = s ? (C)NEVER : (C)0;
    __syncthreads();
    for (int64_t t = 0; t < targets.steps; t++) {
        for (int s = threadIdx.x; s < states; s += blockDim.x) {
            Arrivals arrivals = arrivals_at(s, room.a, room.names);
            C emitted = s ? larger(wide(x[t * stride + room.names[s]]), (C)NEVER) : (C)NEVER;
            room.b[s] = arrivals.top + log_of(arrivals.total) + emitted;
            if (history) history[t * states + s] = room.a[s];
        }
        __syncthreads();
        C *other = room.a;
        room.a = room.b, room.b = other;
    }
    // An odd number of steps leaves the two exchanged.
    if (targets.steps % 2) {
        for (int s = threadIdx.x; s < states; s += blockDim.x) room.b[s] = room.a[s];
        __syncthreads();
    }
}

#define ARGUMENTS                                                                                 \
    const T *__restrict__ x, Numbers targets, Numbers steps, Numbers lengths, int64_t most_steps,    \
        Failure bad, int64_t batch, int64_t classes, int64_t width, int64_t joined, int64_t blank

extern "C" __global__ void KERNEL(loss)(ARGUMENTS, T *__restrict__ y, int32_t zero_infinity) {
    extern __shared__ double memory[];
    int64_t sequence = blockIdx.x;
    Targets own = targets_of(sequence, targets, steps, lengths, most_steps, batch, width, joined);
    int states = own.count < 0 ? 0 : 2 * (int)own.count + 2;
    Room room(memory, 2 * width + 2);
    C infinite = (C)__longlong_as_double(0x7ff0000000000000ll);
    if (name_states(room, own, states, classes, blank)) {
        if (threadIdx.x == 0) {
            y[sequence] = narrow<T>(infinite);
            bad.raise();
        }
        return;
    }
    forward(room, x + sequence * classes, own, states, batch * classes, 0);
    if (threadIdx.x) return;
    C total = log_add(room.a[states - 2], room.a[states - 1]);
    y[sequence] = narrow<T>(total < (C)(NEVER / 2) ? (zero_infinity ? (C)0 : infinite) : -total);
}

// The result holds zeros. `history` has room for all states before each step of each sequence.
extern "C" __global__ void KERNEL(gradient)(ARGUMENTS, const T *__restrict__ g, T *__restrict__ dx,
                                            C *__restrict__ history) {
    extern __shared__ double memory[];
    __shared__ C sums[32];
    int64_t sequence = blockIdx.x, stride = batch * classes;
    Targets own = targets_of(sequence, targets, steps, lengths, most_steps, batch, width, joined);
    int states = own.count < 0 ? 0 : 2 * (int)own.count + 2;
    Room room(memory, 2 * width + 2);
    dx += sequence * classes, history += sequence * most_steps * (2 * width + 2);
    if (name_states(room, own, states, classes, blank)) {
        if (threadIdx.x == 0) bad.raise();
        return;
    }
    forward(room, x + sequence * classes, own, states, stride, history);
    C last = room.a[states - 1], before_last = room.a[states - 2], total = log_add(before_last, last);
    C from = wide(g[sequence]), factor = total < (C)(NEVER / 2) || from == 0 ? (C)0 : -from;
    __syncthreads();
    for (int s = threadIdx.x; s < states; s += blockDim.x) {
        C ended = s == states - 1 ? last : s == states - 2 ? before_last : (C)NEVER;
        bool ends = s >= states - 2 && factor != 0;
        room.a[s] = ends ? exp_of(ended - total) * factor : (C)0;
        // Labels of one class are a chain, from the first on: the gradient of the class is the sum
        // along it. `next` is 0 at its end, negative of all but the first.
        int following = 0;
        bool is_first = s > 0 && s % 2 == 0;
        for (int other = 2; is_first && other < s; other += 2)
            if (room.names[other] == room.names[s]) is_first = false;
        for (int other = s + 2; s % 2 == 0 && s > 0 && other < states; other += 2)
            if (room.names[other] == room.names[s]) {
                following = other;
                break;
            }
        room.next[s] = is_first ? following : -following - 1;
    }
    __syncthreads();
    for (int64_t t = own.steps - 1; t >= 0; t--) {
        C blanks = 0;  // at the start, too
        for (int s = threadIdx.x; s < states; s += blockDim.x) {
            Arrivals arrivals = arrivals_at(s, history + t * states, room.names);
            C share = room.a[s] / arrivals.total;
            room.b[s] = share * arrivals.stepped;
            room.c[s] = share * arrivals.jumped;
            if (s % 2 || s == 0) blanks += room.a[s];
            if (s > 0 && s % 2 == 0 && room.next[s] >= 0) {
                C sum = room.a[s];
                for (int other = room.next[s]; other > 0;) {
                    sum += room.a[other];
                    int coded = room.next[other];
                    other = coded < 0 ? -coded - 1 : coded;
                }
                dx[t * stride + room.names[s]] = narrow<T>(sum);
            }
        }
        blanks = block_all<Add>(blanks, (C)0, sums);
        if (threadIdx.x == 0) dx[t * stride + blank] = narrow<T>(blanks);
        for (int s = threadIdx.x; s < states; s += blockDim.x) {
            Arrivals arrivals = arrivals_at(s, history + t * states, room.names);
            C here = room.a[s] / arrivals.total * arrivals.stayed;
            if (s + 1 < states) here += room.b[s + 1];
            if (s + 2 < states) here += room.c[s + 2];
            room.a[s] = here;
        }
        __syncthreads();
    }
}
#undef ARGUMENTS

#else
// Each state's class, whether it can be jumped to, and the label state of the end; a thread for each.
extern "C" __global__ void KERNEL(states)(Numbers targets, Numbers steps, Numbers lengths,
                                          int64_t *__restrict__ names, bool *__restrict__ jumps,
                                          int64_t *__restrict__ ends, int64_t most_steps,
                                          Failure bad, int64_t batch, int64_t classes, int64_t width,
                                          int64_t joined, int64_t blank, int64_t count) {
    FOR_EACH(i, count) {
        int64_t states = 2 * width + 2, sequence = i / states, s = i - sequence * states;
        Targets own = targets_of(sequence, targets, steps, lengths, most_steps, batch, width, joined);
        names[i] = class_of(own, s, classes, blank);
        if (own.count < 0 || own.steps < 0 || names[i] < 0) bad.raise();
        bool jump = s == 2;
        if (s > 2 && s % 2 == 0) {  // labels that are not there count as 0
            int64_t label = s / 2 <= own.count ? class_of(own, s, classes, blank) : 0;
            int64_t before = s / 2 - 1 <= own.count ? class_of(own, s - 2, classes, blank) : 0;
            jump = label != before;
        }
        jumps[i] = jump;
        if (s == 0) ends[sequence] = 2 * own.count;
    }
}
#endif
