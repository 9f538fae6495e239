// In the place of the CUDA device when the build has none.

#include "skrull/core/error.h"
#include "skrull/device/device.h"

namespace skrull {

std::unique_ptr<Device> make_cuda_device(int /*local_rank*/) {
  throw InvalidInput(
      "this build has no CUDA device: it was configured without a CUDA toolkit or with SKRULL_CUDA=OFF. "
      "Use device=cpu, or build again with SKRULL_CUDA=ON.");
}

bool cuda_available() {
  return false;
}

}  // namespace skrull
