#pragma once
// Ring attention as pure functions: which queries meet which keys at which hop, and what travels between whom.
//
// At hop 0 every ring position attends to its own shard; at hop t to the shard of the position t places before it,
// which has travelled t steps along the ring. With zigzag shards (schedule/zigzag.h) each hop is one segment, and all
// positions have about the same work at each.

#include <cstdint>
#include <optional>

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

}  // namespace skrull
