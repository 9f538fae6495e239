#pragma once
// Rates of work from measured times, as the cost model interpolates them.

#include <vector>

#include "skrull/schedule/hardware_profile.h"

namespace skrull {

/// Work of `flops` that took `seconds`, at `at` tokens.
struct Timing {
  double at = 0;
  double flops = 0;
  /// By which power of the tokens the work grows there at least: d log flops / d log tokens. It does not fall with more
  /// tokens.
  double growth = 1;
  double seconds = 0;
};

/// FLOP/s over tokens: more tokens never take less time, also between the points, where the logarithm of the rate is
/// interpolated over that of the tokens; and the rate never falls. What noise or caches make of it otherwise is evened
/// out. `timings`, at least one, rise in tokens and FLOPs; a point for each.
std::vector<LogLogCurve::Point> rising_rates(std::vector<Timing> timings);

}  // namespace skrull
