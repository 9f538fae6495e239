#pragma once
// The memory of the stand-in's device: one range of addresses that nobody can read or write but while the device works,
// so that host code that touches it ends with a clear report. Memory starts as NaN and is NaN again when freed.

#include <cstddef>
#include <map>
#include <mutex>

namespace skrull::simt {

class DeviceMemory {
 public:
  /// Of the process; never destroyed.
  static DeviceMemory& instance();

  /// Aligned to 512 bytes; nullptr when there is not enough. The caller fills it with fill_with_nan(), on the device.
  void* allocate(std::size_t bytes);
  /// Must be called on the device.
  void release(void* memory);
  /// Must be called on the device.
  void fill_with_nan(void* memory);

  /// The `bytes` from `memory` on lie in one allocation.
  bool contains(const void* memory, std::size_t bytes);
  /// `memory` lies in the device's range.
  bool is_device(const void* memory) const;
  /// What other processes left.
  std::size_t capacity() const { return capacity_; }
  std::size_t used();
  std::size_t most_used();  ///< so far

  /// Whether the memory can be touched.
  void set_open(bool open);

 private:
  DeviceMemory();
  std::byte* take(std::size_t bytes);
  void give_back(std::byte* block, std::size_t bytes);

  struct Allocation {
    std::size_t bytes;        ///< asked for
    std::size_t block_bytes;  ///< with what lies behind
  };

  std::size_t capacity_;
  std::byte* begin_ = nullptr;
  std::mutex mutex_;
  std::map<std::byte*, Allocation> allocations_;
  std::map<std::byte*, std::size_t> free_;  ///< blocks by address, no two adjacent
  std::size_t used_ = 0;
  std::size_t most_used_ = 0;
  std::size_t highest_ = 0;  ///< so many bytes from the start were ever in use
  std::size_t open_bytes_ = 0;
};

}  // namespace skrull::simt
