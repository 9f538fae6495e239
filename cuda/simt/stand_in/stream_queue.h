#pragma once
// What the stand-in's other parts put on its streams.

#include <cuda_runtime_api.h>

#include <functional>

namespace skrull::simt {

/// Runs `work` later, in the order of `stream`. What it throws becomes the stream's error.
void queue_work(cudaStream_t stream, std::function<void()> work);

}  // namespace skrull::simt
