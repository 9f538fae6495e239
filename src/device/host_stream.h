#pragma once
// The CPU's two streams.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "skrull/device/stream.h"

namespace skrull {

/// Work runs at once, in the caller; its errors are the caller's.
class InlineStream : public Stream {
 public:
  Event record() override { return {}; }
  void wait(const Event& event) override { event.synchronize(); }
  void synchronize() override {}
  void enqueue(std::function<void()> task) override { task(); }
};

/// A queue served in order by one thread, which is started by the first task and sleeps when there is nothing to do.
/// Any thread may call. When destroyed, waits for the running task and drops the others.
class QueueStream : public Stream {
 public:
  QueueStream();
  ~QueueStream() override;
  QueueStream(const QueueStream&) = delete;
  QueueStream& operator=(const QueueStream&) = delete;

  Event record() override;
  void wait(const Event& event) override;
  void synchronize() override;
  void enqueue(std::function<void()> task) override;

 private:
  class Progress;
  class TaskEvent;

  std::shared_ptr<Progress> progress_;  ///< shared with the events, which may outlive the stream
  std::thread thread_;
};

}  // namespace skrull
