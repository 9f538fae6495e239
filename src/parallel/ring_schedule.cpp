#include "skrull/parallel/ring_schedule.h"

#include "skrull/core/error.h"
#include "skrull/schedule/zigzag.h"

namespace skrull {

int ring_source(int ring_size, int position, int hop) {
  require(ring_size >= 1 && position >= 0 && position < ring_size && hop >= 0 && hop < ring_size,
          "position {} at hop {} of a ring of {}", position, hop, ring_size);
  return (position - hop + ring_size) % ring_size;
}

std::optional<AttentionSegment> hop_segment(std::int64_t length, int ring_size, int position, int hop,
                                            std::int64_t q_begin, std::int64_t k_begin) {
  const int source = ring_source(ring_size, position, hop);
  const auto queries = zigzag_shard(length, ring_size, position);
  const auto keys = zigzag_shard(length, ring_size, source);
  const std::int64_t all_queries = queries[0].length() + queries[1].length();
  const std::int64_t all_keys = keys[0].length() + keys[1].length();
  AttentionSegment segment;
  if (source == position) {
    segment = {q_begin, all_queries, k_begin, all_keys, true};
  } else if (source < position) {
    segment = {q_begin, all_queries, k_begin, keys[0].length(), false};
  } else {
    segment = {q_begin + queries[0].length(), queries[1].length(), k_begin, all_keys, false};
  }
  if (segment.q_len == 0 || segment.k_len == 0) return std::nullopt;
  return segment;
}

}  // namespace skrull
