// The state of the emulated driver, which all parts of its API share.
#pragma once
#include "emulator.hpp"
#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

using Task = std::function<CUresult()>;

struct CUctx_st {
    int device = 0, references = 0;
};

struct Node { // of a graph, in the order of capture
    CUgraphNodeType type;
    unsigned branch; // which of the captured streams it was enqueued on
    Task run;
};
struct CUgraph_st {
    std::vector<Node> nodes;
    unsigned branches = 1;
    bool open = true; // still being captured
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::thread::id thread; // that began it
    std::string forbidden;  // what made the capture invalid
};
using Graph = std::shared_ptr<CUgraph_st>;
struct CUgraphExec_st {
    Graph graph;
};

struct Work {
    uint64_t serial;
    Task run;
};
struct CUstream_st {
    int device = 0;
    bool blocking = true; // waits for the legacy stream, and it for this one
    std::deque<Work> queue;
    Graph capture;       // that this stream takes part in
    bool origin = false; // it began the capture
    unsigned branch = 0;
    uint64_t position = 0, joined = 0; // captured so far, and how much of it another stream awaits
};

struct CUevent_st {
    CUstream stream = nullptr;
    uint64_t serial = 0;
    bool recorded = false, polled = false, timed = true;
    std::chrono::steady_clock::time_point time;
    Graph capture; // recorded in a capture, at this position of its stream
    uint64_t position = 0;
    std::shared_ptr<CUevent_st> self; // queued work keeps it alive after cuEventDestroy
};

struct DeviceState {
    CUctx_st primary;
    CUstream_st null_stream; // the legacy default stream
    size_t used = 0;
};

struct Driver {
    std::recursive_mutex mutex;
    bool started = false;
    DeviceState devices[cuemu::MOST_DEVICES];
    std::set<CUstream> streams;
    std::set<cuemu::Module *> modules;
    uint64_t last_serial = 0;
    uint64_t launches = 0, copies = 0, synchronizations = 0, allocations = 0;
    size_t used = 0, peak = 0;
    CUresult sticky = CUDA_SUCCESS; // what a failed kernel left behind
    CUresult failure = CUDA_SUCCESS;
    std::string explanation; // of the last failure
};

extern Driver driver;
extern thread_local std::vector<CUcontext> contexts; // the stack of this thread

// Keep the explanation for cuGetErrorString, and return the code.
CUresult fail(CUresult code, const std::string &explanation);

CUstream resolve(CUstream stream); // null and the like: the legacy stream of the current device
bool is_known(CUstream stream);
CUresult enqueue(CUstream stream, CUgraphNodeType type, Task task);
CUresult drain(CUstream stream); // run all that is queued on it, and what that waits for
CUresult drain(CUstream stream, uint64_t serial);
CUresult drain_all();
CUresult wait_for(CUstream stream, const char *function); // unless a capture forbids it
void reset_device(); // what destroying a context does after a fault
// A call that a capture forbids makes the capture invalid. Waiting for all streams: in any capture;
// calls that may make the driver wait: as the mode of the capture says; work on the legacy stream:
// while a blocking stream of its device is captured.
CUresult forbid_waiting(const char *function);
CUresult forbid_unsafe(const char *function);
CUresult forbid_legacy();
CUresult check_range(CUdeviceptr address, size_t bytes, const char *what);

inline int current_device() { return contexts.back()->device; }

// What every entry point begins with. CONTEXT: those that need a context, and fail after a fault.
#define ENTER                                                                                      \
    std::lock_guard<std::recursive_mutex> lock(driver.mutex);                                      \
    if (!driver.started) return CUDA_ERROR_NOT_INITIALIZED
#define CONTEXT                                                                                    \
    ENTER;                                                                                         \
    if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;                                       \
    if (driver.sticky) return driver.sticky
#define TRY(call)                                                                                  \
    if (CUresult result = call) return result
