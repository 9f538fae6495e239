#include "device/pinned_memory.h"

#include <cuda_runtime_api.h>

#include <new>
#include <utility>

namespace skrull {
namespace {

constexpr std::align_val_t page{4096};

}  // namespace

PinnedMemory::PinnedMemory(std::int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  pinned_ = cudaMallocHost(&memory, static_cast<std::size_t>(bytes)) == cudaSuccess;
  if (!pinned_) {
    static_cast<void>(cudaGetLastError());
    memory = ::operator new(static_cast<std::size_t>(bytes), page);
  }
  data_ = static_cast<char*>(memory);
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      pinned_(std::exchange(other.pinned_, false)) {}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(pinned_, other.pinned_);
  return *this;
}

void PinnedMemory::free() noexcept {
  if (data_ == nullptr) return;
  if (pinned_) {
    static_cast<void>(cudaFreeHost(data_));
  } else {
    ::operator delete(data_, page);
  }
}

}  // namespace skrull
