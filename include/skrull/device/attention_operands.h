#pragma once
// Checks of attention's operands, shared by all devices. Wrong shapes, dtypes or segments throw RunFailure with the
// values.

#include <algorithm>
#include <cstdint>
#include <span>

#include "skrull/device/ops.h"

namespace skrull {

/// How many of the segment's keys its query row `query` sees.
inline std::int64_t visible_keys(const AttentionSegment& segment, std::int64_t query) {
  if (!segment.causal) return segment.k_len;
  return std::clamp<std::int64_t>(query + segment.k_len - segment.q_len + 1, 0, segment.k_len);
}

/// Whether every segment is a causal sequence by itself: its keys are those of its query rows, as in local sequences
/// and in the part of a ring's sequence that one rank holds.
inline bool are_whole_sequences(std::span<const AttentionSegment> segments) {
  return std::all_of(segments.begin(), segments.end(), [](const AttentionSegment& segment) {
    return segment.causal && segment.q_begin == segment.k_begin && segment.q_len == segment.k_len;
  });
}

void check_attention_forward(const AttentionForward& attention);
void check_attention_backward(const AttentionBackward& attention);
void check_attention_merge(std::int64_t head_dim, const ConstTensorView& partial_out,
                           const ConstTensorView& partial_lse, const ConstTensorView& out, const ConstTensorView& lse);
void check_attention_delta(std::int64_t head_dim, const ConstTensorView& out, const ConstTensorView& dout,
                           const ConstTensorView& delta);

}  // namespace skrull
