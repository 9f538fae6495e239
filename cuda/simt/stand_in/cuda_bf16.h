#pragma once
// Stand-in for CUDA's header of this name: bfloat16 with the conversions that kernels use, rounding as CUDA does. There
// is no arithmetic on it: kernels compute in fp32.

#include <bit>
#include <cstdint>

#include "vector_types.h"

struct __nv_bfloat16 {
  __nv_bfloat16() = default;
  __nv_bfloat16(float value) : bits(round(value)) {}
  operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

  /// To nearest, ties to even; every NaN becomes CUDA's.
  static std::uint16_t round(float value) {
    if (value != value) return 0x7fff;
    const auto word = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
  }

  std::uint16_t bits;
};

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

inline float __bfloat162float(__nv_bfloat16 value) {
  return value;
}
inline __nv_bfloat16 __float2bfloat16(float value) {
  return value;
}
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  return value;
}
inline std::uint16_t __bfloat16_as_ushort(__nv_bfloat16 value) {
  return value.bits;
}
inline __nv_bfloat16 __ushort_as_bfloat16(std::uint16_t bits) {
  return std::bit_cast<__nv_bfloat16>(bits);
}
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) {
  return {low, high};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high) {
  return {low, high};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 values) {
  return {values.x, values.y};
}
inline float2 __bfloat1622float2(__nv_bfloat162 pair) {
  return {pair.x, pair.y};
}
inline float __low2float(__nv_bfloat162 pair) {
  return pair.x;
}
inline float __high2float(__nv_bfloat162 pair) {
  return pair.y;
}
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 pair) {
  return pair.x;
}
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 pair) {
  return pair.y;
}
