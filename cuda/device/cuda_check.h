#pragma once
// Calls of the CUDA runtime that say what failed, where, and CUDA's own text.

#include <cuda_runtime_api.h>

namespace skrull {

/// Throws RunFailure when `code` is an error: the call, its file and line, CUDA's name and text of it. Clears the
/// runtime's memory of the error, so that the next call is not blamed for it.
void check_cuda(cudaError_t code, const char* call, const char* file, int line);

}  // namespace skrull

/// SKRULL_CUDA_CHECK(cudaEventRecord(event, stream));
#define SKRULL_CUDA_CHECK(call) ::skrull::check_cuda((call), #call, __FILE__, __LINE__)
