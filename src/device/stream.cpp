#include "skrull/device/stream.h"

#include <omp.h>

#include <limits>
#include <utility>

#include "host_stream.h"
#include "skrull/core/error.h"

namespace skrull {

namespace {

class PastEvent final : public Event::State {
 public:
  explicit PastEvent(double seconds) : seconds_(seconds) {}
  bool reached() const override { return true; }
  void synchronize() override {}
  double seconds() const override { return seconds_; }

 private:
  double seconds_;
};

}  // namespace

Event InlineStream::record() {
  return Event(std::make_shared<PastEvent>(clock_->seconds()));
}

void InlineStream::wait(const Event& event) {
  event.synchronize();
  clock_->wait_until(event.seconds());
}

Stream& caller_stream() {
  static InlineStream stream;
  return stream;
}

std::unique_ptr<Stream> make_host_queue() {
  return std::make_unique<QueueStream>();
}

/// What the stream, its thread and its events share. Tasks are numbered from 1 in the order of the queue.
class QueueStream::Progress {
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

 public:
  struct Pushed {
    std::int64_t task = never;  ///< its number
    bool is_first = false;      ///< and needs a thread
  };
  Pushed push(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    if (error_) return {};  // dropped: the stream has failed
    tasks_.push_back(std::move(task));
    changed_.notify_all();
    return {++queued_, !std::exchange(started_, true)};
  }
  bool started() const {
    const std::lock_guard lock(mutex_);
    return started_;
  }

  /// Of the last task.
  std::int64_t queued() const {
    const std::lock_guard lock(mutex_);
    return error_ ? never : queued_;
  }

  bool reached(std::int64_t task) const {
    const std::lock_guard lock(mutex_);
    return settled(task);
  }

  void wait_for(std::int64_t task) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return settled(task); });
    if (done_ < task) std::rethrow_exception(error_);
  }

  /// The thread's life: runs tasks until stop().
  void serve() {
    omp_set_num_threads(1);  // operations on this stream must not compete with the compute threads
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
      if (stopping_) return;
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      std::exception_ptr error;
      try {
        task();
      } catch (...) {
        error = std::current_exception();
      }
      task = nullptr;  // what the task holds is freed before anybody hears that it is done
      lock.lock();
      if (error) {
        fail(error);
      } else {
        ++done_;
      }
      changed_.notify_all();
    }
  }

  void stop() {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (!tasks_.empty()) fail(std::make_exception_ptr(RunFailure("the stream was closed before its work was done")));
    changed_.notify_all();
  }

 private:
  bool settled(std::int64_t task) const { return done_ >= task || error_ != nullptr; }

  void fail(std::exception_ptr error) {
    if (!error_) error_ = std::move(error);
    tasks_.clear();
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::exception_ptr error_;  ///< of task done_ + 1; nothing runs after it
  std::int64_t queued_ = 0;
  std::int64_t done_ = 0;
  bool started_ = false;
  bool stopping_ = false;
};

/// A task that notes the time.
class QueueStream::Marker : public Event::State {
 public:
  explicit Marker(std::shared_ptr<Progress> progress) : progress_(std::move(progress)) {}
  void pass(StreamClock& clock) { seconds_ = clock.seconds(); }
  void set_task(std::int64_t task) { task_ = task; }

  bool reached() const override { return progress_->reached(task_); }
  void synchronize() override { progress_->wait_for(task_); }
  double seconds() const override { return seconds_; }

 private:
  std::shared_ptr<Progress> progress_;
  std::int64_t task_ = 0;
  double seconds_ = 0.0;
};

QueueStream::QueueStream(std::unique_ptr<StreamClock> clock)
    : clock_(std::move(clock)), progress_(std::make_shared<Progress>()) {}

QueueStream::~QueueStream() {
  progress_->stop();
  if (thread_.joinable()) thread_.join();
}

Event QueueStream::record() {
  if (!progress_->started()) return Event(std::make_shared<PastEvent>(clock_->seconds()));  // nothing was queued yet
  auto marker = std::make_shared<Marker>(progress_);
  marker->set_task(push([marker, clock = clock_] { marker->pass(*clock); }));
  return Event(std::move(marker));
}

void QueueStream::wait(const Event& event) {
  enqueue([event, clock = clock_] {
    event.synchronize();
    clock->wait_until(event.seconds());
  });
}

void QueueStream::synchronize() {
  progress_->wait_for(progress_->queued());
}

void QueueStream::enqueue(std::function<void()> task) {
  push(std::move(task));
}

std::int64_t QueueStream::push(std::function<void()> task) {
  const Progress::Pushed pushed = progress_->push(std::move(task));
  if (pushed.is_first) thread_ = std::thread([progress = progress_] { progress->serve(); });
  return pushed.task;
}

}  // namespace skrull
