#pragma once
// The GPU's side of kernel.h, documented there.

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "kernel/launch_grid.h"
#include "kernel/ptx.h"

#define SHARED_ARRAY(T, name, count) __shared__ __align__(16) T name[count]
#define DYNAMIC_SHARED_ARRAY(T, name)                                    \
  extern __shared__ __align__(256) unsigned char dynamic_shared_bytes[]; \
  T* const name = reinterpret_cast<T*>(dynamic_shared_bytes)

namespace skrull {

/// Lets `kernel` have so much dynamic shared memory; more than 48 KiB have to be asked for.
void allow_dynamic_shared_memory(const void* kernel, std::size_t bytes, const LaunchGrid& grid);
/// Throws RunFailure with the launch's position when the last launch was refused.
void require_launched(const LaunchGrid& grid, dim3 block, std::size_t shared_bytes);

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), LaunchGrid grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            Arguments&&... arguments) {
  if (grid.empty()) return;
  constexpr std::size_t default_limit = 48 << 10;
  if (shared_bytes > default_limit) {
    allow_dynamic_shared_memory(reinterpret_cast<const void*>(kernel), shared_bytes, grid);
  }
  kernel<<<grid.size, block, shared_bytes, stream>>>(static_cast<Parameters>(std::forward<Arguments>(arguments))...);
  require_launched(grid, block, shared_bytes);
}

}  // namespace skrull
