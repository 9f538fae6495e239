#include "skrull/schedule/zigzag.h"

#include <algorithm>

#include "skrull/core/error.h"

namespace skrull {
namespace {

/// One of the 2r chunks: its tokens [begin, end).
struct Chunk {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t length() const { return end - begin; }
  std::int64_t area() const { return causal_area(end) - causal_area(begin); }
};

Chunk zigzag_chunk(std::int64_t length, int ring_size, std::int64_t chunk) {
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

std::int64_t zigzag_shard_length(std::int64_t length, int ring_size, int position) {
  check_shard(length, ring_size, position);
  return zigzag_chunk(length, ring_size, position).length() +
         zigzag_chunk(length, ring_size, 2 * std::int64_t{ring_size} - 1 - position).length();
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
  check_shard(length, ring_size, position);
  return zigzag_chunk(length, ring_size, position).area() +
         zigzag_chunk(length, ring_size, 2 * std::int64_t{ring_size} - 1 - position).area();
}

int smallest_ring(std::int64_t length, int context_parallel, std::int64_t bucket_tokens) {
  // The largest shard is never below length / r: start there; rounding adds at most one token.
  const std::int64_t first = std::max<std::int64_t>(1, (length + bucket_tokens - 1) / bucket_tokens);
  for (std::int64_t ring = first; ring <= context_parallel; ++ring) {
    if (largest_zigzag_shard(length, static_cast<int>(ring)) <= bucket_tokens) return static_cast<int>(ring);
  }
  return 0;
}

}  // namespace skrull
