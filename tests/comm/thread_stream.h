#pragma once
// A small stream of its own thread, and an inline one: enough to drive a communicator without a device.

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "skrull/device/stream.h"

namespace skrull::test {

class ThreadStream final : public Stream {
 public:
  ThreadStream() : thread_([this] { serve(); }) {}
  ~ThreadStream() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  Event record() override {
    auto state = std::make_shared<Marker>();
    enqueue([state] { state->set({}); });
    const std::lock_guard lock(mutex_);
    if (error_) state->set(error_);
    return Event(state);
  }
  void wait(const Event& event) override {
    enqueue([event] { event.synchronize(); });
  }
  void synchronize() override { record().synchronize(); }
  void enqueue(std::function<void()> task) override {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_all();
  }

 private:
  class Marker final : public Event::State {
   public:
    bool reached() const override {
      const std::lock_guard lock(mutex_);
      return set_;
    }
    void synchronize() override {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return set_; });
      if (error_) std::rethrow_exception(error_);
    }
    void set(std::exception_ptr error) {
      const std::lock_guard lock(mutex_);
      if (!set_) error_ = std::move(error);
      set_ = true;
      changed_.notify_all();
    }

   private:
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    bool set_ = false;
    std::exception_ptr error_;
  };

  void serve() {
    while (true) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      run(task);
    }
  }
  void run(const std::function<void()>& task) {
    try {
      task();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;
};

class InlineStream final : public Stream {
 public:
  Event record() override { return {}; }
  void wait(const Event& event) override { event.synchronize(); }
  void synchronize() override {}
  void enqueue(std::function<void()> task) override { task(); }
};

}  // namespace skrull::test
