#pragma once
// Lower bounds on the linear seconds of a rank that may still get more tokens.

#include <cstdint>
#include <limits>
#include <vector>

#include "skrull/schedule/cost_model.h"

namespace skrull {

/// Neither bound assumes that linear seconds rise with the tokens or that their rate falls: a profile need not hold to
/// it.
class LinearFloor {
 public:
  /// For ranks that never hold more than `most_tokens`. Must not outlive `cost`.
  LinearFloor(const CostModel& cost, std::int64_t most_tokens);

  /// The entries that the tables would have: what building one costs.
  static std::int64_t table_size(const CostModel& cost, std::int64_t most_tokens);

  /// The least linear_seconds of `tokens` or more; where the seconds rise with the tokens, linear_seconds itself.
  double seconds(std::int64_t tokens) const {
    const auto index = static_cast<std::size_t>(tokens);
    return index < seconds_.size() ? seconds_[index] : cost_.linear_seconds(tokens);
  }
  /// The least seconds per token of any addition to `tokens`, up to most_tokens; infinite when there is no room.
  double least_slope(std::int64_t tokens) const {
    const auto index = static_cast<std::size_t>(tokens);
    if (index < slope_.size()) return slope_[index];
    return tokens < most_tokens_ ? last_slope_ : std::numeric_limits<double>::infinity();
  }

 private:
  const CostModel& cost_;
  std::int64_t most_tokens_;
  double last_slope_;
  std::vector<double> seconds_;  ///< of 0, 1, .. tokens, until the seconds grow in proportion
  std::vector<double> slope_;
};

}  // namespace skrull
