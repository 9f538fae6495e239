#pragma once
// The language that nvcc adds to C++, on the host: qualifiers, built-in variables and functions. What is missing here
// is not used by any kernel yet: add it with CUDA's meaning. __shared__ is missing on purpose: use SHARED_ARRAY.

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernel/call_position.h"
#include "simt/block.h"
#include "simt/warp.h"
#include "vector_types.h"

// The tag makes kernels known by their symbols (launched_kernels()): "norm_kernel[abi:kernel]<float, 64>(..)".
#define __global__ __attribute__((abi_tag("kernel")))
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline
#define __align__(bytes) alignas(bytes)
#define __launch_bounds__(...)

#define threadIdx (::skrull::simt::current_thread->index)
#define blockIdx (::skrull::simt::current_block->index())
#define blockDim (::skrull::simt::current_block->size())
#define gridDim (::skrull::simt::current_block->grid_size())
inline constexpr int warpSize = ::skrull::simt::warp_size;

using std::max;
using std::min;

// ---- threads meet

inline void __syncthreads(::skrull::CallPosition where = ::skrull::CallPosition::current()) {
  ::skrull::simt::synchronize_block(where);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, ::skrull::CallPosition where = ::skrull::CallPosition::current()) {
  ::skrull::simt::synchronize_warp(mask, where);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              ::skrull::CallPosition where = ::skrull::CallPosition::current()) {
  static_assert(std::is_trivially_copyable_v<T>);
  ::skrull::simt::shuffle(::skrull::simt::Shuffle::index, mask, &value, sizeof(T), source, width, where);
  return value;
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 ::skrull::CallPosition where = ::skrull::CallPosition::current()) {
  ::skrull::simt::shuffle(::skrull::simt::Shuffle::up, mask, &value, sizeof(T), static_cast<int>(delta), width, where);
  return value;
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   ::skrull::CallPosition where = ::skrull::CallPosition::current()) {
  ::skrull::simt::shuffle(::skrull::simt::Shuffle::down, mask, &value, sizeof(T), static_cast<int>(delta), width,
                          where);
  return value;
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  ::skrull::CallPosition where = ::skrull::CallPosition::current()) {
  ::skrull::simt::shuffle(::skrull::simt::Shuffle::exclusive_or, mask, &value, sizeof(T), lane_mask, width, where);
  return value;
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              ::skrull::CallPosition where = ::skrull::CallPosition::current()) {
  return ::skrull::simt::ballot(mask, predicate != 0, where);
}
inline int __any_sync(unsigned mask, int predicate, ::skrull::CallPosition where = ::skrull::CallPosition::current()) {
  return ::skrull::simt::ballot(mask, predicate != 0, where) != 0;
}
inline int __all_sync(unsigned mask, int predicate, ::skrull::CallPosition where = ::skrull::CallPosition::current()) {
  return ::skrull::simt::ballot(mask, predicate == 0, where) == 0;
}

// ---- memory

inline void __threadfence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
template <class T>
T __ldg(const T* address) {
  return *address;
}
template <class T>
T __ldcs(const T* address) {
  return *address;
}
template <class T>
void __stcs(T* address, T value) {
  *address = value;
}
template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_add(value, std::memory_order_relaxed);
}
template <class T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  std::atomic_ref<T> target(*address);
  T old = target.load(std::memory_order_relaxed);
  while (old < value && !target.compare_exchange_weak(old, value, std::memory_order_relaxed)) {
  }
  return old;
}
template <class T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  std::atomic_ref<T>(*address).compare_exchange_strong(expected, value, std::memory_order_relaxed);
  return expected;
}

// ---- arithmetic

inline float rsqrtf(float x) {
  return 1.0f / std::sqrt(x);
}
inline float __expf(float x) {
  return std::exp(x);
}
inline float __logf(float x) {
  return std::log(x);
}
inline float __fdividef(float x, float y) {
  return x / y;
}
inline float __frcp_rn(float x) {
  return 1.0f / x;
}
inline float __fsqrt_rn(float x) {
  return std::sqrt(x);
}
inline float __fmul_rn(float x, float y) {
  return x * y;
}
inline float __fadd_rn(float x, float y) {
  return x + y;
}
inline float __fmaf_rn(float x, float y, float z) {
  return std::fma(x, y, z);
}
inline float __saturatef(float x) {
  return x > 0 ? std::min(x, 1.0f) : 0.0f;
}
inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
inline int __ffs(int x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1;
}
inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
