// What instrumented code calls before each access: bounds, initialisation and races, to the byte.
// Modules are compiled with gcc's thread and undefined-behaviour sanitizers; these are our own
// functions under the names that the compiler calls, so no sanitizer's library is needed.
//
// Two accesses of one block are ordered by a barrier between them, or, within a warp, by a warp
// operation. An access of another block is ordered by a fence that its block has passed since.
#include "block.hpp"
#include <algorithm>
#include <cstring>

namespace cuemu {

constexpr uint16_t MANY = 0xFFFF; // more than one thread has read the word

static const char *verb(bool write) { return write ? "write" : "read"; }
static const char *memory_name(bool global) { return global ? "global" : "shared"; }

static inline bool unordered(const Touch &touch, uint8_t bytes, bool atomic, bool global) {
    if (touch.block < first_block || !(touch.bytes & bytes) || (atomic && touch.atomic))
        return false;
    if (touch.block != block_serial)
        return global && last_fence[touch.block - first_block] <= touch.fence;
    if (touch.thread == current->id || touch.barrier != barrier_epoch) return false;
    return touch.thread == MANY || touch.thread / 32 != current->id / 32 ||
           touch.warp == warp_epoch[current->id / 32];
}

[[noreturn]] static void report_race(const Touch &touch, bool touched_by_write, uintptr_t offset,
                                     bool write, bool global, uintptr_t pc) {
    if (touch.thread == MANY)
        die(CUDA_ERROR_LAUNCH_FAILED, pc,
            "race on %s memory: write without a barrier after reads by other threads",
            memory_name(global));
    die(CUDA_ERROR_LAUNCH_FAILED, pc,
        "race on %s memory (offset %zu): %s without a barrier after a %s by thread %d of %s block",
        memory_name(global), size_t(offset), verb(write), verb(touched_by_write), touch.thread,
        touch.block == block_serial ? "the same" : "another");
}

static inline __attribute__((always_inline)) void check_race(Cell *cells, uintptr_t offset,
                                                             size_t size, bool write, bool atomic,
                                                             bool global, uintptr_t pc) {
    for (uintptr_t word = offset / 4; word <= (offset + size - 1) / 4; word++) {
        uintptr_t begin = std::max(offset, word * 4), end = std::min(offset + size, word * 4 + 4);
        uint8_t bytes = ((1 << (end - begin)) - 1) << (begin - word * 4);
        Cell &cell = cells[word];
        if (unordered(cell.write, bytes, atomic, global))
            report_race(cell.write, true, offset, write, global, pc);
        if (write && unordered(cell.read, bytes, atomic, global))
            report_race(cell.read, false, offset, write, global, pc);
        Touch now{block_serial, fence_serial, barrier_epoch,  warp_epoch[current->id / 32],
                  current->id,  bytes,        uint8_t(atomic)};
        if (write) {
            cell.write = now;
            continue;
        }
        bool also_read = cell.read.block == block_serial && cell.read.barrier == barrier_epoch &&
                         cell.read.thread != current->id && (cell.read.bytes & bytes);
        if (also_read) {
            now.thread = MANY;
            now.bytes |= cell.read.bytes;
        }
        cell.read = now;
    }
}

static inline bool may_touch(const Allocation &owner) {
    int device = launch->function->module->device;
    return owner.device == device || owner.kind != Kind::device ||
           peers[device] >> owner.device & 1;
}

static void check_owner(const Allocation *owner, uintptr_t address, size_t size, bool write,
                        uintptr_t pc) {
    if (!owner)
        die(CUDA_ERROR_ILLEGAL_ADDRESS, pc, "%s of %zu bytes at %p, outside every allocation",
            verb(write), size, (void *)address);
    if (owner->freed)
        die(CUDA_ERROR_ILLEGAL_ADDRESS, pc, "%s of %zu bytes in a freed allocation of %zu bytes",
            verb(write), size, owner->size);
    if (address < owner->base || address + size > owner->base + owner->size)
        die(CUDA_ERROR_ILLEGAL_ADDRESS, pc,
            "%s of %zu bytes at offset %td of an allocation of %zu bytes", verb(write), size,
            ptrdiff_t(address - owner->base), owner->size);
    if (!may_touch(*owner))
        die(CUDA_ERROR_ILLEGAL_ADDRESS, pc,
            "%s of %zu bytes in memory of device %d, without peer access", verb(write), size,
            owner->device);
}

static bool is_guard(uintptr_t offset) {
    const std::vector<size_t> &guards = launch->function->module->guards;
    return std::find(guards.begin(), guards.end(), offset) != guards.end();
}

static inline __attribute__((always_inline)) void access(uintptr_t address, size_t size, bool write,
                                                         bool atomic, uintptr_t pc) {
    if (!in_kernel || on_a_stack(address)) return; // local memory
    uint8_t *written;
    Cell *cells;
    uintptr_t offset;
    bool global = false;
    if (address - arena < ARENA) {
        Allocation *owner = find_allocation(address);
        check_owner(owner, address, size, write, pc);
        written = owner->written;
        cells = owner->cells;
        offset = address - owner->base;
        global = true;
    } else if (address >= fixed_shared.begin && address < fixed_shared.end) {
        written = fixed_shared.written;
        cells = fixed_shared.cells;
        offset = address - fixed_shared.begin;
        if (size == 1 && is_guard(offset)) return;
    } else if (address - dynamic_shared.begin < DYNAMIC_SHARED_MAX) {
        written = dynamic_shared.written;
        cells = dynamic_shared.cells;
        offset = address - dynamic_shared.begin;
        if (address + size > dynamic_shared.end)
            die(CUDA_ERROR_ILLEGAL_ADDRESS, pc,
                "%s of %zu bytes at offset %zu of %zu bytes of dynamic shared memory", verb(write),
                size, size_t(offset), size_t(dynamic_shared.end - dynamic_shared.begin));
    } else {
        const Module &module = *launch->function->module;
        if (address >= module.begin && address < module.end) return; // constants, its variables
        die(CUDA_ERROR_ILLEGAL_ADDRESS, pc, "%s of %zu bytes at %p, which is not device memory",
            verb(write), size, (void *)address);
    }
    if (write)
        memset(written + offset, 1, size);
    else if (options.initcheck && memchr(written + offset, 0, size))
        die(CUDA_ERROR_LAUNCH_FAILED, pc,
            "read of %zu uninitialised bytes at offset %zu of %s memory", size, size_t(offset),
            memory_name(global));
    if (options.racecheck) check_race(cells, offset, size, write, atomic, global, pc);
}

void check_access(uintptr_t address, size_t bytes, bool write, uintptr_t pc) {
    access(address, bytes, write, false, pc);
}

struct SourcePlace { // as gcc's undefined-behaviour sanitizer writes it
    const char *file;
    uint32_t line, column;
};

static void undefined(const SourcePlace &place, CUresult code, const std::string &what) {
    if (!in_kernel) return;
    const char *slash = strrchr(place.file, '/');
    die(code, 0, "%s (%s:%u)", what.c_str(), slash ? slash + 1 : place.file, place.line);
}

} // namespace cuemu

using namespace cuemu;

EXPORTED void cuemu_yield();
EXPORTED void cuemu_atomic(void *address, size_t size) {
    access(uintptr_t(address), size, true, true, CALLER);
}

// Volatile accesses are how loops wait for another thread: they let it run, and are no race.
#define HOOKS(SIZE)                                                                                \
    EXPORTED void __tsan_read##SIZE(void *address) {                                               \
        access(uintptr_t(address), SIZE, false, false, CALLER);                                    \
    }                                                                                              \
    EXPORTED void __tsan_write##SIZE(void *address) {                                              \
        access(uintptr_t(address), SIZE, true, false, CALLER);                                     \
    }                                                                                              \
    EXPORTED void __tsan_unaligned_read##SIZE(void *address) {                                     \
        access(uintptr_t(address), SIZE, false, false, CALLER);                                    \
    }                                                                                              \
    EXPORTED void __tsan_unaligned_write##SIZE(void *address) {                                    \
        access(uintptr_t(address), SIZE, true, false, CALLER);                                     \
    }                                                                                              \
    EXPORTED void __tsan_volatile_read##SIZE(void *address) {                                      \
        cuemu_yield();                                                                             \
        access(uintptr_t(address), SIZE, false, true, CALLER);                                     \
    }                                                                                              \
    EXPORTED void __tsan_volatile_write##SIZE(void *address) {                                     \
        cuemu_yield();                                                                             \
        access(uintptr_t(address), SIZE, true, true, CALLER);                                      \
    }                                                                                              \
    EXPORTED void __tsan_unaligned_volatile_read##SIZE(void *address) {                            \
        __tsan_volatile_read##SIZE(address);                                                       \
    }                                                                                              \
    EXPORTED void __tsan_unaligned_volatile_write##SIZE(void *address) {                           \
        __tsan_volatile_write##SIZE(address);                                                      \
    }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

EXPORTED void __tsan_read_range(void *address, size_t size) {
    access(uintptr_t(address), size, false, false, CALLER);
}
EXPORTED void __tsan_write_range(void *address, size_t size) {
    access(uintptr_t(address), size, true, false, CALLER);
}
EXPORTED void __tsan_func_entry(void *) {}
EXPORTED void __tsan_func_exit() {}
EXPORTED void __tsan_init() {}
EXPORTED void __tsan_vptr_update(void **, void *) {}

EXPORTED void __ubsan_handle_out_of_bounds(SourcePlace *place, size_t index) {
    undefined(*place, CUDA_ERROR_ILLEGAL_ADDRESS,
              "array index " + std::to_string(long(index)) + " out of bounds");
}
EXPORTED void __ubsan_handle_type_mismatch_v1(SourcePlace *place, void *address) {
    // After the place come a pointer to the type, and the logarithm of its alignment.
    unsigned alignment = 1u << *((uint8_t *)(place + 1) + sizeof(void *));
    undefined(*place, CUDA_ERROR_MISALIGNED_ADDRESS,
              "misaligned or null address " + std::to_string(uintptr_t(address) % alignment) +
                  " bytes past a multiple of " + std::to_string(alignment));
}
EXPORTED void __ubsan_handle_divrem_overflow(SourcePlace *place, size_t, size_t) {
    undefined(*place, CUDA_ERROR_LAUNCH_FAILED, "integer division by zero");
}
EXPORTED void __ubsan_handle_shift_out_of_bounds(SourcePlace *place, size_t, size_t) {
    undefined(*place, CUDA_ERROR_LAUNCH_FAILED, "shift by more bits than the type has");
}
