#pragma once
// What the streams of one CUDA device have in common: errors of host tasks, and how the host waits for them.

#include <cuda_runtime_api.h>

#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace skrull {

/// Looks after work that may never end, while the host waits for it.
class CudaWatcher {
 public:
  virtual ~CudaWatcher() = default;
  /// Called several times a second by the thread that waits. Throws what is wrong.
  virtual void look() = 0;
};

class CudaProgress {
 public:
  /// The calling thread is the one that queues work on the device: its waits look after it.
  CudaProgress();

  /// A host task threw: every wait for any of the device's streams rethrows it, and later tasks are dropped. Any
  /// thread.
  void fail(std::exception_ptr error);
  bool failed() const { return failed_; }
  void rethrow() const;

  /// Waits until `query` (cudaEventQuery(), cudaStreamQuery()) says cudaSuccess. Throws on its errors, rethrows those
  /// of tasks and of watchers. Any thread; only the owner's waits ask the watchers.
  void wait(const std::function<cudaError_t()>& query, const char* what);

  /// A watcher must be removed before it goes. Of the owner's thread.
  void add(CudaWatcher& watcher) { watchers_.push_back(&watcher); }
  void remove(CudaWatcher& watcher);

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
  std::thread::id owner_ = std::this_thread::get_id();
  int gpu_ = 0;
  std::vector<CudaWatcher*> watchers_;
};

/// True when `code` is cudaSuccess, false when it is cudaErrorNotReady; throws RunFailure otherwise.
bool is_done(cudaError_t code, const char* what);

}  // namespace skrull
