// __nv_bfloat16 and __nv_bfloat162.
#pragma once
#include "cuda_fp16.h"
extern "C++" {
static inline unsigned short cuemu_round_bfloat16(float value) {
    unsigned bits = cuemu_bits<unsigned>(value);
    return value != value ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static inline float cuemu_widen_bfloat16(unsigned short x) {
    return cuemu_bits<float>((unsigned)x << 16);
}
CUEMU_HALF_TYPE(__nv_bfloat16, __nv_bfloat162, cuemu_round_bfloat16, cuemu_widen_bfloat16)
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
static inline __nv_bfloat16 __float2bfloat16(float value) { return value; }
static inline __nv_bfloat16 __float2bfloat16_rn(float value) { return value; }
static inline float __bfloat162float(__nv_bfloat16 value) { return value; }
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
static inline __nv_bfloat162 __float2bfloat162_rn(float value) { return {value, value}; }
static inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 value) { return {value, value}; }
static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
static inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 value) { return value.x; }
static inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 value) { return value.y; }
static inline float2 __bfloat1622float2(__nv_bfloat162 value) { return {value.x, value.y}; }
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.x; }
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) {
    __nv_bfloat16 value;
    value.x = x;
    return value;
}
}
