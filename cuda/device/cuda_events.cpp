#include "device/cuda_events.h"

#include <utility>

#include "device/cuda_check.h"

namespace skrull {

CudaEventPool::~CudaEventPool() {
  for (const bool timed : {false, true}) {
    for (const cudaEvent_t event : idle(timed)) static_cast<void>(cudaEventDestroy(event));
  }
}

cudaEvent_t CudaEventPool::take(bool timed) {
  {
    const std::lock_guard lock(mutex_);
    std::vector<cudaEvent_t>& events = idle(timed);
    if (!events.empty()) {
      const cudaEvent_t event = events.back();
      events.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  SKRULL_CUDA_CHECK(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming));
  return event;
}

// May run on the driver's thread, where CUDA must not be called.
void CudaEventPool::give_back(cudaEvent_t event, bool timed) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    idle(timed).push_back(event);
  } catch (...) {  // no memory for the list: the event is lost
  }
}

PooledCudaEvent::PooledCudaEvent(std::shared_ptr<CudaEventPool> pool, bool timed)
    : pool_(std::move(pool)), timed_(timed), handle_(pool_->take(timed)) {}

double CudaMoment::seconds_of(cudaEvent_t later) {
  resolve();
  float milliseconds = 0.0F;
  SKRULL_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, event_->handle(), later));
  return seconds_ + 1e-3 * static_cast<double>(milliseconds);
}

// From the front of the chain: one that nobody asked for hours is long.
void CudaMoment::resolve() {
  std::vector<CudaMoment*> open;
  for (CudaMoment* moment = this; moment->previous_; moment = moment->previous_.get()) open.push_back(moment);
  while (!open.empty()) {
    CudaMoment& first = *open.back();
    open.pop_back();
    float milliseconds = 0.0F;
    SKRULL_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, first.previous_->event_->handle(), first.event_->handle()));
    first.seconds_ = first.previous_->seconds_ + 1e-3 * static_cast<double>(milliseconds);
    first.previous_.reset();
  }
}

bool CudaEvent::reached() const {
  return is_done(cudaEventQuery(handle()), "cudaEventQuery");
}

void CudaEvent::synchronize() {
  progress_->wait([this] { return cudaEventQuery(handle()); }, "waiting for an event");
}

}  // namespace skrull
