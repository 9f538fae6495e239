#pragma once
// Ring attention as pure functions: which queries meet which keys at which hop, and what travels between whom.
//
// At hop 0 every ring position attends to its own shard; at hop t to the shard of the position t places before it,
// which has travelled t steps along the ring. With zigzag shards (schedule/zigzag.h) each hop is one segment, and all
// positions have about the same work at each.

#include <cstdint>
#include <optional>
#include <vector>

#include "skrull/data/micro_batch.h"
#include "skrull/device/ops.h"

namespace skrull {

/// The position whose shard is at `position` at hop `hop`: (position - hop) mod ring_size.
int ring_source(int ring_size, int position, int hop);

/// What ring position `position` computes at hop `hop` for a sequence of `length` tokens; nothing where no query sees a
/// key. Its shard lies at row `q_begin` of the queries, the source's shard at row `k_begin` of the keys, each as its
/// two chunks back to back.
///
/// - own shard: causal, within and between the two chunks;
/// - source earlier in the ring: all queries see the first chunk of the source, whole, and nothing of its second;
/// - source later in the ring: the second query chunk sees both chunks of the source, whole; the first sees nothing.
std::optional<AttentionSegment> hop_segment(std::int64_t length, int ring_size, int position, int hop,
                                            std::int64_t q_begin, std::int64_t k_begin);

/// Rows of a buffer that go to, or come from, a context-parallel rank. Never empty.
struct RowTransfer {
  int peer = 0;
  std::int64_t begin = 0;
  std::int64_t rows = 0;
};

/// Rows [begin, begin + count).
struct RowRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// Hop t of one ring: what arrives from position - t, and what position + t computes with.
struct RingHop {
  RowRange segments;  ///< which of the round's segments are this ring's
  RowRange arrived;   ///< rows of the arrivals
  RowRange own;       ///< the rank's own shards of this ring, counted from the first ring row
  int source = 0;     ///< context-parallel rank whose keys and values arrived
  int reader = 0;     ///< context-parallel rank that got the own shards at this hop
};

/// Hop t of all rings of a micro-batch that have more than t ranks. Queries are counted from the first ring row, keys
/// in the buffer of arrivals: a region per hop and ring.
struct RingRound {
  std::vector<AttentionSegment> segments;
  std::vector<RowRange> queries;  ///< rows of the segments, neighbours joined
  /// Keys and values: from the rank's own shards in the first round, later from the arrivals of the round before.
  std::vector<RowTransfer> key_value_sends;
  std::vector<RowTransfer> key_value_receives;  ///< into the arrivals
  std::vector<RingHop> hops;                    ///< a ring each, in the order of the micro-batch
};

/// One causal segment per whole sequence of the micro-batch that has tokens; they lie at its first rows. Throws
/// RunFailure when they do not follow each other from row 0 on.
std::vector<AttentionSegment> local_segments(const MicroBatch& batch);

/// One rank's part in the attention of a micro-batch.
///
/// All rings go through their hops together, in rounds. Every rank takes the rounds in the same order, and the rings of
/// a round in the order of the micro-batch, which is that of the plan: so between any two ranks sends and receives
/// match, and whoever is in the earliest unfinished round can finish it. No plan can make ranks wait in a circle.
struct RingSchedule {
  std::int64_t local_rows = 0;
  std::int64_t ring_rows = 0;                ///< after the local ones
  std::vector<AttentionSegment> local;       ///< whole sequences, in packed rows
  std::vector<AttentionSegment> own_shards;  ///< hop 0, counted from the first ring row
  std::vector<RingRound> rounds;             ///< hops 1, 2, ...
  std::int64_t arrival_rows = 0;
};

/// Throws RunFailure when sequences and shards do not cover the packed buffer in order, or a ring is not one.
RingSchedule schedule_rings(const MicroBatch& batch);

}  // namespace skrull
