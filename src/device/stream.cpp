#include "skrull/device/stream.h"

#include <omp.h>

#include <limits>
#include <utility>

#include "host_stream.h"
#include "skrull/core/error.h"

namespace skrull {

/// What the stream, its thread and its events share. Tasks are numbered from 1 in the order of the queue.
class QueueStream::Progress {
 public:
  /// Returns true when this is the first task, which needs a thread.
  bool push(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    if (error_) return false;  // dropped: the stream has failed
    tasks_.push_back(std::move(task));
    ++queued_;
    changed_.notify_all();
    return !std::exchange(started_, true);
  }

  std::int64_t queued() const {
    const std::lock_guard lock(mutex_);
    return error_ ? std::numeric_limits<std::int64_t>::max() : queued_;
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

class QueueStream::TaskEvent : public Event::State {
 public:
  TaskEvent(std::shared_ptr<Progress> progress, std::int64_t task) : progress_(std::move(progress)), task_(task) {}
  bool reached() const override { return progress_->reached(task_); }
  void synchronize() override { progress_->wait_for(task_); }

 private:
  std::shared_ptr<Progress> progress_;
  std::int64_t task_;
};

QueueStream::QueueStream() : progress_(std::make_shared<Progress>()) {}

QueueStream::~QueueStream() {
  progress_->stop();
  if (thread_.joinable()) thread_.join();
}

Event QueueStream::record() {
  return Event(std::make_shared<TaskEvent>(progress_, progress_->queued()));
}

void QueueStream::wait(const Event& event) {
  enqueue([event] { event.synchronize(); });
}

void QueueStream::synchronize() {
  progress_->wait_for(progress_->queued());
}

void QueueStream::enqueue(std::function<void()> task) {
  if (progress_->push(std::move(task))) {
    thread_ = std::thread([progress = progress_] { progress->serve(); });
  }
}

}  // namespace skrull
