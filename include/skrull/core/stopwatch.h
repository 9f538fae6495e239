#pragma once
// Elapsed time of a steady clock.

#include <chrono>

namespace skrull {

/// Runs from its construction on.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace skrull
