#include "linear_floor.h"

#include <algorithm>
#include <cmath>

namespace skrull {

std::int64_t LinearFloor::table_size(const CostModel& cost, std::int64_t most_tokens) {
  const double constant_from = cost.profile().linear_efficiency.points().back().at;
  return static_cast<std::int64_t>(std::min(static_cast<double>(most_tokens), std::ceil(constant_from))) + 1;
}

LinearFloor::LinearFloor(const CostModel& cost, std::int64_t most_tokens)
    : cost_(cost), most_tokens_(most_tokens), last_slope_(cost.linear_seconds_per_token(most_tokens)) {
  const auto size = static_cast<std::size_t>(table_size(cost, most_tokens));
  seconds_.resize(size);
  slope_.assign(size, std::numeric_limits<double>::infinity());
  // Corners of the lower convex hull of the points to the right, the nearest last.
  std::vector<std::int64_t> corners;
  const auto slope_between = [&](std::int64_t from, std::int64_t to) {
    return (seconds(to) - seconds(from)) / static_cast<double>(to - from);
  };
  double least = cost.linear_seconds(most_tokens);
  if (static_cast<std::int64_t>(size) <= most_tokens) corners.push_back(most_tokens);
  for (std::size_t index = size; index-- > 0;) {
    const auto tokens = static_cast<std::int64_t>(index);
    least = std::min(least, cost.linear_seconds(tokens));
    seconds_[index] = least;
    while (corners.size() > 1 &&
           slope_between(tokens, corners.back()) >= slope_between(corners.back(), corners[corners.size() - 2])) {
      corners.pop_back();
    }
    if (!corners.empty()) slope_[index] = slope_between(tokens, corners.back());
    corners.push_back(tokens);
  }
}

}  // namespace skrull
