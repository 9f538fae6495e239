#include "simt/stand_in/pinned_memory.h"

#include <cstdlib>
#include <cstring>

namespace skrull::simt {

PinnedRegistry& PinnedRegistry::instance() {
  static PinnedRegistry* const registry = new PinnedRegistry();
  return *registry;
}

void* PinnedRegistry::allocate(std::size_t bytes) {
  constexpr std::size_t alignment = 4096;
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes) != 0) return nullptr;
  std::memset(memory, 0xFF, bytes);
  const std::lock_guard lock(mutex_);
  allocations_[static_cast<const std::byte*>(memory)] = bytes;
  return memory;
}

bool PinnedRegistry::release(void* memory) {
  {
    const std::lock_guard lock(mutex_);
    if (allocations_.erase(static_cast<const std::byte*>(memory)) == 0) return false;
  }
  std::free(memory);
  return true;
}

bool PinnedRegistry::contains(const void* memory) {
  const std::lock_guard lock(mutex_);
  const auto* const address = static_cast<const std::byte*>(memory);
  auto found = allocations_.upper_bound(address);
  if (found == allocations_.begin()) return false;
  --found;
  return static_cast<std::size_t>(address - found->first) < found->second;
}

}  // namespace skrull::simt
