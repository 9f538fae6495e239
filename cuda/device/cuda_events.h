#pragma once
// Events of CUDA streams: pooled, because steps make thousands; those that tell the time apart from those that don't.

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <vector>

#include "device/cuda_progress.h"
#include "skrull/device/stream.h"

namespace skrull {

/// CUDA's events, reused. Any thread may give back; one thread takes.
class CudaEventPool {
 public:
  CudaEventPool() = default;
  ~CudaEventPool();
  CudaEventPool(const CudaEventPool&) = delete;
  CudaEventPool& operator=(const CudaEventPool&) = delete;

  cudaEvent_t take(bool timed);
  void give_back(cudaEvent_t event, bool timed) noexcept;

 private:
  std::vector<cudaEvent_t>& idle(bool timed) { return timed ? timed_ : untimed_; }

  std::mutex mutex_;
  std::vector<cudaEvent_t> timed_;
  std::vector<cudaEvent_t> untimed_;
};

/// One event of the pool, given back at the end.
class PooledCudaEvent {
 public:
  PooledCudaEvent(std::shared_ptr<CudaEventPool> pool, bool timed);
  ~PooledCudaEvent() { pool_->give_back(handle_, timed_); }
  PooledCudaEvent(const PooledCudaEvent&) = delete;
  PooledCudaEvent& operator=(const PooledCudaEvent&) = delete;

  cudaEvent_t handle() const { return handle_; }
  bool timed() const { return timed_; }

 private:
  std::shared_ptr<CudaEventPool> pool_;
  bool timed_;
  cudaEvent_t handle_;
};

/// A moment on a stream from which later ones are told: CUDA tells the time between two events as an fp32 number of
/// milliseconds, which is exact to a microsecond for some seconds only. So moments form a chain.
class CudaMoment {
 public:
  /// The first one, which was reached when the host's clock stood at `seconds`.
  CudaMoment(std::shared_ptr<PooledCudaEvent> event, double seconds) : event_(std::move(event)), seconds_(seconds) {}
  /// Some seconds behind `previous`, on the same stream.
  CudaMoment(std::shared_ptr<PooledCudaEvent> event, std::shared_ptr<CudaMoment> previous)
      : event_(std::move(event)), previous_(std::move(previous)) {}

  /// When `later` was reached, which lies behind this one and was reached.
  double seconds_of(cudaEvent_t later);

 private:
  void resolve();

  std::shared_ptr<PooledCudaEvent> event_;
  std::shared_ptr<CudaMoment> previous_;  ///< until seconds_ is known
  double seconds_ = 0.0;
};

class CudaEvent final : public Event::State {
 public:
  /// `event` was recorded. `moment`: to tell its time by, of a timed one.
  CudaEvent(std::shared_ptr<PooledCudaEvent> event, std::shared_ptr<CudaProgress> progress,
            std::shared_ptr<CudaMoment> moment)
      : event_(std::move(event)), progress_(std::move(progress)), moment_(std::move(moment)) {}

  cudaEvent_t handle() const { return event_->handle(); }

  bool reached() const override;
  void synchronize() override;
  /// 0 of an event that doesn't tell the time.
  double seconds() const override { return moment_ ? moment_->seconds_of(handle()) : 0.0; }

 private:
  std::shared_ptr<PooledCudaEvent> event_;
  std::shared_ptr<CudaProgress> progress_;
  std::shared_ptr<CudaMoment> moment_;
};

}  // namespace skrull
