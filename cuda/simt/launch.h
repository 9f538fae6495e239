#pragma once
// A launch on the host: at once on the null stream, later on any other.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <set>

#include "kernel/launch_grid.h"

namespace skrull::simt {

/// Runs `kernel`, a call of `function`, at once when `stream` is nullptr, and then throws its Error with the launch's
/// position; else queues it there. Nothing happens for an empty grid.
void queue_kernel(cudaStream_t stream, const LaunchGrid& grid, dim3 block, std::size_t shared_bytes,
                  const void* function, std::function<void()> kernel);

/// The functions of all kernels that this process has run or queued; each instance of a template is one.
std::set<const void*> launched_kernels();

}  // namespace skrull::simt
