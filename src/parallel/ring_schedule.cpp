#include "skrull/parallel/ring_schedule.h"

#include <algorithm>

#include "skrull/core/error.h"
#include "skrull/schedule/zigzag.h"

namespace skrull {
namespace {

int ranks_of(const Ring& ring) {
  return static_cast<int>(ring.ranks.size());
}

int rank_at(const Ring& ring, int steps) {
  const int size = ranks_of(ring);
  return ring.ranks[static_cast<std::size_t>((ring.position + steps + size) % size)];
}

void add_transfer(std::vector<RowTransfer>& transfers, int peer, std::int64_t begin, std::int64_t rows) {
  if (rows > 0) transfers.push_back({peer, begin, rows});
}

void add_segment(RingRound& round, const AttentionSegment& segment) {
  round.segments.push_back(segment);
  if (!round.queries.empty() && round.queries.back().begin + round.queries.back().count == segment.q_begin) {
    round.queries.back().count += segment.q_len;
  } else {
    round.queries.push_back({segment.q_begin, segment.q_len});
  }
}

/// Where the rows of a ring lie on this rank.
struct RingPlace {
  std::int64_t begin = 0;       ///< of its shards, counted from the first ring row
  std::int64_t rows = 0;        ///< of its shards
  std::int64_t last_begin = 0;  ///< what it got last, and sends on: its shards, then regions of the arrivals
  std::int64_t last_rows = 0;
};

RingPlace add_own_shards(RingSchedule& schedule, const Ring& ring) {
  const int size = ranks_of(ring);
  require(size >= 2 && ring.position >= 0 && ring.position < size, "position {} of a ring of {}", ring.position, size);
  const std::int64_t begin = schedule.ring_rows;
  for (const PackedShard& shard : ring.shards) {
    const std::int64_t row = schedule.local_rows + schedule.ring_rows;
    const std::int64_t length = zigzag_shard_length(shard.sequence_length, size, ring.position);
    require(shard.begin == row && shard.length() == length,
            "the shard of sample {} is at row {} with {} tokens, expected {} at row {}", shard.sample, shard.begin,
            shard.length(), length, row);
    const auto segment =
        hop_segment(shard.sequence_length, size, ring.position, 0, schedule.ring_rows, schedule.ring_rows);
    if (segment) schedule.own_shards.push_back(*segment);
    schedule.ring_rows += length;
  }
  const std::int64_t rows = schedule.ring_rows - begin;
  return {begin, rows, begin, rows};
}

/// Hop `hop` of one ring.
void add_hop(RingSchedule& schedule, RingRound& round, const Ring& ring, int hop, RingPlace& place) {
  const int size = ranks_of(ring);
  const int source = ring_source(size, ring.position, hop);
  const std::int64_t arrived = schedule.arrival_rows;
  const auto first_segment = static_cast<std::int64_t>(round.segments.size());
  std::int64_t q_row = place.begin;
  for (const PackedShard& shard : ring.shards) {
    const auto segment = hop_segment(shard.sequence_length, size, ring.position, hop, q_row, schedule.arrival_rows);
    if (segment) add_segment(round, *segment);
    q_row += shard.length();
    schedule.arrival_rows += zigzag_shard_length(shard.sequence_length, size, source);
  }
  const std::int64_t rows = schedule.arrival_rows - arrived;
  add_transfer(round.key_value_sends, rank_at(ring, 1), place.last_begin, place.last_rows);
  add_transfer(round.key_value_receives, rank_at(ring, -1), arrived, rows);
  place.last_begin = arrived;
  place.last_rows = rows;
  round.hops.push_back({{first_segment, static_cast<std::int64_t>(round.segments.size()) - first_segment},
                        {arrived, rows},
                        {place.begin, place.rows},
                        rank_at(ring, -hop),
                        rank_at(ring, hop)});
}

}  // namespace

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

std::vector<AttentionSegment> local_segments(const MicroBatch& batch) {
  std::vector<AttentionSegment> segments;
  std::int64_t rows = 0;
  for (const PackedSequence& sequence : batch.local) {
    require(sequence.begin == rows && sequence.length >= 0,
            "sequence of sample {} is at row {} with {} tokens, expected it to start at row {}", sequence.sample,
            sequence.begin, sequence.length, rows);
    if (sequence.length > 0)
      segments.push_back({sequence.begin, sequence.length, sequence.begin, sequence.length, true});
    rows += sequence.length;
  }
  return segments;
}

RingSchedule schedule_rings(const MicroBatch& batch) {
  RingSchedule schedule;
  schedule.local = local_segments(batch);
  for (const AttentionSegment& segment : schedule.local) schedule.local_rows += segment.q_len;
  std::vector<RingPlace> places;
  int largest_ring = 1;
  for (const Ring& ring : batch.rings) {
    places.push_back(add_own_shards(schedule, ring));
    largest_ring = std::max(largest_ring, ranks_of(ring));
  }
  require(schedule.local_rows + schedule.ring_rows == batch.tokens(),
          "sequences and shards hold {} + {} tokens, the micro-batch {}", schedule.local_rows, schedule.ring_rows,
          batch.tokens());
  for (int hop = 1; hop < largest_ring; ++hop) {
    RingRound& round = schedule.rounds.emplace_back();
    for (std::size_t i = 0; i < batch.rings.size(); ++i) {
      if (ranks_of(batch.rings[i]) > hop) add_hop(schedule, round, batch.rings[i], hop, places[i]);
    }
  }
  return schedule;
}

}  // namespace skrull
