#pragma once
// Packed whole sequences as cuDNN takes them: groups of similar length, and tables in device memory of where each
// starts and how long it is.

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "skrull/device/ops.h"

namespace skrull::attention {

/// Sequences that one call computes; travels as a kernel's parameter, so nothing waits for a copy of it.
struct SequenceGroup {
  static constexpr int most = 256;  ///< a kernel's parameters hold 4 KiB

  std::int64_t length = 0;  ///< no sequence is longer: a power of two
  int count = 0;
  int slots = 0;  ///< `count`, rounded up to a power of two
  int begins[most] = {};
  int lengths[most] = {};
};

/// Every segment that isn't empty in one group. What a group is computed by depends on `length` and `slots`, which take
/// few values, and no sequence of it takes less than half the time of a slot of its length, short ones apart.
std::vector<SequenceGroup> group_sequences(std::span<const AttentionSegment> segments);

/// Where a group's tables lie: for each of `tensors` tensors slots + 1 offsets (int64), then slots lengths (int32).
class SequenceTables {
 public:
  static constexpr int tensors = 5;

  /// `memory` is device memory of bytes(group), 256-byte aligned.
  SequenceTables(void* memory, const SequenceGroup& group);

  static std::int64_t bytes(const SequenceGroup& group);

  /// offset[i] of a tensor is begin of sequence i x row stride, in elements; behind the last one, its end.
  std::int64_t* offsets(int tensor) const;
  std::int32_t* lengths() const;

  /// Queues the kernel that fills them. `row_strides`: of the tensors.
  void fill(cudaStream_t stream, const SequenceGroup& group,
            const std::array<std::int64_t, tensors>& row_strides) const;

 private:
  char* memory_;
  std::int64_t offset_bytes_;  ///< of a tensor
};

}  // namespace skrull::attention
