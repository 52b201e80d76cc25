// Modules: shared objects that the stand-in for nvcc made, and their kernels and variables.
#include "driver.hpp"
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <map>
#include <set>
#include <sys/mman.h>
#include <unistd.h>

using namespace cuemu;

constexpr int CUDA_MACHINE = 190; // e_machine of what the real nvcc makes
constexpr int TABLE_VERSION = 2;  // of include/cuemu_table.h

struct Table {
    const Kernel *kernels;
    int count, version, instrumented;
    void *(*touch_shared)();
};

// What the code of one function names, by offsets in the image: other functions, and __shared__
// variables with their sizes.
struct Code {
    uintptr_t end;
    std::set<uintptr_t> functions;
    std::map<size_t, size_t> shared;
};
using Codes = std::map<uintptr_t, Code>; // by where they begin

static Code *code_at(Codes &codes, uintptr_t place) {
    auto next = codes.upper_bound(place);
    if (next == codes.begin() || place >= std::prev(next)->second.end) return nullptr;
    return &std::prev(next)->second;
}

// A kernel has the variables that it names itself, or that functions name which it may call. The
// linker has left the relocations of code in the image.
static void find_shared(Module &module, const char *image) {
    auto *header = (const Elf64_Ehdr *)image;
    auto *sections = (const Elf64_Shdr *)(image + header->e_shoff);
    Codes codes;
    for (int i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        auto *symbols = (const Elf64_Sym *)(image + sections[i].sh_offset);
        for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; k++)
            if (ELF64_ST_TYPE(symbols[k].st_info) == STT_FUNC && symbols[k].st_size)
                codes[symbols[k].st_value].end = symbols[k].st_value + symbols[k].st_size;
    }
    for (int i = 0; i < header->e_shnum; i++) {
        const Elf64_Shdr &section = sections[i];
        if (section.sh_type != SHT_RELA || (section.sh_flags & SHF_ALLOC)) continue;
        const Elf64_Shdr &table = sections[section.sh_link];
        auto *symbols = (const Elf64_Sym *)(image + table.sh_offset);
        const char *names = image + sections[table.sh_link].sh_offset;
        auto *relocations = (const Elf64_Rela *)(image + section.sh_offset);
        if (!(sections[section.sh_info].sh_flags & SHF_EXECINSTR)) continue;
        for (size_t k = 0; k < section.sh_size / sizeof *relocations; k++) {
            const Elf64_Rela &one = relocations[k];
            const Elf64_Sym &symbol = symbols[ELF64_R_SYM(one.r_info)];
            Code *code = code_at(codes, one.r_offset);
            if (!code) continue;
            if (ELF64_ST_TYPE(symbol.st_info) != STT_TLS) // counted from the instruction's end
                code->functions.insert(symbol.st_value + one.r_addend + 4);
            else if (strncmp(names + symbol.st_name, "_ZGV", 4))
                code->shared[symbol.st_value] = symbol.st_size;
        }
    }
    for (Function &function : module.functions) {
        std::vector<uintptr_t> left{uintptr_t(function.kernel->function) - module.base};
        std::set<Code *> seen;
        std::map<size_t, size_t> found;
        while (!left.empty()) {
            Code *code = code_at(codes, left.back());
            left.pop_back();
            if (!code || !seen.insert(code).second) continue;
            found.insert(code->shared.begin(), code->shared.end());
            left.insert(left.end(), code->functions.begin(), code->functions.end());
        }
        function.shared.assign(found.begin(), found.end());
        for (auto &[offset, size] : found) function.shared_bytes += size;
    }
}

static void read_symbols(Module &module, const char *image) {
    auto *header = (const Elf64_Ehdr *)image;
    auto *sections = (const Elf64_Shdr *)(image + header->e_shoff);
    for (int i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        const char *names = image + sections[sections[i].sh_link].sh_offset;
        auto *symbols = (const Elf64_Sym *)(image + sections[i].sh_offset);
        for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; k++) {
            const Elf64_Sym &symbol = symbols[k];
            std::string name = names + symbol.st_name;
            int type = ELF64_ST_TYPE(symbol.st_info);
            if (type == STT_OBJECT)
                module.globals.push_back({name, module.base + symbol.st_value, symbol.st_size});
            else if (type == STT_TLS && name.rfind("_ZGV", 0) == 0)
                module.guards.push_back(symbol.st_value);
        }
    }
}

static void find_image(Module &module, const char *image) {
    auto *header = (const Elf64_Ehdr *)image;
    auto *segments = (const Elf64_Phdr *)(image + header->e_phoff);
    module.base = module.begin = static_cast<link_map *>(module.library)->l_addr;
    for (int i = 0; i < header->e_phnum; i++)
        if (segments[i].p_type == PT_LOAD)
            module.end = std::max<uintptr_t>(module.end, module.base + segments[i].p_vaddr +
                                                             segments[i].p_memsz);
}

static void unload(Module *module) {
    if (module->library) dlclose(module->library);
    if (module->file >= 0) close(module->file);
    delete module;
}

static CUresult load(CUmodule *out, const char *image) {
    CONTEXT;
    TRY(forbid_unsafe(__func__));
    auto *header = (const Elf64_Ehdr *)image;
    if (memcmp(header->e_ident, ELFMAG, 4))
        return fail(CUDA_ERROR_INVALID_IMAGE, "the emulator loads only what its own stand-in for "
                                              "nvcc made (no PTX, no fatbin)");
    if (header->e_machine == CUDA_MACHINE)
        return fail(CUDA_ERROR_NO_BINARY_FOR_GPU, "this is a real cubin: the module was not "
                                                  "compiled by the emulator's stand-in for nvcc");
    size_t size = header->e_shoff + size_t(header->e_shnum) * header->e_shentsize;
    std::unique_ptr<Module, void (*)(Module *)> module(new Module, unload);
    module->file = memfd_create("cuemu-module", MFD_CLOEXEC);
    if (write(module->file, image, size) != ssize_t(size)) return CUDA_ERROR_OPERATING_SYSTEM;
    module->path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(module->file);
    module->library = dlopen(module->path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!module->library) return fail(CUDA_ERROR_INVALID_IMAGE, dlerror());
    auto *table = static_cast<const Table *>(dlsym(module->library, "__cuemu_module"));
    if (!table || table->version != TABLE_VERSION)
        return fail(CUDA_ERROR_INVALID_IMAGE, "not made by this version of the stand-in for nvcc");
    module->device = current_device();
    module->touch_shared = table->touch_shared;
    module->instrumented = table->instrumented;
    find_image(*module, image);
    for (int i = 0; i < table->count; i++)
        module->functions.push_back({&table->kernels[i], module.get(), {}, 0, 49152});
    read_symbols(*module, image);
    find_shared(*module, image);
    driver.modules.insert(module.get());
    *out = (CUmodule)module.release();
    return CUDA_SUCCESS;
}

extern "C" {

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    return load(module, static_cast<const char *>(image));
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                            CUjit_option *names, void **values) {
    CUresult result = load(module, static_cast<const char *>(image));
    for (unsigned i = 0; i < count; i++) // the driver writes back how much of each log it filled
        if (names[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES ||
            names[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
            values[i] = nullptr;
    return result;
}

CUresult cuModuleLoad(CUmodule *module, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
    std::string image;
    char block[65536];
    while (size_t count = fread(block, 1, sizeof block, file)) image.append(block, count);
    fclose(file);
    return load(module, image.data());
}

CUresult cuModuleUnload(CUmodule handle) {
    ENTER;
    if (!driver.sticky) drain_all();
    auto *module = (Module *)handle;
    if (!driver.modules.erase(module)) return CUDA_ERROR_INVALID_HANDLE;
    unload(module);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
    CONTEXT;
    for (Function &function : ((Module *)module)->functions) {
        Dl_info symbol; // its mangled name will do as well
        bool mangled = dladdr(function.kernel->function, &symbol) && symbol.dli_sname &&
                       !strcmp(symbol.dli_sname, name);
        if (!mangled && strcmp(function.kernel->name, name)) continue;
        *out = (CUfunction)&function;
        return CUDA_SUCCESS;
    }
    return fail(CUDA_ERROR_NOT_FOUND, std::string("no kernel ") + name);
}

CUresult cuModuleGetGlobal(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
    CONTEXT;
    for (const Global &global : ((Module *)module)->globals) {
        if (global.name != name) continue;
        if (address) *address = global.address;
        if (bytes) *bytes = global.size;
        return CUDA_SUCCESS;
    }
    return fail(CUDA_ERROR_NOT_FOUND, std::string("no global ") + name);
}

} // extern "C"
