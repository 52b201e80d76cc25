// Devices and contexts. All emulated devices are alike, and share one arena of memory.
#include "driver.hpp"
#include <cstdio>
#include <cstring>
#include <map>

using namespace cuemu;

static const std::map<int, int> ATTRIBUTES = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0x7fffffff},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 0x7fffffff},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 4},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3201000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 1 << 20},
};

static bool exists(CUdevice device) { return device >= 0 && device < options.devices; }

extern "C" {

CUresult cuInit(unsigned) {
    if (!options.devices) return CUDA_ERROR_NO_DEVICE;
    for (int i = 0; i < MOST_DEVICES; i++)
        driver.devices[i].primary.device = driver.devices[i].null_stream.device = i;
    driver.started = true;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

// ---- devices

CUresult cuDeviceGetCount(int *count) {
    ENTER;
    *count = options.devices;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER;
    if (!exists(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice) {
    snprintf(name, size, "cuemu sm_%d (CPU)", options.architecture);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *name, int size, CUdevice device) {
    snprintf(name, size, "0000:%02x:00.0", device);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *name) {
    unsigned bus;
    if (sscanf(name, "0000:%2x:00.0", &bus) != 1 || !exists(bus)) return CUDA_ERROR_INVALID_VALUE;
    *device = bus;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *id, CUdevice device) {
    memset(id, 0xCE, sizeof *id);
    id->bytes[0] = device;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice) {
    ENTER;
    *bytes = options.memory;
    return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice) {
    *major = options.architecture / 10;
    *minor = options.architecture % 10;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    if (!exists(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    auto found = ATTRIBUTES.find(attribute);
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? options.architecture / 10
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? options.architecture % 10
             : found == ATTRIBUTES.end()                                 ? 0
                                                                         : found->second;
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *possible, CUdevice device, CUdevice peer) {
    *possible = exists(device) && exists(peer) && device != peer;
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned) {
    CONTEXT;
    uint32_t &enabled = peers[current_device()], bit = 1u << peer->device;
    if (peer->device == current_device()) return CUDA_ERROR_INVALID_DEVICE;
    if (enabled & bit) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    enabled |= bit;
    return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
    CONTEXT;
    uint32_t &enabled = peers[current_device()], bit = 1u << peer->device;
    if (!(enabled & bit)) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    enabled &= ~bit;
    return CUDA_SUCCESS;
}

// ---- contexts

CUresult cuCtxCreate(CUcontext *context, CUctxCreateParams *, unsigned, CUdevice device) {
    ENTER;
    if (!exists(device)) return CUDA_ERROR_INVALID_DEVICE;
    *context = new CUctx_st{device, 1};
    contexts.push_back(*context);
    return CUDA_SUCCESS;
}

CUresult cuCtxAttach(CUcontext *context, unsigned) {
    ENTER;
    if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    *context = contexts.back();
    (*context)->references++;
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext context) {
    ENTER;
    drain_all();
    if (!contexts.empty() && contexts.back() == context) contexts.pop_back();
    reset_device();
    return CUDA_SUCCESS; // the handle stays valid: others' stacks may hold it
}

CUresult cuCtxDetach(CUcontext context) {
    ENTER;
    return --context->references > 0 ? CUDA_SUCCESS : cuCtxDestroy(context);
}

CUresult cuCtxPushCurrent(CUcontext context) {
    ENTER;
    contexts.push_back(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context) {
    ENTER;
    if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (context) *context = contexts.back();
    contexts.pop_back();
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    ENTER;
    if (!contexts.empty()) contexts.pop_back();
    if (context) contexts.push_back(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    ENTER;
    *context = contexts.empty() ? nullptr : contexts.back();
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    ENTER;
    if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    *device = current_device();
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
    CONTEXT;
    TRY(forbid_waiting(__func__));
    driver.synchronizations++;
    return drain_all();
}

CUresult cuCtxGetApiVersion(CUcontext, unsigned *version) {
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit) {
    CONTEXT;
    *value = options.stack;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit, size_t) {
    CONTEXT;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config) {
    CONTEXT;
    *config = CU_FUNC_CACHE_PREFER_NONE;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache) {
    CONTEXT;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config) {
    CONTEXT;
    *config = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig) {
    CONTEXT;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER;
    if (!exists(device)) return CUDA_ERROR_INVALID_DEVICE;
    *context = &driver.devices[device].primary;
    (*context)->references++;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    ENTER;
    int &references = driver.devices[device].primary.references;
    if (!references) return CUDA_ERROR_INVALID_CONTEXT;
    if (--references == 0) {
        drain_all();
        reset_device();
    }
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    ENTER;
    if (!exists(device)) return CUDA_ERROR_INVALID_DEVICE;
    *flags = 0;
    *active = driver.devices[device].primary.references > 0;
    return CUDA_SUCCESS;
}

CUresult cuProfilerInitialize(const char *, const char *, CUoutput_mode) { return CUDA_SUCCESS; }
CUresult cuProfilerStart(void) { return CUDA_SUCCESS; }
CUresult cuProfilerStop(void) { return CUDA_SUCCESS; }

} // extern "C"
