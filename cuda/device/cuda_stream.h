#pragma once
// Streams of a CUDA device behind the interface of skrull/device/stream.h.

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>

#include "device/cuda_events.h"
#include "device/cuda_progress.h"
#include "skrull/device/stream.h"

namespace skrull {

/// What the streams of a device share.
struct CudaStreamContext {
  std::shared_ptr<CudaEventPool> events;
  std::shared_ptr<CudaProgress> progress;
  std::shared_ptr<StreamClock> clock;  ///< the host's, by which the first moment of every stream is set
};
CudaStreamContext make_cuda_stream_context();

/// A stream of a CUDA device. One thread queues. Host tasks (enqueue()) run on the driver's thread, one at a time for
/// all streams of the process, and must not call CUDA; when one throws, every wait for any stream of the device
/// rethrows it.
class CudaStream : public Stream {
 public:
  /// `priority` as cudaStreamCreateWithPriority() takes it: lower numbers go first.
  CudaStream(int priority, CudaStreamContext context);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  cudaStream_t handle() const { return handle_; }

  Event record() override;
  Event record_time() override;
  void wait(const Event& event) override;
  void synchronize() override;
  void enqueue(std::function<void()> task) override;
  /// The host's clock, near which events of record_time() tell the time.
  StreamClock& clock() override { return *context_.clock; }

 private:
  std::shared_ptr<PooledCudaEvent> record_event(bool timed);

  CudaStreamContext context_;
  cudaStream_t handle_ = nullptr;
  std::shared_ptr<CudaMoment> moment_;  ///< the latest
  double moment_recorded_ = 0.0;        ///< on the host's clock
};

/// `stream`, which must be one of a CUDA device's.
CudaStream& as_cuda_stream(Stream& stream);
inline cudaStream_t cuda_stream(Stream& stream) {
  return as_cuda_stream(stream).handle();
}

}  // namespace skrull
