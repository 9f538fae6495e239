#pragma once
// What the two halves of the stand-in's runtime share.

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>

#include "simt/stand_in/executor.h"

namespace skrull::simt {

/// What this process has asked of the runtime, for tests of what a step must not do.
struct HostCalls {
  std::atomic<std::int64_t> allocations{0};  ///< calls that allocate or free, on the device or pinned
  /// Calls that wait for the device. To ask for the same event or stream again, after "not ready" and with nothing
  /// queued in between, is to wait for it.
  std::atomic<std::int64_t> waits{0};
};
HostCalls& host_calls();

/// Remembers an error for cudaGetLastError(), and returns it.
cudaError_t answer(cudaError_t error);

/// Answers a call that does nothing but wait.
cudaError_t wait_on_device(const std::function<bool()>& done);

/// Queues a step; nullptr is the default stream. Answers the device's error if there is one, and cudaErrorNotPermitted
/// in host tasks.
cudaError_t queue_step(cudaStream_t stream, Step step);

/// A step that is done in one go. What it throws becomes the device's error.
Step whole_step(std::function<void()> work, bool uses_device_memory = true);

}  // namespace skrull::simt
