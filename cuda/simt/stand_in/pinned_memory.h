#pragma once
// Pinned host memory of the stand-in: plain memory of which it is known that it is pinned.

#include <cstddef>
#include <map>
#include <mutex>

namespace skrull::simt {

class PinnedRegistry {
 public:
  static PinnedRegistry& instance();

  /// Starts as NaN; nullptr when there is none.
  void* allocate(std::size_t bytes);
  /// False when it is not such memory.
  bool release(void* memory);
  bool contains(const void* memory);

 private:
  std::mutex mutex_;
  std::map<const std::byte*, std::size_t> allocations_;
};

}  // namespace skrull::simt
