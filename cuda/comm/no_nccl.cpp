// In the place of nccl_communicator.cpp when the build has no NCCL.

#include "comm/nccl_communicator.h"
#include "skrull/core/error.h"

namespace skrull {

std::string nccl_version() {
  return {};
}

std::unique_ptr<Communicator> make_nccl_communicator(CudaDevice& /*device*/, std::unique_ptr<Communicator> /*host*/,
                                                     double /*timeout_seconds*/) {
  throw_run_failure("this build has no NCCL");
}

}  // namespace skrull
