// Which way the ranks' GPUs reach each other.

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "comm/nccl_communicator.h"
#include "comm/staged_communicator.h"
#include "device/cuda_device.h"
#include "skrull/comm/device_communicator.h"
#include "skrull/core/error.h"
#include "skrull/core/log.h"
#include "skrull/core/process.h"
#include "skrull/core/text.h"

namespace skrull {
namespace {

/// Ranks whose GPUs are described alike, together: "ranks 0 to 7: ..." on a line.
std::string list_of(const std::vector<std::string>& gpus) {
  std::string lines;
  for (std::size_t first = 0, next = 0; first < gpus.size(); first = next) {
    while (next < gpus.size() && gpus[next] == gpus[first]) ++next;
    const std::string ranks =
        next - first == 1 ? fmt::format("rank {}", first) : fmt::format("ranks {} to {}", first, next - 1);
    lines += fmt::format("\n  {}: {}", ranks, gpus[first]);
  }
  return lines;
}

/// Refuses GPUs that differ by more than a little memory, which the driver may keep back on one and not on another.
void require_one_kind(const CudaGpu& gpu, ControlChannel& control) {
  constexpr double least_part = 0.95;
  const std::vector<std::string> kinds = control.gather(gpu.kind());
  const std::int64_t most = control.max(gpu.memory_bytes);
  const std::int64_t least = -control.max(-gpu.memory_bytes);
  const bool same_kind = std::set<std::string>(kinds.begin(), kinds.end()).size() == 1;
  if (same_kind && static_cast<double>(least) >= least_part * static_cast<double>(most)) return;
  const std::vector<std::string> gpus =
      control.gather(fmt::format("{}, {} on {}", gpu.kind(), format_bytes(gpu.memory_bytes), host_name()));
  control.run_together([&] {
    throw_invalid_input(
        "the ranks compute on GPUs of different kinds, but schedules and memory are planned for one. Choose GPUs "
        "of one kind (CUDA_VISIBLE_DEVICES, the batch system's constraints):{}",
        list_of(gpus));
  });
}

}  // namespace

std::unique_ptr<Communicator> make_cuda_communicator(Device& device, std::unique_ptr<Communicator> host,
                                                     double timeout_seconds) {
  auto& cuda = dynamic_cast<CudaDevice&>(device);
  if (host->size() == 1) return make_self_communicator(device.ops());
  ControlChannel control(*host);
  require_one_kind(cuda.gpu(), control);
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
