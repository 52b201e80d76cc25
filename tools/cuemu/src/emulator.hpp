// What the driver API (driver.hpp and what includes it) and the block executor (block.hpp) share.
#pragma once
// The library is built with hidden symbols, so that its own calls are direct; the API is not
// hidden.
#pragma GCC visibility push(default)
#include <cuda.h>
#include <cudaProfiler.h>
#pragma GCC visibility pop
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace cuemu {

// One row of the table of kernels that the stand-in for nvcc appends to every module.
// include/cuemu_table.h has the same layout.
struct Kernel {
    const char *name;
    void *function;
    void (*call)(void *function,
                 const char *arguments); // one buffer, as the driver API lays it out
    void (*pack)(void **arguments, char *buffer);
    unsigned argument_bytes, max_threads;
};

struct Module;

struct Function { // what a CUfunction points to
    const Kernel *kernel;
    const Module *module;
    std::vector<std::pair<size_t, size_t>> shared; // offset and size of its __shared__ variables
    size_t shared_bytes;
    int dynamic_limit;
    bool opted_in; // to more shared memory than usual, by setting the limit
};

struct Global {
    std::string name;
    uintptr_t address;
    size_t size;
};

struct Module {
    void *library = nullptr;
    int file = -1, device = 0;
    std::string path;
    uintptr_t base = 0, begin = 0, end = 0; // where it was loaded, and its image there
    std::vector<Function> functions;
    std::vector<Global> globals;
    std::vector<size_t> guards; // offsets of the compiler's guard bytes among shared variables
    void *(*touch_shared)() = nullptr;
    bool instrumented = false;
};

struct Dim {
    unsigned x, y, z;
};

struct Launch {
    const Function *function;
    Dim grid, block;
    unsigned dynamic_shared;
    const char *arguments;
};

// A failed kernel: the CUDA error it raises, and one sentence that says what happened and where.
struct Fault {
    CUresult code = CUDA_SUCCESS;
    std::string text;
};
Fault run_grid(const Launch &launch);

// Who touched a word of memory last; see checks.cpp.
struct Touch {
    uint32_t block, fence;
    uint16_t barrier, warp, thread;
    uint8_t bytes, atomic;
};
struct Cell { // of one 4-byte word
    Touch write, read;
};

enum class Kind : uint8_t { device, host, managed };
struct Allocation {
    uintptr_t base;
    size_t capacity, size; // what was asked for, and what is in use, see renew
    Kind kind;
    int device;
    bool freed;
    uint8_t *written; // one byte per byte: written since it was allocated?
    Cell *cells;
};

constexpr size_t ARENA = size_t(1) << 38, PAGE = 4096;
extern uintptr_t arena;
inline bool in_arena(uintptr_t address) { return arena && address - arena < ARENA; }
Allocation *find_allocation(uintptr_t address); // that which owns the page, freed or not; or null
uintptr_t allocate_pages(size_t bytes, Kind kind, int device); // 0 where the arena is used up
void free_pages(Allocation *allocation);
// A pool hands the allocation out again, for so many bytes of it.
void renew(Allocation *allocation, size_t bytes);
bool is_live(uintptr_t address, size_t bytes); // all of it inside one live allocation
void mark_written(uintptr_t address, size_t bytes);
void *reserve(size_t bytes, bool usable);

struct Options {
    bool random_order = false, lazy_streams = true, initcheck = true, racecheck = true;
    uint64_t seed = 1;
    size_t stack = 128 << 10, memory = size_t(2) << 30;
    int architecture = 90, devices = 1;
};
extern Options options;
constexpr int MOST_DEVICES = 16;
extern uint32_t peers[MOST_DEVICES]; // bit j of peers[i]: device i may touch memory of device j
uint64_t random_number();

} // namespace cuemu
