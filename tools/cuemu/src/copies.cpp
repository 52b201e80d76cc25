// Copies and fills. A copy from or to pageable memory is staged, or waits, as on a GPU.
#include "driver.hpp"
#include <cstring>

using namespace cuemu;

static CUresult copy(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
    Allocation *from = find_allocation(source), *to = find_allocation(target);
    memcpy((void *)target, (void *)source, bytes);
    if (to && !to->freed) {
        if (from && !from->freed)
            memcpy(to->written + (target - to->base), from->written + (source - from->base), bytes);
        else
            mark_written(target, bytes);
    }
    driver.copies++;
    return CUDA_SUCCESS;
}

static bool on_device(CUdeviceptr address) {
    Allocation *owner = find_allocation(address);
    return owner && owner->kind != Kind::host;
}

static CUresult check_both(CUdeviceptr target, size_t target_bytes, CUdeviceptr source,
                           size_t source_bytes) {
    if (in_arena(target)) TRY(check_range(target, target_bytes, "destination"));
    if (in_arena(source)) TRY(check_range(source, source_bytes, "source"));
    return CUDA_SUCCESS;
}

static CUresult copy_and_wait(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
    CONTEXT;
    TRY(forbid_legacy());
    TRY(check_both(target, bytes, source, bytes));
    if (on_device(target) && on_device(source)) // which does not make the host wait
        return enqueue(nullptr, CU_GRAPH_NODE_TYPE_MEMCPY,
                       [=] { return copy(target, source, bytes); });
    TRY(drain(resolve(nullptr)));
    return copy(target, source, bytes);
}

static CUresult copy_async(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
    CONTEXT;
    TRY(check_both(target, bytes, source, bytes));
    if (!in_arena(source)) { // pageable: staged before the call returns
        auto staged = std::make_shared<std::vector<char>>((char *)source, (char *)source + bytes);
        return enqueue(stream, CU_GRAPH_NODE_TYPE_MEMCPY,
                       [=] { return copy(target, CUdeviceptr(staged->data()), bytes); });
    }
    if (!in_arena(target)) { // pageable: the call returns when it is filled
        TRY(wait_for(stream, __func__));
        return copy(target, source, bytes);
    }
    return enqueue(stream, CU_GRAPH_NODE_TYPE_MEMCPY, [=] { return copy(target, source, bytes); });
}

// What is said to be a device address must be one.
static CUresult check_device(CUdeviceptr address, size_t bytes, const char *what) {
    std::lock_guard<std::recursive_mutex> lock(driver.mutex);
    return check_range(address, bytes, what);
}

// ---- copies of boxes

struct Side {
    CUdeviceptr begin;
    size_t pitch, slice; // bytes from row to row, and from plane to plane
};

static Side side(CUmemorytype type, const void *host, CUdeviceptr device, size_t pitch,
                 size_t height, size_t x, size_t y, size_t z, const CUDA_MEMCPY3D &box) {
    bool is_host = type == CU_MEMORYTYPE_HOST || (type == CU_MEMORYTYPE_UNIFIED && host);
    CUdeviceptr begin = is_host ? CUdeviceptr(host) : type == CU_MEMORYTYPE_ARRAY ? 0 : device;
    if (!pitch) pitch = box.WidthInBytes;
    size_t slice = pitch * (height ? height : box.Height);
    return {begin ? begin + x + y * pitch + z * slice : 0, pitch, slice};
}

static CUresult copy_box(const CUDA_MEMCPY3D &box, CUstream stream, bool async) {
    CONTEXT;
    size_t width = box.WidthInBytes, height = box.Height, depth = box.Depth;
    Side from = side(box.srcMemoryType, box.srcHost, box.srcDevice, box.srcPitch, box.srcHeight,
                     box.srcXInBytes, box.srcY, box.srcZ, box);
    Side to = side(box.dstMemoryType, box.dstHost, box.dstDevice, box.dstPitch, box.dstHeight,
                   box.dstXInBytes, box.dstY, box.dstZ, box);
    if (!from.begin || !to.begin) return CUDA_ERROR_NOT_SUPPORTED;
    auto extent = [&](const Side &side) {
        return (depth - 1) * side.slice + (height - 1) * side.pitch + width;
    };
    TRY(check_both(to.begin, extent(to), from.begin, extent(from)));
    auto run = [=] {
        for (size_t z = 0; z < depth; z++)
            for (size_t y = 0; y < height; y++)
                copy(to.begin + z * to.slice + y * to.pitch,
                     from.begin + z * from.slice + y * from.pitch, width);
        return CUDA_SUCCESS;
    };
    if (async && in_arena(from.begin) && in_arena(to.begin))
        return enqueue(stream, CU_GRAPH_NODE_TYPE_MEMCPY, run);
    TRY(wait_for(stream, __func__));
    return run();
}

static CUDA_MEMCPY3D widen(const CUDA_MEMCPY2D &rectangle) {
    CUDA_MEMCPY3D box{};
    box.srcXInBytes = rectangle.srcXInBytes;
    box.srcY = rectangle.srcY;
    box.srcMemoryType = rectangle.srcMemoryType;
    box.srcHost = rectangle.srcHost;
    box.srcDevice = rectangle.srcDevice;
    box.srcPitch = rectangle.srcPitch;
    box.dstXInBytes = rectangle.dstXInBytes;
    box.dstY = rectangle.dstY;
    box.dstMemoryType = rectangle.dstMemoryType;
    box.dstHost = rectangle.dstHost;
    box.dstDevice = rectangle.dstDevice;
    box.dstPitch = rectangle.dstPitch;
    box.WidthInBytes = rectangle.WidthInBytes;
    box.Height = std::max<size_t>(rectangle.Height, 1);
    box.Depth = 1;
    return box;
}

static CUDA_MEMCPY3D at_least_one(CUDA_MEMCPY3D box) {
    box.Height = std::max<size_t>(box.Height, 1);
    box.Depth = std::max<size_t>(box.Depth, 1);
    return box;
}

template <class T>
static CUresult fill(CUdeviceptr target, size_t pitch, T value, size_t width, size_t height,
                     CUstream stream) {
    CONTEXT;
    if (!width || !height) return CUDA_SUCCESS;
    if (target % sizeof(T)) return fail(CUDA_ERROR_INVALID_VALUE, "misaligned memset");
    TRY(check_range(target, (height - 1) * pitch + width * sizeof(T), "memset"));
    return enqueue(stream, CU_GRAPH_NODE_TYPE_MEMSET, [=] {
        for (size_t y = 0; y < height; y++) {
            T *row = (T *)(target + y * pitch);
            std::fill(row, row + width, value);
            mark_written(uintptr_t(row), width * sizeof(T));
        }
        return CUDA_SUCCESS;
    });
}

extern "C" {

CUresult cuMemcpy(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
    return copy_and_wait(target, source, bytes);
}

CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
    return copy_async(target, source, bytes, stream);
}

CUresult cuMemcpyPeer(CUdeviceptr target, CUcontext, CUdeviceptr source, CUcontext, size_t bytes) {
    return copy_and_wait(target, source, bytes);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr target, CUcontext, CUdeviceptr source, CUcontext,
                           size_t bytes, CUstream stream) {
    return copy_async(target, source, bytes, stream);
}

CUresult cuMemcpyHtoD(CUdeviceptr target, const void *source, size_t bytes) {
    TRY(check_device(target, bytes, "destination"));
    return copy_and_wait(target, CUdeviceptr(source), bytes);
}

CUresult cuMemcpyDtoH(void *target, CUdeviceptr source, size_t bytes) {
    TRY(check_device(source, bytes, "source"));
    return copy_and_wait(CUdeviceptr(target), source, bytes);
}

CUresult cuMemcpyDtoD(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
    TRY(check_device(target, bytes, "destination"));
    TRY(check_device(source, bytes, "source"));
    return copy_and_wait(target, source, bytes);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr target, const void *source, size_t bytes, CUstream stream) {
    TRY(check_device(target, bytes, "destination"));
    return copy_async(target, CUdeviceptr(source), bytes, stream);
}

CUresult cuMemcpyDtoHAsync(void *target, CUdeviceptr source, size_t bytes, CUstream stream) {
    TRY(check_device(source, bytes, "source"));
    return copy_async(CUdeviceptr(target), source, bytes, stream);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
    TRY(check_device(target, bytes, "destination"));
    TRY(check_device(source, bytes, "source"));
    return copy_async(target, source, bytes, stream);
}

CUresult cuMemcpy2D(const CUDA_MEMCPY2D *box) { return copy_box(widen(*box), nullptr, false); }
CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D *box) { return cuMemcpy2D(box); }
CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D *box, CUstream stream) {
    return copy_box(widen(*box), stream, true);
}
CUresult cuMemcpy3D(const CUDA_MEMCPY3D *box) {
    return copy_box(at_least_one(*box), nullptr, false);
}
CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D *box, CUstream stream) {
    return copy_box(at_least_one(*box), stream, true);
}

#define FILLS(BITS, TYPE)                                                                          \
    CUresult cuMemsetD##BITS(CUdeviceptr target, TYPE value, size_t count) {                       \
        return fill<TYPE>(target, 0, value, count, 1, nullptr);                                    \
    }                                                                                              \
    CUresult cuMemsetD##BITS##Async(CUdeviceptr target, TYPE value, size_t count,                  \
                                    CUstream stream) {                                             \
        return fill<TYPE>(target, 0, value, count, 1, stream);                                     \
    }                                                                                              \
    CUresult cuMemsetD2D##BITS(CUdeviceptr target, size_t pitch, TYPE value, size_t width,         \
                               size_t height) {                                                    \
        return fill<TYPE>(target, pitch, value, width, height, nullptr);                           \
    }                                                                                              \
    CUresult cuMemsetD2D##BITS##Async(CUdeviceptr target, size_t pitch, TYPE value, size_t width,  \
                                      size_t height, CUstream stream) {                            \
        return fill<TYPE>(target, pitch, value, width, height, stream);                            \
    }
FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned int)

} // extern "C"
