// Streams and events. Work is queued and, by default, run only when something waits for it, so that
// a missing synchronisation shows as stale data. CUDA_LAUNCH_BLOCKING=1 runs everything at once.
#include "driver.hpp"

using namespace cuemu;

Driver driver;
thread_local std::vector<CUcontext> contexts;

CUresult fail(CUresult code, const std::string &explanation) {
    driver.failure = code;
    driver.explanation = explanation;
    return code;
}

CUstream resolve(CUstream stream) {
    bool legacy = !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    return legacy ? &driver.devices[current_device()].null_stream : stream;
}

static bool is_legacy(CUstream stream) {
    return stream == &driver.devices[stream->device].null_stream;
}

bool is_known(CUstream stream) {
    for (DeviceState &device : driver.devices)
        if (stream == &device.null_stream) return true;
    return driver.streams.count(stream);
}

static std::vector<CUstream> blocking_streams(int device) {
    std::vector<CUstream> found;
    for (CUstream stream : driver.streams)
        if (stream->blocking && stream->device == device) found.push_back(stream);
    return found;
}

// The legacy stream and the blocking streams of a device wait for each other.
static void drain_others(CUstream stream, uint64_t serial) {
    if (is_legacy(stream))
        for (CUstream other : blocking_streams(stream->device)) drain(other, serial);
    else if (stream->blocking)
        drain(&driver.devices[stream->device].null_stream, serial);
}

CUresult drain(CUstream stream, uint64_t serial) {
    while (!stream->queue.empty() && stream->queue.front().serial <= serial && !driver.sticky) {
        Work work = std::move(stream->queue.front());
        stream->queue.pop_front();
        drain_others(stream, work.serial - 1);
        CUresult result = work.run();
        if (result && !driver.sticky) driver.sticky = result;
    }
    return driver.sticky;
}

CUresult drain(CUstream stream) {
    drain_others(stream, driver.last_serial);
    return drain(stream, driver.last_serial);
}

CUresult drain_all() {
    for (DeviceState &device : driver.devices) drain(&device.null_stream, driver.last_serial);
    for (CUstream stream : std::vector<CUstream>(driver.streams.begin(), driver.streams.end()))
        drain(stream, driver.last_serial);
    return driver.sticky;
}

void reset_device() {
    if (driver.sticky) {
        for (DeviceState &device : driver.devices) device.null_stream.queue.clear();
        for (CUstream stream : driver.streams) stream->queue.clear();
    }
    driver.sticky = CUDA_SUCCESS;
}

static void invalidate_captures(const std::string &why, bool blocking_only) {
    for (CUstream stream : driver.streams)
        if (stream->capture && (stream->blocking || !blocking_only))
            stream->capture->forbidden = why;
}

template <class Condition> static bool any_capture(Condition condition) {
    return std::any_of(driver.streams.begin(), driver.streams.end(), [&](CUstream stream) {
        return stream->capture && condition(*stream->capture);
    });
}

static CUresult forbid(const char *function) {
    std::string why = std::string(function) + " is not allowed while a stream is captured";
    invalidate_captures(why, false);
    return fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, why);
}

CUresult forbid_waiting(const char *function) {
    return any_capture([](const CUgraph_st &) { return true; }) ? forbid(function) : CUDA_SUCCESS;
}

CUresult forbid_unsafe(const char *function) {
    bool forbidden = any_capture([](const CUgraph_st &graph) {
        return graph.mode == CU_STREAM_CAPTURE_MODE_GLOBAL ||
               (graph.mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
                graph.thread == std::this_thread::get_id());
    });
    return forbidden ? forbid(function) : CUDA_SUCCESS;
}

CUresult wait_for(CUstream stream, const char *function) {
    stream = resolve(stream);
    if (!is_known(stream)) return fail(CUDA_ERROR_INVALID_HANDLE, "unknown or destroyed stream");
    if (stream->capture) return forbid(function);
    if (is_legacy(stream)) TRY(forbid_legacy());
    return drain(stream);
}

static CUresult capture(CUstream stream, CUgraphNodeType type, Task task) {
    CUgraph_st &graph = *stream->capture;
    if (!graph.forbidden.empty())
        return fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, graph.forbidden);
    graph.nodes.push_back({type, stream->branch, std::move(task)});
    stream->position++;
    return CUDA_SUCCESS;
}

CUresult forbid_legacy() {
    for (CUstream other : blocking_streams(current_device())) {
        if (!other->capture) continue;
        std::string why = "work on the legacy stream while a blocking stream is captured";
        invalidate_captures(why, true);
        return fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, why);
    }
    return CUDA_SUCCESS;
}

// In random order, some streams run ahead of what anybody waits for.
static void run_ahead() {
    if (driver.streams.empty() || random_number() % 4) return;
    auto stream = driver.streams.begin();
    std::advance(stream, random_number() % driver.streams.size());
    drain(*stream, driver.last_serial - random_number() % 4);
}

CUresult enqueue(CUstream stream, CUgraphNodeType type, Task task) {
    stream = resolve(stream);
    if (!is_known(stream)) return fail(CUDA_ERROR_INVALID_HANDLE, "unknown or destroyed stream");
    if (stream->capture) return capture(stream, type, std::move(task));
    if (is_legacy(stream)) TRY(forbid_legacy());
    stream->queue.push_back({++driver.last_serial, std::move(task)});
    if (!options.lazy_streams) return drain(stream);
    if (options.random_order) run_ahead();
    return CUDA_SUCCESS;
}

extern "C" {

// ---- streams

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    CONTEXT;
    *stream = new CUstream_st;
    (*stream)->device = current_device();
    (*stream)->blocking = !(flags & CU_STREAM_NON_BLOCKING);
    driver.streams.insert(*stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int) {
    return cuStreamCreate(stream, flags);
}

CUresult cuStreamDestroy(CUstream stream) {
    ENTER;
    if (!driver.streams.count(stream)) return CUDA_ERROR_INVALID_HANDLE;
    drain(stream);
    driver.streams.erase(stream);
    delete stream;
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
    CONTEXT;
    driver.synchronizations++;
    return wait_for(stream, __func__);
}

CUresult cuStreamQuery(CUstream stream) { // "not ready" once, then progress: polling loops end
    CONTEXT;
    stream = resolve(stream);
    bool ready = is_known(stream) && stream->queue.empty();
    TRY(wait_for(stream, __func__));
    return ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamAttachMemAsync(CUstream, CUdeviceptr, size_t, unsigned) {
    CONTEXT;
    return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *argument) {
    CONTEXT;
    return enqueue(stream, CU_GRAPH_NODE_TYPE_HOST, [=] {
        function(argument);
        return CUDA_SUCCESS;
    });
}

// ---- events

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    CONTEXT;
    auto made = std::make_shared<CUevent_st>();
    made->self = made;
    made->timed = !(flags & CU_EVENT_DISABLE_TIMING);
    *event = made.get();
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
    ENTER;
    auto last = std::move(event->self);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    CONTEXT;
    stream = resolve(stream);
    if (!is_known(stream)) return fail(CUDA_ERROR_INVALID_HANDLE, "unknown or destroyed stream");
    event->capture = stream->capture;
    event->stream = stream;
    event->recorded = true;
    event->polled = false;
    event->position = stream->position;
    if (stream->capture) return CUDA_SUCCESS; // an edge of the graph, not a node
    CUresult result = enqueue(stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD, [event = event->self] {
        event->time = std::chrono::steady_clock::now();
        return CUDA_SUCCESS;
    });
    event->serial = driver.last_serial;
    return result;
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned) {
    return cuEventRecord(event, stream);
}

static bool is_pending(CUevent event) {
    if (!event->recorded || !is_known(event->stream)) return false;
    const std::deque<Work> &queue = event->stream->queue;
    return !queue.empty() && queue.front().serial <= event->serial;
}

static CUresult check_not_captured(CUevent event) {
    if (!event->capture) return CUDA_SUCCESS;
    return fail(CUDA_ERROR_CAPTURED_EVENT, "the event was last recorded in a captured stream");
}

CUresult cuEventSynchronize(CUevent event) {
    CONTEXT;
    TRY(check_not_captured(event));
    TRY(forbid_unsafe(__func__));
    driver.synchronizations++;
    return is_pending(event) ? drain(event->stream, event->serial) : driver.sticky;
}

CUresult cuEventQuery(CUevent event) {
    CONTEXT;
    TRY(check_not_captured(event));
    TRY(forbid_unsafe(__func__));
    if (!is_pending(event)) return CUDA_SUCCESS;
    if (!event->polled) {
        event->polled = true;
        return CUDA_ERROR_NOT_READY;
    }
    return drain(event->stream, event->serial);
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end) {
    CONTEXT;
    for (CUevent event : {begin, end}) {
        TRY(check_not_captured(event));
        if (!event->recorded) return fail(CUDA_ERROR_INVALID_HANDLE, "event was never recorded");
        if (!event->timed) return fail(CUDA_ERROR_INVALID_HANDLE, "event made without timing");
        if (is_pending(event))
            return fail(CUDA_ERROR_NOT_READY, "event not reached yet: synchronize on it first");
    }
    *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
    return CUDA_SUCCESS;
}

} // extern "C"

static CUresult wait_in_capture(CUstream stream, CUevent event) {
    if (!event->capture)
        return fail(
            CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
            "a captured stream waits for an event that was recorded outside of the capture");
    if (!event->capture->open)
        return fail(CUDA_ERROR_INVALID_VALUE, "the event belongs to a capture that has ended");
    if (!stream->capture) { // it joins the capture
        stream->capture = event->capture;
        stream->branch = event->capture->branches++;
        stream->position = stream->joined = 0;
    }
    if (stream->capture != event->capture)
        return fail(CUDA_ERROR_STREAM_CAPTURE_MERGE, "the event belongs to another capture");
    if (event->stream != stream) {
        event->stream->joined = std::max(event->stream->joined, event->position);
        stream->position++;
    }
    return CUDA_SUCCESS;
}

extern "C" CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
    CONTEXT;
    stream = resolve(stream);
    if (!event->recorded) return CUDA_SUCCESS;
    if (stream->capture || event->capture) return wait_in_capture(stream, event);
    CUstream other = event->stream;
    uint64_t serial = event->serial;
    return enqueue(stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
                   [=] { return is_known(other) ? drain(other, serial) : CUDA_SUCCESS; });
}
