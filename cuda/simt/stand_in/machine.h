#pragma once
// Which machine the stand-in plays, and what goes wrong on it. Tests say so in the environment, before the process
// starts, so that ranks of one run can differ:
//   SKRULL_SIMT_GPUS=2             GPUs that a process sees
//   SKRULL_SIMT_DEVICE_MIB=64      memory of each
//   SKRULL_SIMT_FAULTS="key=value;key=value", where it is not a machine in good order:
//     driver=12020      version of CUDA that the driver is for; 0: there is no driver
//     error=100         what cudaGetDeviceCount() answers
//     name=NVIDIA L4    of the GPUs
//     capability=75     theirs, 10 x major + minor
//     mode=3            their compute mode; 3: one process at a time
//     busy=1            another process has them for itself
//     occupied_mib=60   of their memory, by other processes
//     links=0           no GPU reaches another's memory
//     broken_step=500   the device fails in the step of this number, of all that were queued
//     nccl_error=20     the operation of this number meets a peer that is gone (0: the start)
//     nccl_hang=20      it never ends (0: the start)
//     nccl_exit=20      this process ends there, without a word
//     nccl_stop=20      it stops where it queues that operation (SIGSTOP)

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace skrull::simt {

struct Machine {
  static constexpr std::int64_t never = -1;

  int gpus = 1;
  std::size_t device_bytes = std::size_t{1} << 30;
  int driver_version = 13000;
  cudaError_t error = cudaSuccess;
  std::string gpu_name = "CPU stand-in";
  int capability = 80;
  int compute_mode = 0;
  bool busy = false;
  std::size_t occupied_bytes = 0;
  bool linked = true;
  std::int64_t broken_step = never;
  std::int64_t nccl_error = never;
  std::int64_t nccl_hang = never;
  std::int64_t nccl_exit = never;
  std::int64_t nccl_stop = never;
};

/// Of this process. A key that is not in the list above ends it.
const Machine& machine();

}  // namespace skrull::simt
