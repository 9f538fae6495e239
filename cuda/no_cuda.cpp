// In the place of the CUDA device when the build has none.

#include "skrull/core/error.h"
#include "skrull/device/device.h"

namespace skrull {

std::string cuda_problem() {
  return "this build has no CUDA device: it was configured without a CUDA toolkit or with SKRULL_CUDA=OFF";
}

std::unique_ptr<Device> make_cuda_device(int /*local_rank*/) {
  throw_invalid_input("{}. Use device=cpu, or build again with SKRULL_CUDA=ON.", cuda_problem());
}

}  // namespace skrull
