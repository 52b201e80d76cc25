// The block that runs: what its scheduler (fibers.cpp), the checks and the grid (grid.cpp) share.
#pragma once
#include "emulator.hpp"

namespace cuemu {

constexpr int MAX_THREADS = 1024, MAX_WARPS = 32;
constexpr size_t DYNAMIC_SHARED_MAX = 256 << 10, SHARED_MAX = 64 << 20;

enum class State : uint8_t { fresh, ready, running, at_barrier, at_warp, yielded, done };
struct Lane { // one thread of the block
    Dim thread;
    State state;
    int fiber;
    uint16_t id;
    unsigned votes;
    int barrier;      // which __syncthreads of the source it waits at
    const void *site; // where it waits
    uint32_t mask;    // of the warp operation it waits in, with its argument:
    void *argument;
    void (*collective)(void **arguments, uint32_t mask);
};

extern Lane lanes[MAX_THREADS];
extern Lane *current; // the one that runs
extern int lane_count;
extern uint16_t barrier_epoch, warp_epoch[MAX_WARPS];
extern char *stacks; // of the fibers, options.stack bytes each
constexpr size_t BELOW = size_t(1) << 30; // bytes below them that nobody may touch
inline bool on_a_stack(uintptr_t address) {
    return address - (uintptr_t(stacks) - BELOW) < BELOW + MAX_THREADS * options.stack;
}

extern const Launch *launch;
extern uint32_t block_serial, first_block; // a number of each block that ever ran
extern uint32_t fence_serial;
extern std::vector<uint32_t> last_fence; // of each block of this grid
extern volatile bool in_kernel;          // false while a module's initialisers run

// A region of shared memory with its shadow: static (thread-local variables) and dynamic.
struct Shared {
    uintptr_t begin, end;
    uint8_t *written;
    Cell *cells;
};
extern Shared fixed_shared, dynamic_shared;

// Run all threads of the block that `launch` and the block index describe.
void run_threads();
void forget_fibers();
void drop_async_copies();
void check_access(uintptr_t address, size_t bytes, bool write, uintptr_t pc);

// End the grid with an error, at an address of the module's code.
[[noreturn]] __attribute__((format(printf, 3, 4))) void die(CUresult code, uintptr_t pc,
                                                            const char *format, ...);
std::string source_line(uintptr_t pc);

} // namespace cuemu

#define CALLER uintptr_t(__builtin_return_address(0))

struct cuemu_ids_t {
    cuemu::Dim thread, block, block_size, grid_size;
};
// Device code sees these as const: they are constant within one thread.
EXPORTED cuemu_ids_t cuemu_ids;
