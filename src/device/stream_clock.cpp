#include "stream_clock.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>

namespace skrull {
namespace {

class SteadyClock final : public StreamClock {
 public:
  double seconds() override { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }
  void wait_until(double seconds) override {
    if (seconds <= this->seconds()) return;
    const std::chrono::duration<double> since_epoch(seconds);
    std::this_thread::sleep_until(Clock::time_point(std::chrono::duration_cast<Clock::duration>(since_epoch)));
  }

 private:
  using Clock = std::chrono::steady_clock;
};

class ProcessorClock final : public StreamClock {
 public:
  ProcessorClock() : waited_(-processor_seconds()) {}
  double seconds() override { return processor_seconds() + waited_; }
  void wait_until(double seconds) override { waited_ += std::max(0.0, seconds - this->seconds()); }

 private:
  static double processor_seconds() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }
  double waited_;
};

class StillClock final : public StreamClock {
 public:
  double seconds() override { return seconds_; }
  void wait_until(double seconds) override { seconds_ = std::max(seconds_, seconds); }

 private:
  double seconds_ = 0.0;
};

}  // namespace

std::unique_ptr<StreamClock> make_steady_clock() {
  return std::make_unique<SteadyClock>();
}

std::unique_ptr<StreamClock> make_processor_clock() {
  return std::make_unique<ProcessorClock>();
}

std::unique_ptr<StreamClock> make_still_clock() {
  return std::make_unique<StillClock>();
}

}  // namespace skrull
