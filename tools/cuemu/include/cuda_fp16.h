// __half and __half2.
#pragma once
#include "cuemu_half.h"
extern "C++" {
static inline unsigned short cuemu_round_half(float value) {
    return cuemu_bits<unsigned short>((_Float16)value);
}
static inline float cuemu_widen_half(unsigned short x) { return (float)cuemu_bits<_Float16>(x); }
CUEMU_HALF_TYPE(__half, __half2, cuemu_round_half, cuemu_widen_half)
typedef __half half;
typedef __half2 half2;
static inline __half __float2half(float value) { return value; }
static inline __half __float2half_rn(float value) { return value; }
static inline float __half2float(__half value) { return value; }
static inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
static inline __half2 __float2half2_rn(float value) { return {value, value}; }
static inline __half2 __half2half2(__half value) { return {value, value}; }
static inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
static inline __half __low2half(__half2 value) { return value.x; }
static inline __half __high2half(__half2 value) { return value.y; }
static inline float2 __half22float2(__half2 value) { return {value.x, value.y}; }
static inline unsigned short __half_as_ushort(__half value) { return value.x; }
static inline __half __ushort_as_half(unsigned short x) {
    __half value;
    value.x = x;
    return value;
}
}
