// Device memory: one reserved arena. Addresses are never handed out twice, so that a use after free
// can be named; a guard page stands on both sides of each allocation.
#include "emulator.hpp"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

namespace cuemu {

Options options;
uint32_t peers[MOST_DEVICES];
uintptr_t arena;
static Allocation **owners; // of each page of the arena
static uintptr_t next_page;

uint64_t random_number() { // xorshift64*
    static uint64_t state = 0, seed = 0;
    if (seed != options.seed) {
        seed = options.seed;
        state = seed * 0x9E3779B97F4A7C15u | 1;
    }
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545F4914F6CDD1Du;
}

void *reserve(size_t bytes, bool usable) {
    void *memory = mmap(nullptr, bytes, usable ? PROT_READ | PROT_WRITE : PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        perror("cuemu: mmap");
        abort();
    }
    return memory;
}

Allocation *find_allocation(uintptr_t address) {
    return in_arena(address) ? owners[(address - arena) / PAGE] : nullptr;
}

static size_t cells_of(size_t bytes) { return (bytes / 4 + 1) * sizeof(Cell); }

// An allocation ends, but for alignment to 256 bytes, at the upper guard, and holds 0xFF: NaN.
uintptr_t allocate_pages(size_t bytes, Kind kind, int device) {
    if (!arena) {
        arena = next_page = uintptr_t(reserve(ARENA, false));
        owners = static_cast<Allocation **>(reserve(ARENA / PAGE * sizeof(Allocation *), true));
    }
    size_t padded = (bytes + 255) & ~size_t(255), span = (padded + PAGE - 1) & ~(PAGE - 1);
    uintptr_t begin = next_page + PAGE;
    if (begin + span + PAGE > arena + ARENA) return 0;
    if (mprotect((void *)begin, span, PROT_READ | PROT_WRITE)) return 0;
    next_page = begin + span + PAGE;
    memset((void *)begin, 0xFF, span);
    auto *made =
        new Allocation{begin + span - padded, bytes, bytes, kind, device, false, nullptr, nullptr};
    made->written = static_cast<uint8_t *>(reserve(bytes, true));
    made->cells = static_cast<Cell *>(reserve(cells_of(bytes), true));
    if (kind != Kind::device) memset(made->written, 1, bytes); // the host may write it unseen
    auto page = [](uintptr_t address) { return owners + (address - arena) / PAGE; };
    std::fill(page(begin) - 1, page(begin + span) + 1, made); // with the guards
    return made->base;
}

void free_pages(Allocation *allocation) {
    uintptr_t begin = allocation->base & ~(PAGE - 1);
    uintptr_t end = (allocation->base + allocation->capacity + PAGE - 1) & ~(PAGE - 1);
    mmap((void *)begin, end - begin, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    munmap(allocation->written, allocation->capacity);
    munmap(allocation->cells, cells_of(allocation->capacity));
    allocation->freed = true;
}

void renew(Allocation *allocation, size_t bytes) {
    allocation->size = bytes;
    memset((void *)allocation->base, 0xFF, allocation->capacity);
    if (allocation->kind == Kind::device) memset(allocation->written, 0, allocation->capacity);
}

bool is_live(uintptr_t address, size_t bytes) {
    Allocation *owner = find_allocation(address);
    return owner && !owner->freed && address >= owner->base &&
           address + bytes <= owner->base + owner->size;
}

void mark_written(uintptr_t address, size_t bytes) {
    Allocation *owner = find_allocation(address);
    if (owner && !owner->freed) memset(owner->written + (address - owner->base), 1, bytes);
}

} // namespace cuemu
