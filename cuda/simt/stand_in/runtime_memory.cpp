// Memory, and copies between its kinds.

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "simt/stand_in/device_memory.h"
#include "simt/stand_in/machine.h"
#include "simt/stand_in/pinned_memory.h"
#include "simt/stand_in/runtime.h"

namespace skrull::simt {
namespace {

/// A block of rows, equally far apart.
struct Rows {
  std::byte* data;
  std::size_t pitch;
};

void copy_rows(const Rows& target, const Rows& source, std::size_t width, std::size_t height) {
  for (std::size_t row = 0; row < height; ++row) {
    std::memcpy(target.data + row * target.pitch, source.data + row * source.pitch, width);
  }
}

enum class Place { device, pinned, pageable };

/// Device memory must hold all of the rows.
bool find_place(const Rows& rows, std::size_t width, std::size_t height, Place& place) {
  DeviceMemory& memory = DeviceMemory::instance();
  if (!memory.is_device(rows.data)) {
    place = PinnedRegistry::instance().contains(rows.data) ? Place::pinned : Place::pageable;
    return true;
  }
  place = Place::device;
  return memory.contains(rows.data, (height - 1) * rows.pitch + width);
}

bool kind_fits(cudaMemcpyKind kind, Place target, Place source) {
  const bool to_device = target == Place::device;
  const bool from_device = source == Place::device;
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
      return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
      return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
      return to_device && from_device;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

/// Pinned memory is read and written when the stream comes to it. Of pageable memory the source is read during the
/// call, and the call waits until the target is written.
cudaError_t copy(const Rows& target, const Rows& source, std::size_t width, std::size_t height, cudaMemcpyKind kind,
                 cudaStream_t stream) {
  if (width == 0 || height == 0) return cudaSuccess;
  Place target_place{};
  Place source_place{};
  if (target.pitch < width || source.pitch < width || !find_place(target, width, height, target_place) ||
      !find_place(source, width, height, source_place) || !kind_fits(kind, target_place, source_place)) {
    return answer(cudaErrorInvalidValue);
  }
  Rows from = source;
  std::shared_ptr<std::vector<std::byte>> staged;
  if (source_place == Place::pageable) {
    staged = std::make_shared<std::vector<std::byte>>(width * height);
    from = {staged->data(), width};
    copy_rows(from, source, width, height);
  }
  const cudaError_t error =
      queue_step(stream, whole_step([target, from, width, height, staged] { copy_rows(target, from, width, height); }));
  if (error != cudaSuccess || target_place != Place::pageable) return error;
  return cudaStreamSynchronize(stream);
}

Rows rows_of(const void* data, std::size_t pitch) {
  return {static_cast<std::byte*>(const_cast<void*>(data)), pitch};
}

}  // namespace
}  // namespace skrull::simt

using namespace skrull::simt;

// ---- allocation

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = machine().device_bytes;
  *free = DeviceMemory::instance().capacity() - DeviceMemory::instance().used();
  return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int /*device*/) {
  *pool = nullptr;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t /*pool*/, cudaMemPoolAttr /*attribute*/, void* /*value*/) {
  return cudaSuccess;
}
/// The pool keeps nothing back.
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t /*pool*/, cudaMemPoolAttr attribute, void* value) {
  DeviceMemory& memory = DeviceMemory::instance();
  *static_cast<std::uint64_t*>(value) =
      attribute == cudaMemPoolAttrReservedMemHigh ? memory.most_used() : memory.used();
  return cudaSuccess;
}

cudaError_t cudaMallocFromPoolAsync(void** memory, std::size_t bytes, cudaMemPool_t /*pool*/, cudaStream_t stream) {
  ++host_calls().allocations;
  void* const allocated = DeviceMemory::instance().allocate(bytes);
  if (allocated == nullptr) return answer(cudaErrorMemoryAllocation);
  *memory = allocated;
  return queue_step(stream, whole_step([allocated] { DeviceMemory::instance().fill_with_nan(allocated); }));
}
cudaError_t cudaMallocAsync(void** memory, std::size_t bytes, cudaStream_t stream) {
  return cudaMallocFromPoolAsync(memory, bytes, nullptr, stream);
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  if (memory == nullptr) return cudaSuccess;
  ++host_calls().allocations;
  if (!DeviceMemory::instance().contains(memory, 0)) return answer(cudaErrorInvalidValue);
  return queue_step(stream, whole_step([memory] { DeviceMemory::instance().release(memory); }));
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  const cudaError_t error = cudaMallocAsync(memory, bytes, nullptr);
  return error != cudaSuccess ? error : cudaStreamSynchronize(nullptr);
}
cudaError_t cudaFree(void* memory) {
  if (const cudaError_t error = cudaDeviceSynchronize(); error != cudaSuccess) return error;
  const cudaError_t error = cudaFreeAsync(memory, nullptr);
  return error != cudaSuccess ? error : cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  ++host_calls().allocations;
  *memory = PinnedRegistry::instance().allocate(bytes);
  return answer(*memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned /*flags*/) {
  return cudaMallocHost(memory, bytes);
}
/// As CUDA's, waits for the device: work may still use the memory.
cudaError_t cudaFreeHost(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  ++host_calls().allocations;
  const cudaError_t error = cudaDeviceSynchronize();
  if (!PinnedRegistry::instance().release(memory)) return answer(cudaErrorInvalidValue);
  return error;
}

// ---- copies

cudaError_t cudaMemsetAsync(void* target, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (!DeviceMemory::instance().contains(target, bytes)) return answer(cudaErrorInvalidValue);
  return queue_step(stream, whole_step([=] { std::memset(target, value, bytes); }));
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return copy(rows_of(target, bytes), rows_of(source, bytes), bytes, 1, kind, stream);
}
cudaError_t cudaMemcpy2DAsync(void* target, std::size_t target_pitch, const void* source, std::size_t source_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy(rows_of(target, target_pitch), rows_of(source, source_pitch), width, height, kind, stream);
}
cudaError_t cudaMemcpy(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t error = cudaMemcpyAsync(target, source, bytes, kind, nullptr);
  return error != cudaSuccess ? error : cudaStreamSynchronize(nullptr);
}
