#pragma once
// A launch on the host: at once on the null stream, later on any other.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

#include "kernel/launch_grid.h"

namespace skrull::simt {

/// Runs `kernel` at once when `stream` is nullptr, and then throws its Error with the launch's position; else queues it
/// there. Nothing happens for an empty grid.
void queue_kernel(cudaStream_t stream, const LaunchGrid& grid, dim3 block, std::size_t shared_bytes,
                  std::function<void()> kernel);

}  // namespace skrull::simt
