#include <dlfcn.h>
#include <spdlog/fmt/fmt.h>

#include <string>
#include <utility>
#include <vector>

#include "comm/nccl_communicator.h"
#include "device/cuda_machine.h"
#include "ops/cudnn_attention.h"
#include "skrull/core/text.h"
#include "skrull/device/machine_part.h"

namespace skrull {
namespace {

MachinePart driver_part(const CudaMachine& machine) {
  MachinePart part{"NVIDIA driver", PartState::ok, "", ""};
  if (machine.driver_version > 0) part.found = "for CUDA " + format_cuda_version(machine.driver_version);
  if (machine.problem.empty() || !machine.gpus.empty()) return part;
  part.state = machine.driver_version > 0 ? PartState::broken : PartState::missing;
  part.found = machine.problem;
  part.advice = "to compute on a GPU, mend this; device=cpu needs none";
  return part;
}

MachinePart gpu_part(const CudaGpu& gpu) {
  MachinePart part{fmt::format("GPU {}", gpu.index), PartState::ok, "", ""};
  part.found = fmt::format("{}, {}, ECC {}, {}", gpu.kind(), format_bytes(gpu.memory_bytes),
                           gpu.error_correcting ? "on" : "off", gpu.bus_id);
  if (gpu.exclusive) part.found += ", compute mode exclusive: for one rank at a time";
  if (gpu.problem.empty()) return part;
  part.state = PartState::broken;
  part.found += "; can't be used";
  part.advice = gpu.problem;
  return part;
}

std::string describe(const CudaLink& link) {
  if (!link.access) return "none";
  return fmt::format("{}{}", link.performance_rank, link.atomics ? "+atomics" : "");
}

/// A row of the matrix: how one GPU reaches the memory of GPU 0, 1, ...
MachinePart links_of(const CudaGpu& source, const std::vector<CudaGpu>& gpus) {
  std::string row;
  for (const CudaGpu& target : gpus) {
    row += fmt::format("{:>11}", target.index == source.index ? "-" : describe(link_between(source, target)));
  }
  return {fmt::format("links of GPU {}", source.index), PartState::ok, row, ""};
}

/// Which GPUs reach each other without the host's memory between them.
std::vector<MachinePart> link_parts(const std::vector<CudaGpu>& gpus) {
  if (gpus.size() < 2) return {};
  std::size_t linked = 0;
  for (const CudaGpu& source : gpus) {
    for (const CudaGpu& target : gpus) {
      if (source.index != target.index && link_between(source, target).access) ++linked;
    }
  }
  const std::size_t pairs = gpus.size() * (gpus.size() - 1);
  MachinePart summary{"GPU links", PartState::ok, "", ""};
  summary.found = fmt::format("{} of {} ways from GPU to GPU are direct", linked, pairs);
  if (linked > 0) summary.found += "; the driver's rank of each, 0 is the fastest";
  if (linked < pairs) {
    summary.state = PartState::missing;
    summary.advice =
        "NCCL takes the others through host memory, which is slower. `nvidia-smi topo -p2p r` says why: GPUs under "
        "different processors, a virtual machine, or the IOMMU or PCIe's ACS, which the BIOS turns off. Should NCCL "
        "hang or fail here, NCCL_P2P_DISABLE=1";
  }
  std::vector<MachinePart> parts = {summary};
  if (linked == 0) return parts;
  for (const CudaGpu& gpu : gpus) parts.push_back(links_of(gpu, gpus));
  return parts;
}

MachinePart nccl_part() {
  const std::string version = nccl_version();
  if (!version.empty()) return {"NCCL", PartState::ok, version, ""};
  return {"NCCL", PartState::missing, "this build has none: GPUs exchange through host memory",
          "install libnccl-dev and build again"};
}

/// By asking the library, which the program loads only where it is.
MachinePart cudnn_part() {
  void* library = dlopen("libcudnn.so.9", RTLD_LAZY | RTLD_LOCAL);
  using GetVersion = std::size_t (*)();
  auto* get_version = library == nullptr ? nullptr : reinterpret_cast<GetVersion>(dlsym(library, "cudnnGetVersion"));
  MachinePart part{"cuDNN", PartState::missing,
                   "libcudnn.so.9 was not found: attention runs on the program's own kernels",
                   "install cuDNN 9, or add its folder to LD_LIBRARY_PATH"};
  if (get_version != nullptr) {
    const std::size_t version = get_version();
    part = {"cuDNN", PartState::ok, fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100), ""};
    const std::string problem = cudnn_problem();
    if (!problem.empty()) {
      part.state = PartState::missing;
      part.found += fmt::format(", not used: {}", problem);
      part.advice = "install cuDNN 9.6 or newer and the headers of cudnn-frontend, and build again";
    }
  }
  if (library != nullptr) dlclose(library);
  return part;
}

}  // namespace

std::vector<MachinePart> cuda_parts() {
  const CudaMachine& machine = cuda_machine();
  std::vector<MachinePart> parts = {
      {"CUDA", PartState::ok, "built with CUDA " + format_cuda_version(machine.runtime_version), ""},
      driver_part(machine)};
  for (const CudaGpu& gpu : machine.gpus) parts.push_back(gpu_part(gpu));
  for (MachinePart& part : link_parts(machine.gpus)) parts.push_back(std::move(part));
  parts.push_back(nccl_part());
  parts.push_back(cudnn_part());
  return parts;
}

}  // namespace skrull
