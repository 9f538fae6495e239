#pragma once
// What one sequence costs on one rank or on a ring, computed once per length and ring size.

#include <cstdint>
#include <memory>
#include <vector>

#include "skrull/schedule/cost_model.h"

namespace skrull {

/// The shards of one length on a ring (of 1: whole).
struct ShardCosts {
  std::vector<std::int64_t> tokens;       ///< per position
  std::vector<double> attention_forward;  ///< per position, seconds of one layer
  double hop_bytes = 0.0;
  std::int64_t most_tokens = 0;
};

/// Caches the shards of the request's sequences. Not for use by several threads at once.
class PlacementCosts {
 public:
  /// Must not outlive either.
  PlacementCosts(const ScheduleRequest& request, const CostModel& cost);

  const CostModel& cost() const { return cost_; }
  const ScheduleRequest& request() const { return request_; }
  std::int64_t length(int sequence) const { return request_.lengths[static_cast<std::size_t>(sequence)]; }
  /// Sequences of equal length have the same class.
  int length_class(int sequence) const { return class_of_sequence_[static_cast<std::size_t>(sequence)]; }

  /// The reference stays good as long as this object.
  const ShardCosts& shards(int sequence, int ring_size) const {
    const auto& known = shards_[static_cast<std::size_t>(length_class(sequence))];
    const auto size = static_cast<std::size_t>(ring_size);
    return size < known.size() && known[size] ? *known[size] : compute_shards(sequence, ring_size);
  }
  /// Forward attention seconds of one layer of the whole sequence.
  double local_forward(int sequence) const { return shards(sequence, 1).attention_forward.front(); }
  /// The smallest ring that holds the sequence within bucket_tokens.
  int least_ring(int sequence) const { return least_ring_[static_cast<std::size_t>(length_class(sequence))]; }

 private:
  const ShardCosts& compute_shards(int sequence, int ring_size) const;

  const ScheduleRequest& request_;
  const CostModel& cost_;
  std::vector<int> class_of_sequence_;
  std::vector<std::int64_t> class_length_;
  std::vector<int> least_ring_;                                                 ///< per class
  mutable std::vector<std::vector<std::unique_ptr<const ShardCosts>>> shards_;  ///< [class][ring size]; null: not yet
};

}  // namespace skrull
