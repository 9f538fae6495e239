#include "skrull/schedule/zigzag.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "skrull/core/error.h"

namespace skrull {
namespace {

/// Query-key pairs of causal attention whose query lies in the chunk.
std::int64_t area_of(const TokenRange& chunk) {
  return causal_area(chunk.end) - causal_area(chunk.begin);
}

/// One of the 2r chunks.
TokenRange zigzag_chunk(std::int64_t length, int ring_size, std::int64_t chunk) {
  const std::int64_t chunks = 2 * std::int64_t{ring_size};
  const std::int64_t size = length / chunks;
  const std::int64_t longer_chunks = length % chunks;
  const std::int64_t begin = chunk * size + std::min(chunk, longer_chunks);
  return {begin, begin + size + (chunk < longer_chunks ? 1 : 0)};
}

void check_shard(std::int64_t length, int ring_size, int position) {
  require(length >= 0 && ring_size >= 1 && position >= 0 && position < ring_size,
          "no zigzag shard: {} tokens, ring of {}, position {}", length, ring_size, position);
}

}  // namespace

std::array<TokenRange, 2> zigzag_shard(std::int64_t length, int ring_size, int position) {
  check_shard(length, ring_size, position);
  return {zigzag_chunk(length, ring_size, position),
          zigzag_chunk(length, ring_size, 2 * std::int64_t{ring_size} - 1 - position)};
}

std::int64_t zigzag_shard_length(std::int64_t length, int ring_size, int position) {
  const auto [first, second] = zigzag_shard(length, ring_size, position);
  return first.length() + second.length();
}

void zigzag_shard_lengths(std::int64_t length, std::span<std::int64_t> per_position) {
  const auto ring_size = static_cast<std::int64_t>(per_position.size());
  require(length >= 0 && ring_size >= 1, "no zigzag shards: {} tokens, ring of {}", length, ring_size);
  const std::int64_t both_chunks = 2 * (length / (2 * ring_size));
  const std::int64_t longer_chunks = length % (2 * ring_size);
  for (std::int64_t i = 0; i < ring_size; ++i) {
    per_position[static_cast<std::size_t>(i)] =
        both_chunks + (i < longer_chunks ? 1 : 0) + (2 * ring_size - 1 - i < longer_chunks ? 1 : 0);
  }
}

std::int64_t largest_zigzag_shard(std::int64_t length, int ring_size) {
  // Up to r longer chunks lie on as many first positions; the further ones double up from the last position on.
  return std::max(zigzag_shard_length(length, ring_size, 0), zigzag_shard_length(length, ring_size, ring_size - 1));
}

std::int64_t causal_area(std::int64_t length) {
  return length % 2 == 0 ? length / 2 * (length + 1) : (length + 1) / 2 * length;
}

std::int64_t zigzag_causal_area(std::int64_t length, int ring_size, int position) {
  const auto [first, second] = zigzag_shard(length, ring_size, position);
  return area_of(first) + area_of(second);
}

std::array<ShardGroup, 2> zigzag_groups(std::int64_t length, int ring_size) {
  check_shard(length, ring_size, 0);
  const std::int64_t chunks = 2 * std::int64_t{ring_size};
  const std::int64_t longer = length % chunks;
  // Up to r longer chunks: one each on the first positions. More: two each on the last positions.
  const auto split = static_cast<int>(longer <= ring_size ? longer : chunks - longer);
  const auto group = [&](int first, int end) {
    ShardGroup shards{first, end, 0, 0};
    if (first == end) return shards;
    shards.tokens = zigzag_shard_length(length, ring_size, first);
    // The positions' first chunks lie side by side, and so do their second ones.
    for (const auto& [from, to] :
         {std::pair{std::int64_t{first}, end - std::int64_t{1}}, std::pair{chunks - end, chunks - 1 - first}}) {
      const std::int64_t begin = zigzag_chunk(length, ring_size, from).begin;
      shards.causal_area += causal_area(zigzag_chunk(length, ring_size, to).end) - causal_area(begin);
    }
    return shards;
  };
  return {group(0, split), group(split, ring_size)};
}

int smallest_ring(std::int64_t length, int context_parallel, std::int64_t bucket_tokens) {
  // The largest shard is never below length / r: start there; rounding adds at most one token.
  const std::int64_t first = std::max<std::int64_t>(1, (length + bucket_tokens - 1) / bucket_tokens);
  for (std::int64_t ring = first; ring <= context_parallel; ++ring) {
    if (largest_zigzag_shard(length, static_cast<int>(ring)) <= bucket_tokens) return static_cast<int>(ring);
  }
  return 0;
}

int smallest_ring(std::int64_t length, std::int64_t bucket_tokens) {
  return smallest_ring(length, std::numeric_limits<int>::max(), bucket_tokens);
}

}  // namespace skrull
