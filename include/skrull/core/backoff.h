#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

namespace skrull {

/// Waits without taking the core from the threads that compute on it: yields briefly, as long as things move, then
/// sleeps between looks. On a busy core a sleeper also gets its turn sooner than one that keeps yielding.
class Backoff {
 public:
  void reset() { idle_since_ = Clock::now(); }
  /// Since it was made or reset.
  double idle_seconds() const { return std::chrono::duration<double>(Clock::now() - idle_since_).count(); }
  void pause() const {
    if (Clock::now() - idle_since_ < std::chrono::microseconds(50)) {
      ::sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point idle_since_ = Clock::now();
};

}  // namespace skrull
