// Included before every .cu file that the stand-in for nvcc compiles with g++: CUDA C++ for one CPU
// thread per CUDA thread. Device code may test __CUEMU__ to replace inline PTX.
#pragma once
#define __CUEMU__ 1
#define __CUDACC__ 1
#define __NVCC__ 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define __global__ __attribute__((cuemu_kernel))
#define __device__
#define __host__
#define __constant__ __attribute__((used, visibility("default")))
#define __shared__ static thread_local __attribute__((cuemu_shared))
#define __managed__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...) __attribute__((cuemu_bounds(__VA_ARGS__)))
#define __grid_constant__
#define __restrict __restrict__
// For the emulator's own functions, whose accesses are not the kernel's.
#define CUEMU_UNCHECKED __attribute__((no_sanitize("thread", "undefined")))
#define CUEMU_RAW CUEMU_UNCHECKED __attribute__((noinline))

#include "cuemu_vectors.h"

extern "C" {
struct cuemu_ids_t {
    uint3 thread, block;
    unsigned block_size[3], grid_size[3];
};
// Constant within one thread, so that the compiler may keep it in registers.
extern const cuemu_ids_t cuemu_ids;
void cuemu_syncthreads(int barrier);
unsigned cuemu_syncthreads_count(int predicate, int barrier);
void cuemu_warp(unsigned mask, void *argument, void (*collective)(void **, unsigned));
unsigned cuemu_live_lanes();
unsigned cuemu_lane();
void *cuemu_dynamic_shared();
void cuemu_fence();
void cuemu_tick();
void cuemu_atomic(void *address, size_t size);
[[noreturn]] void cuemu_assert(const char *condition, const char *file, int line);
[[noreturn]] void cuemu_trap(const char *why);
}
#define threadIdx (cuemu_ids.thread)
#define blockIdx (cuemu_ids.block)
#define blockDim (reinterpret_cast<const uint3 &>(cuemu_ids.block_size))
#define gridDim (reinterpret_cast<const uint3 &>(cuemu_ids.grid_size))
enum { warpSize = 32 };
#undef assert
#define assert(condition) ((condition) ? (void)0 : cuemu_assert(#condition, __FILE__, __LINE__))

#include "cuemu_warp.h"

#include "cuemu_atomics.h"
#include "cuemu_math.h"
#include "cuemu_table.h"
