#include "device/cuda_check.h"

#include <string_view>

#include "skrull/core/error.h"

namespace skrull {
namespace {

/// From the project's root on, where a compiler was given a longer path.
std::string_view short_path(std::string_view file) {
  const auto folder = file.rfind("/cuda/");
  return folder == std::string_view::npos ? file : file.substr(folder + 1);
}

}  // namespace

void check_cuda(cudaError_t code, const char* call, const char* file, int line) {
  if (code == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw_run_failure("{} failed at {}:{}: {} ({}, code {})", call, short_path(file), line, cudaGetErrorString(code),
                    cudaGetErrorName(code), static_cast<int>(code));
}

}  // namespace skrull
