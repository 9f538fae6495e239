#include "rising_rates.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace skrull {

std::vector<LogLogCurve::Point> rising_rates(std::vector<Timing> timings) {
  // From one point to the next the rate may grow by the power by which the work does, no faster.
  for (std::size_t i = timings.size() - 1; i > 0; --i) {
    Timing& timing = timings[i - 1];
    const Timing& next = timings[i];
    const double least_rate = next.flops / next.seconds * std::pow(timing.at / next.at, timing.growth);
    timing.seconds = std::min(timing.seconds, timing.flops / least_rate);
  }
  // Pool adjacent violators: neighbours whose rates fall share their geometric mean.
  struct Pool {
    double sum_of_logs = 0;
    std::size_t count = 0;
    double mean() const { return sum_of_logs / static_cast<double>(count); }
  };
  std::vector<Pool> pools;
  for (const Timing& timing : timings) {
    pools.push_back({std::log(timing.flops / timing.seconds), 1});
    while (pools.size() > 1 && pools.back().mean() < pools[pools.size() - 2].mean()) {
      const Pool last = pools.back();
      pools.pop_back();
      pools.back().sum_of_logs += last.sum_of_logs;
      pools.back().count += last.count;
    }
  }
  std::vector<LogLogCurve::Point> rates;
  for (const Pool& pool : pools) {
    for (std::size_t i = 0; i < pool.count; ++i) rates.push_back({timings[rates.size()].at, std::exp(pool.mean())});
  }
  return rates;
}

}  // namespace skrull
