#pragma once
// Neighbouring elements of memory as fp32 values in registers, read and written 16 bytes at a time (8 for four
// bfloat16). One element alone needs no alignment, more need theirs.

#include <cstdint>
#include <cstring>

#include "kernel/kernel.h"

namespace skrull {

__device__ inline float to_float(float value) {
  return value;
}
__device__ inline float to_float(bf16 value) {
  return __bfloat162float(value);
}
template <class T>
__device__ T from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline bf16 from_float<bf16>(float value) {
  return __float2bfloat16_rn(value);
}

/// `value` as it reads back from memory of type T.
template <class T>
__device__ float rounded_to(float value) {
  return to_float(from_float<T>(value));
}

/// Two bfloat16 in the order of memory.
__device__ inline float2 unpack_pair(std::uint32_t pair) {
  return make_float2(__uint_as_float(pair << 16U), __uint_as_float(pair & 0xFFFF0000U));
}
__device__ inline std::uint32_t pack_pair(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  std::uint32_t bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

template <int count>
__device__ void load(const float* from, float (&values)[count]) {
  if constexpr (count == 1) {
    values[0] = from[0];
  } else {
    static_assert(count % 4 == 0);
#pragma unroll
    for (int i = 0; i < count; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      values[i] = four.x;
      values[i + 1] = four.y;
      values[i + 2] = four.z;
      values[i + 3] = four.w;
    }
  }
}

template <int count>
__device__ void load(const bf16* from, float (&values)[count]) {
  const auto unpack = [&](int i, std::uint32_t pair) {
    const float2 both = unpack_pair(pair);
    values[i] = both.x;
    values[i + 1] = both.y;
  };
  if constexpr (count == 1) {
    values[0] = to_float(from[0]);
  } else if constexpr (count % 8 == 0) {
#pragma unroll
    for (int i = 0; i < count; i += 8) {
      const uint4 eight = *reinterpret_cast<const uint4*>(from + i);
      unpack(i, eight.x);
      unpack(i + 2, eight.y);
      unpack(i + 4, eight.z);
      unpack(i + 6, eight.w);
    }
  } else {
    static_assert(count == 4);
    const uint2 four = *reinterpret_cast<const uint2*>(from);
    unpack(0, four.x);
    unpack(2, four.y);
  }
}

template <int count>
__device__ void store(float* into, const float (&values)[count]) {
  if constexpr (count == 1) {
    into[0] = values[0];
  } else {
    static_assert(count % 4 == 0);
#pragma unroll
    for (int i = 0; i < count; i += 4) {
      *reinterpret_cast<float4*>(into + i) = make_float4(values[i], values[i + 1], values[i + 2], values[i + 3]);
    }
  }
}

template <int count>
__device__ void store(bf16* into, const float (&values)[count]) {
  const auto pack = [&](int i) { return pack_pair(values[i], values[i + 1]); };
  if constexpr (count == 1) {
    into[0] = from_float<bf16>(values[0]);
  } else if constexpr (count % 8 == 0) {
#pragma unroll
    for (int i = 0; i < count; i += 8) {
      *reinterpret_cast<uint4*>(into + i) = make_uint4(pack(i), pack(i + 2), pack(i + 4), pack(i + 6));
    }
  } else {
    static_assert(count == 4);
    *reinterpret_cast<uint2*>(into) = make_uint2(pack(0), pack(2));
  }
}

}  // namespace skrull
