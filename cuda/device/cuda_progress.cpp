#include "device/cuda_progress.h"

#include <algorithm>
#include <utility>

#include "device/cuda_check.h"
#include "skrull/core/backoff.h"

namespace skrull {

CudaProgress::CudaProgress() {
  SKRULL_CUDA_CHECK(cudaGetDevice(&gpu_));
}

void CudaProgress::fail(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  failed_ = true;
}

void CudaProgress::rethrow() const {
  if (!failed_) return;
  const std::lock_guard lock(mutex_);
  std::rethrow_exception(error_);
}

void CudaProgress::wait(const std::function<cudaError_t()>& query, const char* what) {
  constexpr double seconds_between_looks = 0.1;
  const bool is_owner = std::this_thread::get_id() == owner_;
  if (!is_owner) SKRULL_CUDA_CHECK(cudaSetDevice(gpu_));  // or CUDA would set up the first GPU for this thread
  Backoff backoff;
  double next_look = seconds_between_looks;
  while (!is_done(query(), what)) {
    rethrow();
    backoff.pause();
    if (!is_owner || backoff.idle_seconds() < next_look) continue;
    for (CudaWatcher* watcher : watchers_) watcher->look();
    next_look = backoff.idle_seconds() + seconds_between_looks;
  }
  rethrow();
}

void CudaProgress::remove(CudaWatcher& watcher) {
  watchers_.erase(std::remove(watchers_.begin(), watchers_.end(), &watcher), watchers_.end());
}

bool is_done(cudaError_t code, const char* what) {
  if (code == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());  // or the next launch is blamed for it
    return false;
  }
  check_cuda(code, what, __FILE__, __LINE__);
  return true;
}

}  // namespace skrull
