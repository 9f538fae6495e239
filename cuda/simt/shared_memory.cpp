#include "simt/shared_memory.h"

#include <spdlog/fmt/fmt.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "simt/block.h"

namespace skrull::simt {

// Freed memory of the heap belongs to whoever frees it, for the thread sanitizer; unmapped memory is forgotten.
PoisonedMemory::PoisonedMemory(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  if constexpr (thread_sanitizer) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  } else {
    constexpr std::size_t alignment = 256;
    if (posix_memalign(&data_, alignment, bytes) != 0) throw std::bad_alloc();
  }
  std::memset(data_, 0xFF, bytes);
}

PoisonedMemory::~PoisonedMemory() {
  if (bytes_ == 0) return;
  if constexpr (thread_sanitizer) {
    munmap(data_, bytes_);
  } else {
    std::free(data_);
  }
}

void SharedMemory::renew() {
  static_arrays_.clear();
  static_bytes_ = 0;
  dynamic_.reset();
  dynamic_ = std::make_unique<PoisonedMemory>(dynamic_bytes_);
}

void* SharedMemory::static_array(const void* site, std::size_t bytes) {
  for (const StaticArray& array : static_arrays_) {
    if (array.site == site) return array.memory->data();
  }
  static_bytes_ += bytes;
  if (static_bytes_ > max_static_shared_bytes) {
    fail(fmt::format("{} bytes of static shared arrays, at most {} are possible: use dynamic shared memory",
                     static_bytes_, max_static_shared_bytes));
  }
  if (static_bytes_ + dynamic_bytes_ > max_shared_bytes) {
    fail(fmt::format("{} bytes of static and {} of dynamic shared memory; a block has {} on every architecture",
                     static_bytes_, dynamic_bytes_, max_shared_bytes));
  }
  static_arrays_.push_back({site, std::make_unique<PoisonedMemory>(bytes)});
  return static_arrays_.back().memory->data();
}

}  // namespace skrull::simt
