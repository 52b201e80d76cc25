// cp.async: copies are queued per thread and performed, and checked, when the thread waits for
// them, so that a missing wait reads what was there before.
#include "block.hpp"
#include <cstring>

namespace cuemu {

struct AsyncCopy {
    uintptr_t target, source;
    size_t size, zeros; // of the size, how many bytes at the end are set to zero
};
using Group = std::vector<AsyncCopy>;
static std::vector<Group> committed[MAX_THREADS]; // oldest first
static Group uncommitted[MAX_THREADS];

void drop_async_copies() {
    for (int i = 0; i < lane_count; i++) {
        committed[i].clear();
        uncommitted[i].clear();
    }
}

} // namespace cuemu

using namespace cuemu;

EXPORTED void cuemu_async_copy(void *target, const void *source, size_t size, size_t zeros) {
    uncommitted[current->id].push_back({uintptr_t(target), uintptr_t(source), size, zeros});
}

EXPORTED void cuemu_async_commit() {
    committed[current->id].push_back(std::move(uncommitted[current->id]));
    uncommitted[current->id].clear();
}

EXPORTED void cuemu_async_wait(unsigned newest) { // for all but the newest groups
    std::vector<Group> &groups = committed[current->id];
    bool checked = launch->function->module->instrumented;
    while (groups.size() > newest) {
        for (const AsyncCopy &copy : groups.front()) {
            size_t taken = copy.size - copy.zeros;
            if (checked && taken) check_access(copy.source, taken, false, CALLER);
            if (checked) check_access(copy.target, copy.size, true, CALLER);
            memcpy((void *)copy.target, (void *)copy.source, taken);
            memset((char *)copy.target + taken, 0, copy.zeros);
        }
        groups.erase(groups.begin());
    }
}
