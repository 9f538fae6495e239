#pragma once
// What a machine has of what the program can use: the lines of `skrull doctor`.

#include <string>
#include <vector>

namespace skrull {

enum class PartState {
  ok,
  missing,  ///< not there, and the program does without it
  broken    ///< there, and not usable as it is
};

struct MachinePart {
  std::string name;  ///< "NCCL"
  PartState state = PartState::ok;
  std::string found;   ///< "2.28.9", or why there is none
  std::string advice;  ///< what to do; empty when ok
};

/// CUDA toolkit and driver, every GPU and how they reach each other, NCCL, cuDNN. One part when the build has no CUDA.
/// Starts nothing on a GPU.
std::vector<MachinePart> cuda_parts();

}  // namespace skrull
