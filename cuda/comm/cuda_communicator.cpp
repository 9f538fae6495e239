// Which way the ranks' GPUs reach each other.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

#include "comm/nccl_communicator.h"
#include "comm/staged_communicator.h"
#include "device/cuda_device.h"
#include "skrull/comm/device_communicator.h"
#include "skrull/core/error.h"
#include "skrull/core/log.h"

namespace skrull {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string kind_of(const CudaGpu& gpu) {
  return fmt::format("{} (compute capability {}.{})", gpu.name, gpu.major, gpu.minor);
}

void require_one_kind(const std::vector<std::string>& kinds) {
  for (std::size_t rank = 1; rank < kinds.size(); ++rank) {
    if (kinds[rank] == kinds[0]) continue;
    throw_invalid_input(
        "the ranks compute on GPUs of different kinds: rank 0 on a {}, rank {} on a {}. Schedules and memory are "
        "planned "
        "for one kind: choose GPUs of one kind (CUDA_VISIBLE_DEVICES, the batch system's constraints)",
        kinds[0], rank, kinds[rank]);
  }
}

}  // namespace

std::unique_ptr<Communicator> make_cuda_communicator(Device& device, std::unique_ptr<Communicator> host,
                                                     double timeout_seconds) {
  auto& cuda = dynamic_cast<CudaDevice&>(device);
  if (host->size() == 1) return make_self_communicator(device.ops());
  ControlChannel control(*host);
  const std::vector<std::string> kinds = control.gather(kind_of(cuda.gpu()));
  control.run_together([&] { require_one_kind(kinds); });
  const std::string own = fmt::format("{} {}", host_name(), cuda.gpu().bus_id);
  const std::vector<std::string> gpus = control.gather(own);
  cuda.set_ranks_here(static_cast<int>(std::count(gpus.begin(), gpus.end(), own)));
  const bool one_each = std::set<std::string>(gpus.begin(), gpus.end()).size() == gpus.size();
  if (one_each && !nccl_version().empty()) {
    if (host->rank() == 0) log::info("GPUs exchange data by NCCL {}", nccl_version());
    return make_nccl_communicator(cuda, std::move(host), timeout_seconds);
  }
  if (host->rank() == 0) {
    log::info("GPUs exchange data by MPI through host memory: {}",
              one_each ? "this build has no NCCL" : "ranks share a GPU, which NCCL doesn't offer");
  }
  return make_staged_communicator(device, std::move(host));
}

}  // namespace skrull
