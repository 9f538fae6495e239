#include "device/cuda_stream.h"

#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "device/cuda_check.h"
#include "skrull/core/error.h"

namespace skrull {
namespace {

/// A host task on its way through the stream.
struct HostTask {
  std::function<void()> work;
  std::shared_ptr<CudaProgress> progress;
};

void run_host_task(void* data) {
  const std::unique_ptr<HostTask> task(static_cast<HostTask*>(data));
  if (task->progress->failed()) return;
  try {
    task->work();
  } catch (...) {
    task->progress->fail(std::current_exception());
  }
}

}  // namespace

CudaStreamContext make_cuda_stream_context() {
  // The clock of a stream of the host, whose events and the device's can then be compared.
  return {std::make_shared<CudaEventPool>(), std::make_shared<CudaProgress>(),
          std::shared_ptr<StreamClock>(&caller_stream().clock(), [](StreamClock*) {})};
}

CudaStream::CudaStream(int priority, CudaStreamContext context) : context_(std::move(context)) {
  SKRULL_CUDA_CHECK(cudaStreamCreateWithPriority(&handle_, cudaStreamNonBlocking, priority));
  auto first = record_event(true);
  SKRULL_CUDA_CHECK(cudaEventSynchronize(first->handle()));
  moment_recorded_ = context_.clock->seconds();
  moment_ = std::make_shared<CudaMoment>(std::move(first), moment_recorded_);
}

CudaStream::~CudaStream() {
  static_cast<void>(cudaStreamDestroy(handle_));  // its work is still done
}

std::shared_ptr<PooledCudaEvent> CudaStream::record_event(bool timed) {
  auto event = std::make_shared<PooledCudaEvent>(context_.events, timed);
  SKRULL_CUDA_CHECK(cudaEventRecord(event->handle(), handle_));
  return event;
}

Event CudaStream::record() {
  return Event(std::make_shared<CudaEvent>(record_event(false), context_.progress, nullptr));
}

Event CudaStream::record_time() {
  constexpr double longest_distance = 8.0;
  if (const double now = context_.clock->seconds(); now - moment_recorded_ > longest_distance) {
    moment_ = std::make_shared<CudaMoment>(record_event(true), std::move(moment_));
    moment_recorded_ = now;
  }
  return Event(std::make_shared<CudaEvent>(record_event(true), context_.progress, moment_));
}

void CudaStream::wait(const Event& event) {
  if (!event.state()) return;
  if (const auto* on_device = dynamic_cast<const CudaEvent*>(event.state().get())) {
    SKRULL_CUDA_CHECK(cudaStreamWaitEvent(handle_, on_device->handle(), 0));
  } else if (event.reached()) {
    event.synchronize();  // rethrows the error of its stream
  } else {
    enqueue([event] { event.synchronize(); });
  }
}

void CudaStream::synchronize() {
  context_.progress->wait([this] { return cudaStreamQuery(handle_); }, "waiting for a stream");
}

void CudaStream::enqueue(std::function<void()> task) {
  if (context_.progress->failed()) return;
  auto queued = std::make_unique<HostTask>(HostTask{std::move(task), context_.progress});
  SKRULL_CUDA_CHECK(cudaLaunchHostFunc(handle_, run_host_task, queued.get()));
  static_cast<void>(queued.release());  // run_host_task() takes it over
}

CudaStream& as_cuda_stream(Stream& stream) {
  auto* on_device = dynamic_cast<CudaStream*>(&stream);
  require(on_device != nullptr, "work for a CUDA device was given a stream of another device");
  return *on_device;
}

}  // namespace skrull
