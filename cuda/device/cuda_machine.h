#pragma once
// Which GPUs this process can use, and why it can't use any.

#include <cstdint>
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
  std::int64_t memory_bytes = 0;
  bool error_correcting = false;  ///< its memory (ECC)
  bool exclusive = false;         ///< compute mode: one process at a time may use it
  std::string bus_id;             ///< which piece of hardware of this host it is
  std::string problem;            ///< why it can't be used, for people; empty when it can

  int capability() const { return 10 * major + minor; }
  /// GPUs that are described alike compute alike: "NVIDIA H100, compute capability 9.0, 132 multiprocessors".
  std::string kind() const;
};

/// How one GPU reaches the memory of another.
struct CudaLink {
  bool access = false;       ///< directly
  int performance_rank = 0;  ///< the driver's; 0 is the fastest
  bool atomics = false;
};
CudaLink link_between(const CudaGpu& source, const CudaGpu& target);

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
