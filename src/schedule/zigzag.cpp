#include <algorithm>

#include "skrull/core/error.h"
#include "skrull/schedule/plan.h"

namespace skrull {

std::int64_t zigzag_shard_length(std::int64_t length, int ring_size, int position) {
  require(length >= 0 && ring_size >= 1 && position >= 0 && position < ring_size,
          "no zigzag shard: {} tokens, ring of {}, position {}", length, ring_size, position);
  const std::int64_t chunks = 2 * std::int64_t{ring_size};
  const std::int64_t longer_chunks = length % chunks;
  const auto chunk_length = [&](std::int64_t chunk) { return length / chunks + (chunk < longer_chunks ? 1 : 0); };
  return chunk_length(position) + chunk_length(chunks - 1 - position);
}

std::int64_t largest_zigzag_shard(std::int64_t length, int ring_size) {
  // Up to r longer chunks lie on as many first positions; the further ones double up from the last position on.
  return std::max(zigzag_shard_length(length, ring_size, 0), zigzag_shard_length(length, ring_size, ring_size - 1));
}

}  // namespace skrull
