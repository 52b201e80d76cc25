// Kernels: their attributes, and launches with the checks that a driver makes.
#include "driver.hpp"
#include <cstring>

using namespace cuemu;

constexpr int SHARED_OPT_IN = 232448, SHARED_USUAL = 49152;

static CUresult check_size(const Function &function, Dim grid, Dim block, unsigned dynamic_shared) {
    std::string name = function.kernel->name;
    uint64_t threads = uint64_t(block.x) * block.y * block.z;
    if (!grid.x || !grid.y || !grid.z || !threads || grid.x > 0x7fffffff || grid.y > 65535 ||
        grid.z > 65535 || block.z > 64 || threads > 1024)
        return fail(CUDA_ERROR_INVALID_VALUE, name + ": grid or block size out of range");
    if (function.kernel->max_threads && threads > function.kernel->max_threads)
        return fail(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
                    name + ": more threads than its __launch_bounds__ allow");
    bool usual = dynamic_shared + function.shared_bytes <= SHARED_USUAL;
    if (dynamic_shared > unsigned(function.dynamic_limit) || (!usual && !function.opted_in))
        return fail(CUDA_ERROR_INVALID_VALUE, name + ": " + std::to_string(dynamic_shared) +
                                                  " bytes of dynamic shared memory; raise its "
                                                  "MAX_DYNAMIC_SHARED_SIZE_BYTES first");
    return CUDA_SUCCESS;
}

using Arguments = std::shared_ptr<std::vector<char>>;

static CUresult gather(const Kernel &kernel, void **arguments, void **extra, Arguments &out) {
    out = std::make_shared<std::vector<char>>(kernel.argument_bytes);
    if (!extra) {
        if (arguments) kernel.pack(arguments, out->data());
        return CUDA_SUCCESS;
    }
    const char *buffer = nullptr;
    size_t bytes = 0;
    for (void **option = extra; *option != CU_LAUNCH_PARAM_END; option += 2) {
        if (option[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = (const char *)option[1];
        if (option[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *(size_t *)option[1];
    }
    if (bytes != kernel.argument_bytes)
        return fail(CUDA_ERROR_INVALID_VALUE,
                    std::string(kernel.name) + " takes " + std::to_string(kernel.argument_bytes) +
                        " bytes of arguments, " + std::to_string(bytes) + " were passed");
    out->assign(buffer, buffer + bytes);
    return CUDA_SUCCESS;
}

extern "C" {

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle) {
    CONTEXT;
    auto *function = (Function *)handle;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = function->kernel->max_threads ? function->kernel->max_threads : 1024;
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = function->shared_bytes; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = options.architecture; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = function->dynamic_limit; break;
    default: *value = 0;
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
    CONTEXT;
    auto *function = (Function *)handle;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
    if (value < 0 || value + function->shared_bytes > SHARED_OPT_IN)
        return CUDA_ERROR_INVALID_VALUE;
    function->dynamic_limit = value;
    function->opted_in = true;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) {
    CONTEXT;
    return CUDA_SUCCESS;
}

// PyCUDA calls these two before cuLaunchKernel, which is told the same.
CUresult cuFuncSetBlockShape(CUfunction, int, int, int) {
    CONTEXT;
    return CUDA_SUCCESS;
}
CUresult cuFuncSetSharedSize(CUfunction, unsigned) {
    CONTEXT;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction, int block, size_t) {
    CONTEXT;
    *blocks = std::max(1, 2048 / std::max(block, 1));
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z,
                        unsigned dynamic_shared, CUstream stream, void **parameters, void **extra) {
    CONTEXT;
    auto *function = (Function *)handle;
    Dim grid{grid_x, grid_y, grid_z}, block{block_x, block_y, block_z};
    stream = resolve(stream);
    if (is_known(stream) && stream->device != function->module->device)
        return fail(CUDA_ERROR_INVALID_HANDLE,
                    std::string(function->kernel->name) + ": the module was loaded on device " +
                        std::to_string(function->module->device) + ", the stream is of device " +
                        std::to_string(stream->device));
    TRY(check_size(*function, grid, block, dynamic_shared));
    Arguments arguments;
    TRY(gather(*function->kernel, parameters, extra, arguments));
    driver.launches++;
    return enqueue(stream, CU_GRAPH_NODE_TYPE_KERNEL, [=] {
        Fault fault = run_grid({function, grid, block, dynamic_shared, arguments->data()});
        return fault.code ? fail(fault.code, fault.text) : CUDA_SUCCESS;
    });
}

} // extern "C"
