#pragma once
// What one rank computes at once: whole sequences packed back to back, then its shards of sequences that lie on several
// ranks, no padding. Built from a plan; boundaries never come from token ids.

#include <array>
#include <cstdint>
#include <vector>

#include "skrull/schedule/zigzag.h"

namespace skrull {

constexpr std::int32_t ignored_label = -100;

/// One whole sequence inside the packed buffer.
struct PackedSequence {
  std::int64_t begin = 0;   ///< first row in the packed buffer
  std::int64_t length = 0;  ///< tokens
  std::int64_t sample = 0;  ///< index into the token store
};

/// This rank's zigzag shard of a sequence: two chunks of it, back to back in the packed buffer. Either may be empty.
struct PackedShard {
  std::int64_t begin = 0;            ///< first row in the packed buffer
  std::array<TokenRange, 2> chunks;  ///< which tokens of the sequence the rows are
  std::int64_t sequence_length = 0;  ///< tokens of the whole sequence
  std::int64_t sample = 0;           ///< index into the token store

  std::int64_t length() const { return chunks[0].length() + chunks[1].length(); }
};

/// Context-parallel ranks that hold sequences together; this rank is one of them.
struct Ring {
  std::vector<int> ranks;           ///< in ring order
  int position = 0;                 ///< this rank's place in `ranks`
  std::vector<PackedShard> shards;  ///< one per sequence of the ring, in buffer order
};

/// The vectors of tokens have one entry per row of the packed buffer: the local sequences, then the rings. May be empty
/// (0 tokens): still joins every collective.
struct MicroBatch {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> positions;  ///< within the whole sequence, from 0
  std::vector<std::int32_t>
      labels;  ///< the NEXT token of the same sequence, or ignored_label: shifted once, on the whole sequence
  std::vector<float> weights;  ///< of the token's loss: 1/N (token mean) or 1/(S n_s) (sequence mean); 0 where ignored
  std::vector<PackedSequence> local;  ///< in buffer order
  std::vector<Ring> rings;            ///< in buffer order; those that two ranks share have the same order on both

  std::int64_t tokens() const { return static_cast<std::int64_t>(ids.size()); }
};

}  // namespace skrull
