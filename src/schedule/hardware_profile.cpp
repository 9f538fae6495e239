#include "skrull/schedule/hardware_profile.h"

#include <algorithm>
#include <cmath>

#include "skrull/core/error.h"

namespace skrull {

LogLogCurve::LogLogCurve(std::vector<Point> points, BelowFirst below) : points_(std::move(points)), below_(below) {
  require(!points_.empty(), "a curve needs at least one point");
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const Point& point = points_[i];
    require(point.at > 0.0 && point.value > 0.0 && (i == 0 || points_[i - 1].at < point.at),
            "curve: point {} is ({}, {}), expected positive numbers and ascending positions", i, point.at, point.value);
    log_at_.push_back(std::log(point.at));
    log_value_.push_back(std::log(point.value));
  }
}

double LogLogCurve::operator()(double at) const {
  if (at >= points_.back().at) return points_.back().value;
  const double x = std::log(at);
  if (x <= log_at_.front()) {
    return below_ == BelowFirst::constant ? points_.front().value : std::exp(log_value_.front() + x - log_at_.front());
  }
  const auto above = std::lower_bound(log_at_.begin(), log_at_.end(), x);
  const auto k = std::min(static_cast<std::size_t>(above - log_at_.begin()), log_at_.size() - 1);
  const double share = (x - log_at_[k - 1]) / (log_at_[k] - log_at_[k - 1]);
  return std::exp(log_value_[k - 1] + share * (log_value_[k] - log_value_[k - 1]));
}

}  // namespace skrull
