#pragma once
// Packed whole sequences as cuDNN takes them: groups of similar length, tables in device memory of where each starts
// and how long it is, and results that come without gaps.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "skrull/device/ops.h"

namespace skrull::attention {

/// Sequences that one call computes; travels as a kernel's parameter, so nothing waits for a copy of it.
struct SequenceGroup {
  static constexpr int most = 256;  ///< a kernel's parameters hold 4 KiB

  std::int64_t length = 0;  ///< no sequence is longer: a power of two
  int count = 0;
  int slots = 0;            ///< `count`, rounded up to a power of two
  int rows = 0;             ///< of all its sequences
  int begins[most] = {};    ///< in the packed rows
  int gathered[most] = {};  ///< in rows that hold the group's sequences alone, in their order
  int lengths[most] = {};
};

/// Every segment that isn't empty in one group. What a group is computed by depends on `length`, `slots` and, roughly,
/// `rows`, which take few values, and no sequence of it takes less than half the time of a slot of its length, short
/// ones apart. Several sequences share a group only within `most_rows`.
std::vector<SequenceGroup> group_sequences(std::span<const AttentionSegment> segments,
                                           std::int64_t most_rows = std::numeric_limits<std::int64_t>::max());

/// How a tensor's rows lie in memory.
struct SequenceRows {
  std::int64_t stride = 0;  ///< in elements
  bool gathered = false;    ///< only the group's rows, else all packed ones
};

/// Where a group's tables lie: for each of some tensors slots + 1 offsets (int64), then slots lengths (int32).
class SequenceTables {
 public:
  static constexpr int most_tensors = 9;

  /// `memory` is device memory of bytes(group, tensors), 256-byte aligned.
  SequenceTables(void* memory, const SequenceGroup& group, int tensors);

  static std::int64_t bytes(const SequenceGroup& group, int tensors);

  /// offset[i] of a tensor is the first row of sequence i x stride, in elements; behind the last one, its end.
  std::int64_t* offsets(int tensor) const;
  std::int32_t* lengths() const;

  /// Queues the kernel that fills them. `rows`: of each tensor.
  void fill(cudaStream_t stream, const SequenceGroup& group, std::span<const SequenceRows> rows) const;

 private:
  char* memory_;
  std::int64_t offset_bytes_;  ///< of a tensor
  int tensors_;
};

/// Adds the group's rows, bfloat16, without gaps, to where they lie in the packed rows of `target`, fp32.
void add_gathered(cudaStream_t stream, const SequenceGroup& group, ConstTensorView gathered, TensorView target);

}  // namespace skrull::attention
