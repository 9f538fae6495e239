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

/// Empty where it takes more than the error to know.
std::string_view advice_for(cudaError_t code) {
  switch (code) {
    case cudaErrorDevicesUnavailable:
      return "the GPU is in compute mode exclusive and another process, perhaps another rank, has it: give every rank "
             "a GPU of its own, or nvidia-smi --compute-mode=0";
    case cudaErrorNoKernelImageForDevice:
      return "this program was built for other GPUs: build it again with this one's architecture in "
             "-DSKRULL_CUDA_ARCHITECTURES";
    case cudaErrorECCUncorrectable:
      return "the GPU's memory is faulty: leave this GPU out until it was reset or replaced";
    case cudaErrorSystemNotReady:
      return "the links between the GPUs are not set up: start nvidia-fabricmanager, in the driver's version";
    case cudaErrorSystemDriverMismatch:
      return "the driver was updated and its old kernel module is still loaded: restart the machine";
    default:
      return {};
  }
}

}  // namespace

std::string explain_cuda_error(cudaError_t code) {
  const std::string_view advice = advice_for(code);
  return fmt::format("{} ({}, code {}){}{}", cudaGetErrorString(code), cudaGetErrorName(code), static_cast<int>(code),
                     advice.empty() ? "" : ": ", advice);
}

void check_cuda(cudaError_t code, const char* call, const char* file, int line) {
  if (code == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw_run_failure("{} failed at {}:{}: {}", call, short_path(file), line, explain_cuda_error(code));
}

}  // namespace skrull
