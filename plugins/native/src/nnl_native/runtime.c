/* Walks a table of steps: kernels of generated C, shared out among threads, and oneDNN calls. */
typedef void (*nnl_kernel)(char *const *, const int32_t *, const int64_t *, int64_t, int64_t, int,
                           int32_t *);

struct nnl_argument {
    int32_t name;
    void *memory;
};

struct nnl_step {
    void *function;         /* a kernel, or a oneDNN primitive where count is not 0 */
    const int32_t *index;   /* the slots of its operands */
    const int64_t *d;
    int64_t units;
    int64_t threads;
    int64_t count;
    struct nnl_argument *arguments;
};

struct nnl_libraries {
    void (*parallel)(void (*)(void *), void *, unsigned, unsigned);
    void (*set_threads)(int);
    int (*thread)(void);
    int (*threads)(void);
    int (*execute)(void *, void *, int, const struct nnl_argument *);
    int (*set_memory)(void *, void *);
    void *stream;
};

struct nnl_share {
    const struct nnl_libraries *libraries;
    const struct nnl_step *step;
    char *const *slots;
    int32_t failure;
};

static void nnl_run_share(void *data) {
    struct nnl_share *share = data;
    const struct nnl_step *step = share->step;
    const int64_t thread = share->libraries->thread(), threads = share->libraries->threads();
    const int64_t begin = step->units * thread / threads;
    const int64_t end = step->units * (thread + 1) / threads;
    int32_t failure = 0;
    if (begin < end)
        ((nnl_kernel)step->function)(share->slots, step->index, step->d, begin, end, (int)thread,
                                     &failure);
    if (failure) __atomic_store_n(&share->failure, 1, __ATOMIC_RELAXED);
}

/* Run steps begin to end; return -1, or the number of the step that failed. */
int64_t NAME(const struct nnl_libraries *libraries, const struct nnl_step *steps, int64_t begin,
             int64_t end, char *const *slots, int64_t threads) {
    if (libraries->set_threads) libraries->set_threads((int)threads);
    for (int64_t at = begin; at < end; at++) {
        const struct nnl_step *step = steps + at;
        if (step->count) {
            for (int64_t k = 0; k < step->count; k++)
                libraries->set_memory(step->arguments[k].memory, slots[step->index[k]]);
            if (libraries->execute(step->function, libraries->stream, (int)step->count,
                                   step->arguments))
                return at;
        } else if (step->threads > 1 && threads > 1 && libraries->parallel) {
            struct nnl_share share = {libraries, step, slots, 0};
            libraries->parallel(nnl_run_share, &share,
                                (unsigned)(step->threads < threads ? step->threads : threads), 0);
            if (share.failure) return at;
        } else {
            int32_t failure = 0;
            ((nnl_kernel)step->function)(slots, step->index, step->d, 0, step->units, 0, &failure);
            if (failure) return at;
        }
    }
    return -1;
}
