// In the place of the CUDA device when the build has none.

#include "skrull/comm/device_communicator.h"
#include "skrull/core/error.h"
#include "skrull/device/device.h"
#include "skrull/device/machine_part.h"

namespace skrull {

bool built_with_cuda() {
  return false;
}

std::string cuda_problem() {
  return "this build has no CUDA device: it was configured without a CUDA toolkit or with SKRULL_CUDA=OFF";
}

std::vector<MachinePart> cuda_parts() {
  return {{"CUDA", PartState::missing, cuda_problem(),
           "to compute on GPUs, install a CUDA toolkit and build again with SKRULL_CUDA=ON; device=cpu needs none"}};
}

std::unique_ptr<Device> make_cuda_device(int /*local_rank*/, const AttentionChoice& /*attention*/) {
  throw_invalid_input("{}. Use device=cpu, or build again with SKRULL_CUDA=ON.", cuda_problem());
}

std::unique_ptr<Communicator> make_cuda_communicator(Device& /*device*/, std::unique_ptr<Communicator> /*host*/,
                                                     double /*timeout_seconds*/) {
  throw_run_failure("{}", cuda_problem());
}

}  // namespace skrull
