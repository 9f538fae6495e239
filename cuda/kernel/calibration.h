#pragma once
// What kernels rely on, checked on the device at hand: GPUs and the host layer must do the same.

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

namespace skrull {

/// Runs little kernels with each of the instructions of kernel.h, and shuffles and votes, and compares with plain
/// definitions on the host. Returns a line for everything that differs; none when all is as it should be. Throws
/// RunFailure when CUDA fails.
std::vector<std::string> check_instructions(cudaStream_t stream);

}  // namespace skrull
