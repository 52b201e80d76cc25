// Options, counters, the texts of errors, and what stand-ins of other libraries call.
#include "driver.hpp"
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>

using namespace cuemu;

static std::string environment(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value ? value : otherwise;
}

static struct ReadEnvironment {
    ReadEnvironment() {
        options.random_order = environment("CUEMU_ORDER", "inorder") == "random";
        options.lazy_streams = environment("CUDA_LAUNCH_BLOCKING", "0") != "1";
        options.initcheck = environment("CUEMU_INITCHECK", "1") == "1";
        options.racecheck = environment("CUEMU_RACECHECK", "1") == "1";
        options.seed = std::stoull(environment("CUEMU_SEED", "1"));
        options.stack = std::stoull(environment("CUEMU_STACK", "131072"));
        options.memory = std::stoull(environment("CUEMU_MEMORY", "2147483648"));
        options.architecture = std::stoi(environment("CUEMU_ARCH", "90"));
        options.devices = std::clamp(std::stoi(environment("CUEMU_DEVICES", "1")), 0, MOST_DEVICES);
    }
} read_environment;

EXPORTED const char *cuemu_last_message() { return driver.explanation.c_str(); }

EXPORTED void cuemu_clear_fault() { reset_device(); }

EXPORTED void cuemu_statistics(uint64_t *out) {
    out[0] = driver.launches;
    out[1] = driver.copies;
    out[2] = driver.synchronizations;
    out[3] = driver.allocations;
    out[4] = driver.used;
    out[5] = driver.peak;
}

// Set an option and write its value of before to *old; return 0 where there is no such option.
EXPORTED int cuemu_set(const char *name, int64_t value, int64_t *old) {
    std::string option = name;
    auto exchange = [&](auto &place) {
        *old = int64_t(place);
        place = value;
        return 1;
    };
    if (option == "random_order") return exchange(options.random_order);
    if (option == "lazy_streams") return exchange(options.lazy_streams);
    if (option == "initcheck") return exchange(options.initcheck);
    if (option == "racecheck") return exchange(options.racecheck);
    if (option == "seed") return exchange(options.seed);
    if (option == "memory") return exchange(options.memory);
    if (option == "devices") return exchange(options.devices);
    return 0;
}

// Begin the life of a block that a pool hands out: so many bytes, which nobody has written. What
// was enqueued before may still use it, so that runs first. Return 0 where there is no such
// allocation.
EXPORTED int cuemu_renew(CUdeviceptr address, size_t bytes) {
    std::lock_guard<std::recursive_mutex> lock(driver.mutex);
    Allocation *owner = find_allocation(address);
    if (!owner || owner->freed || owner->base != address || bytes > owner->capacity) return 0;
    drain_all();
    renew(owner, bytes);
    return 1;
}

// ---- for stand-in libraries: run in stream order, with operands checked as a kernel's would be

// Run function(argument) in stream order, again at each replay of a graph; in the end, free it.
EXPORTED CUresult cuemu_enqueue(CUstream stream, void (*function)(void *), void *argument,
                                void (*release)(void *)) {
    std::shared_ptr<void> owned(argument, release);
    CONTEXT;
    driver.launches++;
    return enqueue(stream, CU_GRAPH_NODE_TYPE_KERNEL, [function, owned] {
        function(owned.get());
        return driver.sticky;
    });
}

// A failure is as sticky as a kernel's.
EXPORTED CUresult cuemu_check(CUdeviceptr address, size_t bytes, int must_be_written) {
    if (CUresult result = check_range(address, bytes, "library operand"))
        return driver.sticky = result;
    Allocation *owner = find_allocation(address);
    if (must_be_written && owner && options.initcheck &&
        memchr(owner->written + (address - owner->base), 0, bytes))
        return driver.sticky =
                   fail(CUDA_ERROR_LAUNCH_FAILED, "library call reads uninitialised memory");
    return CUDA_SUCCESS;
}

EXPORTED void cuemu_mark_written(CUdeviceptr address, size_t bytes) {
    mark_written(address, bytes);
}

// ---- errors

struct ErrorText {
    const char *name, *text;
};
static const std::map<int, ErrorText> ERRORS = {
    {0, {"CUDA_SUCCESS", "no error"}},
    {1, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {2, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {3, {"CUDA_ERROR_NOT_INITIALIZED", "initialization error"}},
    {100, {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"}},
    {101, {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
    {200, {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"}},
    {201, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {209,
     {"CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"}},
    {400, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
    {401, {"CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"}},
    {500, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {600, {"CUDA_ERROR_NOT_READY", "device not ready"}},
    {700, {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
    {701, {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"}},
    {702, {"CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"}},
    {704, {"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"}},
    {705, {"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"}},
    {710, {"CUDA_ERROR_ASSERT", "device-side assert triggered"}},
    {716, {"CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"}},
    {719, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
    {801, {"CUDA_ERROR_NOT_SUPPORTED", "operation not supported"}},
    {900,
     {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"}},
    {901, {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "capture was invalidated by an earlier error"}},
    {902, {"CUDA_ERROR_STREAM_CAPTURE_MERGE", "captures of two streams would merge"}},
    {903, {"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "the capture did not begin in this stream"}},
    {904, {"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "captured streams were not joined"}},
    {905, {"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency crosses the bounds of a capture"}},
    {906,
     {"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "dependency on the legacy stream while capturing"}},
    {907, {"CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on a captured event"}},
    {910, {"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graph update was not performed"}},
};

extern "C" {

CUresult cuGetErrorName(CUresult code, const char **name) {
    auto found = ERRORS.find(code);
    *name = found == ERRORS.end() ? nullptr : found->second.name;
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult code, const char **text) {
    static thread_local std::string answer;
    auto found = ERRORS.find(code);
    answer = found == ERRORS.end() ? "error " + std::to_string(int(code)) : found->second.text;
    if (code && code == driver.failure && !driver.explanation.empty())
        answer += ": " + driver.explanation;
    *text = answer.c_str();
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *name, void **address, int, cuuint64_t,
                          CUdriverProcAddressQueryResult *status) {
    for (const char *suffix : {"", "_v2", "_v3", "_v4"})
        if ((*address = dlsym(RTLD_DEFAULT, (std::string(name) + suffix).c_str()))) break;
    if (status)
        *status = *address ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *address ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

} // extern "C"
