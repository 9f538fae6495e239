#pragma once
// Calls of the CUDA runtime that say what failed, where, and CUDA's own text.

#include <cuda_runtime_api.h>

#include <string>

namespace skrull {

/// "cudaGetErrorString (cudaErrorName, code 46)", and what to do about it where that is known.
std::string explain_cuda_error(cudaError_t code);

/// Throws RunFailure when `code` is an error: the call, its file and line, and explain_cuda_error(). Clears the
/// runtime's memory of the error, so that the next call is not blamed for it.
void check_cuda(cudaError_t code, const char* call, const char* file, int line);

}  // namespace skrull

/// SKRULL_CUDA_CHECK(cudaEventRecord(event, stream));
#define SKRULL_CUDA_CHECK(call) ::skrull::check_cuda((call), #call, __FILE__, __LINE__)
