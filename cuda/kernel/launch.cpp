#include <cuda_runtime.h>

#include "kernel/launch_grid.h"
#include "skrull/core/error.h"

namespace skrull {

void allow_dynamic_shared_memory(const void* kernel, std::size_t bytes, const LaunchGrid& grid) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error == cudaSuccess) return;
  throw_run_failure("the kernel launched at {}:{} needs {} bytes of shared memory: CUDA answers '{}'", grid.where.file,
                    grid.where.line, bytes, cudaGetErrorString(error));
}

void require_launched(const LaunchGrid& grid, dim3 block, std::size_t shared_bytes) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  throw_run_failure(
      "the launch at {}:{} of {} x {} x {} blocks of {} x {} x {} threads with {} bytes of dynamic shared memory "
      "failed: "
      "CUDA answers '{}'",
      grid.where.file, grid.where.line, grid.size.x, grid.size.y, grid.size.z, block.x, block.y, block.z, shared_bytes,
      cudaGetErrorString(error));
}

}  // namespace skrull
