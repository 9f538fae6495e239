#pragma once
// Zigzag sharding of one sequence over a ring: 2r chunks whose sizes differ by at most one (the first length mod 2r are
// one longer); ring position i holds chunks i and 2r-1-i, so that every position has about the same causal work.

#include <array>
#include <cstdint>
#include <span>

namespace skrull {

/// Tokens [begin, end) of a sequence.
struct TokenRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t length() const { return end - begin; }
};

/// The two chunks of ring position `position`, in the order of the sequence: chunks `position` and
/// 2 ring_size - 1 - position of a sequence of `length` >= 0 tokens. Either may be empty.
std::array<TokenRange, 2> zigzag_shard(std::int64_t length, int ring_size, int position);

/// Tokens of ring position `position` of a sequence of `length` >= 0 tokens. A ring of 1 holds it whole.
std::int64_t zigzag_shard_length(std::int64_t length, int ring_size, int position);

/// The same of every position at once; the ring has as many positions as `per_position`, at least 1.
void zigzag_shard_lengths(std::int64_t length, std::span<std::int64_t> per_position);

/// The most tokens that any position of the ring holds.
std::int64_t largest_zigzag_shard(std::int64_t length, int ring_size);

/// Query-key pairs of causal attention over `length` tokens: length (length + 1) / 2.
std::int64_t causal_area(std::int64_t length);

/// Query-key pairs whose query lies on ring position `position`; over all positions they sum to causal_area(length).
std::int64_t zigzag_causal_area(std::int64_t length, int ring_size, int position);

/// Ring positions [first, end) with equal shards; `causal_area` is their sum.
struct ShardGroup {
  int first = 0;
  int end = 0;
  std::int64_t tokens = 0;  ///< of each
  std::int64_t causal_area = 0;
};

/// All positions of a ring in at most two groups of equal shards (the second may be empty). Within a group the causal
/// area changes linearly with the position.
std::array<ShardGroup, 2> zigzag_groups(std::int64_t length, int ring_size);

/// The smallest ring (1: whole on one rank) of at most `context_parallel` ranks on which no rank holds more than
/// `bucket_tokens` of a sequence of `length` tokens; 0 when there is none.
int smallest_ring(std::int64_t length, int context_parallel, std::int64_t bucket_tokens);

/// The same of any number of ranks; 0 when no ring that an int can count will do.
int smallest_ring(std::int64_t length, std::int64_t bucket_tokens);

}  // namespace skrull
