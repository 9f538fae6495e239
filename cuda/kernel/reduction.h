#pragma once
// Reductions over a warp and over a block, in an order that is always the same. Every thread gets the result; all
// threads of the warp or block must call.

#include "kernel/kernel.h"

namespace skrull {

inline constexpr int warp_threads = 32;

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

template <class T, class Combine>
__device__ T warp_reduce(T value, Combine combine) {
#pragma unroll
  for (int distance = warp_threads / 2; distance > 0; distance /= 2) {
    value = combine(value, __shfl_xor_sync(0xFFFFFFFFU, value, distance));
  }
  return value;
}

/// One value of each warp of a block, combined.
template <int threads, class T, class Combine>
__device__ T combine_warps(T value, Combine combine) {
  if constexpr (threads == warp_threads) {
    return value;
  } else {
    SHARED_ARRAY(T, parts, threads / warp_threads);
    if (threadIdx.x % warp_threads == 0) parts[threadIdx.x / warp_threads] = value;
    __syncthreads();
    T total = parts[0];
#pragma unroll
    for (int warp = 1; warp < threads / warp_threads; ++warp) total = combine(total, parts[warp]);
    __syncthreads();  // the next call writes `parts`
    return total;
  }
}

template <int threads, class T, class Combine>
__device__ T block_reduce(T value, Combine combine) {
  return combine_warps<threads>(warp_reduce(value, combine), combine);
}

}  // namespace skrull
