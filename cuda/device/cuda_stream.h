#pragma once
// Streams and events of a CUDA device behind the interfaces of skrull/device/stream.h.

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>

#include "skrull/device/stream.h"

namespace skrull {

class CudaEventPool;
class CudaProgress;

/// A stream of a CUDA device. Host tasks run on the driver's thread and must not call CUDA. One thread queues.
class CudaStream : public Stream {
 public:
  /// `priority` as cudaStreamCreateWithPriority() takes it: lower numbers go first. Streams of one device share
  /// `events` and `progress`.
  CudaStream(int priority, std::shared_ptr<CudaEventPool> events, std::shared_ptr<CudaProgress> progress);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  cudaStream_t handle() const { return handle_; }

  Event record() override;
  Event record_time() override;
  void wait(const Event& event) override;
  void synchronize() override;
  void enqueue(std::function<void()> task) override;
  StreamClock& clock() override;

 private:
  cudaStream_t handle_ = nullptr;
  std::shared_ptr<CudaEventPool> events_;
  std::shared_ptr<CudaProgress> progress_;
};

/// The CUDA stream behind `stream`, which must be one of a CUDA device's.
cudaStream_t cuda_stream(Stream& stream);

}  // namespace skrull
