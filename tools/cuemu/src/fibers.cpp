// Runs the threads of one block as fibers of one OS thread, with barriers and warp operations.
// A thread gets a stack of its own only when it blocks: kernels without barriers are plain loops.
#include "block.hpp"
#include <algorithm>
#include <cstring>
#include <sys/mman.h>

EXPORTED void cuemu_switch(void **save, void *load);
cuemu_ids_t cuemu_ids;

namespace cuemu {

#if defined(__x86_64__)
asm(".text\n.globl cuemu_switch\n.type cuemu_switch,@function\ncuemu_switch:\n"
    "push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
    "mov %rsp,(%rdi); mov %rsi,%rsp\n"
    "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp; ret\n");

static void *fresh_stack(char *top, void (*entry)()) {
    void **pointer = (void **)top - 8;
    memset(pointer, 0, 64);
    pointer[6] = (void *)entry; // return address; rsp is then 8 mod 16, as where a function begins
    return pointer;
}
#else
#error "cuemu: write cuemu_switch for this processor"
#endif

Lane lanes[MAX_THREADS], *current;
int lane_count;
uint16_t barrier_epoch, warp_epoch[MAX_WARPS];
char *stacks;

static void *fiber_stack[MAX_THREADS], *main_stack;
static int fiber_count, running_fiber; // -1: the stack that the grid was launched from
static std::vector<int> idle_fibers;
static int live, at_barrier, yielded, next_fresh;
static int order[MAX_THREADS];                          // in which threads start
static int ready[MAX_THREADS], ready_head, ready_count; // a ring
static unsigned votes[3];
static uint32_t live_lanes[MAX_WARPS], waiting_lanes[MAX_WARPS];

static void go(int fiber) {
    int from = running_fiber;
    if (from == fiber) return;
    running_fiber = fiber;
    cuemu_switch(from < 0 ? &main_stack : &fiber_stack[from],
                 fiber < 0 ? main_stack : fiber_stack[fiber]);
}

static void resume(Lane &lane) {
    current = &lane;
    lane.state = State::running;
    cuemu_ids.thread = lane.thread;
}

static void push_ready(int id) {
    lanes[id].state = State::ready;
    ready[(ready_head + ready_count++) % MAX_THREADS] = id;
}

static int pop_ready() {
    if (options.random_order)
        std::swap(ready[ready_head],
                  ready[(ready_head + random_number() % ready_count) % MAX_THREADS]);
    int id = ready[ready_head];
    ready_head = (ready_head + 1) % MAX_THREADS;
    ready_count--;
    return id;
}

static void release_all(State state) {
    for (int i = 0; i < lane_count; i++)
        if (lanes[order[i]].state == state) push_ready(order[i]);
}

static void fiber_main();

static int new_fiber() {
    char *top = stacks + (fiber_count + 1) * options.stack;
    fiber_stack[fiber_count] = fresh_stack(top, fiber_main);
    return fiber_count++;
}

[[noreturn]] static void die_of_deadlock() {
    current = std::find_if(lanes, lanes + lane_count,
                           [](Lane &lane) { return lane.state == State::at_warp; });
    die(CUDA_ERROR_LAUNCH_TIMEOUT, uintptr_t(current->site),
        "deadlock: the warp operation with mask 0x%08x never gets all its lanes "
        "(%d of %d threads wait at __syncthreads)",
        current->mask, at_barrier, live);
}

// Run something else: a ready thread, else one not yet started, else what the blocked ones wait
// for.
static void suspend() {
    for (;;) {
        bool fresh = next_fresh < lane_count;
        if (ready_count && !(fresh && options.random_order && random_number() % 4 == 0)) {
            Lane &lane = lanes[pop_ready()];
            resume(lane);
            return go(lane.fiber);
        }
        if (fresh) {
            if (idle_fibers.empty()) idle_fibers.push_back(new_fiber());
            int fiber = idle_fibers.back();
            idle_fibers.pop_back();
            return go(fiber);
        }
        if (!live) return go(-1);
        if (yielded) {
            yielded = 0;
            release_all(State::yielded);
        } else if (at_barrier == live) {
            at_barrier = 0;
            barrier_epoch++;
            release_all(State::at_barrier);
        } else
            die_of_deadlock();
    }
}

// If all lanes of the mask have arrived, the last one does the work of the warp operation for all.
static bool complete(int warp, uint32_t mask) {
    uint32_t needed = mask & live_lanes[warp];
    void *arguments[32] = {};
    Lane *lane = lanes + warp * 32, *first = nullptr;
    for (int i = 0; i < 32; i++) {
        if (!(needed >> i & 1)) continue;
        if (lane[i].state != State::at_warp || lane[i].mask != mask) return false;
        if (first && lane[i].collective != first->collective) {
            current = &lane[i];
            die(CUDA_ERROR_LAUNCH_FAILED, uintptr_t(lane[i].site),
                "lanes of one warp meet in different warp operations");
        }
        if (!first) first = &lane[i];
        arguments[i] = lane[i].argument;
    }
    if (first && first->collective) first->collective(arguments, needed);
    warp_epoch[warp]++;
    waiting_lanes[warp] -= __builtin_popcount(needed);
    for (int i = 0; i < 32; i++) {
        if (!(needed >> i & 1)) continue;
        if (&lane[i] == current)
            lane[i].state = State::running;
        else
            push_ready(warp * 32 + i);
    }
    return true;
}

static void finish(Lane &lane) {
    int warp = lane.id / 32;
    lane.state = State::done;
    live--;
    live_lanes[warp] &= ~(1u << lane.id % 32);
    current = nullptr;
    if (!waiting_lanes[warp]) return;
    for (int i = warp * 32, end = std::min(i + 32, lane_count); i < end; i++)
        if (lanes[i].state == State::at_warp && complete(warp, lanes[i].mask)) break;
}

static void fiber_main() {
    int fiber = running_fiber;
    const Kernel *kernel = launch->function->kernel;
    for (;;) {
        while (next_fresh < lane_count) {
            Lane &lane = lanes[order[next_fresh++]];
            lane.fiber = fiber;
            resume(lane);
            kernel->call(kernel->function, launch->arguments);
            finish(lane);
            if (ready_count) break;
        }
        idle_fibers.push_back(fiber);
        suspend();
    }
}

void forget_fibers() {
    if (!stacks) {
        size_t bytes = MAX_THREADS * options.stack;
        stacks = static_cast<char *>(reserve(BELOW + bytes, false)) + BELOW;
        mprotect(stacks, bytes, PROT_READ | PROT_WRITE);
        for (int i = 0; i < MAX_THREADS; i++) mprotect(stacks + i * options.stack, PAGE, PROT_NONE);
    }
    idle_fibers.clear();
    fiber_count = 0;
}

void run_threads() {
    const Dim &size = launch->block;
    live = lane_count = size.x * size.y * size.z;
    at_barrier = yielded = next_fresh = ready_head = ready_count = 0;
    barrier_epoch = 0;
    std::fill(std::begin(votes), std::end(votes), 0);
    std::fill(std::begin(warp_epoch), std::end(warp_epoch), 0);
    std::fill(std::begin(waiting_lanes), std::end(waiting_lanes), 0);
    for (int i = 0; i < lane_count; i++) {
        lanes[i].thread = {i % size.x, i / size.x % size.y, i / size.x / size.y};
        lanes[i].state = State::fresh;
        lanes[i].id = order[i] = i;
        lanes[i].votes = 0;
    }
    for (int warp = 0; warp * 32 < lane_count; warp++) {
        int rest = lane_count - warp * 32;
        live_lanes[warp] = rest >= 32 ? ~0u : (1u << rest) - 1;
    }
    if (options.random_order)
        for (int i = lane_count - 1; i > 0; i--)
            std::swap(order[i], order[random_number() % (i + 1)]);
    running_fiber = -1;
    suspend();
}

static void yield() { // until nothing else in the block can run
    current->state = State::yielded;
    yielded++;
    suspend();
}

} // namespace cuemu

using namespace cuemu;

EXPORTED void cuemu_syncthreads(int barrier) {
    current->site = __builtin_return_address(0);
    current->barrier = barrier;
    current->state = State::at_barrier;
    at_barrier++;
    if (at_barrier == live && next_fresh == lane_count)
        for (int i = 0; i < lane_count; i++)
            if (lanes[i].state == State::at_barrier && lanes[i].barrier != barrier)
                die(CUDA_ERROR_LAUNCH_FAILED, CALLER,
                    "divergent barrier: thread %d waits at another __syncthreads (%s)", i,
                    source_line(uintptr_t(lanes[i].site)).c_str());
    suspend();
}

// Threads that have returned do not count, as on Volta and later.
EXPORTED unsigned cuemu_syncthreads_count(int predicate, int barrier) {
    unsigned round =
        current->votes++; // three slots: one is read, the next filled, the third cleared
    votes[round % 3] += predicate != 0;
    cuemu_syncthreads(barrier);
    votes[(round + 2) % 3] = 0;
    return votes[round % 3];
}

EXPORTED void cuemu_warp(uint32_t mask, void *argument, void (*collective)(void **, uint32_t)) {
    Lane &lane = *current;
    int warp = lane.id / 32;
    if (!(mask >> lane.id % 32 & 1))
        die(CUDA_ERROR_LAUNCH_FAILED, CALLER, "lane %d is not in its own mask 0x%08x", lane.id % 32,
            mask);
    lane.site = __builtin_return_address(0);
    lane.mask = mask;
    lane.argument = argument;
    lane.collective = collective;
    lane.state = State::at_warp;
    waiting_lanes[warp]++;
    if (!complete(warp, mask)) suspend();
}

EXPORTED void cuemu_yield() { cuemu::yield(); }

EXPORTED void cuemu_tick() { // lets loops that wait for an atomic move on
    static unsigned ticks;
    if (++ticks % 64 == 0) cuemu::yield();
}

EXPORTED uint32_t cuemu_live_lanes() { return live_lanes[current->id / 32]; }
EXPORTED unsigned cuemu_lane() { return current->id % 32; }
EXPORTED void *cuemu_dynamic_shared() { return (void *)dynamic_shared.begin; }

EXPORTED void cuemu_fence() {
    if (launch) last_fence[block_serial - first_block] = ++fence_serial;
}

EXPORTED void cuemu_assert(const char *condition, const char *file, int line) {
    die(CUDA_ERROR_ASSERT, CALLER, "assertion `%s' failed (%s:%d)", condition, file, line);
}

EXPORTED void cuemu_trap(const char *why) { die(CUDA_ERROR_LAUNCH_FAILED, CALLER, "%s", why); }
