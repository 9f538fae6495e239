#include <dlfcn.h>
#include <spdlog/fmt/fmt.h>

#include "comm/nccl_communicator.h"
#include "device/cuda_machine.h"
#include "ops/cudnn_attention.h"
#include "skrull/device/machine_part.h"

namespace skrull {
namespace {

MachinePart driver_part(const CudaMachine& machine) {
  MachinePart part{"NVIDIA driver", PartState::ok, "", ""};
  if (machine.driver_version > 0) part.found = "for CUDA " + format_cuda_version(machine.driver_version);
  if (machine.problem.empty()) return part;
  part.state = machine.driver_version > 0 ? PartState::broken : PartState::missing;
  part.found = machine.problem;
  part.advice = "to compute on a GPU, mend this; device=cpu needs none";
  return part;
}

MachinePart gpu_part(const CudaGpu& gpu) {
  return {fmt::format("GPU {}", gpu.index), PartState::ok,
          fmt::format("{}, compute capability {}.{}, {} multiprocessors, {}", gpu.name, gpu.major, gpu.minor,
                      gpu.multiprocessors, gpu.bus_id),
          ""};
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
  parts.push_back(nccl_part());
  parts.push_back(cudnn_part());
  return parts;
}

}  // namespace skrull
