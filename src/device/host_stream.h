#pragma once
// The CPU's two streams.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "skrull/device/stream.h"
#include "stream_clock.h"

namespace skrull {

/// Work runs at once, in the caller; its errors are the caller's.
class InlineStream : public Stream {
 public:
  explicit InlineStream(std::unique_ptr<StreamClock> clock = make_steady_clock()) : clock_(std::move(clock)) {}

  Event record() override;
  void wait(const Event& event) override;
  void synchronize() override {}
  void enqueue(std::function<void()> task) override { task(); }
  StreamClock& clock() override { return *clock_; }

 private:
  std::unique_ptr<StreamClock> clock_;
};

/// A queue served in order by one thread, which is started by the first task and sleeps when there is nothing to do.
/// Any thread may call. When destroyed, waits for the running task and drops the others.
class QueueStream : public Stream {
 public:
  explicit QueueStream(std::unique_ptr<StreamClock> clock = make_steady_clock());
  ~QueueStream() override;
  QueueStream(const QueueStream&) = delete;
  QueueStream& operator=(const QueueStream&) = delete;

  Event record() override;
  void wait(const Event& event) override;
  void synchronize() override;
  void enqueue(std::function<void()> task) override;
  StreamClock& clock() override { return *clock_; }

 private:
  class Progress;
  class Marker;

  std::int64_t push(std::function<void()> task);

  std::shared_ptr<StreamClock> clock_;  ///< shared with tasks
  std::shared_ptr<Progress> progress_;  ///< shared with the events, which may outlive the stream
  std::thread thread_;
};

}  // namespace skrull
