#pragma once
// Which GPUs this process can use, and why it can't use any.

#include <string>
#include <vector>

namespace skrull {

struct CudaGpu {
  int index = 0;  ///< among those this process sees
  std::string name;
  int major = 0;  ///< compute capability
  int minor = 0;
  int multiprocessors = 0;
  double highest_clock = 0;  ///< of the multiprocessors, in Hz
  std::string bus_id;        ///< which piece of hardware of this host it is

  int capability() const { return 10 * major + minor; }
};

struct CudaMachine {
  std::vector<CudaGpu> gpus;
  std::string problem;      ///< why there is none to use, for people; empty when there is
  int driver_version = 0;   ///< of CUDA, as 1000 x major + 10 x minor; 0: no driver
  int runtime_version = 0;  ///< likewise, of the toolkit this program was built with
};

/// Asks the driver once. Never throws, starts nothing on a GPU.
const CudaMachine& cuda_machine();

/// "13.0" of 13000.
std::string format_cuda_version(int version);

}  // namespace skrull
