// cp.async: the bytes arrive only when the thread that asked for them waits, so that a missing wait
// reads what was there before.
#pragma once
extern "C" {
void cuemu_async_copy(void *target, const void *source, size_t size, size_t zeros);
void cuemu_async_commit();
void cuemu_async_wait(unsigned newest);
}

static inline void __pipeline_memcpy_async(void *target, const void *source, size_t size,
                                           size_t zeros = 0) {
    if ((size != 4 && size != 8 && size != 16) || (size_t)target % size || (size_t)source % size)
        cuemu_trap("cp.async: size must be 4, 8 or 16 and both addresses aligned to it");
    cuemu_async_copy(target, source, size, zeros);
}
static inline void __pipeline_commit() { cuemu_async_commit(); }
static inline void __pipeline_wait_prior(unsigned newest) { cuemu_async_wait(newest); }
