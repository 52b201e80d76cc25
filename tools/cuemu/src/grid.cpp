// Runs the blocks of a grid one after another, and turns what goes wrong into a fault with its
// place.
#include "block.hpp"
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <link.h>
#include <sys/mman.h>
#include <ucontext.h>

namespace cuemu {

const Launch *launch;
uint32_t block_serial, first_block, fence_serial;
std::vector<uint32_t> last_fence;
volatile bool in_kernel;
Shared fixed_shared, dynamic_shared;

static sigjmp_buf escape;
static Fault fault;
static uintptr_t fault_pc;

void die(CUresult code, uintptr_t pc, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fault = {code, text};
    fault_pc = pc;
    siglongjmp(escape, 1);
}

std::string source_line(uintptr_t pc) {
    const Module &module = *launch->function->module;
    if (pc < module.begin || pc >= module.end) return "?";
    char command[256], output[256] = "";
    snprintf(command, sizeof command, "addr2line -e %s 0x%zx 2>/dev/null", module.path.c_str(),
             size_t(pc - 1 - module.base));
    if (FILE *pipe = popen(command, "r")) {
        if (!fgets(output, sizeof output, pipe)) *output = 0;
        pclose(pipe);
    }
    std::string line(output);
    line.erase(line.find_last_not_of('\n') + 1);
    line.erase(std::min(line.find(" (disc"), line.size()));
    return line.substr(line.rfind('/') + 1);
}

// ---- signals: what unchecked kernels, and accesses that no check sees, run into

static const int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE};
static struct sigaction previous[3];

static void on_signal(int number, siginfo_t *info, void *context) {
    if (in_kernel) {
        auto address = uintptr_t(info->si_addr);
        uintptr_t pc = static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_RIP] + 1;
        if (number == SIGFPE) die(CUDA_ERROR_LAUNCH_FAILED, pc, "integer division by zero");
        if (on_a_stack(address))
            die(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, pc,
                "local memory (stack) overflow: raise CUEMU_STACK");
        if (Allocation *owner = find_allocation(address))
            die(CUDA_ERROR_ILLEGAL_ADDRESS, pc, "access at offset %td of %s of %zu bytes",
                ptrdiff_t(address - owner->base),
                owner->freed ? "a freed allocation" : "an allocation", owner->size);
        die(CUDA_ERROR_ILLEGAL_ADDRESS, pc, "access to %p, which is not device memory",
            (void *)address);
    }
    for (int i = 0; i < 3; i++) // not ours: the handler that was there sees it again
        if (SIGNALS[i] == number) sigaction(number, &previous[i], nullptr);
}

class SignalHandlers {
    stack_t previous_stack;

  public:
    SignalHandlers() {
        static const size_t SIZE = 64 << 10;
        static void *memory = reserve(SIZE, true);
        stack_t stack{};
        stack.ss_sp = memory;
        stack.ss_size = SIZE;
        sigaltstack(&stack, &previous_stack);
        struct sigaction action{};
        action.sa_sigaction = on_signal;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        for (int i = 0; i < 3; i++) sigaction(SIGNALS[i], &action, &previous[i]);
    }
    ~SignalHandlers() {
        for (int i = 0; i < 3; i++) sigaction(SIGNALS[i], &previous[i], nullptr);
        sigaltstack(&previous_stack, nullptr);
    }
};

// ---- shared memory

// The __shared__ variables of a module are thread-local: this is where this OS thread has them.
static void find_fixed_shared(const Module &module) {
    struct Search {
        uintptr_t base, data;
        size_t size;
    } search{module.base, 0, 0};
    module.touch_shared(); // makes this thread's copy exist
    auto visit = [](dl_phdr_info *info, size_t, void *data) {
        auto *search = static_cast<Search *>(data);
        if (info->dlpi_addr != search->base) return 0;
        search->data = uintptr_t(info->dlpi_tls_data);
        for (int i = 0; i < info->dlpi_phnum; i++)
            if (info->dlpi_phdr[i].p_type == PT_TLS) search->size = info->dlpi_phdr[i].p_memsz;
        return 1;
    };
    dl_iterate_phdr(visit, &search);
    fixed_shared.begin = search.data;
    fixed_shared.end = search.data + search.size;
}

static void reserve_shadow(Shared &shared, size_t size) {
    shared.written = static_cast<uint8_t *>(reserve(size, true));
    shared.cells = static_cast<Cell *>(reserve(size / 4 * sizeof(Cell), true));
}

static void prepare_shared() {
    if (!dynamic_shared.begin) {
        dynamic_shared.begin = uintptr_t(reserve(DYNAMIC_SHARED_MAX + PAGE, false));
        reserve_shadow(dynamic_shared, DYNAMIC_SHARED_MAX);
        reserve_shadow(fixed_shared, SHARED_MAX);
    }
    find_fixed_shared(*launch->function->module);
    dynamic_shared.end = dynamic_shared.begin + launch->dynamic_shared;
    mprotect((void *)dynamic_shared.begin, DYNAMIC_SHARED_MAX, PROT_NONE);
    size_t open = (launch->dynamic_shared + PAGE - 1) & ~(PAGE - 1);
    if (open) mprotect((void *)dynamic_shared.begin, open, PROT_READ | PROT_WRITE);
}

static void poison_shared() { // for the next block
    bool checked = launch->function->module->instrumented;
    for (auto &[offset, size] : launch->function->shared) {
        memset((void *)(fixed_shared.begin + offset), 0xFF, size);
        if (checked) memset(fixed_shared.written + offset, 0, size);
    }
    memset((void *)dynamic_shared.begin, 0xFF, launch->dynamic_shared);
    if (checked) memset(dynamic_shared.written, 0, launch->dynamic_shared);
}

// ---- the grid

static void run_blocks(uint64_t count) {
    const Dim &grid = launch->grid;
    for (uint64_t i = 0; i < count; i++) {
        block_serial++;
        cuemu_ids.block = {unsigned(i % grid.x), unsigned(i / grid.x % grid.y),
                           unsigned(i / grid.x / grid.y)};
        poison_shared();
        run_threads();
        drop_async_copies();
    }
}

Fault run_grid(const Launch &what) {
    launch = &what;
    forget_fibers();
    prepare_shared();
    SignalHandlers handlers;
    uint64_t blocks = uint64_t(what.grid.x) * what.grid.y * what.grid.z;
    first_block = block_serial + 1;
    last_fence.assign(blocks + 1, 0);
    fault = {};
    cuemu_ids.block_size = what.block;
    cuemu_ids.grid_size = what.grid;
    if (!sigsetjmp(escape, 1)) {
        in_kernel = true;
        run_blocks(blocks);
        in_kernel = false;
    } else { // a fault: the fibers are simply abandoned
        in_kernel = false;
        drop_async_copies();
        const Dim &block = cuemu_ids.block, thread = current ? current->thread : Dim{0, 0, 0};
        char head[256];
        snprintf(head, sizeof head, "kernel %s, block (%u,%u,%u), thread (%u,%u,%u)",
                 what.function->kernel->name, block.x, block.y, block.z, thread.x, thread.y,
                 thread.z);
        std::string place = fault_pc ? ", " + source_line(fault_pc) : "";
        fault.text = head + place + ": " + fault.text;
    }
    block_serial++;
    return fault;
}

} // namespace cuemu
