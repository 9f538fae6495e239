#include "device/cuda_machine.h"

#include <cuda_runtime_api.h>
#include <spdlog/fmt/fmt.h>

#include <array>

#include "device/cuda_check.h"

namespace skrull {
namespace {

constexpr int oldest_major = 8;  // bfloat16 on tensor cores, cp.async

std::string problem_of(cudaError_t code, const CudaMachine& machine) {
  switch (code) {
    case cudaErrorInsufficientDriver:
      if (machine.driver_version > 0) {
        return fmt::format(
            "the NVIDIA driver is for CUDA {}, this program was built with CUDA {}: install a newer driver, or build "
            "with an older toolkit",
            format_cuda_version(machine.driver_version), format_cuda_version(machine.runtime_version));
      }
      return "no NVIDIA driver is installed (libcuda.so.1 was not found)";
    case cudaErrorStubLibrary:
      return "libcuda.so.1 is the toolkit's stub, not a driver: take its folder out of LD_LIBRARY_PATH";
    case cudaErrorNoDevice:
      return "the NVIDIA driver finds no GPU (is CUDA_VISIBLE_DEVICES empty?)";
    default:
      return "CUDA says: " + explain_cuda_error(code);
  }
}

int attribute_of(int index, cudaDeviceAttr attribute) {
  int value = 0;
  static_cast<void>(cudaDeviceGetAttribute(&value, attribute, index));
  return value;
}

std::string problem_of(const CudaGpu& gpu, int compute_mode) {
  if (gpu.major < oldest_major) {
    return fmt::format(
        "GPU {} is a '{}' of compute capability {}.{}, at least {}.0 is needed: hide it by CUDA_VISIBLE_DEVICES",
        gpu.index, gpu.name, gpu.major, gpu.minor, oldest_major);
  }
  if (compute_mode != cudaComputeModeProhibited) return {};
  return fmt::format("GPU {} is in compute mode prohibited: nvidia-smi --compute-mode=0 lets programs use it",
                     gpu.index);
}

CudaGpu describe(int index) {
  cudaDeviceProp properties{};
  CudaGpu gpu;
  gpu.index = index;
  if (const cudaError_t code = cudaGetDeviceProperties(&properties, index); code != cudaSuccess) {
    gpu.problem = fmt::format("GPU {}: {}", index, explain_cuda_error(code));
    return gpu;
  }
  gpu.name = properties.name;
  gpu.major = properties.major;
  gpu.minor = properties.minor;
  gpu.multiprocessors = properties.multiProcessorCount;
  gpu.highest_clock = 1e3 * attribute_of(index, cudaDevAttrClockRate);
  gpu.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  gpu.error_correcting = attribute_of(index, cudaDevAttrEccEnabled) != 0;
  const int mode = attribute_of(index, cudaDevAttrComputeMode);
  gpu.exclusive = mode == cudaComputeModeExclusive || mode == cudaComputeModeExclusiveProcess;
  gpu.problem = problem_of(gpu, mode);
  std::array<char, 32> bus_id{};
  if (cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), index) == cudaSuccess) {
    gpu.bus_id = bus_id.data();
  }
  return gpu;
}

CudaMachine look() {
  CudaMachine machine;
  if (cudaDriverGetVersion(&machine.driver_version) != cudaSuccess) machine.driver_version = 0;
  if (cudaRuntimeGetVersion(&machine.runtime_version) != cudaSuccess) machine.runtime_version = 0;
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess) {
    machine.problem = problem_of(code, machine);
  } else if (count == 0) {
    machine.problem = problem_of(cudaErrorNoDevice, machine);
  }
  for (int index = 0; code == cudaSuccess && index < count; ++index) {
    machine.gpus.push_back(describe(index));
    if (machine.problem.empty()) machine.problem = machine.gpus.back().problem;
  }
  static_cast<void>(cudaGetLastError());
  return machine;
}

}  // namespace

std::string CudaGpu::kind() const {
  return fmt::format("{}, compute capability {}.{}, {} multiprocessors", name, major, minor, multiprocessors);
}

CudaLink link_between(const CudaGpu& source, const CudaGpu& target) {
  const auto ask = [&](cudaDeviceP2PAttr attribute) {
    int value = 0;
    static_cast<void>(cudaDeviceGetP2PAttribute(&value, attribute, source.index, target.index));
    return value;
  };
  int access = 0;
  static_cast<void>(cudaDeviceCanAccessPeer(&access, source.index, target.index));
  CudaLink link{access != 0, ask(cudaDevP2PAttrPerformanceRank), ask(cudaDevP2PAttrNativeAtomicSupported) != 0};
  static_cast<void>(cudaGetLastError());
  return link;
}

const CudaMachine& cuda_machine() {
  static const CudaMachine machine = look();
  return machine;
}

std::string format_cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace skrull
