// Devices, streams and events.

#include "simt/stand_in/runtime.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>

#include "simt/simt.h"
#include "simt/stand_in/device_memory.h"
#include "simt/stand_in/machine.h"

struct CUevent_st {
  std::shared_ptr<skrull::simt::EventState> state;
};

namespace skrull::simt {
namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;
thread_local const void* asked_in_vain = nullptr;

constexpr int version = 13000;

cudaStream_t default_stream() {
  static const cudaStream_t stream = Executor::instance().create_stream();
  return stream;
}

cudaStream_t real_stream(cudaStream_t stream) {
  return stream != nullptr ? stream : default_stream();
}

bool is_device(int device) {
  return device >= 0 && device < machine().gpus;
}

/// `object`: the event or stream that is asked for.
cudaError_t ask_device(const void* object, const std::function<bool()>& done) {
  if (Executor::instance().is_this_thread()) return answer(cudaErrorNotPermitted);
  if (!Executor::instance().error().empty()) return answer(cudaErrorLaunchFailure);
  if (asked_in_vain == object) ++host_calls().waits;
  const bool ready = Executor::instance().ask(done);
  asked_in_vain = ready ? nullptr : object;
  return ready ? cudaSuccess : answer(cudaErrorNotReady);
}

std::function<bool()> reached(cudaEvent_t event) {
  return [record = event->state->latest] { return !record || record->reached; };
}

}  // namespace

HostCalls& host_calls() {
  static HostCalls calls;
  return calls;
}

cudaError_t answer(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t wait_on_device(const std::function<bool()>& done) {
  if (Executor::instance().is_this_thread()) return answer(cudaErrorNotPermitted);
  ++host_calls().waits;
  Executor::instance().wait_for(done);
  return answer(Executor::instance().error().empty() ? cudaSuccess : cudaErrorLaunchFailure);
}

cudaError_t queue_step(cudaStream_t stream, Step step) {
  Executor& executor = Executor::instance();
  if (executor.is_this_thread()) return answer(cudaErrorNotPermitted);
  if (!executor.error().empty()) return answer(cudaErrorLaunchFailure);
  asked_in_vain = nullptr;
  static std::atomic<std::int64_t> number{0};
  if (number++ == machine().broken_step) {
    step = whole_step([] { throw std::runtime_error("unspecified launch failure"); }, false);
  }
  return answer(executor.queue(real_stream(stream), std::move(step)) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

Step whole_step(std::function<void()> work, bool uses_device_memory) {
  return {[work = std::move(work)] {
            work();
            return true;
          },
          uses_device_memory};
}

}  // namespace skrull::simt

using namespace skrull::simt;

// ---- errors

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  return last_error;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorStubLibrary:
      return "cudaErrorStubLibrary";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorDevicesUnavailable:
      return "cudaErrorDevicesUnavailable";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorNotPermitted:
      return "cudaErrorNotPermitted";
    case cudaErrorNoKernelImageForDevice:
      return "cudaErrorNoKernelImageForDevice";
    case cudaErrorECCUncorrectable:
      return "cudaErrorECCUncorrectable";
    case cudaErrorSystemNotReady:
      return "cudaErrorSystemNotReady";
    case cudaErrorSystemDriverMismatch:
      return "cudaErrorSystemDriverMismatch";
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  if (error != cudaErrorLaunchFailure) return cudaGetErrorName(error);
  thread_local std::string text;
  text = Executor::instance().error();
  return text.c_str();
}

// ---- devices

cudaError_t cudaDriverGetVersion(int* result) {
  *result = machine().driver_version;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* result) {
  *result = version;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  if (machine().error != cudaSuccess) return answer(machine().error);
  *count = machine().gpus;
  return answer(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
  if (!is_device(device)) return answer(cudaErrorInvalidDevice);
  if (machine().busy) return answer(cudaErrorDevicesUnavailable);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!is_device(device)) return answer(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "%s", machine().gpu_name.c_str());
  properties->totalGlobalMem = machine().device_bytes;
  properties->sharedMemPerBlock = max_static_shared_bytes;
  properties->sharedMemPerBlockOptin = max_shared_bytes;
  properties->major = machine().capability / 10;
  properties->minor = machine().capability % 10;
  properties->multiProcessorCount = 4;
  properties->l2CacheSize = 1 << 20;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, device); error != cudaSuccess) return error;
  switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(properties.sharedMemPerBlock);
      return cudaSuccess;
    case cudaDevAttrClockRate:
      *value = 1'000'000;  // kHz
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      return cudaSuccess;
    case cudaDevAttrComputeMode:
      *value = machine().compute_mode;
      return cudaSuccess;
    case cudaDevAttrEccEnabled:
      *value = 1;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      return cudaSuccess;
  }
  return answer(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetPCIBusId(char* bus_id, int bytes, int device) {
  if (!is_device(device)) return answer(cudaErrorInvalidDevice);
  const int needed = std::snprintf(bus_id, static_cast<std::size_t>(bytes), "0000:%02x:00.0", device + 1);
  return answer(needed < bytes ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaDeviceCanAccessPeer(int* can_access, int device, int peer) {
  return cudaDeviceGetP2PAttribute(can_access, cudaDevP2PAttrAccessSupported, device, peer);
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int source, int target) {
  if (!is_device(source) || !is_device(target) || source == target) return answer(cudaErrorInvalidDevice);
  *value = attribute == cudaDevP2PAttrPerformanceRank ? 0 : static_cast<int>(machine().linked);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return wait_on_device(Executor::instance().all_done(nullptr));
}
cudaError_t cudaFuncSetAttribute(const void* /*kernel*/, cudaFuncAttribute /*attribute*/, int value) {
  const bool possible = value >= 0 && static_cast<std::size_t>(value) <= max_shared_bytes;
  return answer(possible ? cudaSuccess : cudaErrorInvalidValue);
}

// ---- streams

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned /*flags*/, int /*priority*/) {
  *stream = Executor::instance().create_stream();
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (stream == nullptr) return answer(cudaErrorInvalidResourceHandle);
  Executor::instance().destroy_stream(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return ask_device(real_stream(stream), Executor::instance().all_done(real_stream(stream)));
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return wait_on_device(Executor::instance().all_done(real_stream(stream)));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  if (event == nullptr) return answer(cudaErrorInvalidResourceHandle);
  // What is recorded later does not matter.
  return queue_step(stream, {[record = event->state->latest] { return !record || record->reached; }, false});
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return queue_step(stream, whole_step([function, data] { function(data); }, false));
}

// ---- events

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st{std::make_shared<EventState>((flags & cudaEventDisableTiming) == 0)};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (event == nullptr) return answer(cudaErrorInvalidResourceHandle);
  event->state->latest = std::make_shared<EventRecord>();
  const auto reach = [record = event->state->latest] {
    record->when = std::chrono::steady_clock::now();
    record->reached = true;
  };
  return queue_step(stream, whole_step(reach, false));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return ask_device(event, reached(event));
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return wait_on_device(reached(event));
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  for (const cudaEvent_t event : {start, end}) {
    if (!event->state->timed || !event->state->latest) return answer(cudaErrorInvalidResourceHandle);
    if (!event->state->reached()) return answer(cudaErrorNotReady);
  }
  const std::chrono::duration<float, std::milli> elapsed = end->state->latest->when - start->state->latest->when;
  *milliseconds = elapsed.count();
  return cudaSuccess;
}
