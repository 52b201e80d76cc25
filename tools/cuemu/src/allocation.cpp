// Allocating and freeing device, page-locked and managed memory, with a limit for each device.
#include "driver.hpp"

using namespace cuemu;

static CUresult allocate(CUdeviceptr *address, size_t bytes, Kind kind) {
    if (!bytes) return fail(CUDA_ERROR_INVALID_VALUE, "allocation of 0 bytes");
    size_t &used = driver.devices[current_device()].used;
    size_t left = options.memory > used ? options.memory - used : 0;
    if (kind == Kind::device && bytes > left)
        return fail(CUDA_ERROR_OUT_OF_MEMORY,
                    std::to_string(bytes) + " bytes asked, " + std::to_string(left) + " free");
    *address = allocate_pages(bytes, kind, current_device());
    if (!*address) return fail(CUDA_ERROR_OUT_OF_MEMORY, "the emulator's addresses are used up");
    driver.allocations++;
    if (kind == Kind::device) {
        used += bytes;
        driver.used += bytes;
        driver.peak = std::max(driver.peak, driver.used);
    }
    return CUDA_SUCCESS;
}

static CUresult release(CUdeviceptr address) {
    Allocation *owner = find_allocation(address);
    if (!owner || owner->base != address)
        return fail(CUDA_ERROR_INVALID_VALUE, "free of an address that was not allocated");
    if (owner->freed) return fail(CUDA_ERROR_INVALID_VALUE, "double free");
    if (owner->kind == Kind::device) {
        driver.devices[owner->device].used -= owner->capacity;
        driver.used -= owner->capacity;
    }
    free_pages(owner);
    return CUDA_SUCCESS;
}

static CUresult wait_and_release(CUdeviceptr address) {
    if (!driver.sticky) drain_all();
    return release(address);
}

// A range must lie inside one allocation, or inside one global variable of a module.
CUresult check_range(CUdeviceptr address, size_t bytes, const char *what) {
    if (!bytes || is_live(address, bytes)) return CUDA_SUCCESS;
    for (const Module *module : driver.modules)
        for (const Global &global : module->globals)
            if (address >= global.address && address + bytes <= global.address + global.size)
                return CUDA_SUCCESS;
    Allocation *owner = find_allocation(address);
    std::string text = std::string(what) + ": ";
    if (!owner) return fail(CUDA_ERROR_INVALID_VALUE, text + "not a device address");
    text +=
        std::to_string(bytes) + " bytes at offset " + std::to_string(long(address - owner->base));
    text += (owner->freed ? " of a freed" : " of an");
    return fail(CUDA_ERROR_INVALID_VALUE,
                text + " allocation of " + std::to_string(owner->size) + " bytes");
}

extern "C" {

CUresult cuMemAlloc(CUdeviceptr *address, size_t bytes) {
    CONTEXT;
    TRY(forbid_unsafe(__func__));
    return allocate(address, bytes, Kind::device);
}

CUresult cuMemAllocPitch(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                         unsigned) {
    CONTEXT;
    TRY(forbid_unsafe(__func__));
    *pitch = (width + 511) & ~size_t(511);
    return allocate(address, *pitch * height, Kind::device);
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned) {
    CONTEXT;
    TRY(forbid_unsafe(__func__));
    return allocate(address, bytes, Kind::managed);
}

CUresult cuMemFree(CUdeviceptr address) {
    ENTER;
    if (!address) return CUDA_SUCCESS;
    TRY(forbid_unsafe(__func__));
    return wait_and_release(address);
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream) {
    CONTEXT;
    TRY(forbid_unsafe(__func__));
    return allocate(address, bytes, Kind::device);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    CONTEXT;
    return enqueue(stream, CU_GRAPH_NODE_TYPE_MEM_FREE, [=] { return release(address); });
}

CUresult cuMemGetInfo(size_t *available, size_t *total) {
    CONTEXT;
    size_t used = driver.devices[current_device()].used;
    *total = options.memory;
    *available = options.memory > used ? options.memory - used : 0;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
    CONTEXT;
    Allocation *owner = find_allocation(address);
    if (!owner || owner->freed) return CUDA_ERROR_NOT_FOUND;
    if (base) *base = owner->base;
    if (bytes) *bytes = owner->size;
    return CUDA_SUCCESS;
}

// ---- page-locked memory of the host

CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned) {
    CONTEXT;
    TRY(forbid_unsafe(__func__));
    CUdeviceptr found = 0;
    CUresult result = allocate(&found, std::max<size_t>(bytes, 1), Kind::host);
    *address = (void *)found;
    return result;
}

CUresult cuMemAllocHost(void **address, size_t bytes) { return cuMemHostAlloc(address, bytes, 0); }

CUresult cuMemFreeHost(void *address) {
    ENTER;
    TRY(forbid_unsafe(__func__));
    return wait_and_release(CUdeviceptr(address));
}

CUresult cuMemHostRegister(void *, size_t, unsigned) {
    CONTEXT;
    return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *) {
    ENTER;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *device, void *host, unsigned) {
    CONTEXT;
    *device = CUdeviceptr(host);
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned *flags, void *) {
    CONTEXT;
    *flags = 0;
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *out, CUpointer_attribute attribute, CUdeviceptr address) {
    CONTEXT;
    Allocation *owner = find_allocation(address);
    if (!owner || owner->freed) return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned *>(out) =
            owner->kind == Kind::host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *static_cast<CUdeviceptr *>(out) = address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int *>(out) = owner->device;
        return CUDA_SUCCESS;
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

} // extern "C"
