#pragma once
// What one rank computes at once: sequences packed back to back, no padding. Built from a plan; boundaries never come
// from token ids.

#include <cstdint>
#include <vector>

namespace skrull {

constexpr std::int32_t ignored_label = -100;

/// One whole sequence inside the packed buffer.
struct PackedSequence {
  std::int64_t begin = 0;   ///< first row in the packed buffer
  std::int64_t length = 0;  ///< tokens
  std::int64_t sample = 0;  ///< index into the token store
};

/// All vectors have one entry per token of the packed buffer. May be empty (0 tokens): still joins every collective.
struct MicroBatch {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> positions;  ///< within the whole sequence, from 0
  std::vector<std::int32_t>
      labels;  ///< the NEXT token of the same sequence, or ignored_label: shifted once, on the whole sequence
  std::vector<float> weights;  ///< of the token's loss: 1/N (token mean) or 1/(S n_s) (sequence mean); 0 where ignored
  std::vector<PackedSequence> local;  ///< in buffer order, covering it

  std::int64_t tokens() const { return static_cast<std::int64_t>(ids.size()); }
};

}  // namespace skrull
